"""Search among ways to draft: their optimal acceptance rates at the same positions, and the best.

A filter leaves a few of the draft's tokens. The others are never drafted, so that the optimum is
attained on a set H without them, and they count as one token of their mass of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Floats, Integers
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.frames import Result
from mdsd_opt.base.logits import Logits
from mdsd_opt.base.long_runs import available_threads, map_rows, progress_bar, threaded
from mdsd_opt.base.sampling import Sampling, bad_row_error
from mdsd_opt.batch import acceptance_rates
from mdsd_opt.errors import InvalidDistribution
from mdsd_opt.evidence import MeanInterval, mean_interval

Key = TypeVar("Key")

#: Schemes that never draft a token of probability zero, as one that is plugged in may.
_KNOWN = ("with_replacement", "without_replacement", "greedy", "top_k")

#: Number of tokens whose laws a thread holds at once, some megabytes.
_TOKENS_AT_ONCE = 1 << 17

#: Least probability that is not zero.
_TINY = np.finfo(float).smallest_subnormal


@dataclass(frozen=True, slots=True)
class Rated(Result):
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
            size = max(_TOKENS_AT_ONCE // self.target.shape[-1], 1)
            blocks = [slice(n, n + size) for n in range(0, len(self) if cut else 0, size)]
            at = partial(self._of_block, settings=cut, num_drafts=num_drafts, scheme=scheme)
            parts = []
            for part in threaded(at, blocks, self.num_threads, "draft_search"):
                parts.append(part)
                advance(part.size)
        columns |= zip(cut, np.concatenate(parts, axis=1) if parts else (), strict=True)
        return {setting: columns[setting] for setting in settings}

    def _of_block(
        self, rows: slice, settings: Sequence[Sampling], num_drafts: int, scheme: str
    ) -> Floats:
        """Rates from the tokens that settings keep, ordered by temperature; a row for each."""
        p = _laws("target_logits", self.target, rows, self.of_target)
        logits = self.draft[rows].astype(np.float64)
        order = np.argsort(-logits) if any(x.masks_tokens for x in settings) else None
        with np.errstate(divide="ignore"):
            log_p = np.log(p)
        rates = []
        for (temperature, is_cut), alike in groupby(settings, key=_temperature_first):
            group, plain = [*alike], Sampling(temperature)
            q = _laws("draft_logits", self.draft, rows, plain)
            few = DraftRows(log_p, logits, Sampling(), plain, None, 1)
            if is_cut and order is not None:
                least = _least_kept(np.take_along_axis(q, order, axis=-1), group)
                few = few.kept(q >= np.maximum(least, _TINY)[..., None], p)
            of_group = few.rates(num_drafts, scheme).reshape(-1, len(p))
            rates.append(np.broadcast_to(of_group, (len(group), len(p))))
        return np.concatenate(rates)

    def kept(self, flags: Flags, p: Floats) -> DraftRows:
        """Rows of the tokens that each of several settings keeps, and of the rest in one.

        The flags have shape (settings, N, V), and the targets, of law p, are logarithms.
        """
        count, size = len(self), p.shape[-1]
        places, tokens = np.divmod(np.flatnonzero(flags), size)
        sizes = np.bincount(places, minlength=flags.size // size)
        columns = np.arange(places.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        source = places % count, tokens
        sides = np.full((2, sizes.size, sizes.max() + 1), -np.inf)
        sides[:, places, columns] = self.target[source], self.draft[source]
        rest = 1.0 - np.bincount(places, p[source], sizes.size)
        with np.errstate(divide="ignore"):
            sides[0, np.arange(sizes.size), sizes] = np.log(np.maximum(rest, 0.0))
        return replace(self, target=sides[0], draft=sides[1])


def _laws(name: str, values: NDArray[Any], rows: slice, sampling: Sampling) -> Floats:
    try:
        return sampling.law(values[rows])
    except InvalidDistribution:
        row = rows.start + int(np.argmin(np.isfinite(values[rows].max(axis=-1))))
        raise bad_row_error(name, [row], values[row]) from None


def _temperature_first(setting: Sampling) -> tuple[float, bool]:
    """Key by which settings are computed together: those without a filter have wide rows."""
    return setting.temperature, setting.masks_tokens


def _least_kept(descending: Floats, settings: Sequence[Sampling]) -> Floats:
    """Least probabilities that filters keep of rows in descending order, (settings, N)."""
    has_top_p = any(x.top_p is not None for x in settings)
    before = np.cumsum(descending, axis=-1) - descending if has_top_p else descending
    least = np.zeros((len(settings), len(descending)))
    for x, floor in zip(settings, least, strict=True):
        mass: Any = 1.0
        if x.top_k is not None and x.top_k < descending.shape[-1]:
            floor[:] = descending[:, x.top_k - 1]
            if not x.joint:
                mass = np.sum(descending, axis=-1, where=descending >= floor[:, None])[:, None]
        if x.top_p is not None and x.top_p < 1:
            last = np.count_nonzero(before < x.top_p * mass, axis=-1)[:, None] - 1
            np.maximum(floor, np.take_along_axis(descending, last, axis=-1)[:, 0], out=floor)
        np.maximum(floor, (x.min_p or 0.0) * descending[:, 0], out=floor)
    return least
