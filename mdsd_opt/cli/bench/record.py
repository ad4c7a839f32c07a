"""What a measurement is: a line with its circumstances, and a report of many lines."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.installed import versions
from mdsd_opt.errors import UnreadableFile


@dataclass(frozen=True, slots=True)
class Record:
    """One route on one problem.

    Attributes
    ----------
    benchmark, route : str
        The benchmark, and what was timed.
    problem : str
        What it was timed on, but for its size.
    vocab_size, num_drafts : int
    dtype : str
    threads, seed, rounds : int
    median_ms, p90_ms : float or None
        Over the rounds; None where it did not finish.
    against : str or None
        The route that `times_faster` is measured against, on the same problem in the same run.
    times_faster : float or None
    gap : float or None
        How far the answer may be from the truth.
    gap_kind : str
        What `gap` is: "certificate", "error", "certified loss".
    note : str
        Status, sizes.
    """

    benchmark: str
    route: str
    problem: str
    vocab_size: int
    num_drafts: int
    dtype: str
    threads: int
    seed: int
    rounds: int
    median_ms: float | None
    p90_ms: float | None
    against: str | None = None
    times_faster: float | None = None
    gap: float | None = None
    gap_kind: str = ""
    note: str = ""

    @classmethod
    def timed(
        cls,
        milliseconds: Sequence[float],
        against: str | None = None,
        rival_ms: float | None = None,
        **known: Any,
    ) -> Record:
        """From the time of every round, and the median of the route `against`, if there is one."""
        if not len(milliseconds):
            return cls(rounds=0, median_ms=None, p90_ms=None, **known)
        median = float(np.median(milliseconds))
        return cls(
            rounds=len(milliseconds),
            median_ms=median,
            p90_ms=float(np.quantile(milliseconds, 0.9)),
            against=None if rival_ms is None else against,
            times_faster=None if rival_ms is None else rival_ms / median,
            **known,
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes it the same measurement in another run."""
        return (
            self.benchmark,
            self.route,
            self.problem,
            self.vocab_size,
            self.num_drafts,
            self.dtype,
            self.threads,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """Measurements of one run, and where they were made."""

    records: tuple[Record, ...]
    circumstances: Mapping[str, Any]

    def as_json(self) -> str:
        """The circumstances once, then the measurements."""
        document = {
            "circumstances": dict(self.circumstances),
            "records": [asdict(record) for record in self.records],
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    def as_csv(self) -> str:
        """One line a measurement, the circumstances in every line."""
        text = io.StringIO()
        names = [field.name for field in fields(Record)]
        writer = csv.DictWriter(text, [*names, *self.circumstances], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**asdict(record), **self.circumstances} for record in self.records)
        return text.getvalue()


def load_report(path: Path) -> Report:
    """Read a report saved as JSON.

    Raises
    ------
    UnreadableFile
        Missing, broken, or no report.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        records = tuple(Record(**record) for record in document["records"])
        circumstances = dict(document["circumstances"])
    except FileNotFoundError:
        raise UnreadableFile(f"{path} does not exist") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFile(
            f"{path} is no report of mdsd-opt bench --out FILE.json: {error}"
        ) from None
    return Report(records, circumstances)


def circumstances() -> dict[str, Any]:
    """Machine, load and versions."""
    return {"processor": _processor(), "load_average": _load(), **versions()}


def _load() -> float | None:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
