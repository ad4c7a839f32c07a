"""Small batches that lead through every line of the kernels; results as bytes, to be compared."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mdsd_opt.gpu import rates
from support.host_engine import HostEngine, host_logits

LOG2_E = math.log2(math.e)

Case = Callable[[HostEngine], bytes]


def flat_rows(vocab_size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows with P = Q**3 for all prefixes: any might be the best, and bins are open by the dozen."""
    ends = np.linspace(0.0, 1.0, vocab_size + 1)
    draft = np.zeros((1, vocab_size))
    target = np.log(np.diff(ends**3))[None]
    return target.astype(np.float32), draft.astype(np.float32)


def near_rows(
    num_rows: int, vocab_size: int, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A draft like a language model's tail, and a target that is near it."""
    rng = np.random.default_rng(seed)
    draft = rng.normal(size=(num_rows, vocab_size)) * 2.5
    target = draft + rng.normal(size=(num_rows, vocab_size)) * 0.5
    return target.astype(np.float32), draft.astype(np.float32)


def _with_replacement(engine: HostEngine) -> bytes:
    target, draft = near_rows(3, 1001)
    target[1, 7] = np.nan
    half = [x.astype(ml_dtypes.bfloat16) for x in near_rows(2, 515, seed=1)]
    found = b""
    for pair in ((target, draft), half, flat_rows(3001)):
        result = rates.with_replacement(
            engine, host_logits(pair[0]), host_logits(pair[1]), (1, 3), LOG2_E, LOG2_E
        )
        good = result.is_bad == 0
        found += result.rates[good].tobytes() + result.gaps[good].tobytes()
        found += result.is_bad.tobytes()
    return found


CASES: tuple[Case, ...] = (_with_replacement,)
