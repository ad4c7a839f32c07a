"""Scores of all shards of a corpus, summed up in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.arrays import weighted_count
from mdsd_opt.base.checked import checked_integer, of_kind, real
from mdsd_opt.base.files import unreadable
from mdsd_opt.base.frames import Result
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.corpora.executors import (
    RANK_TIMEOUT,
    Placement,
    check_executor,
    score_all,
)
from mdsd_opt.corpora.sample_rates import RateRow, with_gaps
from mdsd_opt.corpora.shards import (
    Corpus,
    RatesConfig,
    ShardRates,
    StoredShard,
    Task,
    VerifiedShards,
    open_corpus,
)
from mdsd_opt.errors import InvalidInput
from mdsd_opt.evidence import MeanInterval, interval_of_groups

#: Most prompts that are told apart. Further ones are pooled with these: the pools are independent
#: of each other as the prompts are, so the interval stays valid, on this many samples.
MAX_GROUPS = 1 << 14

#: Number of cells of the histogram behind the quantiles.
NUM_BINS = 10_000


class RunningSummary:
    r"""Summary of columns of values in [0, 1], prompt by prompt.

    The interval is that of `mdsd_opt.evidence.intervals.mean_interval`: the variance of the mean is
    :math:`\frac{G}{G-1} \sum_g (S_g - n_g \bar x)^2 / N^2` with the totals S_g and counts n_g of
    the prompts, which is all that has to be kept.
    """

    def __init__(self, num_columns: int, max_groups: int = MAX_GROUPS) -> None:
        self._max_groups = max_groups
        self._slots: dict[int, int] = {}
        self._num_loose = 0
        self._counts = np.zeros(0)
        self._sums = np.zeros((0, num_columns))
        self._histogram = np.zeros((num_columns, NUM_BINS), dtype=np.int64)
        self._least = np.full(num_columns, np.inf)
        self._most = np.full(num_columns, -np.inf)
        self.num_values = 0

    def add(self, values: NDArray[np.float64], groups: NDArray[np.int64] | None = None) -> None:
        """Add values, shape (n, C), and the prompt of each row; without it rows are loose."""
        n = len(values)
        if n == 0:
            return
        if groups is None:
            slots = np.arange(self._num_loose, self._num_loose + n) % self._max_groups
            self._num_loose += n
        else:
            slots = self._slots_of(groups)
        used = int(slots.max()) + 1
        if used > len(self._counts):
            more = max(used, 2 * len(self._counts)) - len(self._counts)
            self._counts = np.concatenate([self._counts, np.zeros(more)])
            self._sums = np.concatenate([self._sums, np.zeros((more, self._sums.shape[1]))])
        self._counts[:used] += np.bincount(slots, minlength=used)
        cells = np.clip((values * NUM_BINS).astype(np.int64), 0, NUM_BINS - 1)
        for column in range(values.shape[1]):
            self._sums[:used, column] += weighted_count(slots, values[:, column], used)
            self._histogram[column] += np.bincount(cells[:, column], minlength=NUM_BINS)
        self._least = np.minimum(self._least, values.min(axis=0))
        self._most = np.maximum(self._most, values.max(axis=0))
        self.num_values += n

    def _slots_of(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        names, index = np.unique(groups, return_inverse=True)
        slots = np.empty(names.size, dtype=np.int64)
        for i, name in enumerate(names.tolist()):
            if name not in self._slots and len(self._slots) < self._max_groups:
                self._slots[name] = len(self._slots)
            slots[i] = self._slots.get(name, name % self._max_groups)
        return slots[index.ravel()]

    def intervals(self, confidence: float = 0.95) -> list[MeanInterval]:
        """Mean of each column, with its confidence interval."""
        present = self._counts > 0
        counts, sums = self._counts[present], self._sums[present]
        means = sums.sum(axis=0) / max(self.num_values, 1)
        return [
            interval_of_groups(
                float(mean), column - counts * mean, self.num_values, confidence
            ).within(0.0, 1.0)
            for mean, column in zip(means, sums.T, strict=True)
        ]

    def quantiles(self, levels: tuple[float, ...]) -> NDArray[np.float64]:
        """Quantiles over the values, shape (C, len(levels)), to within 1 / `NUM_BINS`.

        The quantile of level u is the least value that a share u of the values does not exceed.
        """
        reached = np.cumsum(self._histogram, axis=1)
        result = np.empty((len(reached), len(levels)))
        for column, counts in enumerate(reached):
            wanted = np.clip(np.ceil(np.asarray(levels) * self.num_values), 1, None)
            cell = np.searchsorted(counts, wanted)
            middle = (cell + 0.5) / NUM_BINS
            result[column] = np.clip(middle, self._least[column], self._most[column])
        return result


#: Number of rows of scored rates that are summed up at once.
_ROWS = 1 << 15

_LEVELS = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}


@dataclass(frozen=True, slots=True)
class CorpusSummary(Result):
    """Acceptance rates of a corpus.

    Attributes
    ----------
    rows : tuple of RateRow
        Rows with intervals by prompt, and quantiles over positions.
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
    executor: str = "local",
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
    it was. Every executor gives the same numbers, bit for bit. Of a corpus that was captured
    without its logits the rates are read, and nothing is scored.

    Parameters
    ----------
    folder : path
        See `open_corpus`.
    config : RatesConfig
    executor : str
        Of a folder: local, torchrun, dask or ray.
    out : path, optional
        Folder for the rates of each shard; ``rates-`` and the digest of the config, inside
        `folder`, by default. All workers must see both folders under these names.
    workers : int, optional
        Of a folder: processes to start on this machine.
    address : str, optional
        Of a folder: a Dask or Ray cluster that runs.
    num_threads : int, optional
        CPU threads, of each worker; all by default.
    confidence : float
        Of the intervals, which take prompts, not positions, as independent.
    progress : bool
        Show a progress bar on stderr.
    verify : bool
        Of a folder: hold each shard against its sum in the manifest before it is read. A result
        that was computed without that check is not taken for one with it.
    rank_timeout : float
        Of torchrun: seconds in which no shard is finished after which the others' count as lost;
        600 unless given, `inf` to wait for ever.

    Raises
    ------
    UnreadableFile, InvalidInput
        No such folder, an empty or broken one, a shard whose sum is not that of the manifest, or
        rows that are no logits; results of finished shards are kept.
    WorkerDied
        Workers were killed, more than the executor makes good; results are kept.
    """
    tasks, num_reused = score_corpus(
        folder, config, executor, out,
        Placement(workers, address, rank_timeout), num_threads, progress, verify,
    )  # fmt: skip
    return _summed_up(tasks, config, confidence, num_reused)


def score_corpus(
    folder: str | os.PathLike[str],
    config: RatesConfig,
    executor: str = "local",
    out: str | os.PathLike[str] | None = None,
    placement: Placement | None = None,
    num_threads: int | None = None,
    progress: bool = False,
    verify: bool = True,
    verified: VerifiedShards | None = None,
) -> tuple[Sequence[Task | StoredShard], int]:
    """Score the shards of a corpus that are not scored yet; see `corpus_rates`.

    Several calls that make up one run share `verified`, so that each shard is verified once. The
    tasks come in the order of the shards, each with its `result`, and with the number of those
    whose result was there before.
    """
    placement = placement or Placement()
    if placement.workers is not None:
        checked_integer(placement.workers, "workers")
    if not real(placement.rank_timeout) > 0:
        raise InvalidInput(
            f"rank_timeout (--rank-timeout) is {placement.rank_timeout!r:.60}: give seconds above 0"
        )
    of_kind(config, RatesConfig, "config", "a RatesConfig")
    check_executor(executor, placement)
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
        path_out, sha256 = place / f"{shard.name}.rates.safetensors", sums.get(shard.name)
        is_verified = sha256 is not None and verified.has(shard, sha256)
        tasks.append(Task(shard.absolute(), path_out, config, num_threads, sha256, is_verified))
    todo = tasks  # every rank of torchrun must see the same list
    if executor != "torchrun":
        todo = [task for task in tasks if task.result() is None]
    finished = len(tasks) - len(todo)
    with progress_bar("shards", len(corpus.shards), progress, finished) as advance:
        if todo:
            score_all(todo, executor, placement, lambda name: advance(1))
    for task in todo:
        if task.sha256 is not None:
            verified.add(task.path_in, task.sha256)
    return tasks, finished


def results_of(tasks: Sequence[Task | StoredShard]) -> Iterator[ShardRates]:
    """Results in the order of the shards, which have to be of one pair of models."""
    size = 0
    for task in tasks:
        shard = task.result()
        if shard is None:
            raise unreadable(task.path_in, RuntimeError("it changed while results were gathered"))
        if size not in (0, shard.vocab_size):
            raise InvalidInput(
                f"{task.path_in} has {shard.vocab_size} tokens, and the shards before it have "
                f"{size}: give a folder of one pair of models"
            )
        size = shard.vocab_size
        yield shard


def _stored(
    corpus: Corpus, config: RatesConfig, sums: Mapping[str, str], verified: VerifiedShards
) -> list[StoredShard]:
    """Shards of a corpus that holds rates; all of the config must be among them."""
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
    """Summary of the results in the order of the shards, whatever order they were computed in."""
    summary = RunningSummary(len(config.columns))
    over: set[str] = set()
    for task, shard in zip(tasks, results_of(tasks), strict=True):
        over.add("positions" if shard.sequence is None else "sequences")
        if len(over) > 1:
            raise InvalidInput(
                f"{task.path_in} {'does not name' if shard.sequence is None else 'names'} the "
                "prompt of each position (array 'sequence'), unlike the shards before it: no "
                "intervals by prompt are possible"
            )
        for start in range(0, len(shard.rates), _ROWS):
            part = slice(start, start + _ROWS)
            groups = None if shard.sequence is None else shard.sequence[part]
            summary.add(shard.rates[part], groups)
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
            bound=verifiers.get(column.verifier).bounds_batches,
            quantiles=dict(zip(_LEVELS, levels.tolist(), strict=True)),
        )
        for column, interval, levels in zip(config.columns, intervals, quantiles, strict=True)
    ]
    return CorpusSummary(
        tuple(with_gaps(rows)),
        summary.num_values,
        len(tasks),
        shard.vocab_size,
        over.pop(),
        num_reused,
    )
