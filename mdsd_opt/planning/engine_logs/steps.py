"""Single steps in the form of `mdsd-opt rates --accepted`: chains, one draft at each place."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mdsd_opt.base.files.engine_output import read_accepted
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.planning.counts import AcceptedCounts, merged, of_steps
from mdsd_opt.planning.engine_logs.reader import NotThisFormat, Reader, needs_length


def of_arrays(path: str | os.PathLike[str], num_drafts: int | None) -> AcceptedCounts:
    """Counts in a file of arrays."""
    found = read_accepted(path)
    accepted = np.asarray(found["accepted"]).ravel()
    depth = found.get("depth", num_drafts)
    if depth is None:
        raise needs_length(str(path), ", or an array 'depth'")
    _one_at_each_place(int(np.max(found.get("num_drafts", 1))), str(path))
    depths = np.broadcast_to(np.asarray(depth), accepted.shape)
    texts = found.get("sequence")
    parts = [
        of_steps(
            *(accepted[depths == k], int(k)),
            None if texts is None else np.asarray(texts).ravel()[depths == k],
            str(path),
        )
        for k in np.unique(depths)
    ]
    return merged(parts, f"{path} (steps)")


def of_record(record: Any, where: str, num_drafts: int | None) -> AcceptedCounts | None:
    """Counts of one step."""
    if not isinstance(record, dict) or type(record.get("accepted")) is not int:
        raise NotThisFormat
    _one_at_each_place(int(record.get("num_drafts", 1)), where)
    depth = record.get("depth", num_drafts)
    if depth is None:
        raise needs_length(where, ", or 'depth'")
    if type(depth) is not int or type(record.get("sequence", 0)) is not int:
        raise UnreadableFile(f"{where}: depth and sequence must be integers")
    return of_steps([record["accepted"]], depth, None, where)


def _one_at_each_place(drafts: int, where: str) -> None:
    if drafts > 1:
        raise InvalidInput(
            f"{where}: {drafts} drafts compete for one token, which counts of chains do not tell: "
            "advise from logits"
        )


READERS = (Reader("steps", "JSON lines with 'accepted' and 'depth'", of_record=of_record),)
