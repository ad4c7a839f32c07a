"""Timing of passes, in two minutes or less: of loaded models and of servers.

A first pass of each kind, which loads and compiles, is not counted.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput, ServerError
from mdsd_opt.formats import counters_in, holders
from mdsd_opt.planning.costs import MeasuredCosts, Pass

#: Numbers of texts together, of rows of each, and of tokens before them.
BATCHES = (1, 4, 16)
ROWS = (1, 2, 4, 8, 16)
CONTEXTS = (128,)

REPEATS = 5

#: Seconds after which one kind of pass is not timed again, once two are counted.
_MOST_SECONDS = 3.0

#: Numbers of new tokens of the short and of the long request, whose difference is that of passes
#: alone, and of the longest one; requests grow until the difference takes the seconds given last.
_SHORT, _LONG, _LONGEST, _ENOUGH = 8, 40, 640, 0.25


def measured(
    target: Callable[[], Sequence[Pass]],
    draft: Callable[[], Sequence[Pass]] | None,
    **settings: Any,
) -> MeasuredCosts:
    """Costs that two measurements found, with the machine that they ran on.

    Raises `InvalidInput` where they contradict each other, as on a machine that is busy.
    """
    known = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **settings,
    }
    costs = MeasuredCosts(tuple(target()), () if draft is None else tuple(draft()), known)
    costs.check()
    return costs


def median_ms(seconds: Callable[[], float], repeats: int = REPEATS) -> float:
    """Median milliseconds of a pass, by a function that makes one and tells how long it took."""
    taken: list[float] = []
    while len(taken) <= repeats and (len(taken) < 3 or sum(taken) < _MOST_SECONDS):
        taken.append(seconds())
    return 1e3 * float(np.median(taken[1:]))


def time_model(
    loaded: Any,
    batches: Sequence[int] = BATCHES,
    rows: Sequence[int] = ROWS,
    contexts: Sequence[int] = CONTEXTS,
    repeats: int = REPEATS,
) -> list[Pass]:
    """Median milliseconds of passes of a `LoadedModel` of transformers that keeps keys and values.

    The tokens are random: what a pass takes does not depend on them.
    """
    import torch

    from mdsd_opt.decoding import cache_name, cache_of

    model, name = loaded.model, cache_name(loaded.model)
    _check(batches, rows, contexts)
    longest = max(contexts) + max(rows)
    if loaded.context_length is not None and longest > loaded.context_length:
        raise InvalidInput(
            f"a context of {max(contexts)} and {max(rows)} rows make {longest}, and the model "
            f"reads {loaded.context_length}: give shorter contexts"
        )
    device = next(model.parameters()).device
    size = model.get_input_embeddings().num_embeddings
    random = torch.Generator().manual_seed(0)

    def seconds(ids: Any, cache: Any) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        model(input_ids=ids, use_cache=True, **{name: cache})
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took = time.perf_counter() - began
        cache.crop(-ids.shape[1])
        return took

    passes = []
    with torch.inference_mode():
        for context, batch in product(contexts, batches):
            shape = (batch, context + max(rows))
            ids = torch.randint(size, shape, generator=random).to(device)
            cache = cache_of(model(input_ids=ids[:, :context], use_cache=True))
            for count in rows:
                once = partial(seconds, ids[:, context : context + count], cache)
                passes.append(Pass(batch, count, context, median_ms(once, repeats)))
    return passes


def time_server(
    url: str,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
    model: str | None = None,
    repeats: int = 3,
    transport: Any = None,
) -> list[Pass]:
    """Milliseconds of a step of plain decoding of a server like OpenAI's, by the texts together.

    A batch of requests for 40 tokens takes 32 steps longer than one for 8: prompts and the network
    cancel. Where steps are short, more tokens are asked for. The server must run without
    speculation, take as many requests at once as the largest batch, and `ignore_eos`, as those of
    vLLM, SGLang and llama.cpp do: an answer that ends early is an error. Passes over several rows
    of a text cannot be asked for in this way; llama.cpp's server tells them, see `time_llamacpp`.
    """
    _check(batches, (1,), contexts)
    passes = []
    with _connected(url, transport) as connection:
        name = model or _read(
            connection.get("/v1/models"),
            lambda answer: str(answer["data"][0]["id"]),
            f"{connection.url}/v1/models names no model: is it such a server?",
        )
        before = _drafted(connection)
        for context, batch in product(contexts, batches):
            ms = _step_ms(partial(_seconds_of_batch, connection, name, batch, context), repeats)
            if _drafted(connection) > before:
                raise _speculates(connection, "its metrics count drafts of these requests")
            if not ms > 0:
                raise ServerError(
                    f"{url}: {_LONGEST} tokens take no longer than {_SHORT} at batch {batch}: "
                    "it is too busy to be measured, or answers from a cache"
                )
            passes.append(Pass(batch, 1, context, ms))
    return passes


def time_llamacpp(
    url: str,
    rows: Sequence[int] = ROWS,
    contexts: Sequence[int] = CONTEXTS,
    repeats: int = REPEATS,
    transport: Any = None,
) -> list[Pass]:
    """Milliseconds of passes over several rows of one text, as llama.cpp's server times them.

    A prompt that it has read but for its end is read in one pass over the rest: `prompt_ms` of its
    answer, for `prompt_n` tokens.
    """
    _check((1,), rows, contexts)
    random = np.random.default_rng(0)
    passes = []
    with _connected(url, transport) as connection:
        size = _read(
            connection.get("/v1/models"),
            lambda answer: int(answer["data"][0]["meta"]["n_vocab"]),
            f"{url} does not tell n_vocab, as llama.cpp's server does",
        )
        for context in contexts:
            before = random.integers(3, size, context).tolist()
            _prompt_ms(connection, before)
            for count in rows:

                def seconds(before: list[int] = before, count: int = count) -> float:
                    ends = random.integers(3, size, count).tolist()
                    read, ms = _prompt_ms(connection, [*before, *ends])
                    if read != count:
                        raise ServerError(
                            f"{url} reads more of a prompt anew than its end, so that passes over "
                            "few rows cannot be timed: does it keep prompts (cache_prompt)?"
                        )
                    return ms / 1e3

                passes.append(Pass(1, count, context, median_ms(seconds, repeats)))
    return passes


def time_any_server(url: str, contexts: Sequence[int] = CONTEXTS) -> list[Pass]:
    """Passes of a server by the batches that fit in it, and by rows where it is llama.cpp's."""
    with _connected(url, timeout=60.0) as connection:
        try:
            slots = _read(connection.get("/props"), lambda answer: answer["total_slots"], "none")
        except ServerError:
            slots = None
    if not isinstance(slots, int):
        return time_server(url, contexts=contexts)
    steps = time_server(url, [size for size in BATCHES if size <= slots], contexts)
    return [*steps, *_beside(steps, time_llamacpp(url, contexts=contexts))]


def _beside(steps: Sequence[Pass], prompts: Sequence[Pass]) -> list[Pass]:
    """Steps over several rows: a plain step plus the time that more rows of a prompt take.

    A step samples and answers too, which reading a prompt does not.
    """
    plain = {x.context: x.ms for x in steps if x.batch == x.rows == 1}
    one = {x.context: x.ms for x in prompts if x.rows == 1}
    return [
        replace(x, ms=plain[x.context] + max(x.ms - one[x.context], 0.0))
        for x in prompts
        if x.rows > 1
    ]


def _check(batches: Sequence[int], rows: Sequence[int], contexts: Sequence[int]) -> None:
    named = (("batches", batches, 1), ("rows", rows, 1), ("contexts", contexts, 2))
    for name, numbers, least in named:
        if not numbers or min(numbers) < least:
            raise InvalidInput(f"{name} is {[*numbers]}: give numbers of at least {least}")


def _connected(url: str, transport: Any = None, timeout: float = 120.0) -> closing[Any]:
    from mdsd_opt.servers import Connection

    return closing(Connection(url, timeout, transport=transport))


def _read(answer: Any, read: Callable[[Any], Any], otherwise: str) -> Any:
    """Part of an answer; `ServerError` with this message where it is not there."""
    try:
        return read(answer)
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise ServerError(otherwise) from error


def _seconds_of_batch(
    connection: Any, model: str, batch: int, context: int, tokens: int, seed: int
) -> float:
    """Seconds until a batch of requests is answered; their prompts differ, but not in length."""

    def one(place: int) -> None:
        body = {
            "model": model,
            "prompt": f"{seed:03d}{place:03d} " + "the " * (context - 1),
            "max_tokens": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
        }
        answer = _posted(connection, "/v1/completions", body, context)
        drafts = next(iter(holders(answer, "draft_n")), {}).get("draft_n")
        if drafts:
            raise _speculates(connection, f"its answers have draft_n = {drafts}")
        usage = answer.get("usage") if isinstance(answer, dict) else None
        count = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if count != tokens:
            raise ServerError(
                f"{connection.url} answered with {count} tokens where {tokens} were asked for: it "
                f"must take ignore_eos, tell usage, and have room for {context} words before them "
                "(--context for fewer)"
            )

    began = time.perf_counter()
    with ThreadPoolExecutor(batch) as pool:
        list(pool.map(one, range(batch)))
    return time.perf_counter() - began


def _drafted(connection: Any) -> float:
    """Drafts that the metrics of a server count so far; 0 where they are not told."""
    total = 0.0
    for prefix in ("vllm", "sglang", "llamacpp"):
        try:
            counters = counters_in(str(connection.get("/metrics")), prefix)
        except (ServerError, ValueError):
            return 0.0
        total += counters["drafted"].value if "drafted" in counters else 0.0
    return total


def _speculates(connection: Any, why: str) -> ServerError:
    return ServerError(
        f"{connection.url} decodes with drafts ({why}): costs are those of a server without. Start "
        "it without speculation, and measure again"
    )


def _step_ms(ask: Callable[[int, int], float], repeats: int) -> float:
    """Median milliseconds of a step; `ask` gives the seconds of tokens in the n-th request.

    The longest that the server has room for is enough.
    """
    ask(_SHORT, 0)
    tokens, seconds = _LONG, 0.0
    while seconds <= _ENOUGH and tokens <= _LONGEST:
        try:
            taken = [ask(tokens, n) - ask(_SHORT, n) for n in range(1, repeats + 1)]
        except ServerError:
            if tokens == _LONG:
                raise
            break
        seconds, tokens = float(np.median(taken)), 2 * tokens
    return 1e3 * seconds / (tokens // 2 - _SHORT)


def _posted(connection: Any, path: str, body: dict[str, Any], context: int) -> Any:
    from mdsd_opt.servers import Refused

    try:
        return connection.post(path, body, tries=1)
    except Refused as error:
        if error.status not in (400, 413, 422, 500):
            raise
        raise ServerError(
            f"{error}. If {context} tokens before a pass are too many for it, give --context fewer"
        ) from error


def _prompt_ms(connection: Any, prompt: Sequence[int]) -> tuple[int, float]:
    """Tokens of a prompt that llama.cpp's server read anew, and the milliseconds that took."""
    body = {"prompt": [*prompt], "n_predict": 1, "cache_prompt": True, "id_slot": 0}
    read, ms = _read(
        _posted(connection, "/completion", body, len(prompt)),
        lambda answer: (int(answer["timings"]["prompt_n"]), float(answer["timings"]["prompt_ms"])),
        f"{connection.url}/completion tells no timings of the prompt",
    )
    return read, ms
