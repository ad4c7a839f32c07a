"""Single steps in a form of our own, for engines that write none: JSON lines, or arrays.

A step has `accepted` drafts, `depth` places one after another, `num_drafts` that compete for each,
and the `sequence` that it is of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.files.arrays import missing_array, read_npy, read_npz
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.formats.counts import AcceptedCounts, of_steps
from mdsd_opt.formats.format import Format

FIELDS = ("accepted", "num_drafts", "depth", "sequence")

#: Suffixes of files of arrays.
ARRAYS = (".npz", ".npy")


def read_arrays(path: str) -> dict[str, Any]:
    """Arrays of a file, by the names of `mdsd_opt.accepted_rates`."""
    if Path(path).suffix == ".npy":
        return {"accepted": read_npy(path)}
    arrays = read_npz(path)
    if "accepted" not in arrays:
        raise missing_array(path, "accepted", arrays)
    return {name: arrays[name] for name in FIELDS if name in arrays}


def is_step(record: Any) -> bool:
    """Whether a record is a step."""
    return isinstance(record, dict) and (
        "accepted" in record or bool(record and record.keys() <= {*FIELDS})
    )


def in_arrays(steps: list[tuple[str, Any]]) -> dict[str, Any]:
    """Steps as arrays; all must have the same fields."""
    for where, step in steps:
        if not is_step(step) or "accepted" not in step:
            raise UnreadableFile(f"{where} has no 'accepted': the accepted tokens of one step")
        wrong = [x for x in FIELDS if x in step and type(step[x]) is not int]
        if wrong or step.keys() & {*FIELDS} != steps[0][1].keys() & {*FIELDS}:
            raise UnreadableFile(
                f"{where}: give integers, and the same of {', '.join(FIELDS)} in every line"
            )
    names = [name for name in FIELDS if name in steps[0][1]]
    return {name: np.array([step[name] for _, step in steps]) for name in names}


def counts_of_arrays(arrays: dict[str, Any], source: str, depth: int | None) -> AcceptedCounts:
    """Counts of steps of chains, in groups by their sequence."""
    accepted = np.asarray(arrays["accepted"]).ravel()
    lengths = arrays.get("depth", depth)
    if lengths is None:
        raise InvalidInput(
            f"{source} does not say how many drafts a step has: give depth, or 'depth' of each step"
        )
    competing = int(np.max(arrays.get("num_drafts", 1)))
    if competing > 1:
        raise InvalidInput(
            f"{source}: {competing} drafts compete for one token, which counts of chains do not "
            "tell: advise from logits"
        )
    return of_steps(accepted, lengths, arrays.get("sequence"), f"{source} (steps)")


FORMATS = (Format("steps", "JSON lines with 'accepted' and 'depth'"),)
