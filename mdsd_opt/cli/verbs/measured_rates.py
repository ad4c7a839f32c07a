"""What mdsd-opt rates shows: measured on files held in memory, or on a folder of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.output import remark
from mdsd_opt.corpora.rates import RateRow
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.base.files.logits import LogitsSample
    from mdsd_opt.corpora.draft_choice import SchemeComparison


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Rows, what they are of, and perhaps a ranking; `silent` where another process shows them."""

    source: str
    name: str
    metadata: Mapping[str, Any]
    num_positions: int
    vocab_size: int
    interval_over: str
    rows: Sequence[RateRow]
    silent: bool = False
    comparison: SchemeComparison | None = None


def rates_of_files(
    paths: Sequence[Path],
    schemes: Sequence[str],
    verifiers: Sequence[str],
    num_drafts: Sequence[int],
    *,
    rank: bool = False,
    best_temperature: bool = False,
    kind: str | None = None,
    **options: Any,
) -> MeasuredRates:
    """Rates of one sample of logits; of the bundled one without paths.

    With ``rank=True`` draft schemes are also ranked, at the largest number of drafts.
    """
    from mdsd_opt.cli.verbs.samples import stored_sample
    from mdsd_opt.corpora.rates import rate_rows

    sample = stored_sample(paths)
    kind = kind if paths else "logits"
    return MeasuredRates(
        sample.source,
        sample.source if paths else Path(sample.source).name,
        sample.metadata,
        sample.num_positions,
        sample.vocab_size,
        "positions" if sample.texts is None else "sequences",
        rate_rows(sample, schemes, num_drafts, verifiers, kind=kind, **options),
        comparison=ranked(sample.taken_as(kind), num_drafts[-1], best_temperature, **options)
        if rank
        else None,
    )


def ranked(
    sample: LogitsSample,
    num_drafts: int,
    best_temperature: bool,
    *,
    pad: bool,
    seed: int,  # nothing is sampled here
    **options: Any,
) -> SchemeComparison:
    """Draft schemes of one sample, the best first."""
    import numpy as np

    from mdsd_opt.corpora.draft_choice import compare_draft_schemes

    logits = [sample.target, sample.draft]
    if pad:
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
        target,
        draft,
        num_drafts,
        best_temperature=best_temperature,
        sequence=sample.texts,
        kind="logits",
        **options,
    )


def rates_of_folder(
    folder: Path,
    schemes: Sequence[str],
    verifiers: Sequence[str],
    num_drafts: Sequence[int],
    *,
    engine: str,
    out: Path | None,
    workers: int | None,
    address: str | None,
    verify: bool,
    rank_timeout: float | None,
    confidence: float,
    num_threads: int | None,
    progress: bool,
    **options: Any,
) -> MeasuredRates:
    """Rates of a corpus; see `mdsd_opt.corpora.corpus_rates`."""
    from mdsd_opt.corpora import RatesConfig, corpus_rates, open_corpus
    from mdsd_opt.corpora.engines import RANK_TIMEOUT

    silent = False
    if rank_timeout is not None and engine != "torchrun":
        raise InvalidInput(f"--rank-timeout is given, and engine {engine!r} has no ranks")
    if engine == "torchrun":
        from mdsd_opt.corpora.torchrun_engine import rank

        silent = rank() != 0
    corpus = open_corpus(folder)
    manifest = corpus.manifest
    if manifest is not None and not manifest.is_complete and not silent:
        remark(
            f"the capture of {folder} is not complete: {len(manifest.shards)} of "
            f"{manifest.num_shards} shards are there"
        )
    without = len(corpus.shards) - len(corpus.sums)
    if manifest is not None and without and verify and not silent:
        remark(f"{without} of {len(corpus.shards)} shards have no sum in the manifest to verify")
    config = RatesConfig.of(schemes, verifiers, num_drafts, **options)
    if corpus.stored_rates is not None:
        asked, config = config, config.within(corpus.stored_rates)
        lacking = len(set(asked.columns) - set(config.columns))
        if lacking and not silent:
            remark(
                f"{folder} holds rates instead of logits, and lacks {lacking} of those asked for"
            )
    summary = corpus_rates(
        folder,
        config,
        engine,
        out=out,
        workers=workers,
        address=address,
        num_threads=num_threads,
        confidence=confidence,
        progress=progress and not silent,
        verify=verify,
        rank_timeout=RANK_TIMEOUT if rank_timeout is None else rank_timeout,
    )
    if summary.num_reused and corpus.stored_rates is None and not silent:
        remark(f"{summary.num_reused} of {summary.num_shards} shards had been scored before")
    if summary.interval_over == "positions" and not silent:
        remark("the shards name no prompts (array 'sequence'): intervals are over positions")
    return MeasuredRates(
        str(folder),
        str(folder),
        {} if manifest is None else manifest.settings,
        summary.num_positions,
        summary.vocab_size,
        summary.interval_over,
        summary.rows,
        silent,
    )


def require_files_only(**given: object) -> None:
    """Refuse options that only a folder has."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(f"--{name} is for a folder of shards: mdsd-opt rates DIR --{name}")
