"""mdsd-opt rates of a folder of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdsd_opt.cli.options import Asked
from mdsd_opt.cli.output import remark
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.cli.view import View


def takes(asked: Asked) -> bool:
    """Whether the rates are those of a folder."""
    return len(asked.paths) == 1 and asked.paths[0].is_dir()


def view(asked: Asked) -> View | None:
    """View of the rates of a corpus; None if another rank of torchrun shows them."""
    from mdsd_opt.cli.verbs.rates_of_files import measured_view, require_arrays
    from mdsd_opt.corpora import RANK_TIMEOUT, RatesConfig, corpus_rates, open_corpus, rank

    require_arrays(asked)
    of_files = ["best-temperature", "best-filter", "mask", "lift", "no-mask-draft"]
    asked.refuse(of_files, "{name} is for files, not for a folder of shards")
    if asked.kind != "logits":
        asked.refuse(["kind"], "{name} is for files: the shards of a folder hold logits")
    (folder,), placed = asked.paths, asked.folder
    executor = placed.executor or "local"
    if placed.rank_timeout is not None and executor != "torchrun":
        raise InvalidInput(f"--rank-timeout is given, and executor {executor!r} has no ranks")
    silent = executor == "torchrun" and rank() != 0

    def tell(text: str) -> None:
        if not silent:
            remark(text)

    corpus = open_corpus(folder)
    manifest, num_shards = corpus.manifest, len(corpus.shards)
    if manifest is not None and not manifest.is_complete:
        tell(
            f"the capture of {folder} is not complete: {len(manifest.shards)} of "
            f"{manifest.num_shards} shards are there"
        )
    without = num_shards - len(corpus.sums)
    if manifest is not None and without and placed.verify:
        tell(f"{without} of {num_shards} shards have no sum in the manifest to verify")
    columns = asked.schemes, asked.verifiers, asked.num_drafts
    config = RatesConfig.of(*columns, seed=asked.seed, **asked.of_rows)
    if corpus.stored_rates is not None:
        wanted, config = config, config.within(corpus.stored_rates)
        lacking = len(set(wanted.columns) - set(config.columns))
        if lacking:
            tell(f"{folder} holds rates instead of logits, and lacks {lacking} of those asked for")
    summary = corpus_rates(
        folder, config, executor, out=placed.out, workers=placed.workers, address=placed.address,
        num_threads=asked.threads, confidence=asked.confidence,
        progress=asked.progress and not silent, verify=placed.verify,
        rank_timeout=RANK_TIMEOUT if placed.rank_timeout is None else placed.rank_timeout,
    )  # fmt: skip
    if summary.num_reused and corpus.stored_rates is None:
        tell(f"{summary.num_reused} of {summary.num_shards} shards had been scored before")
    if summary.interval_over == "positions":
        tell("the shards name no prompts (array 'sequence'): intervals are over positions")
    if silent:
        return None
    return measured_view(
        asked,
        summary.rows,
        source=str(folder),
        metadata={} if manifest is None else dict(manifest.settings),
        num_positions=summary.num_positions,
        vocab_size=summary.vocab_size,
        interval_over=summary.interval_over,
    )
