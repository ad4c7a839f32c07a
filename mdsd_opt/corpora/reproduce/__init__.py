"""Experiments of papers, run on the logits at hand.

Here: what they have in common: scored logits, tables with intervals, a paper's statements. Each
experiment is a file.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base import frames
from mdsd_opt.base.checked import check_confidence
from mdsd_opt.base.files.logits import LogitsSample, load_logits
from mdsd_opt.base.frames import Result, Table, data_frame
from mdsd_opt.corpora.executors import Placement
from mdsd_opt.corpora.shards import (
    RatesConfig,
    StoredColumn,
    StoredShard,
    Task,
    VerifiedShards,
    open_corpus,
)
from mdsd_opt.corpora.sums import results_of, score_corpus
from mdsd_opt.errors import InvalidInput, UnknownName, UnreadableFile
from mdsd_opt.evidence import MeanInterval, interval_note, mean_interval

__all__ = ["EXPERIMENTS", "CapturedLogits", "Reproduction", "reproduce"]

#: Experiments by name, with their sources.
EXPERIMENTS = {
    "hu2025": "[Hu25] draft schemes and verifiers at temperature 0.7 with 3 drafts, and sweeps",
    "khisti2025": "[Khisti25] drafts at temperatures 1.2 to 2.4 against a target at 1.0",
    "spechub": "[SpecHub] two drafts against recursive rejection",
}


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Acceptance rates of every position under one config."""

    columns: Mapping[StoredColumn, NDArray[np.float64]]
    groups: NDArray[np.int64] | None  # prompt of each position
    confidence: float

    def mean(self, scheme: str, verifier: str, num_drafts: int) -> MeanInterval:
        """Mean acceptance rate, with its interval by prompt."""
        return self.of(self.columns[StoredColumn(scheme, verifier, num_drafts)]).within(0.0, 1.0)

    def gain(self, better: tuple[str, str, int], other: tuple[str, str, int]) -> MeanInterval:
        """Mean of the difference, position by position."""
        return self.of(self.columns[StoredColumn(*better)] - self.columns[StoredColumn(*other)])

    def of(self, values: NDArray[np.float64]) -> MeanInterval:
        """Mean of any values of the positions."""
        return mean_interval(values, self.groups, self.confidence)


@dataclass(frozen=True, slots=True)
class CapturedLogits:
    """Captured logits to run an experiment on.

    Attributes
    ----------
    source : Path
        A file of logits, or a folder of shards.
    out : Path or None
        Folder for the rates of each shard; of a corpus inside its folder by default, of a file
        nowhere.
    workers, num_threads : int or None
    confidence : float
        Confidence of the intervals.
    progress : bool
    verify : bool
        Hold each shard of a corpus against its sum in the manifest, once.
    """

    source: Path
    out: Path | None = None
    workers: int | None = None
    num_threads: int | None = None
    confidence: float = 0.95
    progress: bool = False
    verify: bool = True
    _verified: VerifiedShards = field(
        default_factory=VerifiedShards, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_confidence(self.confidence)

    def score(self, config: RatesConfig) -> Scored:
        """Rates of every position; those that are scored already are read."""
        if self.source.is_dir():
            tasks, _ = score_corpus(
                self.source,
                config,
                out=None if self.out is None else self.out / f"rates-{config.digest}",
                placement=Placement(self.workers),
                num_threads=self.num_threads,
                progress=self.progress,
                verify=self.verify,
                verified=self._verified,
            )
            return self._gathered(tasks, config)
        with TemporaryDirectory() as folder:
            out = Path(folder) / "rates.safetensors"
            task = Task(self.source, out, config, self.num_threads)
            task.run()
            return self._gathered([task], config)

    def _gathered(self, tasks: Sequence[Task | StoredShard], config: RatesConfig) -> Scored:
        shards = [*results_of(tasks)]
        rates = np.concatenate([np.array(shard.rates) for shard in shards])
        if len(rates) == 0:
            raise InvalidInput(f"{self.source} holds no position: its arrays are empty")
        known = [shard.sequence for shard in shards if shard.sequence is not None]
        groups = np.concatenate(known) if len(known) == len(shards) else None
        return Scored(dict(zip(config.columns, rates.T, strict=True)), groups, self.confidence)

    def samples(self) -> Iterator[LogitsSample]:
        """Logits themselves, shard by shard."""
        if not self.source.is_dir():
            yield load_logits(self.source).taken_as(None)
            return
        corpus = open_corpus(self.source)
        sums = corpus.sums if self.verify else {}
        for shard in corpus.shards:
            if shard.name in sums:
                self._verified.require(shard, sums[shard.name])
            yield load_logits(shard).taken_as(None)

    def models(self) -> str:
        """Names of the models of the logits, in words."""
        metadata = next(self.samples()).metadata
        names = []
        for side in ("target", "draft"):
            entry = metadata.get(side, "unknown")
            if isinstance(entry, dict):
                skipped = ", ".join(map(str, entry.get("skipped_layers", ())))
                entry = str(entry.get("model")) + (f" without layers {skipped}" if skipped else "")
            names.append(f"{side} {entry}")
        return ", ".join(names)


#: A cell of a table, and a row.
Cell = str | float | MeanInterval
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table of means with intervals; other cells are text or numbers.

    It is drawn against its first column, for each value of `by`, if `is_drawn`: the rates, not the
    differences of two, whose names have a minus. A paper's own numbers are drawn beside: `points`
    (x, y) of a column, and `ranges` that a column is said to lie in.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    is_drawn: bool = True
    by: str | None = None
    panel: str = ""  # title in a picture
    quantity: str = "acceptance rate"
    points: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def curves(self) -> dict[str, dict[str, list[tuple[str | float, MeanInterval]]]]:
        """Points of every rate, by the value of `by` and the name of the rate."""
        parts: dict[str, dict[str, list[tuple[str | float, MeanInterval]]]] = {}
        for row in self.rows if self.is_drawn else ():
            cells = dict(zip(self.columns, row, strict=True))
            part = f"{self.by} = {cells[self.by]}" if self.by else ""
            lines = parts.setdefault(part, {})
            for name, cell in cells.items():
                if isinstance(cell, MeanInterval) and " - " not in name:
                    first = row[0]
                    assert not isinstance(first, MeanInterval)
                    lines.setdefault(name, []).append((first, cell))
        return parts

    def to_pandas(self) -> Any:
        """Data frame of the means, with columns of their ends; `MissingExtra` without pandas."""
        return data_frame([dict(self._fields(row)) for row in self.rows])

    def _fields(self, row: Row) -> Iterator[tuple[str, str | float]]:
        for name, cell in zip(self.columns, row, strict=True):
            if isinstance(cell, MeanInterval):
                names = (name, f"{name} low", f"{name} high")
                yield from zip(names, (cell.mean, cell.low, cell.high), strict=True)
            else:
                yield name, cell


class Agreement(StrEnum):
    """Agreement of a measurement with a statement."""

    AGREES = "agrees"
    OTHER_SIZE = "same direction, other size"
    DISAGREES = "disagrees"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Published:
    """A statement of the paper, or numbers of a figure, beside what was computed here."""

    quote: str  # "" of a figure's numbers
    where: str
    stated: str  # the figure or range; "a gain" and the like where it gives no figure
    here: str  # the same quantity on the logits at hand, with its intervals
    outcome: Agreement  # see `compared`


@dataclass(frozen=True, slots=True)
class Reproduction(Result):
    """Results of an experiment.

    Attributes
    ----------
    name, source : str
        Name of the experiment, and the paper's citation.
    models : str
        Models of the logits at hand.
    num_positions, num_groups : int
        Positions, and the prompts they come from (or positions, if prompts are unknown).
    measured : tuple of ResultTable
        As `tables()` has them, which are tables for people.
    published : tuple of Published
    differences : tuple of str
        Differences from the paper's experiment.
    """

    name: str
    source: str
    models: str
    num_positions: int
    num_groups: int
    measured: tuple[ResultTable, ...]
    published: tuple[Published, ...]
    differences: tuple[str, ...] = field(default=())

    columns: ClassVar = (
        "name", "source", "models", "num_positions", "num_groups",
        frames.Column("tables", of="measured"), "published", "differences",
    )  # fmt: skip

    def tables(self) -> list[Table]:
        """Tables of what was measured."""
        return [
            Table.of(
                each.title,
                headings := [x.replace(", ", ",\n").replace(" - ", "\n- ") for x in each.columns],
                (list(map(shown, row)) for row in each.rows),
                headings,
            )
            for each in self.measured
        ]

    @property
    def sample(self) -> str:
        """Positions and prompts in words, and a remark if one prompt gives no intervals."""
        prompts = "1 prompt" if self.num_groups == 1 else f"{self.num_groups} prompts"
        text = f"{self.num_positions:,} positions of {prompts}"
        return text if self.num_groups > 1 else f"{text}; {interval_note(1, 'prompts')}"


#: Headings of `published_row`.
PUBLISHED_COLUMNS = ("published", "where", "stated", "here", "outcome")


def published_row(item: Published) -> tuple[str, ...]:
    """Cells of a row as text."""
    return (
        f'"{item.quote}"' if item.quote else "values",
        item.where,
        item.stated,
        item.here,
        str(item.outcome),
    )


def compared(gains: Sequence[MeanInterval], stated: tuple[float, float] | None = None) -> Agreement:
    """Agreement of gains with a statement, which may give a positive range for all of them.

    A gain whose interval lies below zero disagrees. Else, a gain whose interval holds zero (or that
    has no interval) leaves the statement open. Else all gains are above zero: that is agreement
    where the statement is of the direction alone. Where it gives a range, every gain's interval
    must lie inside for agreement; a gain whose interval lies outside has the same direction and
    another size; anything else is open.
    """
    if any(gain.high < 0 for gain in gains):
        return Agreement.DISAGREES
    if not gains or not all(gain.low > 0 for gain in gains):  # NaN: there is no interval
        return Agreement.OPEN
    if stated is None:
        return Agreement.AGREES
    least, most = stated
    if any(gain.high < least or gain.low > most for gain in gains):
        return Agreement.OTHER_SIZE
    if all(least <= gain.low and gain.high <= most for gain in gains):
        return Agreement.AGREES
    return Agreement.OPEN


def measured_range(gains: Sequence[MeanInterval]) -> str:
    """Least and largest gain, each with its interval."""
    if not gains:
        return "no setting"
    ends = min(gains, key=lambda gain: gain.mean), max(gains, key=lambda gain: gain.mean)
    return " to ".join(_signed(gain) for gain in ends)


def _signed(gain: MeanInterval) -> str:
    mean, low, high = (round(x, 4) + 0.0 for x in (gain.mean, gain.low, gain.high))
    return f"{mean:+.4f}" + (f" [{low:+.4f}, {high:+.4f}]" if low == low else "")


def shown(cell: Cell) -> str:
    """Text of a cell."""
    if isinstance(cell, MeanInterval):
        return cell.shown
    return cell if isinstance(cell, str) else f"{cell:g}"


def per_position(
    logits: CapturedLogits, measure: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Values of `measure` on both models' logits at every position, and the prompts."""
    values, groups = [], []
    for sample in logits.samples():
        target = sample.target.reshape(-1, sample.target.shape[-1])
        draft = sample.draft.reshape(-1, sample.draft.shape[-1])
        values += [measure(target[i], draft[i]) for i in range(len(target))]
        groups.append(sample.sequence)
    known = [group.ravel() for group in groups if group is not None]
    return np.array(values), np.concatenate(known) if len(known) == len(groups) else None


def check_source(path: str | os.PathLike[str]) -> Path:
    """Path of a file or folder that exists."""
    if not Path(path).exists():
        raise UnreadableFile(f"{path} does not exist")
    return Path(path)


def reproduce(name: str, logits: CapturedLogits, **options: Any) -> Reproduction:
    """Run an experiment.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    logits : CapturedLogits
    **options
        Options of the experiment: other temperatures, numbers of drafts.

    Raises
    ------
    UnknownName
        No such experiment; the message lists those that exist.
    """
    if name not in EXPERIMENTS:
        raise UnknownName.among("experiment", name, EXPERIMENTS)
    module = importlib.import_module(f"mdsd_opt.corpora.reproduce.{name}")
    result: Reproduction = module.run(logits, **options)
    return result
