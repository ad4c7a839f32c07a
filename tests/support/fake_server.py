"""A server of toy engines, as an ASGI application, and a thread that serves it on loopback.

It speaks as llama.cpp, as vLLM (completions with ids) and as chat servers do.
"""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from support.toy_engines import Chain, Pair, plain
from support.until import until

#: A server ends after so many requests: no test of ours asks for more.
MOST_REQUESTS = 200_000


@dataclass
class FakeServer:
    """One engine behind HTTP.

    apis: those that it has. faults: "no logprobs", "needs a key", "swapped ids" (the law is told of
    other tokens than were drawn), "no ids", "hangs", "busy" (every third request is refused once),
    "cuts" (every third text ends half-way, once), "always cuts".
    """

    engine: object = plain
    pair: Pair = field(default_factory=Pair)
    apis: tuple[str, ...] = ("llamacpp", "completions", "chat")
    faults: tuple[str, ...] = ()
    seed: int | None = None
    noise: float = 0.0
    counts: bool = True
    greedy: bool = False

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.lock = threading.Lock()
        self.requests = self.drafted = self.accepted = self.steps = 0
        self.refused = set()

    def text(self, state, count):
        """Tokens and states after one, the first of them never drafted."""
        state %= self.pair.size
        with self.lock:
            if self.greedy:
                tokens = []
                for _ in range(count):
                    state = int(self.pair.p[state].argmax())
                    tokens.append(state)
                return tokens, 0, 0
            tokens, drafted, accepted = [self.pair.of_target(state, self.rng)], 0, 0
            while len(tokens) < count:
                engine, room = self.engine, count - len(tokens) - 1
                if isinstance(engine, Chain):  # no more drafts than there is room for
                    engine = replace(engine, depth=min(engine.depth, room)) if room else plain
                step, drafts, hits = engine(self.pair, tokens[-1], self.rng)
                tokens += step
                drafted, accepted = drafted + drafts, accepted + hits
                self.steps += 1
            self.drafted += drafted
            self.accepted += accepted
        return tokens[:count], drafted, accepted

    def law(self, state):
        p = self.pair.p[state % self.pair.size]
        if self.noise:
            with self.lock:
                p = p * np.exp(self.noise * self.rng.normal(size=p.size))
        if "swapped ids" in self.faults:
            p = np.roll(p, 1)
        return p / p.sum()

    def spoils(self, body):
        """Whether this is a third request, and none of its kind was spoilt: a second try works."""
        kind = json.dumps(body, sort_keys=True)
        if self.requests % 3 or kind in self.refused:
            return False
        self.refused.add(kind)
        return True

    # --- APIs

    def answer(self, method, path, body, headers):
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            return 503, {"error": "enough"}
        if "hangs" in self.faults:
            time.sleep(3.0)
        if "needs a key" in self.faults and headers.get("authorization") != "Bearer secret":
            return 401, {"error": "no key"}
        if "busy" in self.faults and self.spoils(body):
            return 503, {"error": "busy"}
        if path == "/props" and "llamacpp" in self.apis:
            return 200, {"default_generation_settings": {}, "total_slots": 4}
        if path == "/tokenize" and {"llamacpp", "completions"} & {*self.apis}:
            text = body.get("content") or body.get("prompt")
            return 200, {"tokens": [ord(letter) % self.pair.size for letter in text[-4:]]}
        if path == "/v1/models" and {"completions", "chat"} & {*self.apis}:
            return 200, {"data": [{"id": "toy"}]}
        if path == "/metrics" and "completions" in self.apis and self.counts:
            return 200, self.metrics()
        calls = {
            "/completion": ("llamacpp", self.llamacpp),
            "/v1/completions": ("completions", self.completions),
            "/v1/chat/completions": ("chat", self.chat),
        }
        if path in calls and calls[path][0] in self.apis:
            status, told = calls[path][1](body)
            cuts = "cuts" in self.faults and self.spoils(body)
            if cuts or "always cuts" in self.faults:
                told = json.dumps(told)
                told = told[: len(told) // 2]
            return status, told
        return 404, {"error": "not found"}

    def metrics(self):
        names = {
            "drafts": self.steps,
            "draft_tokens": self.drafted,
            "accepted_tokens": self.accepted,
        }
        lines = [f'vllm:spec_decode_num_{n}_total{{engine="0"}} {v}.0' for n, v in names.items()]
        share = self.accepted // 2
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{n}"}} {v}.0'
            for n, v in enumerate((self.accepted - share, share))
        ]
        return "\n".join(lines) + "\n"

    def llamacpp(self, body):
        prompt, count = body["prompt"], body["n_predict"]
        tokens, drafted, accepted = self.text(prompt[-1], count)
        answer = {"tokens": tokens, "timings": {"draft_n": drafted, "draft_n_accepted": accepted}}
        if body.get("n_probs") and "no logprobs" not in self.faults:
            p = self.law(prompt[-1])
            order = np.argsort(-p)
            if body.get("post_sampling_probs"):
                told = {"top_probs": [{"id": int(i), "prob": float(p[i])} for i in order]}
            else:
                told = {
                    "top_logprobs": [
                        {"id": int(i), "logprob": math.log(p[i])} for i in order if p[i] > 0
                    ][: body["n_probs"]]
                }
            answer["completion_probabilities"] = [{"id": tokens[0], **told}]
        return 200, answer

    def rows(self, prompt, tokens, top, name):
        """Of each token its own logarithm, and those of the likeliest, its own among them."""
        for before, token in zip((prompt[-1], *tokens[:-1]), tokens, strict=True):
            p = self.law(before)
            listed = [int(i) for i in np.argsort(-p)[:top] if p[i] > 0]
            listed += [token] * (token not in listed)
            logs = {i: math.log(p[i]) if p[i] > 0 else -9999.0 for i in listed}
            yield name(token), logs[token], {name(i): x for i, x in logs.items()}

    def completions(self, body):
        prompt, count = body["prompt"], body["max_tokens"]
        if isinstance(prompt, str):
            prompt = [ord(letter) for letter in prompt[-4:]]
        top = body.get("logprobs")
        if top is not None and "no logprobs" in self.faults:
            return 400, {"error": "logprobs are not allowed here"}
        tokens, _, _ = self.text(prompt[-1], count)
        choice = {"text": "", "token_ids": tokens}
        if top is not None:
            mark = "w" if "no ids" in self.faults else "token_id:"
            rows = list(self.rows(prompt, tokens, top, (mark + "{}").format))
            names = ("tokens", "token_logprobs", "top_logprobs")
            columns = map(list, zip(*rows, strict=True))
            choice["logprobs"] = dict(zip(names, columns, strict=True))
        if body.get("prompt_logprobs"):
            rows = list(self.rows(prompt, prompt[1:], body["prompt_logprobs"], str))
            listed = [{i: {"logprob": x} for i, x in row.items()} for _, _, row in rows]
            choice["prompt_logprobs"] = [None, *listed]
        return 200, {"choices": [choice]}

    def chat(self, body):
        if "ignore_eos" in body:
            return 400, {"error": "unknown field ignore_eos"}
        prompt = [ord(letter) for letter in body["messages"][-1]["content"][-4:]]
        tokens, _, _ = self.text(prompt[-1], body["max_tokens"])
        choice = {"message": {"content": ""}}
        if body.get("logprobs"):
            if "no logprobs" in self.faults:
                return 400, {"error": "logprobs are not allowed here"}
            choice["logprobs"] = {
                "content": [
                    {
                        "token": name,
                        "logprob": own,
                        "bytes": list(name.encode()),
                        "id": 0,
                        "top_logprobs": [
                            {"token": i, "logprob": x, "bytes": list(i.encode())}
                            for i, x in list(row.items())[: body["top_logprobs"]]
                        ],
                    }
                    for name, own, row in self.rows(
                        prompt, tokens, body["top_logprobs"], "w{}".format
                    )
                ]
            }
        return 200, {"choices": [choice]}

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        parts = []
        while True:
            message = await receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                break
        body = json.loads(b"".join(parts) or b"{}")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        status, told = self.answer(scope["method"], scope["path"], body, headers)
        is_text = isinstance(told, str)
        data = told.encode() if is_text else json.dumps(told).encode()
        kind = b"text/plain" if is_text else b"application/json"
        start = {"type": "http.response.start", "status": status}
        await send({**start, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": data})


@contextmanager
def served(*servers):
    """The addresses of some servers, each in a thread of its own."""
    import uvicorn

    running, urls = [], []
    for application in servers:
        listening = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio sends late
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(application, log_level="error", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        running.append((server, thread, listening))
        urls.append(f"http://127.0.0.1:{listening.getsockname()[1]}")
    until(lambda: all(server.started for server, _, _ in running))
    try:
        yield urls
    finally:
        for server, _, _ in running:
            server.should_exit = True
        for _, thread, listening in running:
            thread.join(10.0)
            listening.close()
