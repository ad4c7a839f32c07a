"""mdsd-opt rates of what servers wrote: two files of JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.cli.verbs.rates import Asked
    from mdsd_opt.cli.view import View

_NOT_FOR_THESE = (
    *("temperature", "pad", "plot", "engine", "kind", "out", "draft-temperature", "top-k"),
    *("top-p", "min-p", "best-temperature"),
)


def takes(asked: Asked) -> bool:
    """Whether the rates are those of JSON lines."""
    return bool(asked.paths) and asked.paths[0].suffix == ".jsonl"


def view(asked: Asked) -> View:
    """Certified intervals of the optimal acceptance rate."""
    from mdsd_opt.base.files import file_size
    from mdsd_opt.cli.report.rate_intervals import (
        intervals_conclusion,
        intervals_table,
        rate_intervals,
    )
    from mdsd_opt.cli.view import Section, View

    asked.refuse(
        _NOT_FOR_THESE,
        "{name} is not for log-probabilities of servers: they are what the server sampled from, "
        "or would have",
    )
    paths = asked.paths
    if len(paths) != 2:
        raise InvalidInput(f"{len(paths)} .jsonl files given: give the target's and the draft's")
    for path in paths:
        file_size(path)  # missing, or no file
    target, draft = paths
    schemes = asked.schemes
    if asked.all_schemes or asked.usual_schemes:
        schemes = ["with_replacement", "without_replacement"]
    found = rate_intervals(
        target,
        draft,
        schemes,
        asked.num_drafts,
        asked.vocab_size,
        asked.confidence,
        asked.progress,
    )
    source = f"{target} and {draft}"
    title = (
        f"{source}: {found.num_positions} positions in {found.num_texts} texts\n"
        f"not listed on average: {found.target_tail:.3g} of the target, "
        f"{found.draft_tail:.3g} of the draft"
    )
    lines = [row.to_dict() for row in found.rows]
    return View(
        f"Acceptance rates of {title}",
        [Section("", table=intervals_table(found, title), keys=2)],
        [intervals_conclusion(found)],
        {
            "source": source,
            "num_positions": found.num_positions,
            "num_sequences": found.num_texts,
            "target_tail": found.target_tail,
            "draft_tail": found.draft_tail,
            "confidence": asked.confidence,
            "interval_over": "sequences",
            "rows": lines,
        },
        rows=lines,
    )
