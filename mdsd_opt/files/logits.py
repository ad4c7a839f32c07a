"""Logits of a target and a draft model from files: .npz, .safetensors, or two .npy files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.arrays import Opened, frozen
from mdsd_opt.batch.kinds import as_logits
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.files import parse_json
from mdsd_opt.files.arrays import (
    MAX_UNPACKED_BYTES,
    Arrays,
    checked_suffix,
    missing_array,
    read_npy,
    read_npz,
    read_safetensors,
    text_of,
)

_FORMATS = {
    ".npz": "arrays 'target' and 'draft'",
    ".safetensors": "the same, memory-mapped, bfloat16 allowed",
    ".npy": "one file for the target and one for the draft, memory-mapped",
}

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, eq=False)
class LogitsSample:
    """Logits of two models at the same positions.

    Attributes
    ----------
    target : ndarray, shape (..., V)
        Logits of the target model, read-only, in the dtype they were stored in.
    draft : ndarray, shape (..., V')
        Logits of the draft model; V' differs from V if one vocabulary is padded.
    sequence, position, tokens : ndarray of integers, shape (...), optional
        Which text each row belongs to, its place in it, and the token that was sampled there.
    metadata : mapping
        Whatever else the file says about itself.
    source : str
        Where it was read from.
    """

    target: NDArray[Any]
    draft: NDArray[Any]
    sequence: NDArray[np.int64] | None = None
    position: NDArray[np.int64] | None = None
    tokens: NDArray[np.int64] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def num_positions(self) -> int:
        """Number of rows of logits."""
        return int(np.prod(self.target.shape[:-1], dtype=np.int64))

    @property
    def vocab_size(self) -> int:
        """V, of the wider of the two."""
        return max(int(self.target.shape[-1]), int(self.draft.shape[-1]))

    def taken_as(self, kind: str | None) -> LogitsSample:
        """With the logits of what the arrays hold, see `mdsd_opt.acceptance_rates`."""
        target, draft = (
            as_logits(Opened.of(side, f"'{name}' of {self.source}"), kind).numpy()
            for name, side in (("target", self.target), ("draft", self.draft))
        )
        return replace(self, target=target, draft=draft)

    def __repr__(self) -> str:
        return (
            f"LogitsSample(target={self.target.shape} {self.target.dtype}, "
            f"draft={self.draft.shape} {self.draft.dtype}, source={self.source!r})"
        )


def load_logits(source: Path | Sequence[Path], max_bytes: int = MAX_UNPACKED_BYTES) -> LogitsSample:
    """Read the logits of a target and a draft model.

    Parameters
    ----------
    source : path, or two paths
        A .npz or .safetensors file with arrays ``target`` and ``draft`` (and perhaps ``sequence``,
        ``position``, ``tokens`` and a JSON string ``metadata``), or the .npy files of the target
        and of the draft.
    max_bytes : int
        How much memory the arrays of a .npz file may take; the other formats are mapped, not read.

    Returns
    -------
    LogitsSample

    Raises
    ------
    UnreadableFile
        A file is missing or broken, lacks an array, or its arrays hold no logits or do not fit.
    InvalidInput
        `source` is neither a path nor a pair of paths.
    """
    metadata: dict[str, Any]
    if isinstance(source, (str, os.PathLike)):
        name = str(source)
        suffix = checked_suffix(source, _FORMATS, UnreadableFile)
        if suffix == ".npy":
            raise InvalidInput(
                f"{name} holds one array: give two .npy files, the target's and the draft's"
            )
        if suffix == ".npz":
            arrays = read_npz(source, max_bytes)
            text = text_of(arrays["metadata"]) if "metadata" in arrays else None
            metadata = _described(text, name)
        else:
            arrays, strings = read_safetensors(source)
            described = _described(strings.pop("metadata", None), name)
            metadata = {**strings, **described}
    else:
        paths = list(source)
        if len(paths) != 2:
            raise InvalidInput(
                f"{len(paths)} files given: give one file, or the target's and the draft's .npy"
            )
        name = " and ".join(map(str, paths))
        for path in paths:
            checked_suffix(path, {".npy": "one array"}, UnreadableFile)
        arrays = {"target": read_npy(paths[0]), "draft": read_npy(paths[1])}
        metadata = {}
    return _sample(arrays, metadata, name)


def _described(text: str | None, source: str) -> dict[str, Any]:
    """The metadata string as a mapping; text that is no JSON object is kept under "text"."""
    if text is None:
        return {}
    try:
        parsed = parse_json(text, source)
    except UnreadableFile:
        return {"text": text}
    return parsed if isinstance(parsed, dict) else {"text": text}


def _sample(arrays: Arrays, metadata: Mapping[str, Any], source: str) -> LogitsSample:
    target = _logits(arrays, "target", source)
    draft = _logits(arrays, "draft", source)
    rows = target.shape[:-1]
    if draft.shape[:-1] != rows:
        raise UnreadableFile(
            f"{source}: target has shape {target.shape} and draft {draft.shape}. They must "
            "agree in all but the last axis, the tokens."
        )
    return LogitsSample(
        target,
        draft,
        sequence=_ids(arrays, "sequence", rows, source),
        position=_ids(arrays, "position", rows, source),
        tokens=_ids(arrays, "tokens", rows, source),
        metadata=metadata,
        source=source,
    )


def _logits(arrays: Arrays, name: str, source: str) -> NDArray[Any]:
    if name not in arrays:
        raise missing_array(source, name, arrays)
    array = arrays[name]
    if array.dtype.kind not in "fiu" and not _is_small_float(array.dtype):
        raise UnreadableFile(
            f"{source}: {name} has dtype {array.dtype}, which holds no logits: give floats or "
            "integers"
        )
    if array.ndim == 0 or array.shape[-1] == 0:
        raise UnreadableFile(
            f"{source}: {name} has shape {array.shape}: the last axis must hold the tokens"
        )
    return frozen(array)


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    """bfloat16 and the 8-bit floats, which NumPy itself takes for raw bytes."""
    return dtype.name == "bfloat16" or dtype.name.startswith("float8")


def _ids(arrays: Arrays, name: str, rows: tuple[int, ...], source: str) -> NDArray[np.int64] | None:
    if name not in arrays:
        return None
    array = arrays[name]
    if array.dtype.kind not in "iu" or array.shape != rows:
        raise UnreadableFile(
            f"{source}: {name} has shape {array.shape} and dtype {array.dtype}: give one integer "
            f"for each row of logits, shape {rows}"
        )
    return frozen(array.astype(np.int64))
