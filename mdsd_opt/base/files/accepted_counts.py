"""Counts of accepted tokens from files: .jsonl with one step a line, .npz, or .npy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.files import parse_json, read_bytes
from mdsd_opt.base.files.arrays import checked_suffix, missing_array, read_npy, read_npz
from mdsd_opt.errors import UnreadableFile

_FIELDS = ("accepted", "num_drafts", "depth", "sequence")

_FORMATS = {
    ".jsonl": "one step a line with 'accepted', 'num_drafts', perhaps 'depth' and 'sequence'",
    ".npz": "arrays of these names",
    ".npy": "'accepted' alone",
}

_MAX_BYTES = 1 << 30


def read_accepted(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file says, as arguments of `mdsd_opt.accepted_rates`.

    Raises
    ------
    UnreadableFile
        Missing, broken, or without counts; the message names the line.
    """
    suffix = checked_suffix(path, _FORMATS, UnreadableFile)
    if suffix == ".npy":
        return {"accepted": read_npy(path)}
    if suffix == ".npz":
        arrays = read_npz(path)
        if "accepted" not in arrays:
            raise missing_array(str(path), "accepted", arrays)
        return {name: arrays[name] for name in _FIELDS if name in arrays}
    steps: list[dict[str, int]] = []
    for number, line in enumerate(read_bytes(Path(path), _MAX_BYTES).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"line {number} of {path}"
        step = parse_json(line, where)
        if not isinstance(step, dict) or "accepted" not in step:
            raise UnreadableFile(f"{where} has no 'accepted': the accepted tokens of one step")
        wrong = [x for x in _FIELDS if x in step and type(step[x]) is not int]
        if wrong or (steps and step.keys() & {*_FIELDS} != steps[0].keys()):
            raise UnreadableFile(
                f"{where}: give integers, and the same of {', '.join(_FIELDS)} in every line"
            )
        steps.append({name: step[name] for name in _FIELDS if name in step})
    if not steps:
        raise UnreadableFile(f"{path} holds no step")
    return {name: np.array([step[name] for step in steps]) for name in steps[0]}
