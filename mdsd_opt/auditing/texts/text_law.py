"""Deviation of a text's law from the target's, token by token, given those before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.model_texts import Texts
from mdsd_opt.base.array_types import Vector
from mdsd_opt.evidence import Check, statistics

#: Name of the event before the first token.
START = "the start"


class After(NamedTuple):
    """Observed law after one kind of token: a description, no test.

    Attributes
    ----------
    event : str
        "accepted", "refused", "extra" or "unknown" for the token before; "the start" of the text.
    share : float
        Share of the texts.
    total_variation : float
        Distance of the next token's law given the text before, among these texts; noise included.
    """

    event: str
    share: float
    total_variation: float


def variations(texts: Texts, law: Vector) -> list[float]:
    r"""Total variation of each token's law given those before, :math:`\sum_x \Pr(x) TV_x`."""
    distances = []
    for observed, right in _steps(texts, law):
        difference = observed - observed.sum(axis=1, keepdims=True) * right
        distances.append(0.5 * float(np.abs(difference[right.any(axis=1)]).sum()))
    return distances


def _steps(texts: Texts, law: Vector) -> Iterator[tuple[Vector, Vector]]:
    """Mass of each beginning and next token, (V**n, V), and the target's law after it."""
    size = texts.vocab_size
    for n in range(texts.length):
        shape = (size**n, size, -1)
        observed, wanted = (x.reshape(shape).sum(axis=2) for x in (law, texts.law))
        mass = wanted.sum(axis=1, keepdims=True)
        yield observed, np.divide(wanted, mass, out=np.zeros_like(wanted), where=mass > 0)


def position_checks(
    texts: Texts, numbers: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Check, ...]:
    """Checks, one for each token, that it follows the target given those before it."""
    counts = np.bincount(numbers, minlength=texts.law.size).astype(np.float64)
    checks = []
    for n, (observed, right) in enumerate(_steps(texts, counts)):
        scores = []
        for row in np.flatnonzero(observed.any(axis=1)):
            possible = right[row] > 0
            hits = observed[row, possible].astype(np.int64)
            scores.append(statistics.split_scores(hits, right[row, possible], rng)[0])
        p_value = statistics.chi_square(np.concatenate([np.empty(0), *scores]))
        checks.append(Check(f"token {n + 1}", "its law given those before it", p_value))
    return tuple(checks)


def split_by_event(
    texts: Texts, numbers: NDArray[np.int64], events: Sequence[Sequence[str]], position: int
) -> tuple[After, ...]:
    """Total variation of the token at a position, by the kind of the token before it."""
    before = np.array([START if not position else kinds[position - 1] for kinds in events])
    parts = []
    for event in np.unique(before).tolist():
        chosen = numbers[before == event]
        law = np.bincount(chosen, minlength=texts.law.size) / chosen.size
        parts.append(After(event, chosen.size / numbers.size, variations(texts, law)[position]))
    return tuple(parts)
