"""MLC-LLM: the counters `spec_decode` of its engine's metrics, and of the usage of its answers.

Step 0 of a count is the target's own token, which every verification accepts: the others are the
drafts by position.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mdsd_opt.formats.checks import counts_of
from mdsd_opt.formats.content import counted, holders
from mdsd_opt.formats.counts import AcceptedCounts
from mdsd_opt.formats.format import Format
from mdsd_opt.formats.told import Told, agree, at_most, told_of

_COUNTS = {"positions": "accept_count", "shares": "draft_count"}


def of_record(record: Any, where: str) -> Iterator[AcceptedCounts | None]:
    """Counts of an engine since its start."""
    for entry in holders(record, "accept_count"):
        told = told_of(entry, _COUNTS, where, needed=("positions", "shares"))
        accepted, drafted = told["positions"], told["shares"]
        agree(where, accepted.number, drafted.number)
        if accepted.number.value < 2:
            yield None
            continue
        agree(where, accepted.at(0), drafted.at(0))
        for place in range(1, len(accepted.value)):
            at_most(where, accepted.at(place), drafted.at(place))
        yield counts_of(
            where,
            drafted=Told(drafted.name, float(sum(drafted.value[1:]))),
            steps=accepted.at(0),
            depth=accepted.number - 1.0,
            positions=Told(accepted.name, accepted.value[1:]),
            tokens=_tokens(record, where),
            unit="runs",
        )


def _tokens(record: Any, where: str) -> Told | None:
    name = "completion_tokens_sum"
    sums = [x for each in holders(record, name) if (x := counted(each, name, where)) is not None]
    return Told(name, sums[0]) if len(sums) == 1 else None


FORMATS = (Format("MLC's counters", "JSON with 'accept_count'", of_record=of_record),)
