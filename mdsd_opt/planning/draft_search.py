"""Search among ways to draft: their optimal acceptance rates at the same positions, and the best.

A filter leaves a few of the draft's tokens. The others are never drafted, so that the optimum is
attained on a set H without them, and they count as one token of their mass of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats, Integers
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.logits import Logits
from mdsd_opt.base.long_runs import available_threads, map_rows, progress_bar, threaded
from mdsd_opt.base.sampling import Sampling, bad_row_error
from mdsd_opt.batch import acceptance_rates
from mdsd_opt.errors import InvalidDistribution
from mdsd_opt.evidence import MeanInterval, mean_interval

Key = TypeVar("Key")

#: Schemes that never draft a token of probability zero, as one that is plugged in may.
_KNOWN = ("with_replacement", "without_replacement", "greedy", "top_k")

#: Least probability that is not zero.
_TINY = np.finfo(float).smallest_subnormal


@dataclass(frozen=True, slots=True)
class Rated:
    """A way to draft with its optimal acceptance rate.

    Attributes
    ----------
    acceptance : MeanInterval
        Mean optimal acceptance rate.
    behind : MeanInterval
        Mean difference from the best, position by position.
    """

    acceptance: MeanInterval
    behind: MeanInterval

    @property
    def means(self) -> dict[str, Any]:
        """Both means, ready for JSON."""
        return {**self.acceptance.to_dict(), "behind": self.behind.to_dict()}


def ranking(title: str, rows: Iterable[tuple[str, Rated]], best: Rated) -> str:
    """Table of at most 80 columns: names of rates, their `acceptance`, and how far `behind`."""
    form = "{:<42.42} {:>19.19} {:>17.17}"
    lines = [form.format(title, "acceptance", "behind the best")]
    for name, row in rows:
        behind = "" if row is best else row.behind.shown
        lines.append(form.format(name, row.acceptance.shown, behind))
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class DraftRows:
    """Logits of both models at N positions, each row of the same width, and how they are read."""

    target: NDArray[Any]
    draft: NDArray[Any]
    of_target: Sampling
    of_draft: Sampling
    texts: Integers | None
    num_threads: int

    @classmethod
    def of(cls, pair: Logits, sequence: Any = None, num_threads: int | None = None) -> DraftRows:
        """Rows of a pair; `InvalidInput` where there is none, or leading axes differ."""
        texts = LogitsSample.of(pair, sequence).texts
        target, draft = (x.reshape(-1, x.shape[-1]) for x in pair.placed())
        threads = available_threads() if num_threads is None else num_threads
        return cls(target, draft, pair.reading.target, pair.reading.draft, texts, threads)

    def __len__(self) -> int:
        return len(self.target)

    def rates(
        self, num_drafts: int | Sequence[int], scheme: str, of_draft: Sampling | None = None
    ) -> Floats:
        """Optimal rates of a scheme, shape (N,) or (N, len(num_drafts))."""
        rates = acceptance_rates(
            self.target, self.draft, num_drafts, scheme, num_threads=self.num_threads,
            kind="logits", sampling=self.of_target, draft_sampling=of_draft or self.of_draft,
        )  # fmt: skip
        return np.asarray(rates)

    def by_position(self, function: Callable[[int], Any]) -> list[Any]:
        """Values of a function of the position."""
        return map_rows(function, len(self), self.num_threads, "draft_search")

    def rated(
        self, columns: Mapping[Key, Floats], best: Floats, confidence: float
    ) -> dict[Key, tuple[MeanInterval, MeanInterval]]:
        """Mean of each column of rates, and what it is behind the best, position by position."""
        return {
            key: (
                mean_interval(rates, self.texts, confidence).within(0.0, 1.0),
                mean_interval(best - rates, self.texts, confidence).within(-1.0, 1.0),
            )
            for key, rates in columns.items()
        }

    def of_settings(
        self,
        settings: Sequence[Sampling],
        num_drafts: int,
        scheme: str,
        progress: bool = False,
    ) -> dict[Sampling, Floats]:
        """Rates at each temperature and filter of the draft, shape (N,).

        Where a side is filtered, the order of a row's tokens serves all settings, and the law of
        a temperature all filters.
        """
        cut = [
            x for x in sorted(settings, key=_temperature_first)
            if scheme in _KNOWN and (x.masks_tokens or self.of_target.masks_tokens)
        ]  # fmt: skip
        columns: dict[Sampling, Floats] = {}
        with progress_bar("draft filters", len(self) * len(settings), progress) as advance:
            for setting in settings:
                if setting not in cut:
                    columns[setting] = self.rates(num_drafts, scheme, setting)
                    advance(len(self))
            rows = []
            at = partial(self._of_row, settings=cut, num_drafts=num_drafts, scheme=scheme)
            places = range(len(self) if cut else 0)
            for row in threaded(at, places, self.num_threads, "draft_search"):
                rows.append(row)
                advance(len(cut))
        columns |= zip(cut, np.transpose(rows), strict=True)
        return {setting: columns[setting] for setting in settings}

    def _of_row(
        self, row: int, settings: Sequence[Sampling], num_drafts: int, scheme: str
    ) -> Floats:
        """Rates of a position by settings in order of their temperatures, from tokens kept."""
        p = _law("target_logits", self.target, row, self.of_target)
        logits = self.draft[row].astype(np.float64)
        order = np.argsort(-logits) if any(x.masks_tokens for x in settings) else slice(None)
        with np.errstate(divide="ignore"):
            log_p = np.log(p)
        rates = []
        for (temperature, is_cut), alike in groupby(settings, key=_temperature_first):
            group, plain = [*alike], Sampling(temperature)
            sides = np.array([[log_p], [logits]])
            q = _law("draft_logits", self.draft, row, plain)
            if is_cut:
                least = np.maximum(_least_kept(q[order], group), _TINY)
                kept = [np.flatnonzero(q >= x) for x in least]
                sides = np.full((2, len(kept), max(map(len, kept)) + 1), -np.inf)
                for n, tokens in enumerate(kept):
                    sides[:, n, : tokens.size] = log_p[tokens], logits[tokens]
                    rest = 1.0 - p[tokens].sum()
                    sides[0, n, tokens.size] = np.log(rest) if rest > 0 else -np.inf
            few = DraftRows(sides[0], sides[1], Sampling(), plain, None, 1)
            rates.append(np.broadcast_to(few.rates(num_drafts, scheme), len(group)))
        return np.concatenate(rates)


def _law(name: str, rows: NDArray[Any], row: int, sampling: Sampling) -> Floats:
    try:
        return sampling.law(rows[row])
    except InvalidDistribution:
        raise bad_row_error(name, [row], rows[row]) from None


def _temperature_first(setting: Sampling) -> tuple[float, bool]:
    """Key by which settings are computed together: those without a filter have wide rows."""
    return setting.temperature, setting.masks_tokens


def _least_kept(descending: Floats, settings: Sequence[Sampling]) -> list[float]:
    """Least probability that the filters of each setting keep, by a law in descending order."""
    has_top_p = any(x.top_p is not None for x in settings)
    before = np.cumsum(descending) - descending if has_top_p else descending
    least = []
    for x in settings:
        floor, mass = 0.0, 1.0
        if x.top_k is not None and x.top_k < descending.size:
            floor = float(descending[x.top_k - 1])
            mass = 1.0 if x.joint else float(descending[descending >= floor].sum())
        if x.top_p is not None and x.top_p < 1:
            floor = max(floor, float(descending[np.count_nonzero(before < x.top_p * mass) - 1]))
        least.append(max(floor, (x.min_p or 0.0) * float(descending[0])))
    return least
