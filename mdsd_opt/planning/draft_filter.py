"""Search for the filter and the temperature of a draft with which most is accepted.

One setting serves all positions, as in an engine. Each rate is the optimum of its setting; nothing
is claimed of settings that were not tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.checked import check_confidence
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.long_runs import available_threads, progress_bar, threaded
from mdsd_opt.base.sampling import Sampling, bad_row_error
from mdsd_opt.batch import acceptance_rates, checked_integer
from mdsd_opt.errors import InvalidDistribution, InvalidInput
from mdsd_opt.evidence import MeanInterval
from mdsd_opt.planning.draft_choice import means_of, ranking

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

#: Schemes that never draft a token of probability zero, as one that is plugged in may.
_KNOWN = ("with_replacement", "without_replacement", "greedy", "top_k")

#: Difference up to which rates are equal, as it may come of rounding.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class FilterRate:
    """A setting of the draft with its acceptance rate.

    Attributes
    ----------
    sampling : Sampling
        Temperature and filters of the draft.
    acceptance : MeanInterval
        Mean optimal acceptance rate.
    behind : MeanInterval
        Mean difference from the best setting, position by position.
    """

    sampling: Sampling
    acceptance: MeanInterval
    behind: MeanInterval

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON."""
        return {
            "draft_sampling": asdict(self.sampling), **self.acceptance.to_dict(),
            "behind": self.behind.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class BestFilter:
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

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON."""
        return {
            "scheme": self.scheme, "num_drafts": self.num_drafts, "target": asdict(self.target),
            "num_positions": self.num_positions, "rates": [row.to_dict() for row in self.rates],
        }  # fmt: skip

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
    check_confidence(confidence)
    pair = Logits.of(target_logits, draft_logits, options)
    pair.require_open_draft()
    sample, chosen = LogitsSample.of(pair, sequence), pair.reading.target
    target, draft = (x.reshape(-1, x.shape[-1]) for x in pair.placed())
    threads = available_threads() if num_threads is None else num_threads
    rates_at = _Rates(target, draft, chosen, num_drafts, drafts, threads, progress)
    by_setting = rates_at(_grid(chosen, filters, temperatures), "draft filters")
    best = max(by_setting, key=lambda setting: float(by_setting[setting].mean()))
    while closer := _closer(best, by_setting):
        by_setting |= rates_at(closer, "draft temperature")
    means = {setting: float(rates.mean()) for setting, rates in by_setting.items()}
    most = max(means.values())

    def place(setting: Sampling) -> tuple[float, int, float]:
        """Key of a setting: its gap, its number of filters, its distance from the target in T."""
        behind = most - means[setting]
        num_filters = sum(x is not None for x in (setting.top_k, setting.top_p, setting.min_p))
        away = abs(setting.temperature - chosen.temperature)
        return (0.0 if behind <= _EQUAL else behind, num_filters, away)

    ranked = sorted(by_setting, key=place)
    best_rates = by_setting[ranked[0]]
    rates = tuple(
        FilterRate(setting, *means_of(by_setting[setting], best_rates, sample.texts, confidence))
        for setting in ranked
    )
    return BestFilter(drafts, num_drafts, chosen, sample.num_positions, rates)


@dataclass(frozen=True, slots=True, eq=False)
class _Rates:
    """Optimal rates of settings of the draft at every position.

    A filter leaves a few of the draft's tokens. The others are never drafted, no set H at which the
    optimum is attained has one of them, and they count as one token of their mass of the target.
    The order of a row's tokens serves all settings, and the law of a temperature all filters.
    """

    target: NDArray[Any]
    draft: NDArray[Any]
    of_target: Sampling
    num_drafts: int
    scheme: str
    num_threads: int
    progress: bool

    def __call__(self, settings: Sequence[Sampling], title: str) -> dict[Sampling, Floats]:
        """Rates of each setting, shape (N,)."""
        cut = [
            x for x in sorted(settings, key=_temperature_first)
            if self.scheme in _KNOWN and (x.masks_tokens or self.of_target.masks_tokens)
        ]  # fmt: skip
        whole = [x for x in settings if x not in cut]
        count = len(self.target)
        by_setting: dict[Sampling, Floats] = {}
        with progress_bar(title, count * len(settings), self.progress) as advance:
            for setting in whole:
                by_setting[setting] = self.whole(setting)
                advance(count)
            rows = []
            at = partial(self.of_row, settings=cut)
            for row in threaded(at, range(count if cut else 0), self.num_threads, "draft_filters"):
                rows.append(row)
                advance(len(cut))
        by_setting |= zip(cut, np.transpose(rows), strict=True)
        return {setting: by_setting[setting] for setting in settings}

    def whole(self, setting: Sampling) -> Floats:
        """Rates of one setting from all tokens, shape (N,)."""
        return self._rates(self.target, self.draft, self.of_target, setting, self.num_threads)

    def of_row(self, row: int, settings: Sequence[Sampling]) -> Floats:
        """Rates of a position by settings in order of their temperatures, from tokens kept."""
        p = self._law("target_logits", self.target, row, self.of_target)
        logits = self.draft[row].astype(np.float64)
        order = np.argsort(-logits) if any(x.masks_tokens for x in settings) else slice(None)
        rates = []
        for (temperature, _), group in groupby(settings, key=_temperature_first):
            plain = Sampling(temperature)
            q = self._law("draft_logits", self.draft, row, plain)
            least = np.maximum(_least_kept(q[order], [*group]), np.finfo(float).smallest_subnormal)
            kept = [np.flatnonzero(q >= x) for x in least]
            cut = np.full((2, len(kept), max(map(len, kept)) + 1), -np.inf)
            for n, tokens in enumerate(kept):
                with np.errstate(divide="ignore"):
                    cut[0, n, : tokens.size] = np.log(p[tokens])
                    cut[0, n, tokens.size] = np.log(max(1.0 - p[tokens].sum(), 0.0))
                cut[1, n, : tokens.size] = logits[tokens]
            rates.append(self._rates(cut[0], cut[1], Sampling(), plain, 1))
        return np.concatenate(rates)

    def _rates(
        self, target: Any, draft: Any, of_target: Sampling, of_draft: Sampling, num_threads: int
    ) -> Floats:
        rates = acceptance_rates(
            target, draft, self.num_drafts, self.scheme, num_threads=num_threads, kind="logits",
            sampling=of_target, draft_sampling=of_draft,
        )  # fmt: skip
        return np.asarray(rates)

    def _law(self, name: str, rows: NDArray[Any], row: int, sampling: Sampling) -> Floats:
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


def _grid(
    target: Sampling, filters: Iterable[Sampling] | None, temperatures: Iterable[float] | None
) -> list[Sampling]:
    """Settings of every filter at every temperature, each once."""
    choices = list(FILTERS if filters is None else filters)
    if not all(isinstance(x, Sampling) for x in choices):
        raise InvalidInput(f"filters is {choices!r:.60}: give some of mdsd_opt.Sampling(top_k=...)")
    warm = TEMPERATURES if temperatures is None else tuple(temperatures)
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
