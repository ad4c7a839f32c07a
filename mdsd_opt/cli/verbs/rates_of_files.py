"""mdsd-opt rates of logits in files that are held in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.options import Asked, stored_sample
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.base.files.logits import LogitsSample
    from mdsd_opt.cli.view import View
    from mdsd_opt.corpora.rates import RateRow
    from mdsd_opt.planning.draft_choice import SchemeComparison

#: Most positions at which schemes are ranked beside a bound: .1 s each at V = 50,000.
_MOST_BOUNDED = 500

_OF_FOLDERS = ("executor", "workers", "address", "out", "no-verify", "rank-timeout")


def takes(asked: Asked) -> bool:
    """Whether the rates are those of files: of the bundled one if none is given."""
    return True


def view(asked: Asked) -> View:
    """View of the rates of one sample of logits; with all schemes these are also ranked."""
    require_arrays(asked)
    asked.refuse(_OF_FOLDERS, "{name} is for a folder of shards: mdsd-opt rates DIR {name}")
    sample = stored_sample(asked.paths)
    return measured_view(
        asked,
        rows(asked, sample),
        _ranked(asked, sample) if asked.all_schemes else None,
        source=sample.source,
        metadata=dict(sample.metadata),
        num_positions=sample.num_positions,
        vocab_size=sample.vocab_size,
        interval_over="positions" if sample.texts is None else "sequences",
    )


def measured_view(
    asked: Asked, rows: Sequence[RateRow], comparison: SchemeComparison | None = None, **known: Any
) -> View:
    """View of measured rates; `known` is the document's entries on their source."""
    from mdsd_opt.cli.report.rates import rates_view
    from mdsd_opt.corpora.intervals import interval_note
    from mdsd_opt.corpora.rates import refusals

    groups, unit = rows[0].acceptance.num_groups, known.pop("interval_over")
    temperature, confidence = asked.sampling.temperature, asked.confidence
    name = known["source"] if asked.paths else Path(known["source"]).name
    title = (
        f"{known['num_positions']} positions, V = {known['vocab_size']:,}\n"
        f"temperature {temperature:g}; {interval_note(groups, unit, confidence)}"
    )
    known |= {"temperature": temperature, "confidence": confidence, "interval_over": unit}
    refused = refusals(asked.schemes, asked.verifiers, asked.num_drafts)
    return rates_view(rows, title, refused, comparison, name=name, **known)


def require_arrays(asked: Asked) -> None:
    """Raise if options are given that arrays have no use for."""
    asked.refuse(["vocab-size"], "{name} is for .jsonl files: arrays have it as their last axis")
    if asked.best_temperature and not asked.all_schemes:
        raise InvalidInput("--best-temperature is for --schemes all")


def rows(asked: Asked, sample: LogitsSample | None = None) -> list[RateRow]:
    """Rates of a sample; of that of the files unless given."""
    from mdsd_opt.corpora.rates import rate_rows

    return rate_rows(
        stored_sample(asked.paths) if sample is None else sample, asked.schemes, asked.num_drafts,
        asked.verifiers, asked.confidence, asked.kind if asked.paths else "logits", asked.progress,
        num_threads=asked.threads, **asked.of_rows,
    )  # fmt: skip


def _ranked(asked: Asked, sample: LogitsSample) -> SchemeComparison:
    """Comparison of draft schemes at the largest number of drafts, the best first."""
    import numpy as np

    from mdsd_opt.planning.draft_choice import compare_draft_schemes

    sample = sample.taken_as(asked.kind if asked.paths else "logits")
    logits = [sample.target, sample.draft]
    if asked.pad:
        width = max(side.shape[-1] for side in logits)
        logits = [
            np.pad(
                side.astype(np.float64),
                [(0, 0)] * (side.ndim - 1) + [(0, width - side.shape[-1])],
                constant_values=-np.inf,
            )
            if side.shape[-1] < width
            else side
            for side in logits
        ]
    target, draft = logits
    return compare_draft_schemes(
        target, draft, asked.num_drafts[-1], best_temperature=asked.best_temperature,
        inclusion=sample.num_positions <= _MOST_BOUNDED,
        sequence=sample.texts, confidence=asked.confidence, num_threads=asked.threads,
        progress=asked.progress, kind="logits", **asdict(asked.sampling),
    )  # fmt: skip
