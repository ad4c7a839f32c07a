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
    from mdsd_opt.base.logits import Logits
    from mdsd_opt.cli.view import View
    from mdsd_opt.corpora import RateRow
    from mdsd_opt.planning import BestFilter, SchemeComparison

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
        _best_filters(asked, sample) if asked.best_filter else (),
        source=sample.source,
        metadata=dict(sample.metadata),
        num_positions=sample.num_positions,
        vocab_size=sample.vocab_size,
        interval_over="positions" if sample.texts is None else "sequences",
    )


def measured_view(
    asked: Asked,
    rows: Sequence[RateRow],
    comparison: SchemeComparison | None = None,
    filters: Sequence[BestFilter] = (),
    **known: Any,
) -> View:
    """View of measured rates; `known` is the document's entries on their source."""
    from mdsd_opt.cli.report.rates import rates_view
    from mdsd_opt.corpora import refusals
    from mdsd_opt.evidence import interval_note

    groups, unit = rows[0].acceptance.num_groups, known.pop("interval_over")
    temperature, confidence = asked.sampling.temperature, asked.confidence
    name = known["source"] if asked.paths else Path(known["source"]).name
    title = (
        f"{known['num_positions']} positions, V = {known['vocab_size']:,}\n"
        f"temperature {temperature:g}{_masks_shown(asked)}; "
        f"{interval_note(groups, unit, confidence)}"
    )
    known |= {"temperature": temperature, "confidence": confidence, "interval_over": unit}
    known |= {name: str(path) for name, path in _mask_files(asked).items()}
    known |= {"mask_draft": asked.mask_draft} if _mask_files(asked) else {}
    refused = refusals(asked.schemes, asked.verifiers, asked.num_drafts)
    return rates_view(rows, title, refused, comparison, filters, name=name, **known)


def require_arrays(asked: Asked) -> None:
    """Raise if options are given that arrays have no use for."""
    asked.refuse(["vocab-size"], "{name} is for .jsonl files: arrays have it as their last axis")
    if asked.best_temperature and not asked.all_schemes:
        raise InvalidInput("--best-temperature is for --schemes all")


def rows(asked: Asked, sample: LogitsSample | None = None) -> list[RateRow]:
    """Rates of a sample; of that of the files unless given."""
    from mdsd_opt.corpora import rate_rows

    return rate_rows(
        stored_sample(asked.paths) if sample is None else sample, asked.schemes, asked.num_drafts,
        asked.verifiers, asked.confidence, asked.kind if asked.paths else "logits", asked.progress,
        num_threads=asked.threads, rng=asked.seed, **asked.of_rows, **_grammar(asked),
    )  # fmt: skip


def _grammar(asked: Asked) -> dict[str, Any]:
    """Mask and weights of tokens, from their files."""
    from mdsd_opt.base.files.arrays import read_npy

    masks: dict[str, Any] = {name: read_npy(path) for name, path in _mask_files(asked).items()}
    if not masks:
        asked.refuse(["no-mask-draft"], "{name} goes with --mask or --lift")
        return {}
    if asked.all_schemes:
        raise InvalidInput(f"--{next(iter(masks))} goes without --schemes all: name some schemes")
    return {**masks, "mask_draft": asked.mask_draft}


def _mask_files(asked: Asked) -> dict[str, Path]:
    """Files of mask and weights that are given, by the name of their option."""
    files = {"mask": asked.mask, "lift": asked.lift}
    return {name: path for name, path in files.items() if path is not None}


def _masks_shown(asked: Asked) -> str:
    """Words on the masks of a table's title; none without masks."""
    named = "".join(f", {name} {path.name}" for name, path in _mask_files(asked).items())
    return named + (" on the target alone" if named and not asked.mask_draft else "")


def _ranked(asked: Asked, sample: LogitsSample) -> SchemeComparison:
    """Comparison of draft schemes at the largest number of drafts, the best first."""
    from mdsd_opt.planning import compare_draft_schemes

    return compare_draft_schemes(
        _pair(asked, sample), asked.num_drafts[-1], best_temperature=asked.best_temperature,
        inclusion=sample.num_positions <= _MOST_BOUNDED,
        sequence=sample.texts, confidence=asked.confidence, num_threads=asked.threads,
        progress=asked.progress,
    )  # fmt: skip


def _best_filters(asked: Asked, sample: LogitsSample) -> list[BestFilter]:
    """Best filter of the draft for each scheme, at the largest number of drafts."""
    from mdsd_opt.planning import best_draft_filter

    if _mask_files(asked):
        raise InvalidInput("--best-filter goes without --mask and --lift")
    if asked.sampling.draft_temperature is not None:
        raise InvalidInput("--best-filter finds the draft's temperature: leave it out")
    return [
        best_draft_filter(
            _pair(asked, sample), asked.num_drafts[-1], scheme, sequence=sample.texts,
            confidence=asked.confidence, num_threads=asked.threads, progress=asked.progress,
        )
        for scheme in asked.schemes
    ]  # fmt: skip


def _pair(asked: Asked, sample: LogitsSample) -> Logits:
    from mdsd_opt.base.logits import Logits

    return Logits(
        sample.target, sample.draft, kind=asked.kind if asked.paths else "logits", pad=asked.pad,
        draft_token_ids=sample.draft_token_ids, **asdict(asked.sampling),
    )  # fmt: skip
