"""Two runs compared: what has become slower?"""

from __future__ import annotations

from dataclasses import dataclass

from mdsd_opt.cli.bench.record import Record, Report

#: A change of less than this factor is within the noise of a busy machine.
NOTABLE = 1.3


@dataclass(frozen=True, slots=True)
class Change:
    """One measurement in both runs.

    Attributes
    ----------
    record : Record
        Of the new run.
    times_slower : float
        Where both runs have the same rival beside it, how much it has lost against the rival, so
        that another machine or another load cancels; else the ratio of the times.
    relative : bool
        Whether it is measured against the rival.
    worse_gap : bool
        Whether the answer is further from the truth than before, by more than a factor of 10.
    """

    record: Record
    times_slower: float
    relative: bool
    worse_gap: bool

    @property
    def is_regression(self) -> bool:
        """Notably slower, or less exact."""
        return self.times_slower > NOTABLE or self.worse_gap


def changes(old: Report, new: Report) -> list[Change]:
    """What both runs have measured, the worst first; what did not finish in either is left out."""
    before = {record.key: record for record in old.records}
    found = []
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
        found.append(Change(record, slower, relative, worse))
    return sorted(found, key=lambda change: (not change.worse_gap, -change.times_slower))
