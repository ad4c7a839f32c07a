"""mdsd-opt rates --accepted: what an engine accepted, beside the optimum of logits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mdsd_opt.errors import InvalidInput


def show_accepted(
    path: Path,
    logits: Sequence[Path] | None,
    schemes: Sequence[str],
    num_drafts: Sequence[int] | None,
    confidence: float,
    as_json: bool,
    as_csv: bool,
    **options: Any,
) -> None:
    """Print rates of counts, and the optimal ones if logits are given."""
    from mdsd_opt.base.files.engine_output import read_accepted
    from mdsd_opt.cli.output import show_table
    from mdsd_opt.cli.report import tables
    from mdsd_opt.corpora.accepted import accepted_rates

    counts = read_accepted(path)
    if "num_drafts" not in counts:
        if num_drafts is None or len(num_drafts) != 1:
            raise InvalidInput(f"{path} does not say num_drafts: give it as --num-drafts")
        counts["num_drafts"] = num_drafts[0]
    measured = accepted_rates(**counts, confidence=confidence)
    optimal = []
    if logits:
        from mdsd_opt.cli.verbs.measured_rates import rates_of_files

        optimal = list(rates_of_files(
            logits, schemes, ["optimal"], [rate.num_drafts for rate in measured],
            confidence=confidence, **options,
        ).rows)  # fmt: skip
    if as_json:
        print(tables.as_json({
            "source": str(path),
            "confidence": confidence,
            "accepted": [rate.to_dict() for rate in measured],
            "optimal": [row.to_dict() for row in optimal],
        }))  # fmt: skip
    elif as_csv:
        print(tables.as_csv([rate.to_dict() for rate in measured]), end="")
    else:
        show_table(tables.accepted_table(measured, optimal, str(path), confidence), keys=1)
