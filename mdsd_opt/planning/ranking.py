"""Ways to draft ranked by the acceptance that is possible with them: schemes, filters and models.

Each rate is the optimum of its way at every position, computed from the laws: what is best of those
that were tried is best for certain, up to the choice of the positions, and intervals are over that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, groupby, pairwise, product
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.checked import (
    check_confidence,
    check_truth,
    checked_integer,
    checked_names,
    floats,
    of_kind,
)
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.drafts import (
    SINGLE_MODEL_SCHEMES,
    DraftScheme,
    FixedPlusDrafts,
    MixtureDrafts,
    WithoutReplacement,
    WithReplacement,
    checked_num_drafts,
    checked_scheme,
)
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName, UnsupportedScheme
from mdsd_opt.evidence import MeanInterval, mean_interval
from mdsd_opt.planning.advice import Advice, advise
from mdsd_opt.planning.costs import COST_NAMES
from mdsd_opt.planning.draft_search import (
    Candidate,
    DraftRows,
    best_draft_temperature,
    require_no_filter,
    temperature_first,
)
from mdsd_opt.planning.options import speedup_cell
from mdsd_opt.problem import inclusion_bound

#: Factors of the draft's own temperature that are compared.
TEMPERATURE_FACTORS = (0.7, 1.4)

#: Largest K at which all ways to draft, K + 7 of them, are compared.
MAX_DRAFTS = 64

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

#: Keywords of `advise` that each draft has alike.
_COSTS = ("max_drafts", *(x for x in COST_NAMES if x not in ("target_ms", "draft_ms")))

_BEST_TEMPERED = Candidate("with_replacement, best draft temperature of each position")


@dataclass(frozen=True, slots=True)
class Rated(Result):
    """A way to draft with its optimal acceptance rate.

    Attributes
    ----------
    candidate : Candidate
    num_drafts : int
    acceptance : MeanInterval
        Mean optimal acceptance rate.
    behind : MeanInterval
        Mean difference from the best of single drafts at this K, position by position; negative
        where two together are ahead.
    gap : float
        Largest amount that it may reach beyond this on average: it is not zero where its best draft
        temperatures were searched to a tolerance.
    name, scheme, draft : str
        Name of the candidate.
    sampling : Sampling or None
        Its temperature and filters.
    """

    candidate: Candidate
    num_drafts: int
    acceptance: MeanInterval
    behind: MeanInterval
    gap: float = 0.0

    columns: ClassVar = (
        "name", "num_drafts", Column("draft_sampling", of="sampling"), "*acceptance",
        "behind", "gap",
    )  # fmt: skip

    @property
    def name(self) -> str:
        return self.candidate.name

    scheme = draft = name

    @property
    def sampling(self) -> Sampling | None:
        return self.candidate.sampling


@dataclass(frozen=True, slots=True, eq=False)
class Ranking(Result):
    """Ways to draft, the best first; of equal ones that with fewest filters, at the target's T.

    Attributes
    ----------
    num_drafts : int or tuple of int
        K as asked for: of several, ranks are those of each.
    num_positions : int
    rates : tuple of Rated
    left_out : tuple of str
        Ways that do not exist at some position, such as a mixture where there are no more tokens
        than drafts.
    """

    num_drafts: int | tuple[int, ...]
    num_positions: int
    rates: tuple[Rated, ...]
    left_out: tuple[str, ...] = ()

    @property
    def acceptance(self) -> MeanInterval:
        """Optimal acceptance rate of the best."""
        return self.rates[0].acceptance

    #: Of the table, on a page.
    heading: ClassVar[str] = "Draft schemes"

    @property
    def title(self) -> str:
        """Title of the table."""
        return f"ways to draft at K = {self.num_drafts}: the optimal acceptance of each"

    @property
    def caption(self) -> str:
        """What stands below the table."""
        return (
            f"not possible at every position: {'; '.join(self.left_out)}" if self.left_out else ""
        )

    @property
    def shown(self) -> list[tuple[str, Rated]]:
        """Rows of the table, with their names."""
        return [(scheme_label(row.name), row) for row in self.rates]

    def tables(self) -> list[Table]:
        """Table of the ways to draft, the best first; differences are position by position."""
        return [Table(self.title, _COLUMNS, self.shown, self.caption, heading=self.heading)]

    def __str__(self) -> str:
        return "\n".join(map(str, self.tables()))


class _Gapped(NamedTuple):
    """A mean and the largest error of it."""

    value: MeanInterval
    gap: float

    @property
    def shown(self) -> str:
        """Text of both, of the mean alone where there is no error."""
        return self.value.shown + (f" (gap {self.gap:.0e})" if self.gap > 0 else "")

    def to_dict(self) -> dict[str, Any]:
        """Fields of the mean, and the error."""
        return {**self.value.to_dict(), "gap": self.gap}


#: Columns of a table of ways to draft, each with its name.
_COLUMNS = (
    Column("name", "drafts", of=lambda way: way[0], is_text=True),
    Column("num_drafts", "K", of=lambda way: way[1].num_drafts),
    Column("acceptance", "", "{0.shown}", lambda way: _Gapped(way[1].acceptance, way[1].gap)),
    Column(
        "behind", "behind the best",
        lambda x: x.shown if x.value.high or x.value.low else "",
        lambda way: _Gapped(way[1].behind, way[1].gap),
    ),
)  # fmt: skip


def scheme_label(name: str) -> str:
    """Label of a way to draft, in at most 37 letters if it is one of the package."""
    short = name.replace("best draft temperature of each position", "best T of each")
    short = short.replace("draft temperature x ", "draft T x ")
    return short.replace("_", " ").replace("top k", "top-K")


class Search:
    """Rates of candidates at the positions of a pair, each computed once."""

    def __init__(
        self,
        pair: Logits,
        num_drafts: int | Sequence[int],
        sequence: Any = None,
        num_threads: int | None = None,
        progress: bool = False,
    ) -> None:
        several = isinstance(num_drafts, Iterable)
        ks = [*num_drafts] if several else [num_drafts]  # type: ignore[misc]
        self.ks = sorted({checked_integer(k, "num_drafts") for k in ks})
        if not self.ks:
            raise InvalidInput("num_drafts is empty: give some K, such as (1, 2, 4)")
        self.num_drafts = tuple(self.ks) if several else self.ks[0]
        self.rows = DraftRows.of(pair, sequence, num_threads)
        self.columns: dict[Candidate, Floats] = {}  # (N, len(ks))
        self.left_out: list[str] = []
        self._opened: dict[int, DraftRows] = {}  # by the pair
        self._progress = progress

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Rate candidates; those that differ in temperature and filters alone share the work."""
        rows, every = self.rows, [*candidates]
        shared = [x for x in every if rows.is_shared(x)]
        with progress_bar("ways to draft", len(rows) * len(every), self._progress) as advance:
            for one in every:
                if one not in shared:
                    try:
                        self.columns[one] = self._rates(one)
                    except UnsupportedScheme:
                        self.left_out.append(one.name)
                    advance(len(rows))
            for scheme, some in groupby(shared, key=lambda x: str(x.scheme)):
                alike = sorted(
                    ((x.sampling, x) for x in some if x.sampling is not None),
                    key=lambda one: temperature_first(one[0]),
                )
                parts = []
                for part in rows.of_settings([x for x, _ in alike], self.ks, scheme):
                    parts.append(part)
                    advance(part.shape[0] * part.shape[1])
                rates = np.concatenate(parts, axis=1)
                self.columns |= {one: x for (_, one), x in zip(alike, rates, strict=True)}

    def _rates(self, one: Candidate) -> Floats:
        pairs = one.draft if isinstance(one.draft, tuple) else (one.draft,)
        for pair in pairs:
            if pair is not None and id(pair) not in self._opened:
                opened = DraftRows.of(pair, None, self.rows.num_threads)
                if len(opened) != len(self.rows):
                    raise InvalidInput(
                        f"{one.name} has {len(opened)} positions, and the pair {len(self.rows)}: "
                        "give drafts of the same positions"
                    )
                self._opened[id(pair)] = opened
        rows, *others = (self.rows if x is None else self._opened[id(x)] for x in pairs)
        if others:
            return rows.mixed(others, self.ks, one.scheme)
        return rows.rates(self.ks, one.scheme, one.sampling)

    def ranked(
        self, confidence: float, gaps: Mapping[Candidate, float] | None = None
    ) -> tuple[Rated, ...]:
        """Rows of the ranking, the best of each K first."""
        if not self.columns:
            raise UnsupportedScheme(f"{', '.join(self.left_out)}: not possible at every position")
        rates = []
        for n, k in enumerate(self.ks):
            of_k = {one: x[:, n] for one, x in self.columns.items()}
            means = {one: float(x.mean()) for one, x in of_k.items()}

            def place(one: Candidate, of: dict[Candidate, float] = means) -> tuple[float, ...]:
                """Key: the gap, the number of filters, the distance from the target in T."""
                setting, behind = one.sampling or self.rows.of_draft, max(of.values()) - of[one]
                filters = sum(x is not None for x in (setting.top_k, setting.top_p, setting.min_p))
                away = abs(setting.temperature - self.rows.of_target.temperature)
                return (0.0 if behind <= _EQUAL else behind, filters, away)

            ordered = sorted(of_k, key=place)
            best = next((x for x in ordered if not isinstance(x.draft, tuple)), ordered[0])
            for one in ordered:
                mean, behind = (
                    mean_interval(x, self.rows.texts, confidence).within(least, 1.0)
                    for x, least in ((of_k[one], 0.0), (of_k[best] - of_k[one], -1.0))
                )
                rates.append(Rated(one, k, mean, behind, (gaps or {}).get(one, 0.0)))
        return tuple(rates)


def rank_drafts(
    pair: Logits,
    candidates: Iterable[Candidate],
    num_drafts: int | Sequence[int] = 3,
    *,
    sequence: Any = None,
    confidence: float = 0.95,
    num_threads: int | None = None,
    progress: bool = False,
) -> Ranking:
    """Rank ways to draft by their optimal acceptance rates at the same positions.

    `compare_draft_schemes`, `best_draft_filter` and `compare_drafts` generate candidates.

    Parameters
    ----------
    pair : Logits
    candidates : iterable of Candidate
    num_drafts : int or sequence of int
        K.
    sequence : array_like of int, optional
        Text of each position, for the intervals; for arrays [B, T, V] it is the first axis unless
        given.
    confidence : float
        Confidence of the intervals, which are over texts; differences are of the same positions.
    num_threads : int, optional
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    Ranking

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> from mdsd_opt.planning import Candidate, rank_drafts
    >>> pair = mo.Logits([[2.0, 1.0, 0.0]], [[0.0, 1.0, 2.0]])
    >>> ways = [Candidate("drawn"), Candidate("cool", sampling=mo.Sampling(0.5))]
    >>> rank_drafts(pair, ways, 2).rates[0].name
    'drawn'
    """
    check_confidence(confidence)
    search = Search(pair, num_drafts, sequence, num_threads, progress)
    search.add(candidates)
    rates = search.ranked(confidence)
    return Ranking(search.num_drafts, len(search.rows), rates, tuple(search.left_out))


# --- schemes ---


@dataclass(frozen=True, slots=True, eq=False)
class SchemeComparison(Ranking):
    """Draft schemes in order of their optimal acceptance rates, the best first.

    Attributes
    ----------
    inclusion : MeanInterval or None
        Bound that no law of draft sets exceeds which drafts every token as often as draws without
        replacement do, see `mdsd_opt.inclusion_bound`. None unless asked for.
    """

    inclusion: MeanInterval | None = None

    columns: ClassVar = (
        "num_drafts", "num_positions", "rates", "left_out",
        Column("inclusion_bound", of="inclusion"),
    )  # fmt: skip

    @property
    def caption(self) -> str:
        bound = "" if self.inclusion is None else self.inclusion.shown
        note = bound and f"marginals of drafts without replacement allow at most {bound}"
        return "\n".join(filter(None, [super(SchemeComparison, self).caption, note]))


def _schemes(num_drafts: int, draft: Sampling) -> Iterator[Candidate]:
    """Ways to draft that are compared."""
    sampled = ("with_replacement", "without_replacement")
    yield from (Candidate(x, x) for x in (*sampled, "greedy", "top_k"))
    for scheme, factor in product(sampled, TEMPERATURE_FACTORS):
        warmer = replace(draft, temperature=draft.temperature * factor)
        yield Candidate(f"{scheme}, draft temperature x {factor:g}", scheme, warmer)
    if num_drafts > 1:
        yield Candidate("half with, half without replacement", _half_and_half)
    for fixed in range(1, num_drafts - 1):
        name = f"top {fixed} and {num_drafts - fixed} without replacement"
        yield Candidate(name, partial(_top_and, fixed))


def _half_and_half(q: Floats, num_drafts: int) -> DraftScheme:
    return MixtureDrafts(
        [(0.5, WithReplacement(q, num_drafts)), (0.5, WithoutReplacement(q, num_drafts))]
    )


def _top_and(fixed: int, q: Floats, num_drafts: int) -> DraftScheme:
    """Scheme that drafts the likeliest tokens, and the rest without replacement."""
    likeliest = np.argsort(-q, kind="stable")[:fixed].tolist()
    rest = q.copy()
    rest[likeliest] = 0.0
    if not rest.any():
        raise UnsupportedScheme("no token is left to draw beside the likeliest ones")
    return FixedPlusDrafts(likeliest, WithoutReplacement(rest / rest.sum(), num_drafts - fixed))


def scheme_names(num_drafts: int = 3) -> list[str]:
    """Names of the ways to draft that `compare_draft_schemes` compares."""
    return [way.name for way in _schemes(num_drafts, Sampling())]


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
    check_truth(best_temperature=best_temperature, inclusion=inclusion)
    pair = Logits.of(target_logits, draft_logits, options)
    pair.require_open_draft(apart=True)
    if best_temperature:
        require_no_filter(pair.reading.target)
    if checked_num_drafts(num_drafts) > MAX_DRAFTS and schemes is None:
        raise ProblemTooLarge(
            f"num_drafts is {num_drafts}: all ways to draft are compared up to K = {MAX_DRAFTS}. "
            "Draft fewer tokens, or name some schemes."
        )
    search = Search(pair, num_drafts, sequence, num_threads, progress)
    ways = {way.name: way for way in _schemes(num_drafts, search.rows.of_draft)}
    names = [*ways] if schemes is None else checked_names(schemes, "schemes")
    for name in names:
        if name not in ways and name not in SINGLE_MODEL_SCHEMES and ":" not in name:
            raise UnknownName.among("draft scheme", name, [*ways, *SINGLE_MODEL_SCHEMES])
    if not names and not best_temperature:
        raise InvalidInput(f"no schemes given: choose from {', '.join(ways)}")
    search.add(ways.get(name) or Candidate(name, checked_scheme(name)) for name in names)
    gaps = {}
    if best_temperature:
        found = np.array(search.rows.by_position(partial(_best_temperature, search)))
        search.columns[_BEST_TEMPERED] = found[:, :1]
        gaps[_BEST_TEMPERED] = float((found[:, 1] - found[:, 0]).mean())
    bound = None
    if inclusion:
        bounds = search.rows.by_problem(num_drafts, WithoutReplacement, inclusion_bound)
        bound = mean_interval(bounds, search.rows.texts, confidence).within(0.0, 1.0)
    rates = search.ranked(confidence, gaps)
    return SchemeComparison(num_drafts, len(search.rows), rates, tuple(search.left_out), bound)


def _best_temperature(search: Search, row: int) -> tuple[float, float]:
    """Rate at the best temperature of a position, and the bound on it."""
    rows = search.rows
    best = best_draft_temperature(
        rows.target[row], rows.draft[row], search.ks[0], kind="logits",
        temperature=rows.of_target.temperature,
    )  # fmt: skip
    return best.acceptance_rate, best.upper_bound


# --- filters and temperatures ---


@dataclass(frozen=True, slots=True, eq=False)
class BestFilter(Ranking):
    """Tried settings of a draft, the best first; of equal ones the simplest.

    Attributes
    ----------
    scheme : str
    target : Sampling
        Temperature and filters of the target.
    """

    scheme: str = ""
    target: Sampling = field(default_factory=Sampling)

    columns: ClassVar = ("scheme", "num_drafts", "target", "num_positions", "rates")

    @property
    def sampling(self) -> Sampling:
        """Best setting of the draft."""
        assert self.rates[0].sampling is not None
        return self.rates[0].sampling

    @property
    def ties(self) -> tuple[Rated, ...]:
        """Settings that accept as much as the best one, itself among them."""
        least = self.acceptance.mean - _EQUAL
        return tuple(row for row in self.rates if row.acceptance.mean >= least)

    def rate_of(self, sampling: Sampling) -> Rated:
        """Rate of one of the settings; `InvalidInput` if it was not tried."""
        for row in self.rates:
            if row.sampling == sampling:
                return row
        raise InvalidInput(f"{sampling} was not tried")

    heading: ClassVar[str] = "Filters of the draft"

    @property
    def title(self) -> str:
        return (
            f"temperature and filters of the draft, {scheme_label(self.scheme)}, at K = "
            f"{self.num_drafts};\nthe target has {setting_shown(self.target)}; higher is better"
        )

    @property
    def caption(self) -> str:
        return f"best on these texts of {len(self.rates)} settings: on others another may be"

    @property
    def shown(self) -> list[tuple[str, Rated]]:
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
    search, chosen = Search(pair, num_drafts, sequence, num_threads, progress), pair.reading.target
    settings = _grid(chosen, filters, temperatures)
    while settings:
        search.add(Candidate(setting_shown(x), drafts, x) for x in settings)
        settings = _closer({x.sampling: float(y.mean()) for x, y in search.columns.items()})
    rates = search.ranked(confidence)
    return BestFilter(num_drafts, len(search.rows), rates, (), drafts, chosen)


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


def _closer(means: Mapping[Any, float]) -> list[Sampling]:
    """Settings halfway from the best temperature of a filter to its neighbours that are far."""
    best = max(means, key=means.__getitem__)
    tried = {x.temperature: x for x in means if replace(x, temperature=best.temperature) == best}
    warm = sorted(tried)
    place = warm.index(max(warm, key=lambda t: means[tried[t]]))
    return [
        replace(best, temperature=math.sqrt(low * high))
        for low, high in pairwise(warm[max(place - 1, 0) : place + 2])
        if low > 0 and high / low > _NEAR
    ]


# --- models ---


@dataclass(frozen=True, slots=True, eq=False)
class DraftComparison(Ranking):
    """Drafts of one target at the same positions, and every two together, at every K.

    Attributes
    ----------
    scheme : str
    advice : dict of str to Advice
        What each draft brings at its costs, where these are given.
    """

    scheme: str = ""
    advice: dict[str, Advice] = field(default_factory=dict)

    columns: ClassVar = (
        "scheme", "num_positions", "rates", "best", "fastest", "by_batch", "advice",
    )  # fmt: skip

    @property
    def best(self) -> dict[int, str]:
        """Single draft that accepts most, by K; of equal ones the first."""
        single = [row for row in self.rates if " | " not in row.draft]
        return {
            k: max((x for x in single if x.num_drafts == k), key=lambda x: x.acceptance.mean).draft
            for k in dict.fromkeys(row.num_drafts for row in single)
        }

    @property
    def fastest(self) -> str | None:
        """Draft with the largest speed-up; None without costs."""
        return max(self.advice, key=lambda x: self.advice[x].speedup) if self.advice else None

    @property
    def by_batch(self) -> dict[int, str]:
        """Fastest draft by the texts together, "none" for plain decoding; of costs by rows."""
        gains: dict[int, dict[str, float]] = {}
        for name, advice in self.advice.items():
            for point in advice.batches:
                of = gains.setdefault(point.batch_size, {"none": 1.0})
                of[name] = max(point.tree, point.chain)
        return {batch: max(of, key=of.__getitem__) for batch, of in gains.items()}

    @property
    def sentences(self) -> list[str]:
        """Decision in words: the best by K, the fastest, and what two together bring."""
        sentences = []
        for k, name in self.best.items():
            others = [x for x in self.rates if x.num_drafts == k and x.draft != name]
            near = [x.draft for x in others if " | " not in x.draft and not x.behind.low > 0]
            pairs = [x for x in others if " | " in x.draft]
            tied = f", not told apart from {', '.join(near)}" if near else ""
            line = f"K = {k}: {name} accepts most{tied}"
            if pairs:
                most = max(pairs, key=lambda x: x.acceptance.mean)
                sign = "more" if most.behind.mean < 0 else "less"
                ends = sorted(abs(x) for x in (most.behind.low, most.behind.high))
                sure = most.behind.low * most.behind.high > 0
                within = f" [{ends[0]:.4f}, {ends[1]:.4f}]" if sure else " (not told apart)"
                line += f"; {most.draft} {abs(most.behind.mean):.4f} {sign}{within}"
            sentences.append(f"{line}.")
        if self.fastest is not None:
            sentences.append(f"Fastest: {self.fastest}. {self.advice[self.fastest].sentence}")
        return sentences

    @property
    def shown(self) -> list[tuple[str, Rated]]:
        rows = sorted(self.rates, key=lambda row: (row.num_drafts, -row.acceptance.mean))
        return [(row.name, row) for row in rows]

    @property
    def title(self) -> str:
        return (
            "optimal acceptance of K drafts, and what is missing to the best single one\n"
            "a | b draws every token from one of two, by a coin; both have to run"
        )

    def tables(self) -> list[Table]:
        """Tables of the rates by K, and of what each draft brings at its costs."""
        best = [(name, one.costs.told, one.rows[0]) for name, one in self.advice.items()]
        title = "the best of each draft at its costs"
        speeds = [Table(title, _SPEEDS, best, heading="Speed")] if best else []
        return [*super(DraftComparison, self).tables(), *speeds]

    def __str__(self) -> str:
        return "\n".join([*self.sentences, *map(str, self.tables())])


#: Columns of the best of each draft, given with its name and its costs in words.
_SPEEDS = (
    Column("draft", of=lambda each: each[0], is_text=True),
    Column("costs", of=lambda each: each[1], is_text=True),
    Column("drafts", "drafts of a step", of=lambda each: each[2].in_words, is_text=True),
    Column("speedup", "speed-up", speedup_cell, lambda each: each[2].speedup),
    Column("accepted", "", "{0:.3f}", lambda each: each[2].accepted),
)


def compare_drafts(
    target_logits: Any,
    drafts: Mapping[str, Any],
    num_drafts: int | Sequence[int] = (1, 2, 3, 4),
    scheme: str = "with_replacement",
    *,
    mixtures: bool = True,
    target_ms: Any = None,
    draft_ms: Any = None,
    sequence: Any = None,
    confidence: float = 0.95,
    num_threads: int | None = None,
    progress: bool = False,
    costs: Mapping[str, Any] | None = None,
    **options: Unpack[LogitsKeywords],
) -> DraftComparison:
    r"""Compare drafts of one target on the same texts, and what a mixture of two would bring.

    Of a mixture every token is drawn from one of two drafts, by a coin:
    :math:`q = (q_a + q_b) / 2`, a draft like any other, with its optimum.

    Parameters
    ----------
    target_logits : array_like, shape (..., V)
    drafts : mapping of str to array_like, shape (..., V)
        Logits of each draft at the same positions, by its name.
    num_drafts : int or sequence of int
        K.
    scheme : str
        Scheme by which the K drafts are drawn, as for `acceptance_rates`.
    mixtures : bool
        Whether every two drafts are tried together; not where a draft has a part of the tokens.
    target_ms, draft_ms : optional
        Milliseconds of passes, as for `advise`, or those of each draft by its name. With them
        `DraftComparison.advice` has the best tree and the speed-up of each draft.
    sequence : array_like of int, optional
        Text of each position, for the intervals; for arrays [B, T, V] it is the first axis unless
        given.
    confidence : float
        Confidence of the intervals, which are over texts; differences are of the same positions.
    num_threads : int, optional
    progress : bool
        Show a progress bar on stderr.
    costs : mapping, optional
        Further arguments of `advise`, such as ``{"rows_ms": {1: 20, 64: 40}, "batch_size": 8}``.
    **options
        How laws are read from the logits, see `mdsd_opt.Logits`.

    Returns
    -------
    DraftComparison

    Raises
    ------
    InvalidInput
        Fewer than two drafts, or arrays that do not fit each other.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> drafts = {"a": [[2.0, 1.0, 0.5]], "b": [[0.0, 1.0, 0.0]]}
    >>> mo.compare_drafts([[2.0, 1.0, 0.0]], drafts).best[1]
    'a'
    """
    wanted = "logits of two or more drafts by their names, as {'a': ..., 'b': ...}"
    if len(checked_names([*of_kind(drafts, Mapping, "drafts", wanted)], "drafts")) < 2:
        raise InvalidInput(f"drafts has {len(drafts)}: give {wanted}")
    check_truth(mixtures=mixtures)
    if any(" | " in name for name in drafts):
        raise InvalidInput('a name of a draft has " | " in it, which stands for two together')
    if draft_ms is not None and target_ms is None:
        raise InvalidInput("draft_ms goes with target_ms")
    further = of_kind({} if costs is None else costs, Mapping, "costs", "a mapping")
    if not {*further} <= {*_COSTS}:
        raise InvalidInput(f"costs has {[*further]!r:.60}: give some of {', '.join(_COSTS)}")
    pairs = {name: Logits(target_logits, of, **options) for name, of in drafts.items()}
    shapes = {name: pair.draft.shape[:-1] for name, pair in pairs.items()}
    if len({*shapes.values()}) > 1:
        raise InvalidInput(f"the drafts have positions {shapes}: give the same of each")
    search = Search(next(iter(pairs.values())), num_drafts, sequence, num_threads, progress)
    two = [
        (a, b) for a, b in combinations(drafts, 2)
        if mixtures and pairs[a].draft.shape == pairs[b].draft.shape
        and pairs[a].reading.draft_token_ids is pairs[b].reading.draft_token_ids is None
    ]  # fmt: skip
    search.add(
        [
            *(Candidate(name, scheme, draft=pair) for name, pair in pairs.items()),
            *(Candidate(f"{a} | {b}", scheme, draft=(pairs[a], pairs[b])) for a, b in two),
        ]
    )
    advice = {}
    for name, pair in pairs.items() if target_ms is not None else ():
        own = draft_ms[name] if isinstance(draft_ms, Mapping) and name in draft_ms else draft_ms
        advice[name] = advise(
            pair, target_ms=target_ms, draft_ms=2.0 if own is None else own, sequence=sequence,
            schemes=[scheme], confidence=confidence, num_threads=num_threads, **further,
        )  # fmt: skip
    rates = search.ranked(confidence)
    return DraftComparison(search.num_drafts, len(search.rows), rates, (), scheme, advice)
