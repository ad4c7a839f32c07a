"""mdsd-opt rates --accepted: an engine's accepted tokens, beside the optimum of logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mdsd_opt.cli.options import Asked
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from rich.table import Table

    from mdsd_opt.cli.view import View
    from mdsd_opt.corpora import AcceptedRate, RateRow


def takes(asked: Asked) -> bool:
    """Whether the rates are those of counts."""
    return asked.accepted is not None


def view(asked: Asked) -> View:
    """View of the rates of counts, and the optimal ones if logits are given."""
    from mdsd_opt.cli.verbs import rates_of_files
    from mdsd_opt.cli.view import Section, View
    from mdsd_opt.corpora import accepted_rates, rate_of_counts
    from mdsd_opt.formats import read_counts, read_steps

    path = asked.accepted
    assert path is not None
    if asked.plot is not None or any(x.is_dir() or x.suffix == ".jsonl" for x in asked.paths):
        raise InvalidInput("--accepted goes with files of logits, and without --plot")
    asked.refuse(["best-filter"], "{name} goes without --accepted")
    if not asked.paths:
        asked.refuse(["mask", "lift", "no-mask-draft"], "{name} goes with LOGITS")
    steps = None if "://" in path else read_steps(path)
    by_request = steps is not None and "sequence" in steps
    if steps is None:
        counts = read_counts(path)
        by_request = counts.unit == "requests"
        measured = [rate_of_counts(counts, asked.confidence)]
    else:
        if "num_drafts" not in steps:
            if len(asked.num_drafts) != 1:
                raise InvalidInput(f"{path} does not say num_drafts: give it as --num-drafts")
            steps["num_drafts"] = asked.num_drafts[0]
        measured = accepted_rates(**steps, confidence=asked.confidence)
    optimal = []
    if asked.paths:
        drafts = [rate.num_drafts for rate in measured]
        optimal = rates_of_files.rows(replace(asked, verifiers=["optimal"], num_drafts=drafts))
    lines = [rate.to_dict() for rate in measured]
    intervals = (
        f"{100 * asked.confidence:g}% intervals over texts" if by_request
        else "intervals are at least so wide: steps of one text share its rate"
    )  # fmt: skip
    return View(
        f"Accepted drafts of {path}",
        [Section("", table=_table(measured, optimal, path, intervals))],
        document={
            "source": path,
            "confidence": asked.confidence,
            "accepted": lines,
            "optimal": [row.to_dict() for row in optimal],
        },
        rows=lines,
    )


def _table(
    measured: Sequence[AcceptedRate], optimal: Sequence[RateRow], source: str, intervals: str
) -> Table:
    from mdsd_opt.cli.output import make_table
    from mdsd_opt.cli.report.rates import rate_cell
    from mdsd_opt.drafts import title_of

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
    return make_table(
        f"{source}: how often one of K drafts was accepted\n{intervals}",
        ("K", "steps", "places tried", "accepted", *beside),
        rows,
        words=(),
        caption="the optimum is that of the logits given: are they of the same texts?"
        if optimal
        else None,
    )
