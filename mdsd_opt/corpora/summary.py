"""All shards of a corpus scored, and their rates summed up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mdsd_opt.base.files import unreadable
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.batch.row_functions import is_bound
from mdsd_opt.corpora.config import RatesConfig
from mdsd_opt.corpora.corpus import Corpus, open_corpus
from mdsd_opt.corpora.engines import RANK_TIMEOUT, Placement, Task, engine
from mdsd_opt.corpora.rates import RateRow, with_gaps
from mdsd_opt.corpora.stored_rates import StoredShard
from mdsd_opt.corpora.streaming import RunningSummary
from mdsd_opt.corpora.sums import VerifiedShards
from mdsd_opt.errors import InvalidInput

#: Rows of scored rates that are summed up in one go.
_ROWS = 1 << 15

_LEVELS = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """Acceptance rates of a corpus.

    Attributes
    ----------
    rows : tuple of RateRow
        With intervals by prompt, and quantiles over positions.
    num_positions, num_shards, vocab_size : int
    interval_over : str
        "sequences", or "positions" where the shards do not say which prompt a position is of.
    num_reused : int
        Shards whose result was there before.
    """

    rows: tuple[RateRow, ...]
    num_positions: int
    num_shards: int
    vocab_size: int
    interval_over: str
    num_reused: int


def corpus_rates(
    folder: str | os.PathLike[str],
    config: RatesConfig,
    engine_name: str = "local",
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    address: str | None = None,
    num_threads: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
    verify: bool = True,
    rank_timeout: float = RANK_TIMEOUT,
) -> CorpusSummary:
    """Acceptance rates of every position of a corpus, summed up.

    Shards whose result is there are not scored again, so that a run that was killed goes on where
    it was. Every engine gives the same numbers, bit for bit. Of a corpus that was captured without
    its logits the rates are read, and nothing is scored.

    Parameters
    ----------
    folder : path
        See `open_corpus`.
    config : RatesConfig
    engine_name : str
        One of `ENGINES`.
    out : path, optional
        Folder for the rates of each shard; ``rates-`` and the digest of the config, inside
        `folder`, by default. All workers must see both folders under these names.
    workers, address
        See `Placement`.
    num_threads : int, optional
        Threads of each worker.
    confidence : float
        Of the intervals, which take prompts, not positions, as independent.
    progress : bool
        Show a progress bar on stderr.
    verify : bool
        Hold each shard that is scored against its sum in the manifest, if it has one there. A
        result that was computed without that check is not taken for one with it.
    rank_timeout : float
        Seconds without a sign of life after which a rank of torchrun counts as lost; `inf` to wait
        for ever.

    Raises
    ------
    UnreadableFile, InvalidInput
        No such folder, an empty or broken one, a shard whose sum is not that of the manifest, or
        rows that are no logits; results of finished shards are kept.
    WorkerDied
        Workers were killed, more than the engine makes good; results are kept.
    """
    tasks, num_reused = score_corpus(
        folder,
        config,
        engine_name,
        out,
        Placement(workers, address, rank_timeout),
        num_threads,
        progress,
        verify,
    )
    return _summed_up(tasks, config, confidence, num_reused)


def score_corpus(
    folder: str | os.PathLike[str],
    config: RatesConfig,
    engine_name: str = "local",
    out: str | os.PathLike[str] | None = None,
    placement: Placement | None = None,
    num_threads: int | None = None,
    progress: bool = False,
    verify: bool = True,
    verified: VerifiedShards | None = None,
) -> tuple[Sequence[Task | StoredShard], int]:
    """Score the shards of a corpus that are not scored yet; see `corpus_rates`.

    Several calls that make up one run share `verified`, so that each shard is verified once.

    Returns
    -------
    tasks : list of Task, or of StoredShard
        In the order of the shards, each with its `result`.
    num_reused : int
        Shards whose result was there before.
    """
    placement = placement or Placement()
    if placement.workers is not None and placement.workers < 1:
        raise InvalidInput(f"workers is {placement.workers}: give at least 1")
    if not placement.rank_timeout > 0:
        raise InvalidInput(
            f"rank_timeout (--rank-timeout) is {placement.rank_timeout:g}: give seconds above 0"
        )
    run = engine(engine_name)
    corpus = open_corpus(folder)
    verified = verified or VerifiedShards()
    sums = corpus.sums if verify else {}
    if corpus.stored_rates is not None:
        return _stored(corpus, config, sums, verified), len(corpus.shards)
    place = (Path(folder) / f"rates-{config.digest}" if out is None else Path(out)).absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"cannot make the folder {place} for the results: {error.strerror}. Choose another one "
            "(out, or --out)."
        ) from error
    tasks = []
    for shard in corpus.shards:
        sha256 = sums.get(shard.name)
        tasks.append(
            Task(
                shard.absolute(),
                place / f"{shard.name}.rates.safetensors",
                config,
                num_threads,
                sha256,
                sha256 is not None and verified.has(shard, sha256),
            )
        )
    if engine_name == "torchrun":  # every rank must see the same list
        todo = tasks
    else:
        todo = [task for task in tasks if task.result() is None]
    finished = len(tasks) - len(todo)
    with progress_bar("shards", len(corpus.shards), progress, finished) as advance:
        if todo:
            run(todo, placement, lambda name: advance(1))
    for task in todo:
        if task.sha256 is not None:
            verified.add(task.path_in, task.sha256)
    return tasks, finished


def _stored(
    corpus: Corpus, config: RatesConfig, sums: Mapping[str, str], verified: VerifiedShards
) -> list[StoredShard]:
    """The shards of a corpus that holds rates; all of the config must be among them."""
    stored, manifest = corpus.stored_rates, corpus.manifest
    assert stored is not None
    assert manifest is not None
    wanted = config.within(stored)
    missing = [column for column in config.columns if column not in wanted.columns]
    if missing:
        raise InvalidInput(
            f"{corpus.folder} holds rates instead of logits, and not those of {len(missing)} of "
            f"the columns asked for, the first is {', '.join(map(str, missing[0]))}"
        )
    for shard in corpus.shards:
        if shard.name in sums:
            verified.require(shard, sums[shard.name])
    vocab_size = int(manifest.settings["vocab_size"])
    return [StoredShard(shard, wanted, stored, vocab_size) for shard in corpus.shards]


def _summed_up(
    tasks: Sequence[Task | StoredShard], config: RatesConfig, confidence: float, num_reused: int
) -> CorpusSummary:
    """Sum up the results in the order of the shards, whatever order they were computed in."""
    summary = RunningSummary(len(config.columns))
    vocab_size = 0
    over: set[str] = set()
    for task in tasks:
        found = task.result()
        if found is None:
            raise unreadable(task.path_in, RuntimeError("it changed while it was summed up"))
        vocab_size = max(vocab_size, found.vocab_size)
        over.add("positions" if found.sequence is None else "sequences")
        if len(over) > 1:
            raise InvalidInput(
                f"{task.path_in} {'does not name' if found.sequence is None else 'names'} the "
                "prompt of each position (array 'sequence'), unlike the shards before it: no "
                "intervals by prompt are possible"
            )
        for start in range(0, len(found.rates), _ROWS):
            part = slice(start, start + _ROWS)
            groups = None if found.sequence is None else found.sequence[part]
            summary.add(found.rates[part], groups)
    if summary.num_values == 0:
        raise InvalidInput(f"{tasks[0].path_in.parent} holds no position: its arrays are empty")
    intervals = summary.intervals(confidence)
    quantiles = summary.quantiles(tuple(_LEVELS.values()))
    rows = [
        RateRow(
            column.scheme,
            column.num_drafts,
            column.verifier,
            interval,
            bound=is_bound(column.verifier),
            quantiles=dict(zip(_LEVELS, levels.tolist(), strict=True)),
        )
        for column, interval, levels in zip(config.columns, intervals, quantiles, strict=True)
    ]
    return CorpusSummary(
        tuple(with_gaps(rows)),
        summary.num_values,
        len(tasks),
        vocab_size,
        over.pop(),
        num_reused,
    )
