"""Runs of chains of drafts, and logs of them in the formats of engines, line for line as theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Run:
    """Accepted drafts of every step, by request."""

    depth: int
    requests: tuple[np.ndarray, ...]

    @property
    def steps(self) -> int:
        return sum(map(len, self.requests))

    @property
    def accepted(self) -> int:
        return int(sum(map(np.sum, self.requests)))

    @property
    def by_position(self) -> list[int]:
        every = np.concatenate(self.requests)
        return [int((every > place).sum()) for place in range(self.depth)]


def a_run(requests: int = 24, k: int = 3, seed: int = 0, alpha: float = 0.7) -> Run:
    """Requests of 5 to 40 steps, each with a rate of its own near alpha."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(requests):
        rate = rng.beta(20 * alpha, 20 * (1 - alpha))
        hits = rng.random((rng.integers(5, 41), k)) < rate
        found.append(np.cumprod(hits, axis=1).sum(axis=1))
    return Run(k, tuple(found))


def _histogram(steps: np.ndarray, k: int) -> list[int]:
    return np.bincount(steps, minlength=k + 1).tolist()


def vllm_log(run: Run) -> str:
    """Two requests to a line."""
    lines = ["(APIServer pid=7) INFO 11-25 12:00:00 [api_server.py:10] Started server process"]
    for n in range(0, len(run.requests), 2):
        steps = np.concatenate(run.requests[n : n + 2])
        rates = [(steps > place).mean() for place in range(run.depth)]
        drafted = steps.size * run.depth
        lines.append(
            f"(APIServer pid=7) INFO 11-25 12:00:{n:02} [metrics.py:101] SpecDecoding metrics: "
            f"Mean acceptance length: {1 + steps.mean():.2f}, "
            f"Accepted throughput: {steps.sum() / 10:.2f} tokens/s, "
            f"Drafted throughput: {drafted / 10:.2f} tokens/s, Accepted: {steps.sum()} tokens, "
            f"Drafted: {drafted} tokens, "
            f"Per-position acceptance rate: {', '.join(f'{x:.3f}' for x in rates)}, "
            f"Avg Draft acceptance rate: {100 * steps.sum() / drafted:.1f}%"
        )
    return "\n".join(lines) + "\n"


def scrape(run: Run, prefix: str = "vllm", engine: int = 0, created: float = 1.7e9) -> str:
    """What GET /metrics says."""
    labels = f'engine="{engine}",model_name="m"'
    totals = {
        "drafts": run.steps,
        "draft_tokens": run.steps * run.depth,
        "accepted_tokens": run.accepted,
    }
    lines = [f"# HELP {prefix}:num_requests_running Number of requests"]
    for name, value in totals.items():
        lines += [
            f"# TYPE {prefix}:spec_decode_num_{name}_total counter",
            f"{prefix}:spec_decode_num_{name}_total{{{labels}}} {float(value)}",
            f"{prefix}:spec_decode_num_{name}_created{{{labels}}} {created}",
        ]
    lines += [
        f"{prefix}:spec_decode_num_accepted_tokens_per_pos_total"
        f'{{{labels},position="{place}"}} {float(count)}'
        for place, count in enumerate(run.by_position)
    ]
    return "\n".join(lines) + "\n"


def sglang_log(run: Run, with_rate: bool = True) -> str:
    """One line for each request: it ran alone, and as many passes as every other."""
    lines = [
        "[2026-11-25 12:00:00] server_args={'model_path': 'm', 'speculative_algorithm': 'EAGLE'}"
    ]
    for n, steps in enumerate(run.requests):
        mean = steps.mean()
        rate = f"accept rate: {mean / run.depth:.2f}, " if with_rate else ""
        lines.append(
            f"[2026-11-25 12:00:{n:02}] Decode batch, #running-req: {1 + n % 4}, #token: 900, "
            f"token usage: 0.01, accept len: {1 + mean:.2f}, {rate}cuda graph: True, "
            f"gen throughput (token/s): 100.00, #queue-req: 0"
        )
    return "\n".join(lines) + "\n"


def llamacpp_log(run: Run) -> str:
    """Timings of each request, as llama-server prints them."""
    lines = ["0.07.1 I main: model loaded"]
    for n, steps in enumerate(run.requests):
        accepted, drafted = int(steps.sum()), steps.size * run.depth
        tokens = accepted + steps.size + 1
        head = f"0.08.{n:03} I slot print_timing: id  3 | task {7 * n} | "
        lines += [
            f"{head}prompt eval time =       0.94 ms /     5 tokens (    0.19 ms per token)",
            f"{head}       eval time =      33.05 ms / {tokens:5} tokens (    0.42 ms per token)",
            f"{head}draft acceptance = {accepted / drafted:.5f} ({accepted:5} accepted / "
            f"{drafted:5} generated), mean len = {1 + steps.mean():5.2f}",
        ]
    return "\n".join(lines) + "\n"


def _lines(records: list[dict]) -> str:
    return "\n".join(map(json.dumps, records)) + "\n"


def vllm_answers(run: Run) -> str:
    k = run.depth
    return _lines(
        [
            {
                "id": f"cmpl-{n}",
                "metrics": {
                    "speculative_decoding": {
                        "mean_acceptance_length": 1 + float(steps.mean()),
                        "acceptance_histogram": _histogram(steps, k),
                        "num_spec_steps": int(steps.size),
                        "num_accepted_draft_tokens": int(steps.sum()),
                        "num_draft_tokens": int(steps.size) * k,
                        "num_spec_tokens": k,
                    }
                },
            }
            for n, steps in enumerate(run.requests)
        ]
    )


def aiperf_records(run: Run) -> str:
    k = run.depth
    return _lines(
        [
            {
                "metadata": {"session_num": n},
                "metrics": {"request_latency": {"value": 12.0, "unit": "ms"}},
                "spec_decode_acceptance": {
                    "engine": "vllm",
                    "acceptance_histogram": {
                        str(j): count for j, count in enumerate(_histogram(steps, k)) if count
                    },
                    "num_accepted_draft_tokens": int(steps.sum()),
                    "num_draft_tokens": int(steps.size) * k,
                    "num_spec_steps": int(steps.size),
                    "num_spec_tokens": k,
                },
            }
            for n, steps in enumerate(run.requests)
        ]
    )


def sglang_answers(run: Run, new: bool = True) -> str:
    names = (
        ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram")
        if new
        else ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram")
    )
    return _lines(
        [
            {
                "text": "...",
                "meta_info": {
                    "completion_tokens": int(steps.sum() + steps.size + 1),
                    "spec_verify_ct": int(steps.size),
                    names[0]: int(steps.sum()),
                    names[1]: int(steps.size) * run.depth,
                    **({names[2]: _histogram(steps, run.depth)} if new else {}),
                },
            }
            for steps in run.requests
        ]
    )


def trtllm_stats(run: Run) -> str:
    """A list of iterations, as GET /metrics answers: each a step of some requests."""
    records = [{"iter": 0, "specDecodingStats": None}]
    longest = max(map(len, run.requests))
    for n in range(longest):
        steps = [int(x[n]) for x in run.requests if len(x) > n]
        records.append(
            {
                "iter": n + 1,
                "iterLatencyMS": 12.5,
                "specDecodingStats": {
                    "numDraftTokens": len(steps) * run.depth,
                    "numAcceptedTokens": sum(steps),
                    "numRequestsWithDraftTokens": len(steps),
                    "acceptanceLength": 1 + sum(steps) / len(steps),
                },
            }
        )
    return json.dumps(records)


def llamacpp_answers(run: Run) -> str:
    return _lines(
        [
            {
                "content": "...",
                "timings": {
                    "predicted_n": int(steps.sum() + steps.size + 1),
                    "draft_n": int(steps.size) * run.depth,
                    "draft_n_accepted": int(steps.sum()),
                },
            }
            for steps in run.requests
        ]
    )


def steps_of_requests(run: Run) -> str:
    return _lines(
        [
            {"accepted": int(x), "num_drafts": 1, "depth": run.depth, "sequence": n}
            for n, steps in enumerate(run.requests)
            for x in steps
        ]
    )


@dataclass(frozen=True)
class Served:
    """What a server of vLLM writes of a run with drafts, and of one without."""

    rates: tuple[float, ...] = (0.72, 0.5, 0.34)  # of steps that accept at least 1, 2, ... drafts
    draft_ms: float = 1.7
    batches: tuple[int, ...] = (1, 2, 4, 8)

    def plain_ms(self, batch: int) -> float:
        return 18.0 + 0.5 * batch

    def step_ms(self, batch: int) -> float:
        return self.plain_ms(batch) + self.draft_ms * len(self.rates)

    def speedup(self, batch: int) -> float:
        return (1 + sum(self.rates)) * self.plain_ms(batch) / self.step_ms(batch)

    def log(self, drafts: bool, lines: int = 24, seed: int = 0) -> str:
        """Lines of ten seconds each, the same number of them for each batch."""
        rng = np.random.default_rng(seed)
        found = ["(APIServer pid=7) INFO 11-25 12:00:00 [api_server.py:10] Started"]
        for n in range(lines):
            batch = self.batches[n * len(self.batches) // lines]
            ms = self.step_ms(batch) if drafts else self.plain_ms(batch)
            steps = batch * round(10_000 / ms * rng.uniform(0.97, 1.0))
            reached = [round(steps * x) for x in self.rates] if drafts else []
            head = f"(APIServer pid=7) INFO 11-25 12:00:{n:02} "
            found.append(
                f"{head}[loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
                f"generation throughput: {(steps + sum(reached)) / 10:.1f} tokens/s, Running: "
                f"{batch} reqs, Waiting: 0 reqs, GPU KV cache usage: 11.2%"
            )
            if drafts:
                k, accepted = len(reached), sum(reached)
                found.append(
                    f"{head}[metrics.py:101] SpecDecoding metrics: Mean acceptance length: "
                    f"{1 + accepted / steps:.2f}, Accepted throughput: {accepted / 10:.2f} "
                    f"tokens/s, Drafted throughput: {k * steps / 10:.2f} tokens/s, Accepted: "
                    f"{accepted} tokens, Drafted: {k * steps} tokens, Per-position acceptance "
                    f"rate: {', '.join(f'{x / steps:.3f}' for x in reached)}, Avg Draft "
                    f"acceptance rate: {100 * accepted / k / steps:.1f}%"
                )
        return "\n".join(found) + "\n"
