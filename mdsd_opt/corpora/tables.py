"""Tables of acceptance rates, measured, counted or certified, and sentences on what to take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mdsd_opt.base.frames import Table
from mdsd_opt.corpora.engine_output import AcceptedRate, IntervalRow, RateIntervals
from mdsd_opt.corpora.rates import RateRow
from mdsd_opt.drafts import title_of
from mdsd_opt.verifiers import WORST_CASES, worst_case

_SUBJECT = "acceptance rate: how often the output is one of the K drafts; higher is better"

#: Least gain in acceptance by which a further draft is advised.
_LEAST_GAIN = 0.01

#: Verifiers whose columns are first, and last, whatever the order in which they were asked for.
_FIRST, _LAST = ("optimal", "rrs", "kseq"), ("naive_draft", "naive_target")


def rates_table(rows: Sequence[RateRow], title: str) -> Table:
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
        f"{_SUBJECT}\n{title}",
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
    best = max(at_most, key=lambda row: row.acceptance.mean)
    line = sorted(
        (row for row in rows if (row.scheme, row.verifier) == (best.scheme, best.verifier)),
        key=lambda row: row.num_drafts,
    )
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


def accepted_table(
    measured: Sequence[AcceptedRate], optimal: Sequence[RateRow], title: str
) -> Table:
    """Table of the rates that were counted, beside the optimal ones of each scheme."""
    schemes = list(dict.fromkeys(row.scheme for row in optimal))
    cells = {(row.scheme, row.num_drafts): row for row in optimal}
    rows = (
        (
            str(rate.num_drafts),
            str(rate.num_steps),
            str(rate.num_tries),
            f"{mean.mean:.4f} [{mean.low:.4f}, {mean.high:.4f}]",
            *(rate_cell(cells.get((scheme, rate.num_drafts))) for scheme in schemes),
        )
        for rate in measured
        for mean in [rate.acceptance]
    )
    beside = [f"optimum,\n{title_of(scheme)}" for scheme in schemes]
    asks = "the optimum is that of the logits given: are they of the same texts?"
    headings = ("K", "steps", "places tried", "accepted", *beside)
    return Table.of(title, headings, rows, (), caption=asks if optimal else "")


def intervals_table(intervals: RateIntervals, title: str) -> Table:
    """Table of certified intervals, and of those that hold what chance adds."""

    def line(row: IntervalRow) -> tuple[str, ...]:
        sampled = (
            " .. ".join(_ends(row.lower.low, row.upper.high, 4))
            if intervals.num_texts > 1
            else "takes several texts"
        )
        certified = " .. ".join(_ends(row.lower.mean, row.upper.mean, 4))
        return title_of(row.scheme), str(row.num_drafts), certified, sampled

    return Table.of(
        f"optimal acceptance rate: how often the output can be one of the K drafts\n{title}",
        ("drafts", "K", "certified", "with sampling"),
        map(line, intervals.rows),
        caption="certified: whatever the probabilities of the tokens are that are not listed\n"
        "with sampling: from the lower confidence limit of the one to the upper of the other",
        grouped=True,
    )


def intervals_conclusion(intervals: RateIntervals) -> str:
    """Sentence about what is certain at the largest number of drafts."""
    most = max(row.num_drafts for row in intervals.rows)
    best = max(
        (row for row in intervals.rows if row.num_drafts == most), key=lambda row: row.lower.mean
    )
    low, high = _ends(best.lower.mean, best.upper.mean, 3)
    return (
        f"at K = {most}: {best.scheme.replace('_', ' ')}, at least {low} on average and at most "
        f"{high}; more tokens a list narrow it"
    )


def _ends(low: float, high: float, places: int) -> tuple[str, str]:
    """Ends of an interval, rounded outwards, so that they stay certified."""
    scale = 10.0**places
    low, high = math.floor(low * scale) / scale, math.ceil(high * scale) / scale
    return f"{low:.{places}f}", f"{high:.{places}f}"
