"""Decisions of the optimal verifier by the kernel, on whatever engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.gpu.engine import Engine
from mdsd_opt.gpu.rates import Pair, ratio_grid
from mdsd_opt.gpu.sources import OPTIMAL_VERIFICATION


@dataclass(frozen=True, slots=True)
class Randomness:
    """Where random numbers come from: Philox with a counter for every row.

    Attributes
    ----------
    seed : int
        Below 2**64.
    step : int
        Below 2**32; another one for every decision with the same seed.
    first_row : int
        Number of the batch's first row.
    """

    seed: int
    step: int = 0
    first_row: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RowTokens:
    """Results of a batch, in the engine's memory.

    Attributes
    ----------
    tokens : buffer of int64, shape (num_rows,)
        The output of every row, -1 for one that is no distribution.
    is_bad : buffer of int32, shape (num_rows,)
        1 where a row is no distribution.
    """

    tokens: Any
    is_bad: Any


def verify_rows(
    engine: Engine, pair: Pair, drafts: Any, randomness: Randomness, uniforms: Any = None
) -> RowTokens:
    """Decide for every row.

    Parameters
    ----------
    drafts : buffer of int64, shape (num_rows, K), contiguous
        Drawn independently from q; -1 where there is none.
    uniforms : buffer of float64, shape (num_rows, 3), contiguous, optional
        Level, test and residual of every row, in place of `randomness`.
    """
    num_drafts = drafts.shape[1]
    slope, offset = ratio_grid(pair.target.vocab_size, num_drafts)
    result = RowTokens(
        engine.empty((pair.num_rows,), np.int64), engine.empty((pair.num_rows,), np.int32)
    )
    for part, arguments in pair.arguments():
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
                np.uint64(randomness.first_row + part.start),
                np.uint32(randomness.step),
                result.tokens[part],
                result.is_bad[part],
            ],
        )
    return result
