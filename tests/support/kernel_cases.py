"""Small batches that lead through every line of the kernels; results as bytes, to be compared."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from support.ptx.runtime import PtxRuntime, host_logits

from mdsd_opt.base.logits import Reading
from mdsd_opt.base.sampling import Sampling, softmax
from mdsd_opt.batch.device import RatesRequest
from mdsd_opt.gpu import (
    FilterSettings,
    Pair,
    Randomness,
    RowRates,
    RowTokens,
    rates,
    verification,
    with_filters,
)

LOG2_E = math.log2(math.e)

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}

#: Kernels of rates by name, and what asks `acceptance_rates` for the same.
RATES: dict[str, dict[str, str]] = {
    "with_replacement": {},
    "without_replacement": {"drafts": "without_replacement"},
    "kseq": {"verifier": "kseq"},
    "rrs": {"verifier": "rrs"},
    "greedy": {"drafts": "greedy"},
    "top_k": {"drafts": "top_k"},
}

Case = Callable[[PtxRuntime], bytes]


def flat_rows(vocab_size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows with P = Q**3 for all prefixes: any may be the best, and bins are open by the dozen."""
    ends = np.linspace(0.0, 1.0, vocab_size + 1)
    draft = np.zeros((1, vocab_size))
    target = np.log(np.diff(ends**3))[None]
    return target.astype(np.float32), draft.astype(np.float32)


def flat_race_rows(
    vocab_size: int, num_drafts: int = 3
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The same for drafts without replacement: P = Q for all prefixes of equal tokens."""
    inside = np.arange(1.0, vocab_size + 1)[:, None] - np.arange(num_drafts)
    ends = (inside / inside[-1]).prod(axis=1)
    target = np.log(np.maximum(np.diff(ends, prepend=0.0), 1e-12))[None].astype(np.float32)
    return target, np.zeros_like(target)


def near_rows(
    num_rows: int, vocab_size: int, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A draft like a language model's tail, and a target that is near it."""
    rng = np.random.default_rng(seed)
    draft = rng.normal(size=(num_rows, vocab_size)) * 2.5
    target = draft + rng.normal(size=(num_rows, vocab_size)) * 0.5
    return target.astype(np.float32), draft.astype(np.float32)


def drawn(
    rng: np.random.Generator, draft: NDArray[Any], k: int, scheme: str = "with_replacement"
) -> NDArray[np.int64]:
    """Drafts of every row; -1 behind them where there are not so many."""
    q = softmax(draft.astype(np.float64))
    if scheme == "with_replacement":
        return np.stack([rng.choice(row.size, k, p=row) for row in q]).astype(np.int64)
    found = np.full((len(q), k), -1)
    for row, own in zip(q, found, strict=True):
        possible = np.flatnonzero(row > 0)
        first = np.argsort(rng.exponential(size=possible.size) / np.maximum(row[possible], 1e-290))
        own[: min(k, possible.size)] = possible[first[:k]]
    return found


def pair_of(
    target: NDArray[Any],
    draft: NDArray[Any],
    temperature: float = 1.0,
    draft_temperature: float = 1.0,
) -> Pair:
    """NumPy logits for the kernels."""
    return Pair(
        host_logits(target),
        host_logits(draft),
        LOG2_E / temperature,
        LOG2_E / draft_temperature,
    )


def decide(
    runtime: PtxRuntime,
    pair: Pair,
    drafts: NDArray[np.int64],
    scheme: str,
    uniforms: NDArray[np.float64] | None = None,
    with_rates: bool = False,
) -> RowTokens:
    """What the kernels decide; random numbers are those of a seed, where none are given."""
    return verification.verify_rows(
        runtime, pair, drafts, Randomness(1), uniforms, with_rates=with_rates,
        is_replaced=scheme == "with_replacement",
    )  # fmt: skip


def _batches() -> list[tuple[NDArray[Any], NDArray[Any]]]:
    target, draft = near_rows(3, 1001)
    target[1, 7] = np.nan
    half, aligned = near_rows(2, 515, seed=1), near_rows(1, 2048, seed=2)
    return [
        (target, draft),
        (half[0].astype(ml_dtypes.bfloat16), half[1].astype(ml_dtypes.bfloat16)),
        flat_rows(3001),
        aligned,
        (aligned[0].astype(ml_dtypes.bfloat16), aligned[1].astype(ml_dtypes.bfloat16)),
    ]


def _rates_of(function: Callable[..., RowRates]) -> Case:
    def case(runtime: PtxRuntime) -> bytes:
        found = b""
        for target, draft in _batches():
            result = function(runtime, pair_of(target, draft), (1, 3))
            good = result.is_bad == 0
            found += result.rates[good].tobytes() + result.is_bad.tobytes()
            if result.gaps is not None:
                found += result.gaps[good].tobytes()
        return found

    return case


def _many_likeliest(runtime: PtxRuntime) -> bytes:
    """More tokens a block than there is room for candidates, and more drafts than lanes."""
    return rates.BY_NAME["top_k"](runtime, pair_of(*near_rows(2, 20_000)), (33, 48)).rates.tobytes()


def _race_in_all_passes(runtime: PtxRuntime) -> bytes:
    """Bins that are divided, likeliest tokens that take any search, and drafts that are all."""
    found = b""
    rng = np.random.default_rng(5)
    crowded, closer = rng.normal(size=(1, 500)), rng.normal(size=(2, 1024))
    batches = [
        (crowded + rng.normal(size=crowded.shape) * 1e-5, crowded, (1, 2, 5)),
        (closer + rng.normal(size=closer.shape) * 1e-3, closer, (1,)),
        (*flat_race_rows(60), (3,)),
        (*flat_race_rows(90, 20), (20,)),
        (near_rows(1, 4096)[0], np.arange(4096.0)[None] * -0.01, (32,)),
        (*near_rows(2, 4), (2, 4, 5)),
    ]
    for target, draft, counts in batches:
        pair = pair_of(target.astype(np.float32), draft.astype(np.float32))
        result = rates.BY_NAME["without_replacement"](runtime, pair, counts)
        found += result.rates.tobytes() + result.gaps.tobytes()
    return found


def _verification(
    runtime: PtxRuntime, scheme: str = "with_replacement", with_rates: bool = False
) -> bytes:
    """Decisions of every kind: accepted, rejected, with no possible draft, and of bad rows."""
    found = b""
    concentrated = np.arange(600, dtype=np.float32)[None] * -40
    batches = [*_batches(), (near_rows(1, 600)[0], concentrated)]
    if scheme == "without_replacement":  # whose plans take long: a bad row, packs, one that is none
        batches = [(batches[0][0][1:], batches[0][1][1:]), *batches[4:]]
    for target, draft in batches:
        rows = np.repeat(np.arange(len(target)), 4)
        pair = pair_of(target[rows], draft[rows])
        rng = np.random.default_rng(len(target))
        likely = np.argsort(-draft.astype(np.float32), axis=1)[:, :40][rows]
        places = np.argsort(rng.random((rows.size, 40)), axis=1)[:, :3]
        drafts = np.take_along_axis(likely, places, axis=1)
        drafts[0, :] = -1
        drafts[3, 1:] = -1
        uniforms = rng.random((rows.size, 4))
        uniforms[::2, 2] = 1.0 - 2.0**-53
        drafts = np.ascontiguousarray(drafts)
        result = decide(runtime, pair, drafts, scheme, uniforms, with_rates)
        found += result.tokens.tobytes() + result.is_bad.tobytes()
        if with_rates:
            good = result.is_bad == 0
            found += result.rates[good].tobytes() + result.gaps[good].tobytes()
    return found


def _filters(runtime: PtxRuntime) -> bytes:
    found = b""
    for target, draft in _batches():
        for settings in (
            FilterSettings(top_k=40, top_p=0.6, min_p=1e-3),
            FilterSettings(target_one_hot=True, top_p=0.9),
            FilterSettings(target_one_hot=True, draft_one_hot=True),
        ):
            pair = with_filters(runtime, pair_of(target, draft), settings)
            found += pair.target_filters.tobytes() + pair.draft_filters.tobytes()
            found += rates.BY_NAME["rrs"](runtime, pair, (3,)).is_bad.tobytes()
    return found


CASES: dict[str, Case] = {
    "with_replacement": _rates_of(rates.BY_NAME["with_replacement"]),
    "without_replacement": _rates_of(rates.BY_NAME["without_replacement"]),
    "race in all passes": _race_in_all_passes,
    "greedy": _rates_of(rates.BY_NAME["greedy"]),
    "top_k": _rates_of(rates.BY_NAME["top_k"]),
    "many likeliest": _many_likeliest,
    "kseq": _rates_of(rates.BY_NAME["kseq"]),
    "rrs": _rates_of(rates.BY_NAME["rrs"]),
    "decisions": _verification,
    "decisions with rates": functools.partial(_verification, with_rates=True),
    "race decisions": functools.partial(
        _verification, scheme="without_replacement", with_rates=True
    ),
    "filters": _filters,
}


def request_of(
    scheme: str = "with_replacement",
    verifier: str = "optimal",
    num_drafts: tuple[int, ...] = (3,),
    **sampling: Any,
) -> RatesRequest:
    """Request for rates under a temperature and filters, those of `Sampling.of_both`."""
    return RatesRequest(scheme, verifier, num_drafts, Reading(*Sampling.of_both(**sampling)))
