"""Acceptance rates of one sample of logits: every draft scheme, K and verifier, in rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.files.logits import LogitsSample
from mdsd_opt.base.frames import Column, Result, Table, data_frame
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.batch import acceptance_rates
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, checked_scheme, title_of
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.evidence import MeanInterval, mean_interval
from mdsd_opt.verifiers import WORST_CASES, batch_verifiers, get, worst_case

#: Least gap between rrs and the optimum that exceeds the error of batched rates.
_LEAST_GAP = 1e-6


@dataclass(frozen=True, slots=True)
class RateRow(Result):
    """Mean acceptance rate of one scheme at one K under one verifier.

    `gap_closed` is (this - rrs) / (optimal - rrs); None without these two or a gap between them.
    """

    scheme: str
    num_drafts: int
    verifier: str
    acceptance: MeanInterval
    bound: bool = False  # whether it is a lower bound of the acceptance rate
    gap_closed: float | None = None
    quantiles: Mapping[str, float] | None = None  # over positions, as {"q05": 0.31, "q50": 0.97}

    columns: ClassVar = (
        "scheme", "num_drafts", "verifier", "*acceptance", "tokens_per_call", "bound", "estimated",
        Column("gap_closed_percent", of=lambda row: row.gap_closed and 100.0 * row.gap_closed,
            holds=float | None),
        "*quantiles",
    )  # fmt: skip

    @property
    def estimated(self) -> bool:
        """Whether the rates of positions are simulated; the interval holds that error too."""
        rates = get(self.verifier).batch_rates_for(self.scheme)
        return rates is not None and rates.is_estimated(self.num_drafts)

    @property
    def tokens_per_call(self) -> float:
        """Expected tokens per target call: one, and one more if a draft is accepted."""
        return 1.0 + self.acceptance.mean

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RateRow:
        """Row that `to_dict` has written; `KeyError` if something is missing."""
        mean, low, high = (
            np.nan if fields[end] is None else fields[end] for end in ("mean", "low", "high")
        )
        closed = fields.get("gap_closed_percent")
        return cls(
            fields["scheme"], fields["num_drafts"], fields["verifier"],
            MeanInterval(mean, low, high, fields["num_groups"]), bool(fields.get("bound")),
            None if closed is None else closed / 100.0,
        )  # fmt: skip


class RateRows(list[RateRow]):
    """Rows of rates, as a list, as tables and as a data frame."""

    def tables(self) -> list[Table]:
        """Table with a line for each scheme and K, and a column for each verifier."""
        return [rates_table(self)]

    def to_pandas(self) -> Any:
        """Data frame with a line for each row; `MissingExtra` without pandas."""
        return data_frame([row.to_dict() for row in self])


def rate_rows(
    sample: LogitsSample,
    schemes: Sequence[str],
    num_drafts: Sequence[int],
    verifiers: Sequence[str] = ("optimal",),
    confidence: float = 0.95,
    kind: str | None = "logits",
    progress: bool = False,
    **options: Any,
) -> RateRows:
    """Rows for each scheme, verifier and K that go together.

    `kind` is what the arrays of the sample hold; the options are those of `acceptance_rates`:
    temperature, top_k, num_threads, pad, mask, ...
    """
    if sample.num_positions == 0:
        raise InvalidInput(f"{sample.source} holds no position: its arrays are empty")
    groups = sample.texts
    combined = combinations(schemes, verifiers, num_drafts)
    tables = rates_by_position(sample, combined, kind, progress, options)
    rows = [
        RateRow(
            scheme,
            k,
            verifier,
            mean_interval(column, groups, confidence).within(0.0, 1.0),
            bound=get(verifier).bounds_batches,
        )
        for (scheme, verifier, counts), rates in zip(combined, tables, strict=True)
        for k, column in zip(counts, rates.T, strict=True)
    ]
    return RateRows(with_gaps(rows))


def rates_by_position(
    sample: LogitsSample,
    combined: Sequence[tuple[str, str, list[int]]],
    kind: str | None,
    progress: bool,
    options: Mapping[str, Any],
) -> list[NDArray[np.float64]]:
    """Rates (positions, K) of every combination, in one pass over the file."""
    count = sample.num_positions
    tables = [np.empty((count, len(counts))) for _, _, counts in combined]
    many = sample.is_large
    options = {**options, "kind": "logits", "progress": False}
    by_token = {name: options.pop(name) for name in ("mask", "lift") if name in options}
    with progress_bar("acceptance rates", count * len(combined), progress) as advance:
        for start, part in sample.parts(kind):
            where = f"in the part that begins with position {start}" if many else None
            stop = start + part.num_positions
            for name, each in by_token.items():
                of_rows = many and each.ndim > 1 and each.shape[:-1] == sample.target.shape[:-1]
                options[name] = each.reshape(-1, each.shape[-1])[start:stop] if of_rows else each
            here = rates_of_rows(part.target, part.draft, combined, options, where)
            for rates, of_part in zip(tables, here, strict=True):
                rates[start:stop] = of_part
                advance(part.num_positions)
    return tables


def rates_of_rows(
    target: Any,
    draft: Any,
    combined: Sequence[tuple[str, str, list[int]]],
    options: Mapping[str, Any],
    where: str | None = None,
) -> Iterator[NDArray[np.float64]]:
    """Rates (positions, K) of every combination; errors say which rows (`where`) are meant."""
    for scheme, verifier, counts in combined:
        try:
            rates = acceptance_rates(
                target, draft, num_drafts=counts, drafts=scheme, verifier=verifier, **options
            )
        except InvalidInput as error:
            if where is None:
                raise
            raise type(error)(f"{where}: {error}") from error
        yield to_numpy(rates).reshape(-1, len(counts))


def combinations(
    schemes: Sequence[str], verifiers: Sequence[str], num_drafts: Sequence[int]
) -> list[tuple[str, str, list[int]]]:
    """Scheme, verifier and the numbers of drafts that go with them; an error if there are none."""
    choices = []
    for scheme in map(checked_scheme, schemes):
        for verifier in verifiers:
            counts = [k for k in num_drafts if get(verifier).has_batch_rates(scheme, k)]
            if counts:
                choices.append((scheme, verifier, counts))
    if not choices:
        known = "; ".join(
            f"{scheme}: {', '.join(x + _condition(x) for x in batch_verifiers(scheme))}"
            for scheme in schemes
        )
        raise UnsupportedScheme(
            f"no rates for {', '.join(verifiers)} (verifiers) with {', '.join(schemes)} (schemes) "
            f"and {', '.join(map(str, num_drafts))} (num_drafts). There are: {known}."
        )
    return choices


def refusals(
    schemes: Sequence[str], verifiers: Sequence[str], num_drafts: Sequence[int]
) -> dict[str, str]:
    """Reasons why verifiers have no row at all, by name."""
    rated = {verifier for _, verifier, _ in combinations(schemes, verifiers, num_drafts)}
    reasons = {}
    for name in verifiers:
        if name not in rated:
            known = ", ".join(x for x in SINGLE_MODEL_SCHEMES if get(name).batch_rates_for(x))
            only = _condition(name)
            reasons[name] = f"no rates with these drafts and K; there are for {known} drafts{only}"
    return reasons


def _condition(verifier: str) -> str:
    only = get(verifier).only_num_drafts
    return "" if only is None else f" at K = {only}"


def with_gaps(rows: Sequence[RateRow]) -> list[RateRow]:
    """Rows with the share of the gap between rrs and the optimum that each closes."""
    means = {(row.scheme, row.num_drafts, row.verifier): row.acceptance.mean for row in rows}
    result = []
    for row in rows:
        rrs = means.get((row.scheme, row.num_drafts, "rrs"))
        optimal = means.get((row.scheme, row.num_drafts, "optimal"))
        if rrs is not None and optimal is not None and optimal - rrs > _LEAST_GAP:
            row = replace(row, gap_closed=(row.acceptance.mean - rrs) / (optimal - rrs))
        result.append(row)
    return result


# --- told ---

_SUBJECT = "acceptance rate: how often the output is one of the K drafts; higher is better"

#: Least gain in acceptance by which a further draft is advised.
_LEAST_GAIN = 0.01

#: Verifiers whose columns are first, and last, whatever the order in which they were asked for.
_FIRST, _LAST = ("optimal", "rrs", "kseq"), ("naive_draft", "naive_target")


def rates_table(rows: Sequence[RateRow], title: str = "") -> Table:
    """Table with a line for each scheme and K, a column for each verifier, empty if it has none."""
    verifiers = sorted(dict.fromkeys(row.verifier for row in rows), key=_use)
    cells = {(row.scheme, row.num_drafts, row.verifier): row for row in rows}
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    lines = sorted(
        {(row.scheme, row.num_drafts) for row in rows},
        key=lambda line: (schemes.index(line[0]), line[1]),
    )
    closing = {row.verifier for row in rows if row.gap_closed is not None and row.gap_closed > 0}
    compared = [x for x in verifiers if x in closing - {"optimal", "rrs"}]
    bounds = {row.verifier for row in rows if row.bound}
    headings = ["drafts", "K"]
    headings += [_header(name) + (" †" if name in bounds else "") for name in verifiers]
    headings += [f"gap closed,\n{_header(name)}" for name in compared]
    if "optimal" in verifiers:
        headings.append("tokens /\ntarget\ncall")

    def line(scheme: str, k: int) -> Iterator[str]:
        yield title_of(scheme)
        yield str(k)
        for verifier in verifiers:
            yield rate_cell(cells.get((scheme, k, verifier)))
        for verifier in compared:
            row = cells.get((scheme, k, verifier))
            yield "" if row is None or row.gap_closed is None else f"{row.gap_closed:.0%}"
        best = cells.get((scheme, k, "optimal"))
        if best is not None:
            yield f"{best.tokens_per_call:.3f}"

    has_empty_cells = len(cells) < len(lines) * len(verifiers)
    return Table.of(
        f"{_SUBJECT}\n{title}".rstrip(),
        headings,
        (tuple(line(scheme, k)) for scheme, k in lines),
        heading="Rates",
        caption=_footnotes(rows, bool(compared), "optimal" in verifiers, has_empty_cells),
        grouped=True,
    )


def rates_conclusion(rows: Sequence[RateRow]) -> str:
    """Sentence with the K to take, of the scheme and verifier that accept most at the largest K.

    It is the last K that adds `_LEAST_GAIN` to the acceptance of the K before.
    """
    most = max(row.num_drafts for row in rows)
    at_most = [row for row in rows if row.num_drafts == most]
    best = max(at_most, key=lambda row: round(row.acceptance.mean, 12))  # the first of equal ones
    line = sorted(
        (row for row in rows if (row.scheme, row.verifier) == (best.scheme, best.verifier)),
        key=lambda row: row.num_drafts,
    )
    if best.acceptance.mean == 0.0:
        return f"take no drafts: none is ever accepted, up to K = {most}"
    named = f"{title_of(best.scheme)}, {best.verifier!r}"
    if len(line) == 1:
        return f"K = {most} ({named}) accepts {best.acceptance.mean:.3f}"
    gains = [(b, b.acceptance.mean - a.acceptance.mean) for a, b in pairwise(line)]
    chosen = next((row for row, gain in reversed(gains) if gain >= _LEAST_GAIN), line[0])
    first = f"{line[0].acceptance.mean:.3f} at K = {line[0].num_drafts}"
    shown = [f"{gain:+.3f} at {row.num_drafts}" for row, gain in gains
             if row.num_drafts <= chosen.num_drafts]  # fmt: skip
    rule = f"the last K that adds {_LEAST_GAIN:g} or more to the K before"
    if chosen is line[-1]:
        rule += ", and the largest asked for"
    elif chosen is line[0]:
        rule = f"no further K adds {_LEAST_GAIN:g} to the K before"
    text = f"take K = {chosen.num_drafts} ({named}): {rule} ({', '.join([first, *shown])})"
    for row in rows:
        lost = chosen.acceptance.mean - row.acceptance.mean
        there = row.scheme, row.verifier, row.num_drafts
        if there == (best.scheme, "rrs", chosen.num_drafts) and lost > 0:
            text += f"; 'rrs' gives away {lost:.3f} there"
    return text


def _use(verifier: str) -> int:
    """Place of a verifier's column among the others."""
    last = len(_FIRST) + (1 + _LAST.index(verifier) if verifier in _LAST else 0)
    return _FIRST.index(verifier) if verifier in _FIRST else last


def _header(verifier: str) -> str:
    return verifier.replace("_", "\n", 1)


def rate_cell(row: RateRow | None) -> str:
    """Text of a rate with its interval, and marks for a bound and for one that is simulated."""
    if row is None:
        return ""
    bound, simulated = "≥ " if row.bound else "", " ‡" if row.estimated else ""
    return f"{bound}{row.acceptance.shown}{simulated}"


def _footnotes(
    rows: Sequence[RateRow], compares: bool, has_optimum: bool, has_empty_cells: bool
) -> str:
    notes = []
    if has_empty_cells:
        notes.append("empty: no such verifier")
    if any(row.acceptance.half_width != row.acceptance.half_width for row in rows):
        notes.append("no interval: one group alone gives none")
    if compares:
        notes.append("gap closed: (verifier - rrs) / (optimal - rrs)")
    if has_optimum:
        notes.append("tokens / target call: of the optimum")
    if any(row.estimated for row in rows):
        notes.append("‡ simulated, its error within the interval")
    if any(row.bound for row in rows):
        notes.append("† a lower bound")
    return "\n".join(filter(None, ["; ".join(notes), *(_worst_cases(rows) if has_optimum else ())]))


def _worst_cases(rows: Sequence[RateRow]) -> list[str]:
    """Sentence about what the verifiers of the table lose at most on any logits, where proven."""
    most = max(row.num_drafts for row in rows)
    lost = []
    for row in rows:
        if row.num_drafts == most > 1 and (row.verifier, row.scheme) in WORST_CASES:
            case = worst_case(row.verifier, most, row.scheme)
            if case.proven and 0 < case.gap < 1:
                lost.append(f"{row.verifier!r} {case.gap:.3f} ({title_of(row.scheme)})")
    return [f"lost at most, on any logits at K = {most}: {', '.join(lost)}"] if lost else []
