"""Views of acceptance rates, of ranked draft schemes, and of filters of the draft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.corpora import RateRow
from mdsd_opt.drafts import title_of
from mdsd_opt.evidence import MeanInterval
from mdsd_opt.planning import BestFilter, scheme_label, setting_shown
from mdsd_opt.plots import rates_figure
from mdsd_opt.verifiers import WORST_CASES, worst_case

if TYPE_CHECKING:
    from rich.table import Table

    from mdsd_opt.planning import SchemeComparison


def rates_view(
    rows: Sequence[RateRow],
    title: str,
    refused: Mapping[str, str],
    comparison: SchemeComparison | None = None,
    filters: Sequence[BestFilter] = (),
    *,
    name: str = "",
    **known: Any,
) -> View:
    """View of a source's rates, of verifiers without, and perhaps of ranked schemes and filters.

    The title says what they are of, the name stands before it, but not above a picture, and `known`
    is what else the document says of it.
    """
    named = f"{name}: {title}" if name else title
    tables = [
        Section("Rates", table=rates_table(rows, named), keys=2, in_parts=False),
        *([Section("Left out", values=list(refused.items()), inline=True)] if refused else []),
    ]
    lines = [row.to_dict() for row in rows]
    document = {**known, "rows": lines, "refused": dict(refused)}
    if comparison is not None:
        tables.append(Section("Draft schemes", table=comparison_table(comparison)))
        document["comparison"] = comparison.to_dict()
    if filters:
        tables.append(Section("Filters of the draft", table=_filters_table(filters), keys=2))
        document["filters"] = [best.to_dict() for best in filters]
    drawing = Drawing(
        partial(rates_figure, rows),
        "Mean acceptance rate against the number of drafts, with intervals; higher is better.",
        title,
    )
    heading = f"Acceptance rates of {named}"
    return View(heading, tables, [conclusion(rows)], document, drawing, rows=lines)


_SUBJECT = "acceptance rate: how often the output is one of the K drafts; higher is better"

#: Least gain in acceptance by which a further draft is worth a mention.
_LEAST_GAIN = 0.01


def rates_table(rows: Sequence[RateRow], title: str) -> Table:
    """Table with a line for each scheme and K, a column for each verifier, empty if it has none."""
    verifiers = list(dict.fromkeys(row.verifier for row in rows))
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
    return make_table(
        f"{_SUBJECT}\n{title}",
        headings,
        (tuple(line(scheme, k)) for scheme, k in lines),
        caption=_footnotes(rows, bool(compared), "optimal" in verifiers, has_empty_cells),
        grouped=True,
    )


def conclusion(rows: Sequence[RateRow]) -> str:
    """Sentences about the gain of each further draft with the best scheme and verifier."""
    most = max(row.num_drafts for row in rows)
    at_most = [row for row in rows if row.num_drafts == most]
    best = max(at_most, key=lambda row: row.acceptance.mean)
    line = sorted(
        (row for row in rows if (row.scheme, row.verifier) == (best.scheme, best.verifier)),
        key=lambda row: row.num_drafts,
    )
    text = (
        f"{title_of(best.scheme)} with '{best.verifier}': {line[0].acceptance.mean:.3f} at "
        f"K = {line[0].num_drafts}"
    )
    gains = [(b, b.acceptance.mean - a.acceptance.mean) for a, b in pairwise(line)]
    worth = [row for row, gain in gains if gain >= _LEAST_GAIN]
    chosen = worth[-1] if worth else line[0]
    shown = [f"{gain:+.3f} at {row.num_drafts}" for row, gain in gains
             if row.num_drafts <= chosen.num_drafts]  # fmt: skip
    if shown:
        text += f", over the K before {', '.join(shown)}"
    if chosen is not line[-1]:
        text += f"; none beyond K = {chosen.num_drafts} gains {_LEAST_GAIN:g}"
    for row in rows:
        lost = chosen.acceptance.mean - row.acceptance.mean
        there = row.scheme, row.verifier, row.num_drafts
        if there == (best.scheme, "rrs", chosen.num_drafts) and lost > 0:
            text += f"; 'rrs' gives away {lost:.3f} at K = {chosen.num_drafts}"
    return text


def comparison_table(compared: SchemeComparison) -> Table:
    """Table of draft schemes, the best first."""
    rows = [
        (
            scheme_label(row.scheme),
            with_gap(row.acceptance, row.gap),
            "" if row is compared.rates[0] else with_gap(row.behind, row.gap),
        )
        for row in compared.rates
    ]
    left_out = f"not possible at every position: {'; '.join(compared.left_out)}"
    notes = [left_out] if compared.left_out else []
    notes += [] if compared.inclusion is None else [compared.inclusion_note]
    return make_table(
        f"draft schemes at K = {compared.num_drafts}: acceptance by the optimal verifier, "
        "higher is better;\nbehind the best: of the differences, position by position",
        ("drafts", "acceptance", "behind the best"),
        rows,
        caption="\n".join(notes) or None,
    )


def _filters_table(filters: Sequence[BestFilter]) -> Table:
    """Table with the best setting of each scheme beside the target's own and no filter."""
    rows = [
        (title_of(best.scheme), name, row.acceptance.shown, row.behind.shown if number else "")
        for best in filters
        for number, (name, row) in enumerate(best.shown)
    ]
    first = filters[0]
    return make_table(
        f"temperature and filters of the draft at K = {first.num_drafts}, one setting for all "
        f"positions;\nthe target has {setting_shown(first.target)}; higher is better",
        ("drafts", "setting of the draft", "acceptance", "behind the best"),
        rows,
        words=("drafts", "setting of the draft"),
        caption=f"best on these texts of {min(len(best.rates) for best in filters)} settings or "
        "more that were tried: on others another may be",
        grouped=True,
    )


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
        notes.append("empty: the verifier is not made for such drafts, or for so many")
    if any(row.acceptance.half_width != row.acceptance.half_width for row in rows):
        notes.append("no interval where none is shown: one group alone gives none")
    if has_optimum:
        notes.append("tokens / target call: of the optimum, with the interval of its rate")
        notes += _worst_cases(rows)
    if compares:
        notes.append("gap closed: (verifier - rrs) / (optimal - rrs), of the means; no interval")
    if any(row.estimated for row in rows):
        notes.append("‡ estimated by simulation at every position; the interval holds that error")
    if any(row.bound for row in rows):
        notes.append("† a lower bound of the acceptance rate")
    return "\n".join(notes)


def _worst_cases(rows: Sequence[RateRow]) -> list[str]:
    """Sentence about what the verifiers of the table lose at most on any logits, where proven."""
    most = max(row.num_drafts for row in rows)
    lost = []
    for row in rows:
        if row.num_drafts == most > 1 and (row.verifier, row.scheme) in WORST_CASES:
            case = worst_case(row.verifier, most, row.scheme)
            if case.proven and 0 < case.gap < 1:
                lost.append(f"{row.verifier!r} {case.gap:.3f} ({title_of(row.scheme)})")
    return [f"at most lost on any logits, K = {most}: {', '.join(lost)}"] if lost else []


def with_gap(value: MeanInterval, gap: float) -> str:
    """Text of a mean and its largest error, if that is not zero."""
    return value.shown + (f" (gap {gap:.0e})" if gap > 0 else "")
