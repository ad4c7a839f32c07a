"""Decisions of the optimal verifier by the kernel, on whatever engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.philox import Randomness
from mdsd_opt.gpu.rates import Pair, ratio_grid
from mdsd_opt.gpu.sources import OPTIMAL_VERIFICATION


@dataclass(frozen=True, slots=True, eq=False)
class RowTokens:
    """Results of a batch, in the engine's memory.

    Attributes
    ----------
    tokens : buffer of int64, shape (num_rows,)
        The output of every row, -1 for one that is no distribution.
    is_bad : buffer of int32, shape (num_rows,)
        1 where a row is no distribution.
    rates, gaps : buffer of float64, shape (num_rows,), or None
        Probability that the selected draft is accepted, and how much higher the optimum is at
        most, for the weights they were computed from.
    """

    tokens: Any
    is_bad: Any
    rates: Any = None
    gaps: Any = None


def verify_rows(
    engine: Engine,
    pair: Pair,
    drafts: Any,
    randomness: Randomness,
    uniforms: Any = None,
    first_row: int = 0,
    with_rates: bool = False,
) -> RowTokens:
    """Decide for every row.

    Parameters
    ----------
    drafts : buffer of int64, shape (num_rows, K), contiguous
        Drawn independently from q; -1 where there is none.
    uniforms : buffer of float64, shape (num_rows, 4), contiguous, optional
        Those of every row, in the order of `mdsd_opt.verifiers.Uniforms`, in place of `randomness`.
    first_row : int
        Number of the first row, for random numbers.
    with_rates : bool
        Compute `rates` and `gaps`, too, at the cost of one more pass over rows that accept.
    """
    num_drafts = drafts.shape[1]
    slope, offset = ratio_grid(pair.target.vocab_size, num_drafts)
    shape = (pair.num_rows,)
    result = RowTokens(
        engine.empty(shape, np.int64),
        engine.empty(shape, np.int32),
        *(engine.empty(shape, np.float64) if with_rates else None for _ in range(2)),
    )
    outputs = (result.tokens, result.is_bad, result.rates, result.gaps)
    for part, arguments in pair.exact_arguments():
        engine.launch(
            OPTIMAL_VERIFICATION,
            pair.types,
            part.stop - part.start,
            [
                *arguments,
                slope,
                offset,
                drafts[part],
                np.int32(num_drafts),
                None if uniforms is None else uniforms[part],
                np.uint64(randomness.seed),
                np.uint64(first_row + part.start),
                np.uint32(randomness.step),
                *(None if output is None else output[part] for output in outputs),
            ],
        )
    return result
