"""Search for the filter and the temperature of a draft with which most is accepted.

One setting serves all positions, as in an engine. Each rate is the optimum of its setting; nothing
is claimed of settings that were not tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Unpack

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.checked import check_confidence, checked_integer, floats, of_kind
from mdsd_opt.base.frames import Column, Result
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import checked_scheme
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval
from mdsd_opt.planning.draft_search import DraftRows, Rated, ranking

#: Filters that are tried, each alone, beside none and the target's own.
FILTERS = (
    *(Sampling(top_k=k) for k in (5, 10, 20, 50, 100)),
    *(Sampling(top_p=p) for p in (0.8, 0.9, 0.95, 0.98)),
    *(Sampling(min_p=p) for p in (0.02, 0.05, 0.1)),
)

#: Temperatures that are tried beside the target's own.
TEMPERATURES = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4)

#: Ratio of temperatures at which the search between them ends.
_NEAR = 1.02

#: Difference up to which rates are equal, as it may come of rounding.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class FilterRate(Rated):
    """A setting of the draft, its temperature and filters, with its acceptance rate."""

    sampling: Sampling

    columns: ClassVar = (
        Column("draft_sampling", of=lambda rate: rate.sampling), "*acceptance", "behind",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BestFilter(Result):
    """Tried settings of a draft, the best first; of equal ones the simplest.

    Attributes
    ----------
    scheme : str
    num_drafts : int
    target : Sampling
        Temperature and filters of the target.
    num_positions : int
    rates : tuple of FilterRate
    """

    scheme: str
    num_drafts: int
    target: Sampling
    num_positions: int
    rates: tuple[FilterRate, ...]

    columns: ClassVar = ("scheme", "num_drafts", "target", "num_positions", "rates")

    @property
    def sampling(self) -> Sampling:
        """Best setting of the draft."""
        return self.rates[0].sampling

    @property
    def acceptance(self) -> MeanInterval:
        """Optimal acceptance rate of the best setting."""
        return self.rates[0].acceptance

    @property
    def ties(self) -> tuple[FilterRate, ...]:
        """Settings that accept as much as the best one, itself among them."""
        least = self.acceptance.mean - _EQUAL
        return tuple(row for row in self.rates if row.acceptance.mean >= least)

    def rate_of(self, sampling: Sampling) -> FilterRate:
        """Rate of one of the settings; `InvalidInput` if it was not tried."""
        for row in self.rates:
            if row.sampling == sampling:
                return row
        raise InvalidInput(f"{sampling} was not tried")

    def __str__(self) -> str:
        """Table of at most 80 columns: the best setting beside the target's and none."""
        title = f"{self.scheme.replace('_', ' ')}, K = {self.num_drafts}"
        return ranking(title, self.shown, self.rates[0])

    @property
    def shown(self) -> list[tuple[str, FilterRate]]:
        """Settings for a table, with their names: the best, the target's own, and no filter."""
        plain = Sampling(self.target.temperature)
        settings = {f"best: {setting_shown(self.sampling)}": self.sampling, "no filter": plain}
        if self.target != plain:
            settings["as the target"] = self.target
        return [(name, self.rate_of(setting)) for name, setting in settings.items()]


def setting_shown(sampling: Sampling) -> str:
    """Text such as T = 0.7, top-k 20, for a setting."""
    names = {"top_k": "top-k", "top_p": "top-p", "min_p": "min-p"}
    filters = [
        f"{name} {value:g}" for field, name in names.items()
        if (value := getattr(sampling, field)) is not None
    ]  # fmt: skip
    if sampling.joint:
        filters.append("joint")
    return ", ".join([f"T = {sampling.temperature:.3g}", *filters])


@of_logits()
def best_draft_filter(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int = 3,
    drafts: str = "with_replacement",
    *,
    filters: Iterable[Sampling] | None = None,
    temperatures: Iterable[float] | None = None,
    sequence: Any = None,
    confidence: float = 0.95,
    num_threads: int | None = None,
    progress: bool = False,
    **options: Unpack[LogitsKeywords],
) -> BestFilter:
    r"""Find the filter and temperature of the draft that accept most on average, of those tried.

    Each setting's rate is the optimum of every position, computed from the laws: what is best of
    the settings is best for certain, up to the choice of the positions, and intervals are over
    that. Every filter is tried at every temperature; then the temperature of the best of them is
    sought between its neighbours, halfway each time. `BestFilter.rates` lists all that was tried;
    a setting in between may accept more.

    A filter that leaves out the tokens D of the draft lowers the optimum by p(D) at most, and it
    can raise it only if D reaches into every set H at which the optimum is attained.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Or a pair of them, `mdsd_opt.Logits`, as the first argument.
    num_drafts : int
        K.
    drafts : {"with_replacement", "without_replacement", "greedy", "top_k"}
        Scheme by which the drafts are drawn from the filtered law.
    filters : iterable of Sampling, optional
        Filters to try, whose temperatures do not matter; by default top-k from 5 to 100, top-p from
        .8 to .98 and min-p from .02 to .1, each alone. No filter and the target's are always tried.
    temperatures : iterable of float, optional
        Temperatures to try, from .5 to 1.4 by default. The target's is always tried.
    sequence : array_like of int, optional
        Sequence of each position, for the intervals; for arrays [B, T, V] it is the first axis
        unless given.
    confidence : float
        Confidence of the intervals.
    num_threads : int, optional
    progress : bool
        Show a progress bar on stderr.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`; temperature
        and filters are the target's, which stay as they are.

    Returns
    -------
    BestFilter

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> best = mo.best_draft_filter([[3.0, 2.0, 0.0]], [[2.0, 2.5, 2.5]], 1,
    ...                              sampling=mo.Sampling(top_k=2))
    >>> best.sampling.top_k, round(best.acceptance.mean, 3)
    (2, 0.75)
    """
    checked_integer(num_drafts, "num_drafts")
    drafts = checked_scheme(drafts)
    check_confidence(confidence)
    pair = Logits.of(target_logits, draft_logits, options)
    pair.require_open_draft()
    rows, chosen = DraftRows.of(pair, sequence, num_threads), pair.reading.target
    asked = num_drafts, drafts, progress
    by_setting = rows.of_settings(_grid(chosen, filters, temperatures), *asked)
    best = max(by_setting, key=lambda setting: float(by_setting[setting].mean()))
    while closer := _closer(best, by_setting):
        by_setting |= rows.of_settings(closer, *asked)
    means = {setting: float(rates.mean()) for setting, rates in by_setting.items()}
    most = max(means.values())

    def place(setting: Sampling) -> tuple[float, int, float]:
        """Key of a setting: its gap, its number of filters, its distance from the target in T."""
        behind = most - means[setting]
        num_filters = sum(x is not None for x in (setting.top_k, setting.top_p, setting.min_p))
        away = abs(setting.temperature - chosen.temperature)
        return (0.0 if behind <= _EQUAL else behind, num_filters, away)

    ranked = {setting: by_setting[setting] for setting in sorted(by_setting, key=place)}
    rated = rows.rated(ranked, next(iter(ranked.values())), confidence)
    rates = tuple(FilterRate(*means, setting) for setting, means in rated.items())
    return BestFilter(drafts, num_drafts, chosen, len(rows), rates)


def _grid(
    target: Sampling, filters: Iterable[Sampling] | None, temperatures: Iterable[float] | None
) -> list[Sampling]:
    """Settings of every filter at every temperature, each once."""
    choices = [*of_kind(FILTERS if filters is None else filters, Iterable, "filters", "a list")]
    if not all(isinstance(x, Sampling) for x in choices):
        raise InvalidInput(f"filters is {choices!r:.60}: give some of mdsd_opt.Sampling(top_k=...)")
    asked = TEMPERATURES if temperatures is None else temperatures
    warm = floats([*of_kind(asked, Iterable, "temperatures", "a list")], "temperatures").ravel()
    every = [Sampling(), target, *choices]
    return list(
        dict.fromkeys(
            replace(x, temperature=float(t)) for x in every for t in (target.temperature, *warm)
        )
    )


def _closer(best: Sampling, rates: dict[Sampling, Floats]) -> list[Sampling]:
    """Settings halfway from the best temperature of a filter to its neighbours that are far."""
    tried = {x.temperature: x for x in rates if replace(x, temperature=best.temperature) == best}
    warm = sorted(tried)
    place = warm.index(max(warm, key=lambda t: float(rates[tried[t]].mean())))
    return [
        replace(best, temperature=math.sqrt(low * high))
        for low, high in pairwise(warm[max(place - 1, 0) : place + 2])
        if low > 0 and high / low > _NEAR
    ]
