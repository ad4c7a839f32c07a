"""mdsd-opt rates of what servers wrote: two files of JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mdsd_opt.errors import InvalidInput


def show_intervals(
    paths: Sequence[Path],
    schemes: Sequence[str],
    counts: Sequence[int],
    vocab_size: int | None,
    confidence: float,
    progress: bool,
    as_json: bool,
    as_csv: bool,
    **not_for_these: Any,
) -> None:
    """Print certified intervals of the optimal acceptance rate."""
    from mdsd_opt.base.files import file_size
    from mdsd_opt.cli.output import say, show_table
    from mdsd_opt.cli.report import tables
    from mdsd_opt.cli.report.rate_intervals import (
        intervals_conclusion,
        intervals_table,
        rate_intervals,
    )

    given = [name for name, value in not_for_these.items() if value]
    if given:
        raise InvalidInput(
            f"--{given[0]} is not for log-probabilities of servers: they are what the server "
            "sampled from, or would have"
        )
    if len(paths) != 2:
        raise InvalidInput(f"{len(paths)} .jsonl files given: give the target's and the draft's")
    for path in paths:
        file_size(path)  # missing, or no file
    target, draft = paths
    found = rate_intervals(target, draft, schemes, counts, vocab_size, confidence, progress)
    source = f"{target} and {draft}"
    if as_json:
        print(tables.as_json({
            "source": source,
            "num_positions": found.num_positions,
            "num_sequences": found.num_texts,
            "target_tail": found.target_tail,
            "draft_tail": found.draft_tail,
            "confidence": confidence,
            "interval_over": "sequences",
            "rows": [row.to_dict() for row in found.rows],
        }))  # fmt: skip
    elif as_csv:
        print(tables.as_csv([row.to_dict() for row in found.rows]), end="")
    else:
        title = (
            f"{source}: {found.num_positions} positions in {found.num_texts} texts\n"
            f"not listed on average: {found.target_tail:.3g} of the target, "
            f"{found.draft_tail:.3g} of the draft"
        )
        show_table(intervals_table(found, title), keys=2)
        say(intervals_conclusion(found))
