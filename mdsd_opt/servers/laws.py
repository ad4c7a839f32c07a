"""Law of the next token as a server states it: the likeliest tokens, and the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.errors import InvalidDistribution, InvalidInput
from mdsd_opt.evidence import NoTokenLeft, promised

#: Mass missing from the listed tokens that is still attributed to rounding.
ROUNDING = 1e-5

#: Difference of logits that noise may reverse at a temperature of zero.
NEAR_TIE = 0.05

#: Sum of the listed probabilities beyond 1 from which on it is an error: logprobs of bfloat16 are
#: off by a 512th of themselves, more than those of floats that go through files.
_TOO_MUCH = 1e-2


class Law:
    """Law of one token, as far as it is known, in cells.

    Each listed token is a cell, in falling order of probability; a last cell holds all tokens that
    are not listed, if there are any. Where the share of these is not known, as after a temperature
    was put on the likeliest tokens alone, the law is that of a token given that it is listed.

    Parameters
    ----------
    ids : iterable of int
        Distinct token ids.
    p : iterable of float
        Their probabilities; those of zero are left out.
    rest : float or None, optional
        Probability of all tokens that are not listed; None if it is not known. By default what the
        others lack to one, and nothing where that is no more than rounding.
    """

    __slots__ = ("_sorted", "ids", "is_open", "p", "rest", "results")

    def __init__(
        self, ids: Iterable[int], p: Iterable[float], rest: float | None = math.nan
    ) -> None:
        names = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int64)
        masses = np.asarray(p if isinstance(p, np.ndarray) else list(p), dtype=np.float64)
        if names.shape != masses.shape or names.ndim != 1:
            raise InvalidDistribution(f"{names.size} tokens have {masses.size} probabilities")
        if not np.isfinite(masses).all() or (masses < 0).any():
            raise InvalidDistribution("a probability is negative, or no number")
        order = np.argsort(-masses, kind="stable")[: int(np.count_nonzero(masses))]
        names, listed = names[order], masses[order]
        total = float(listed.sum())
        if rest is not None and math.isnan(rest):
            rest = max(1.0 - total, 0.0)
            if total > 1.0 + _TOO_MUCH:
                raise InvalidDistribution(f"the probabilities of one token sum to {total:.6g}")
        if total <= 0.0:
            raise InvalidDistribution("no listed token has a probability")
        self.is_open = rest is None
        self.rest = 0.0 if rest is None or rest <= ROUNDING else float(rest)
        cells = np.append(listed, self.rest) if self.rest else listed
        self.ids = names
        self.p: Floats = cells / cells.sum()
        order = np.argsort(names)
        self._sorted = names[order], order
        if (np.diff(self._sorted[0]) == 0).any():
            raise InvalidDistribution("a token is listed twice")
        #: Results by the function that made them, each with the other laws that it was made for.
        self.results: dict[Any, tuple[tuple[Law, ...], Any]] = {}

    @classmethod
    def of(cls, values: Any) -> Law:
        """Law of a row of probabilities or of a mapping from ids to them; a `Law` is unchanged."""
        if isinstance(values, cls):
            return values
        if isinstance(values, Mapping):
            return cls(values.keys(), values.values())
        row = np.asarray(values, dtype=np.float64)
        if row.ndim != 1:
            raise InvalidDistribution(f"a law has shape {row.shape}: give one row of probabilities")
        if abs(float(row.sum()) - 1.0) > _TOO_MUCH:
            raise InvalidDistribution(f"the probabilities of one token sum to {row.sum():.6g}")
        (held,) = np.nonzero(row)
        return cls(held, row[held], 0.0)

    def cell(self, token: int) -> int | None:
        """Cell of a token; None if it is impossible or, in an open law, not listed."""
        (met,) = np.nonzero(self.ids == token)
        if met.size:
            return int(met[0])
        return self.ids.size if self.rest else None

    def mass_before(self, cell: int) -> float:
        """Mass of the listed tokens with a smaller id, or of all of them for the last cell."""
        listed = self.p[: self.ids.size]
        if cell == self.ids.size:
            return float(listed.sum())
        return float(listed[self.ids < self.ids[cell]].sum())

    def onto(self, other: Law) -> Floats | None:
        """Another law on the cells of this one; None if they share no token."""
        held = np.zeros(self.p.size)
        place, met = self._places(other.ids)
        weights = other.p[: other.ids.size]
        held[place[met]] = weights[met]
        if self.rest:
            held[-1] += weights[~met].sum() + other.rest
        total = held.sum()
        return held / total if total > 0.0 else None

    def _places(self, ids: Any) -> tuple[Any, Any]:
        """Cells of some ids, and flags of those that are listed."""
        sorted_ids, order = self._sorted
        places = np.minimum(np.searchsorted(sorted_ids, ids), sorted_ids.size - 1)
        return order[places], sorted_ids[places] == ids

    def shared(self, other: Law) -> tuple[Floats, Floats]:
        """Probabilities in both laws of the tokens that both list."""
        place, met = self._places(other.ids)
        return self.p[place[met]], other.p[: other.ids.size][met]

    def under(self, promise: Any, text: Sequence[int], prompt: Sequence[int]) -> Law | None:
        """Law that a promise makes of this one; None if it leaves no token.

        Where tokens are not listed, it is that of a token given that it is listed.
        """
        row = np.zeros(1 + max(*self.ids.tolist(), *text, *prompt))
        row[self.ids] = self.p[: self.ids.size]
        others = row == 0
        # the other tokens as they may be, and another level of the logits
        whole = (row + others * self.rest / max(others.sum(), 1)) / math.e
        try:
            law, again = (promised(promise, text, x, prompt)[self.ids] for x in (row, whole))
        except NoTokenLeft:
            return None
        if not np.allclose(law * again.sum(), again * law.sum(), atol=1e-6):
            raise InvalidInput(
                f"the promise after {(*prompt, *text)} changes with what the likeliest tokens' "
                "log-probabilities do not tell: the level of the logits, by which a repetition "
                "penalty divides, or the other tokens, which top-p counts. Let the server give "
                "log-probabilities after its sampler, logprobs='processed', without a promise"
            )
        return Law(self.ids, law, None if self.rest else 0.0)

    def to_record(self) -> dict[str, Any]:
        """Law in the form of a log's line."""
        listed = self.p[: self.ids.size]
        rest = float(self.p[-1]) if self.rest and not self.is_open else 0.0
        record = {"ids": self.ids.tolist(), "p": listed.tolist()}
        return {**record, "rest": None if self.is_open else rest}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Law:
        """Law from the form of a log's line."""
        return cls(record["ids"], record["p"], record["rest"])


def distance(one: Law, other: Law) -> float:
    r"""Total variation :math:`\frac12\sum_i |p_i - p'_i|` on the tokens that both can tell.

    A token that only one of them lists is counted with what the other has not listed.
    """
    p, q = one.shared(other)
    return float(np.abs(p - q).sum() + abs(p.sum() - q.sum())) / 2.0


def law_of_logprobs(
    logprobs: Mapping[int, float], sampling: Any, is_raw: bool, count: int | None = None
) -> Law | None:
    r"""Law of one token from the log-probabilities of the likeliest ones.

    Where these were taken before the sampler (`is_raw`), :math:`p_i \propto \exp(\ell_i / T)` on
    what the filters keep. A temperature other than one leaves the share of the tokens that are not
    listed unknown, unless a filter shuts them out: the law is then open.

    Parameters
    ----------
    logprobs : mapping
        Token id to natural logarithm; of a list to which a server adds the token that came, the
        `count` likeliest alone are taken, as cells must not depend on what came.
    sampling : Sampling
        Sampling of the request.
    is_raw : bool
        Whether the logarithms were taken before temperature and filters.
    count : int, optional
        Tokens that were asked for.

    Returns
    -------
    Law or None
        None at a temperature of zero where the two likeliest are so near that noise decides.
    """
    pairs = sorted(logprobs.items(), key=lambda pair: -pair[1])[:count]
    support = [pair for pair in pairs if pair[1] > -math.inf]
    ids = np.array([i for i, _ in support], dtype=np.int64)
    logs = np.array([x for _, x in support])
    if sampling.temperature == 0:
        if logs.size > 1 and logs[0] - logs[1] < NEAR_TIE:
            return None
        return Law(ids[:1], [1.0], 0.0)
    if not is_raw:
        return Law(ids, np.exp(logs))
    raw_rest = max(1.0 - float(np.exp(logs).sum()), 0.0)
    is_whole = raw_rest <= ROUNDING
    weights = np.exp((logs - logs[0]) / sampling.temperature)
    seen, sees_all = weights.copy(), is_whole
    if sampling.top_k is not None and sampling.top_k <= ids.size:
        weights[sampling.top_k :] = 0.0
        is_whole = True
    if sampling.top_p is not None:
        if not sampling.joint:
            seen, sees_all = weights.copy(), is_whole
        total = seen.sum() + (0.0 if sees_all else raw_rest * np.exp(-logs[0]))
        if not sees_all and sampling.temperature != 1:
            beside = "" if sampling.joint else ", or set top_k as well"
            raise InvalidDistribution(
                "top_p cannot be told from raw log-probabilities of the likeliest tokens at a "
                f"temperature: let the server give those after its sampler{beside}"
            )
        if (seen.sum() >= sampling.top_p * total) or sees_all:
            weights[np.cumsum(seen) - seen >= sampling.top_p * total] = 0.0
            is_whole = True
    if sampling.min_p is not None:
        is_whole = is_whole or bool(weights[-1] < sampling.min_p)
        weights[weights < sampling.min_p] = 0.0
    if is_whole:
        return Law(ids, weights / weights.sum(), 0.0)
    if sampling.temperature == 1 and sampling.min_p is None and sampling.top_k is None:
        return Law(ids, np.exp(logs), raw_rest)
    return Law(ids, weights / weights.sum(), None)
