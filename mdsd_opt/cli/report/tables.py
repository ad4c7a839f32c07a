"""Tables for terminals, and the same rows as JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mdsd_opt.corpora.intervals import MeanInterval
from mdsd_opt.corpora.rates import RateRow
from mdsd_opt.drafts.by_name import title_of

if TYPE_CHECKING:
    from rich.table import Table

    from mdsd_opt.corpora.accepted import AcceptedRate
    from mdsd_opt.corpora.draft_choice import SchemeComparison

_SUBJECT = "acceptance rate: how often the output is one of the K drafts; higher is better"

#: Number of drafts that a conclusion is about, where it is among those in question.
_USUAL_DRAFTS = 4


def as_json(document: Mapping[str, Any]) -> str:
    """Readable JSON, no NaN."""
    return json.dumps(document, indent=2, allow_nan=False)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the header of the first; None is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def rates_table(rows: Sequence[RateRow], title: str) -> Table:
    """One line for each scheme and K, one column for each verifier; empty where none applies."""
    from rich.table import Table

    verifiers = list(dict.fromkeys(row.verifier for row in rows))
    cells = {(row.scheme, row.num_drafts, row.verifier): row for row in rows}
    lines = sorted(
        {(row.scheme, row.num_drafts) for row in rows},
        key=lambda line: ([row.scheme for row in rows].index(line[0]), line[1]),
    )
    compared = [verifier for verifier in verifiers if _closes_some_gap(verifier, rows)]
    is_empty_somewhere = len(cells) < len(lines) * len(verifiers)
    table = Table(title=f"{_SUBJECT}\n{title}")
    table.caption = _footnotes(rows, bool(compared), "optimal" in verifiers, is_empty_somewhere)
    table.add_column("drafts")
    table.add_column("K", justify="right")
    for verifier in verifiers:
        is_bound = any(row.bound for row in rows if row.verifier == verifier)
        table.add_column(_header(verifier) + (" †" if is_bound else ""), justify="right")
    for verifier in compared:
        table.add_column(f"gap closed,\n{_header(verifier)}", justify="right")
    if "optimal" in verifiers:
        table.add_column("tokens /\ntarget\ncall", justify="right")
    previous = None
    for scheme, k in lines:
        if previous not in (None, scheme):
            table.add_section()
        name = title_of(scheme) if scheme != previous else ""
        gaps = [cells.get((scheme, k, verifier)) for verifier in compared]
        best = cells.get((scheme, k, "optimal"))
        table.add_row(
            name,
            str(k),
            *(_rate(cells.get((scheme, k, v))) for v in verifiers),
            *("" if x is None or x.gap_closed is None else f"{x.gap_closed:.0%}" for x in gaps),
            *([] if best is None else [f"{best.tokens_per_call:.3f}"]),
        )
        previous = scheme
    return table


def accepted_table(
    measured: Sequence[AcceptedRate], optimal: Sequence[RateRow], source: str, confidence: float
) -> Table:
    """What was accepted at each K, and beside it what can be."""
    from rich.table import Table

    table = Table(
        title=f"{source}: how often one of K drafts was accepted\n{100 * confidence:g}% intervals",
        title_justify="left",
        caption_justify="left",
    )
    for header in ("K", "steps", "places tried", "accepted"):
        table.add_column(header, justify="right")
    schemes = list(dict.fromkeys(row.scheme for row in optimal))
    for scheme in schemes:
        table.add_column(f"optimum,\n{title_of(scheme)}", justify="right")
    cells = {(row.scheme, row.num_drafts): row for row in optimal}
    for rate in measured:
        interval = rate.acceptance
        table.add_row(
            str(rate.num_drafts),
            str(rate.num_steps),
            str(rate.num_tries),
            f"{interval.mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]",
            *(_rate(cells.get((scheme, rate.num_drafts))) for scheme in schemes),
        )
    if optimal:
        table.caption = "the optimum is that of the logits given: are they of the same texts?"
    return table


def conclusion(rows: Sequence[RateRow]) -> str:
    """The best scheme and verifier at one K, and what recursive rejection gives away there."""
    counts = {row.num_drafts for row in rows}
    count = _USUAL_DRAFTS if _USUAL_DRAFTS in counts else max(counts)
    here = [row for row in rows if row.num_drafts == count]
    best = max(here, key=lambda row: row.acceptance.mean)
    text = (
        f"at K = {count}: {title_of(best.scheme)} with "
        f"'{best.verifier}', {best.acceptance.mean:.3f}"
    )
    for row in here:
        lost = best.acceptance.mean - row.acceptance.mean
        if (row.scheme, row.verifier) == (best.scheme, "rrs") and lost > 0:
            text += f"; 'rrs' gives away {lost:.3f}"
    return text


def comparison_table(compared: SchemeComparison) -> Table:
    """Draft schemes, the best first."""
    from rich.table import Table

    table = Table(
        title=f"draft schemes at K = {compared.num_drafts}: acceptance by the optimal verifier, "
        "higher is better;\nbehind the best: of the differences, position by position",
    )
    table.add_column("drafts")
    table.add_column("acceptance", justify="right")
    table.add_column("behind the best", justify="right")
    for row in compared.rates:
        name = row.scheme.replace("_", " ").replace("top k", "top-K")
        behind = "" if row is compared.rates[0] else with_gap(row.behind, row.gap)
        table.add_row(name, with_gap(row.acceptance, row.gap), behind)
    if compared.left_out:
        table.caption = f"not possible at every position: {'; '.join(compared.left_out)}"
    return table


def _closes_some_gap(verifier: str, rows: Sequence[RateRow]) -> bool:
    gaps = [row.gap_closed for row in rows if row.verifier == verifier]
    return verifier not in ("optimal", "rrs") and any(gap is not None and gap > 0 for gap in gaps)


def _header(verifier: str) -> str:
    return verifier.replace("_", "\n", 1)


def _rate(row: RateRow | None) -> str:
    if row is None:
        return ""
    text = with_interval(row.acceptance)
    if row.estimated:
        text += " ‡"
    return f"≥ {text}" if row.bound else text


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
    if compares:
        notes.append("gap closed: (verifier - rrs) / (optimal - rrs), of the means; no interval")
    if any(row.estimated for row in rows):
        notes.append("‡ estimated by simulation at every position; the interval holds that error")
    if any(row.bound for row in rows):
        notes.append("† a lower bound of the acceptance rate")
    return "\n".join(notes)


def with_gap(value: MeanInterval, gap: float) -> str:
    """As `with_interval`, and how far the mean may be from what is asked, if that is not zero."""
    return with_interval(value) + (f" (gap {gap:.0e})" if gap > 0 else "")


def with_interval(value: MeanInterval) -> str:
    """0.7234 ± 0.0051, or the mean alone if there is no interval."""
    if value.half_width != value.half_width:
        return f"{value.mean:.4f}"
    return f"{value.mean:.4f} ± {value.half_width:.4f}"
