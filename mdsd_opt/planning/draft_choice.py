"""Draft schemes ranked by the acceptance that is possible with them, at equal K."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Floats
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.long_runs import available_threads, map_rows, progress_bar
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.batch import acceptance_rates
from mdsd_opt.drafts import (
    SINGLE_MODEL_SCHEMES,
    DraftScheme,
    FixedPlusDrafts,
    MixtureDrafts,
    WithoutReplacement,
    WithReplacement,
    checked_scheme,
)
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName, UnsupportedScheme
from mdsd_opt.evidence import MeanInterval, mean_interval
from mdsd_opt.planning.draft_temperature import (
    BestTemperature,
    best_draft_temperature,
    require_no_filter,
)
from mdsd_opt.problem import TransportProblem, inclusion_bound

__all__ = [
    "BestTemperature",
    "SchemeComparison",
    "SchemeRate",
    "best_draft_temperature",
    "compare_draft_schemes",
]


#: Factors of the draft's own temperature that are compared.
TEMPERATURE_FACTORS = (0.7, 1.4)

#: Largest K at which all ways to draft are compared, of which there are K + 7.
MAX_DRAFTS = 64

_BEST_TEMPERED = "with_replacement, best draft temperature of each position"


def scheme_label(name: str) -> str:
    """Label of a way to draft, in at most 42 letters if it is one of the package."""
    short = name.replace("best draft temperature of each position", "best draft T of each")
    short = short.replace("draft temperature x ", "draft T x ")
    return short.replace("_", " ").replace("top k", "top-K")


@dataclass(frozen=True, slots=True)
class SchemeRate:
    """Optimal acceptance rate of one way to draft, and its distance from the best.

    Attributes
    ----------
    scheme : str
    acceptance : MeanInterval
        Mean optimal acceptance rate.
    behind : MeanInterval
        Mean difference from the best scheme, position by position.
    gap : float
        Largest amount that the scheme may reach beyond this on average: it is not zero where its
        best draft temperatures were searched to a tolerance.
    """

    scheme: str
    acceptance: MeanInterval
    behind: MeanInterval
    gap: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON."""
        means = {**self.acceptance.to_dict(), "behind": self.behind.to_dict()}
        return {"scheme": self.scheme, **means, "gap": self.gap}


@dataclass(frozen=True, slots=True)
class SchemeComparison:
    """Draft schemes in order of their optimal acceptance rates, the best first.

    Attributes
    ----------
    num_drafts : int
    num_positions : int
    rates : tuple of SchemeRate
    left_out : tuple of str
        Schemes that do not exist at some position, such as a mixture where there are no more
        tokens than drafts.
    inclusion : MeanInterval or None
        Bound that no law of draft sets exceeds which drafts every token as often as draws without
        replacement do, see `mdsd_opt.inclusion_bound`. None unless asked for.
    """

    num_drafts: int
    num_positions: int
    rates: tuple[SchemeRate, ...]
    left_out: tuple[str, ...]
    inclusion: MeanInterval | None = None

    def to_dict(self) -> dict[str, Any]:
        """Fields, ready for JSON."""
        return {
            "num_drafts": self.num_drafts,
            "num_positions": self.num_positions,
            "rates": [row.to_dict() for row in self.rates],
            "left_out": list(self.left_out),
            "inclusion_bound": None if self.inclusion is None else self.inclusion.to_dict(),
        }

    @property
    def inclusion_note(self) -> str:
        """Line that states the inclusion bound."""
        assert self.inclusion is not None
        return f"marginals of drafts without replacement allow at most {self.inclusion.shown}"

    def __str__(self) -> str:
        """Table of at most 80 columns."""
        rows = [(scheme_label(row.scheme), row) for row in self.rates]
        table = ranking(f"drafts, K = {self.num_drafts}", rows, self.rates[0])
        return f"{table}\n{self.inclusion_note}" if self.inclusion else table


def ranking(title: str, rows: Iterable[tuple[str, Any]], best: Any) -> str:
    """Table of at most 80 columns: names of rates, their `acceptance`, and how far `behind`."""
    form = "{:<42.42} {:>19.19} {:>17.17}"
    lines = [form.format(title, "acceptance", "behind the best")]
    for name, row in rows:
        behind = "" if row is best else row.behind.shown
        lines.append(form.format(name, row.acceptance.shown, behind))
    return "\n".join(lines)


def means_of(
    rates: Floats, best: Floats, groups: Any, confidence: float
) -> tuple[MeanInterval, MeanInterval]:
    """Mean of some rates, and mean of what they are behind the best, position by position."""
    acceptance = mean_interval(rates, groups, confidence).within(0.0, 1.0)
    return acceptance, mean_interval(best - rates, groups, confidence).within(-1.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    target: NDArray[Any]
    draft: NDArray[Any]
    num_drafts: int
    of_target: Sampling
    of_draft: Sampling
    num_threads: int

    def batched(self, scheme: str, factor: float = 1.0) -> Floats:
        """Rates by `acceptance_rates`, at `factor` times the draft temperature."""
        setting = replace(self.of_draft, temperature=self.of_draft.temperature * factor)
        rates = acceptance_rates(
            self.target, self.draft, self.num_drafts, scheme, sampling=self.of_target,
            draft_sampling=setting, num_threads=self.num_threads, kind="logits",
        )  # fmt: skip
        return np.asarray(rates)

    def solved(self, make: Callable[[Floats], DraftScheme]) -> Floats:
        """Rates by the solver, position by position, for schemes that have no batched rates."""
        from mdsd_opt.solvers import solve

        return self._by_position(
            lambda problem: solve(problem, "subset_selection").acceptance_rate, make
        )

    def inclusion_bounds(self) -> Floats:
        """Inclusion bound of draws without replacement at each position."""
        return self._by_position(
            inclusion_bound, partial(WithoutReplacement, num_drafts=self.num_drafts)
        )

    def best_tempered(self, gaps: dict[str, float]) -> Floats:
        """Rates at the best temperature of each position; the mean gap is put in `gaps`."""

        def best(row: int) -> BestTemperature:
            return best_draft_temperature(
                self.target[row], self.draft[row], self.num_drafts,
                temperature=self.of_target.temperature, kind="logits",
            )  # fmt: skip

        _, rates, bounds = np.array(self._mapped(best)).T
        gaps[_BEST_TEMPERED] = float((bounds - rates).mean())
        return rates

    def _by_position(
        self, measure: Callable[[TransportProblem], float], make: Callable[[Floats], DraftScheme]
    ) -> Floats:
        def at(row: int) -> float:
            drafts = make(self.of_draft.law(self.draft[row]))
            return measure(TransportProblem(self.of_target.law(self.target[row]), drafts))

        return np.array(self._mapped(at))

    def _mapped(self, function: Callable[[int], Any]) -> list[Any]:
        return map_rows(function, len(self.target), self.num_threads, "compare_schemes")


def _ways(num_drafts: int) -> dict[str, Callable[[_Sample], Floats]]:
    """Ways to draft that are compared, each with the function that finds its rates."""
    sampled = ("with_replacement", "without_replacement")
    ways: dict[str, Callable[[_Sample], Floats]] = {
        scheme: partial(_Sample.batched, scheme=scheme) for scheme in (*sampled, "greedy", "top_k")
    }
    for scheme in sampled:
        for factor in TEMPERATURE_FACTORS:
            tempered = partial(_Sample.batched, scheme=scheme, factor=factor)
            ways[f"{scheme}, draft temperature x {factor:g}"] = tempered
    if num_drafts > 1:
        halves = partial(_half_and_half, num_drafts=num_drafts)
        ways["half with, half without replacement"] = partial(_Sample.solved, make=halves)
    for fixed in range(1, num_drafts - 1):
        make = partial(_top_and, fixed=fixed, num_drafts=num_drafts)
        name = f"top {fixed} and {num_drafts - fixed} without replacement"
        ways[name] = partial(_Sample.solved, make=make)
    return ways


def _half_and_half(q: NDArray[np.float64], num_drafts: int) -> DraftScheme:
    return MixtureDrafts(
        [(0.5, WithReplacement(q, num_drafts)), (0.5, WithoutReplacement(q, num_drafts))]
    )


def _top_and(q: NDArray[np.float64], fixed: int, num_drafts: int) -> DraftScheme:
    """Scheme that drafts the likeliest tokens, and the rest without replacement."""
    likeliest = np.argsort(-q, kind="stable")[:fixed].tolist()
    rest = q.copy()
    rest[likeliest] = 0.0
    if not rest.any():
        raise UnsupportedScheme("no token is left to draw beside the likeliest ones")
    return FixedPlusDrafts(likeliest, WithoutReplacement(rest / rest.sum(), num_drafts - fixed))


def scheme_names(num_drafts: int = 3) -> list[str]:
    """Names of the ways to draft that `compare_draft_schemes` compares."""
    return list(_ways(num_drafts))


@of_logits()
def compare_draft_schemes(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int = 3,
    *,
    schemes: Sequence[str] | None = None,
    best_temperature: bool = False,
    inclusion: bool = False,
    sequence: Any = None,
    confidence: float = 0.95,
    num_threads: int | None = None,
    progress: bool = False,
    **options: Unpack[LogitsKeywords],
) -> SchemeComparison:
    """Rank draft schemes by their optimal acceptance rate at equal K.

    Compared are draws with and without replacement at several draft temperatures, greedy, top-K, a
    mixture, and the likeliest tokens beside draws without replacement. The optimum is what the
    `optimal` verifier reaches; what a scheme costs to draw is not part of the comparison.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Or a pair of them, `mdsd_opt.Logits`, as the first argument.
    num_drafts : int
    schemes : sequence of str, optional
        Names among `scheme_names()`, which are all taken by default; or registered ones, or
        ``"module:attribute"``, see `mdsd_opt.drafts.register`.
    best_temperature : bool
        Whether to compare the best draft temperature of every position too, see
        `best_draft_temperature`. To know it takes the target: it is a limit, not a scheme.
    inclusion : bool
        Whether to bound every law that knows the draft's law alone and drafts each token as often
        as draws without replacement do; it takes longer than their rates.
    sequence : array_like of int, optional
        Sequence of each position, for the intervals; for arrays [B, T, V] it is the first axis
        unless given.
    confidence : float
        Confidence of the intervals.
    num_threads : int, optional
    progress : bool
        Show a progress bar on stderr.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`.

    Returns
    -------
    SchemeComparison

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> compared = mo.compare_draft_schemes([[2.0, 1.0, 0.0]], [[0.0, 1.0, 2.0]], num_drafts=2)
    >>> compared.rates[0].scheme
    'without_replacement, draft temperature x 1.4'
    """
    pair = Logits.of(target_logits, draft_logits, options)
    pair.require_open_draft(apart=True)
    if best_temperature:
        require_no_filter(pair.reading.target)
    logits, (target, draft) = LogitsSample.of(pair, sequence), pair.placed()
    sample = _Sample(
        target.reshape(-1, target.shape[-1]),
        draft.reshape(-1, draft.shape[-1]),
        num_drafts,
        pair.reading.target,
        pair.reading.draft,
        available_threads() if num_threads is None else num_threads,
    )
    if schemes is None and num_drafts > MAX_DRAFTS:
        raise ProblemTooLarge(
            f"num_drafts is {num_drafts}: all ways to draft are compared up to K = {MAX_DRAFTS}. "
            "Draft fewer tokens, or name some schemes."
        )
    ways = _ways(num_drafts)
    for name in schemes if schemes is not None else ():
        if name in ways:
            continue
        if name not in SINGLE_MODEL_SCHEMES and ":" not in name:
            raise UnknownName.among("draft scheme", name, [*ways, *SINGLE_MODEL_SCHEMES])
        ways[name] = partial(_Sample.batched, scheme=checked_scheme(name))
    chosen = {name: ways[name] for name in (ways if schemes is None else schemes)}
    gaps: dict[str, float] = {}
    if best_temperature:
        chosen[_BEST_TEMPERED] = partial(_Sample.best_tempered, gaps=gaps)
    if not chosen:
        raise InvalidInput(f"no schemes given: choose from {', '.join(ways)}")
    by_scheme: dict[str, Floats] = {}
    left_out = []
    with progress_bar("draft schemes", len(chosen), progress) as advance:
        for name, way in chosen.items():
            try:
                by_scheme[name] = way(sample)
            except UnsupportedScheme:
                left_out.append(name)
            advance(1)
    if not by_scheme:
        raise UnsupportedScheme(f"{', '.join(left_out)}: not possible at every position")
    groups = logits.texts
    best = max(by_scheme.values(), key=lambda rates: float(rates.mean()))
    ranked = sorted(by_scheme.items(), key=lambda item: -float(item[1].mean()))
    rates = tuple(
        SchemeRate(name, *means_of(column, best, groups, confidence), gaps.get(name, 0.0))
        for name, column in ranked
    )
    bound = None
    if inclusion:
        bound = mean_interval(sample.inclusion_bounds(), groups, confidence).within(0.0, 1.0)
    return SchemeComparison(num_drafts, len(sample.target), rates, tuple(left_out), bound)
