r"""Stability of a text if its logits move a little, as between passes of different shape.

Let no logit of a position move by more than :math:`\delta`, up to a constant that all of them may
share. The likeliest token can only change where the margin of the two largest logits is at most
:math:`2 \delta`. At a temperature T, the token is the largest of :math:`\ell_i / T + g_i` with
Gumbel noise g, and what holds for the margin of these numbers holds with the probability

.. math:: c = \sum_i \frac{p_i (1 - p_i) s}{1 + s (1 - p_i)}, \qquad s = e^{2 \delta / T} - 1,

so that two passes with the same noise draw the same token with probability 1 - c at least, and
:math:`1 / (1 + s (1 - p_x))` of it given that the token is x.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats, Integers
from mdsd_opt.base.arrays import Opened, as_logits, frozen
from mdsd_opt.base.checked import check_confidence, checked_tolerance, floats, integers
from mdsd_opt.base.files.logits import first_axis
from mdsd_opt.base.sampling import bad_row_error, check_sampling_parameters
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, mean_interval

#: Largest number of logits that are looked at together.
_NUMBERS_AT_ONCE = 1 << 22

#: Largest exponent whose exponential is finite.
_MOST = 700.0


@dataclass(frozen=True, slots=True, eq=False)
class StabilityRow:
    """Tokens that may change if no logit moves by more than `delta`.

    Attributes
    ----------
    delta : float
        Largest move of a logit; of measured moves the largest.
    may_change : MeanInterval
        Share of positions whose token may change; at a temperature above 0 the mean probability of
        one, for passes that share their Gumbel noise.
    unmoved : array, shape (texts,), or None
        Number of tokens at the start of each text that cannot change; above temperature 0 its
        expectation, given the text. None where the positions belong to no texts or leave some out,
        and above temperature 0 where the tokens are not given.
    whole_texts : int or None
        Number of texts of which no token can change; None where `unmoved` is, and above 0.
    """

    delta: float
    may_change: MeanInterval
    unmoved: Floats | None
    whole_texts: int | None

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON."""
        return {
            "delta": self.delta,
            "may_change": self.may_change.to_dict(),
            "unmoved": None if self.unmoved is None else self.unmoved.tolist(),
            "whole_texts": self.whole_texts,
        }


@dataclass(frozen=True, slots=True, eq=False)
class TextStability:
    """Stability of the tokens of some positions.

    Attributes
    ----------
    temperature : float
    margins : array, shape (positions,)
        Difference of the two largest logits; infinite where one token alone is possible.
    rows : tuple of StabilityRow
        One for each delta.
    moved : array, shape (positions,), or None
        Distance of the other run's logits: half the range of the differences.
    changed : int or None
        Number of positions whose likeliest token is another one in the other run.
    """

    temperature: float
    margins: Floats
    rows: tuple[StabilityRow, ...]
    moved: Floats | None = None
    changed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON; infinite margins are None."""
        return {
            "temperature": self.temperature,
            "rows": [row.to_dict() for row in self.rows],
            "margins": [x if x < np.inf else None for x in self.margins.tolist()],
            "moved": None if self.moved is None else self.moved.tolist(),
            "changed": self.changed,
        }


def text_stability(
    logits: Any,
    delta: float | Sequence[float] | None = None,
    *,
    other: Any = None,
    temperature: float = 0.0,
    tokens: Any = None,
    sequence: Any = None,
    position: Any = None,
    confidence: float = 0.95,
    kind: str | None = None,
) -> TextStability:
    r"""Share of tokens that may change, and where first, if no logit moves by more than delta.

    Greedy tokens can only change where the two largest logits are at most :math:`2 \delta` apart,
    an exact tie included; at every such place some change of that size does it. Tokens that are
    sampled with the same Gumbel noise can only change with a probability of at most
    :math:`1 - e^{-2 \delta / T}`, and the law of a token moves by at most
    :math:`\tanh(\delta / 2T)` in total variation. No such bound holds for passes that share one
    uniform number each, with which a token is read off the sums of the probabilities.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        Logits along texts, one row for each token, in any float type; of arrays [B, T, V] the first
        axis are the texts.
    delta : float or sequence of float, optional
        Largest move of a logit, up to what all logits of a position share.
    other : array_like, shape (..., V), optional
        Logits of another run at the same positions, in place of `delta`: each position has its own,
        half the range of the differences.
    temperature : float
        0 for greedy texts. Filters are not covered: a small change may move a token across one.
    tokens : array_like of int, shape (...), optional
        Tokens that were sampled, which say more where T > 0 about where a text may change first.
    sequence : array_like of int, shape (...), optional
        Text of each position.
    position : array_like of int, shape (...), optional
        Place of each position in its text; as the rows stand unless given.
    confidence : float
        Of the intervals, which are over texts.
    kind : {None, "logits", "logprobs", "probs"}
        What the rows are, see `acceptance_rates`.

    Returns
    -------
    TextStability

    Raises
    ------
    InvalidInput
        Neither or both of `delta` and `other`, one of them out of range or of another shape, or a
        token that only one run rules out.
    InvalidDistribution
        A row has a NaN or ``+inf`` or is all ``-inf``.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> found = mo.text_stability([[[3.0, 0.0, 1.0], [2.0, 1.9, 0.0], [0.0, 5.0, 0.0]]], 0.1)
    >>> found.margins.round(6).tolist(), found.rows[0].unmoved.tolist()
    ([2.0, 0.1, 5.0], [1.0])
    """
    check_sampling_parameters(temperature)
    check_confidence(confidence)
    opened = as_logits(Opened.of(logits, "logits"), kind)
    values = opened.numpy()
    if values.ndim == 0 or values.size == 0:
        raise InvalidInput(f"logits has shape {values.shape}: give rows of tokens, (..., V)")
    shape, size = values.shape[:-1], math.prod(values.shape[:-1])
    if (delta is None) == (other is None):
        raise InvalidInput("give delta, or the logits of another run as other=, one of them")
    texts = first_axis(shape) if sequence is None else _of_positions(sequence, "sequence", shape)
    starts = None if texts is None else _starts(texts, position, shape)
    drawn = None if tokens is None else _of_positions(tokens, "tokens", shape)
    if drawn is not None and not (drawn.min() >= 0 and drawn.max() < values.shape[-1]):
        raise InvalidInput(
            f"tokens has ids from {drawn.min()} to {drawn.max()}, and V is {values.shape[-1]}"
        )
    moved, changed, rows = None, None, []
    if other is not None:
        second = as_logits(Opened.of(other, "other"), kind).numpy()
        if second.shape != values.shape:
            raise InvalidInput(
                f"other has shape {second.shape}, logits {values.shape}: give the same"
            )
        moved, changed = _difference(values, second)
        deltas = [(float(moved.max()), moved)]
    else:
        tolerances = floats(delta, "delta").reshape(-1).tolist()
        checked = [checked_tolerance("delta", value, or_zero=True) for value in tolerances]
        deltas = [(value, np.full(size, value)) for value in checked]
        if not deltas:
            raise InvalidInput("delta is empty: give at least one number")
    margins = np.empty(size)
    chances, survival = np.empty((2, len(deltas), size))
    for start, block in _blocks(values, "logits"):
        here = slice(start, start + len(block))
        margins[here] = _margins(block)
        if temperature == 0:
            continue
        away = _others(block, temperature)
        for n, (_, each) in enumerate(deltas):
            scale = np.expm1(np.minimum(2.0 * each[here] / temperature, _MOST))[:, None]
            chances[n, here] = ((1.0 - away) * away * scale / (1.0 + scale * away)).sum(axis=1)
            if drawn is not None:
                of_token = np.take_along_axis(away, drawn[here, None], axis=1)
                survival[n, here] = (1.0 / (1.0 + scale * of_token))[:, 0]
    for n, (largest, each) in enumerate(deltas):
        if temperature == 0:
            chances[n] = margins <= 2.0 * each
            survival[n] = 1.0 - chances[n]
        share = mean_interval(chances[n], texts, confidence).within(0.0, 1.0)
        unmoved, whole = None, None
        if starts is not None and (temperature == 0 or drawn is not None):
            parts = [survival[n][text] for text in starts]
            unmoved = frozen(np.array([np.cumprod(part).sum() for part in parts]))
            whole = sum(bool(part.all()) for part in parts) if temperature == 0 else None
        rows.append(StabilityRow(largest, share, unmoved, whole))
    return TextStability(float(temperature), frozen(margins), tuple(rows), moved, changed)


def _of_positions(raw: Any, name: str, shape: tuple[int, ...]) -> Integers:
    """Integers, one for each position, flattened."""
    values = integers(raw, name)
    if values.shape != shape and values.shape != (math.prod(shape),):
        raise InvalidInput(f"{name} has shape {values.shape}: give one integer a position, {shape}")
    return values.astype(np.int64).reshape(-1)


def _starts(texts: Integers, position: Any, shape: tuple[int, ...]) -> list[Integers] | None:
    """Rows of each text in their order; None where places are left out between them."""
    places = (
        np.arange(texts.size) if position is None else _of_positions(position, "position", shape)
    )
    order = np.lexsort((places, texts))
    ends = np.flatnonzero(np.diff(texts[order])) + 1
    rows = np.split(order, ends)
    if position is not None and any((np.diff(places[text]) != 1).any() for text in rows):
        return None
    return rows


def _blocks(values: NDArray[Any], name: str) -> Iterator[tuple[int, Floats]]:
    """Rows in float64, some at a time, with the number of the first; bad ones are an error."""
    rows = values.reshape(-1, values.shape[-1])
    size = max(1, _NUMBERS_AT_ONCE // rows.shape[1])
    for start in range(0, len(rows), size):
        block = rows[start : start + size].astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(block.max(axis=1)))
        if bad.size:
            place = np.unravel_index(start + int(bad[0]), values.shape[:-1] or (1,))
            number = [int(n) for n in place] if values.ndim > 1 else []
            raise bad_row_error(name, number, block[bad[0]])
        yield start, block


def _margins(block: Floats) -> Floats:
    """Differences of the two largest numbers of each row; infinite for rows of one."""
    if block.shape[1] == 1:
        return np.full(len(block), np.inf)
    largest = np.partition(block, block.shape[1] - 2, axis=1)[:, -2:]
    result: Floats = largest[:, 1] - largest[:, 0]
    return result


def _others(block: Floats, temperature: float) -> Floats:
    """Probabilities 1 - p of all other tokens, without the rounding of p; overwrites the block."""
    best = block.argmax(axis=1)[:, None]
    with np.errstate(over="ignore"):  # tiny temperatures end at -inf
        weights = np.exp((block - np.take_along_axis(block, best, axis=1)) / temperature)
    np.put_along_axis(weights, best, 0.0, axis=1)
    rest = weights.sum(axis=1, keepdims=True)
    result: Floats = 1.0 - weights / (1.0 + rest)
    np.put_along_axis(result, best, rest / (1.0 + rest), axis=1)
    return result


def _difference(values: NDArray[Any], other: NDArray[Any]) -> tuple[Floats, int]:
    """Half the range of the differences of each row, and in how many the largest is elsewhere."""
    moved, changed = [], 0
    for (start, one), (_, two) in zip(
        _blocks(values, "logits"), _blocks(other, "other"), strict=True
    ):
        there = one > -np.inf
        lost = np.argwhere(there != (two > -np.inf))
        if lost.size:
            row, token = (int(n) for n in lost[0])
            raise InvalidInput(
                f"token {token} of position {start + row} is -inf in one run alone: no logit that "
                "moves by a finite amount does that"
            )
        with np.errstate(invalid="ignore"):
            away = two - one
        most = np.where(there, away, -np.inf).max(axis=1)
        least = np.where(there, away, np.inf).min(axis=1)
        moved.append((most - least) / 2.0)
        changed += int((one.argmax(axis=1) != two.argmax(axis=1)).sum())
    return frozen(np.concatenate(moved)), changed
