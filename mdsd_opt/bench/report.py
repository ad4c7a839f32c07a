"""Reports of measurements with their circumstances, their files, and changes between two."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mdsd_opt.base.frames import Table, data_frame
from mdsd_opt.base.installed import versions
from mdsd_opt.bench import summary
from mdsd_opt.bench.record import Record
from mdsd_opt.errors import UnreadableFile


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Measurements of one run, and their circumstances."""

    records: tuple[Record, ...]
    circumstances: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)  # what was asked for
    finished: bool = True  # else it was written while others were to come

    def as_json(self) -> str:
        """BenchReport as JSON: circumstances once, measurements, and what sums them up."""
        document = {
            "circumstances": dict(self.circumstances),
            "settings": dict(self.settings),
            "finished": self.finished,
            "records": [asdict(record) for record in self.records],
            "summary": summary.document(self.records),
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    def csv_rows(self) -> list[dict[str, Any]]:
        """Measurements with circumstances in every line, but for what is empty in all lines."""
        where = {k: v for k, v in self.circumstances.items() if v != "not installed"}
        rows = [{**asdict(record), **where} for record in self.records]
        told = {name for row in rows for name, value in row.items() if value not in (None, "")}
        return [{name: x for name, x in row.items() if name in told} for row in rows]

    def told(self) -> list[str | Table]:
        """Tables of the measurements and of what sums them up, and what is said between them."""
        from mdsd_opt.bench.tables import told

        return [*told(self.records)]

    def tables(self) -> list[Table]:
        """Those tables alone."""
        return [part for part in self.told() if isinstance(part, Table)]

    def conclusion(self) -> list[str]:
        """Sentences about the quickest of each benchmark, and the largest gap."""
        from mdsd_opt.bench.tables import conclusion

        return conclusion(self.records)

    def to_pandas(self) -> Any:
        """Data frame with a line for each measurement; `MissingExtra` without pandas."""
        return data_frame([asdict(record) for record in self.records])


def load_report(path: Path) -> BenchReport:
    """BenchReport that was saved as JSON."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        records = tuple(Record(**record) for record in document["records"])
        circumstances = dict(document["circumstances"])
        settings, finished = dict(document.get("settings", {})), document.get("finished", True)
    except FileNotFoundError:
        raise UnreadableFile(f"{path} does not exist") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableFile(
            f"{path} is no report of mdsd-opt bench --out FILE.json: {error}"
        ) from None
    return BenchReport(records, circumstances, settings, finished is True)


def circumstances() -> dict[str, Any]:
    """Machine, load and versions."""
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"processor": _processor(), "load_average": load, **versions()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def load_warning(circumstances: Mapping[str, Any]) -> str | None:
    """Sentence on a load above the cores, by which times are too long; None if it was not."""
    load, cores = circumstances.get("load_average"), os.cpu_count() or 1
    if load is None or load <= cores:
        return None
    return (
        f"the load was {load:g} on {cores} cores when this began: others were waiting, and times "
        "are longer than on an idle machine"
    )


#: Changes by less than this factor are within the noise of a busy machine.
NOTABLE = 1.3


@dataclass(frozen=True, slots=True)
class Change:
    """One measurement in both runs.

    Where both have the same rival beside it, `times_slower` is how much it has lost against the
    rival, so that another machine or another load cancels; else it is the ratio of the times.
    """

    record: Record  # of the new run
    times_slower: float
    relative: bool  # to the rival
    worse_gap: bool  # the answer is further from the truth, by more than a factor of 10

    @property
    def is_regression(self) -> bool:
        """Whether the new run is notably slower, or less exact."""
        return self.times_slower > NOTABLE or self.worse_gap


def changes(old: BenchReport, new: BenchReport) -> list[Change]:
    """Changes between two runs, the worst first, without those that did not finish in either."""
    before = {record.key: record for record in old.records}
    differences = []
    for record in new.records:
        past = before.get(record.key)
        if past is None or not past.median_ms or not record.median_ms:
            continue
        relative = past.against == record.against and bool(past.times_faster)
        if relative and past.times_faster and record.times_faster:
            slower = past.times_faster / record.times_faster
        else:
            slower, relative = record.median_ms / past.median_ms, False
        worse = (record.gap or 0.0) > 10.0 * max(past.gap or 0.0, 1e-12)
        differences.append(Change(record, slower, relative, worse))
    return sorted(differences, key=lambda change: (not change.worse_gap, -change.times_slower))
