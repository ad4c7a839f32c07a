"""Logits of a target and a draft model from files: one of arrays, or one for each model."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Opened, as_logits, checked_token_ids, frozen, spread
from mdsd_opt.base.checked import integers
from mdsd_opt.base.files import parse_json
from mdsd_opt.base.files.arrays import (
    MAX_UNPACKED_BYTES,
    Arrays,
    checked_suffix,
    missing_array,
    only_tensor,
    read_npy,
    read_npz,
    read_safetensors,
    read_torch,
    text_of,
)
from mdsd_opt.base.logits import Logits
from mdsd_opt.errors import InvalidInput, UnreadableFile

_FORMATS = {
    ".npz": "arrays 'target' and 'draft'",
    ".safetensors": "the same, memory-mapped, bfloat16 allowed",
    ".pt": "a dictionary of tensors of these names, or one tensor in each of two files; PyTorch",
    ".npy": "one file for the target and one for the draft, memory-mapped",
}

#: Most bytes of logits that are mapped at once when a large file is worked through.
CHUNK_BYTES = 1 << 26

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, eq=False)
class LogitsSample:
    """Logits of two models at the same positions.

    Both are read-only, of shape (..., V), in the dtype they were stored in; V differs if one
    vocabulary is padded. `sequence`, `position` and `tokens`, of shape (...), tell which text each
    row belongs to, its place in it, and the token that was sampled there; `metadata` is whatever
    else the file says of itself. Where the draft's vocabulary is a part of the target's,
    `draft_token_ids`, of shape (draft's V,), are its ids; `taken_as` and `parts` put its logits at
    their places. What is `mapped` can be mapped again, which gives back the memory
    of what was looked at.
    """

    target: NDArray[Any]
    draft: NDArray[Any]
    sequence: Integers | None = None
    position: Integers | None = None
    tokens: Integers | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    mapped: Path | Sequence[Path] | None = None
    draft_token_ids: Integers | None = None

    @classmethod
    def of(cls, pair: Logits, sequence: Any = None, position: Any = None) -> LogitsSample:
        """Sample of a pair; `InvalidInput` where leading axes differ or there is no position."""
        target, draft = pair.target.numpy(), pair.draft.numpy()
        if target.shape[:-1] != draft.shape[:-1] or target.size == 0:
            raise InvalidInput(
                f"target_logits has shape {target.shape}, draft_logits {draft.shape}: give both as "
                "(..., V), with at least one position"
            )
        texts, places = (
            _for_each(values, name, math.prod(target.shape[:-1]))
            for name, values in (("sequence", sequence), ("position", position))
        )
        ids = pair.reading.draft_token_ids
        return cls(target, draft, texts, places, source="the logits", draft_token_ids=ids)

    @property
    def num_positions(self) -> int:
        """Number of rows of logits."""
        return int(np.prod(self.target.shape[:-1], dtype=np.int64))

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V, of the wider of the two."""
        return max(int(self.target.shape[-1]), int(self.draft.shape[-1]))

    @property
    def texts(self) -> Integers | None:
        """Text of each position, shape (N,); for arrays [B, T, V] the first axis, if not named.

        None where every position stands for itself.
        """
        if self.sequence is None:
            return first_axis(self.target.shape[:-1])
        return self.sequence.ravel()

    def taken_as(self, kind: str | None) -> LogitsSample:
        """Same sample with logits, made from what the arrays hold, see `mdsd_opt.acceptance_rates`.

        The draft's are at the places of their tokens.
        """
        target, draft = (
            as_logits(Opened.of(side, f"'{name}' of {self.source}"), kind).numpy()
            for name, side in (("target", self.target), ("draft", self.draft))
        )
        if self.draft_token_ids is not None:
            draft = spread(draft, self.draft_token_ids, target.shape[-1])
        return replace(self, target=target, draft=draft, draft_token_ids=None)

    @property
    def _positions_at_once(self) -> int:
        return max(1, CHUNK_BYTES // (_row_bytes(self.target) + _row_bytes(self.draft)))

    @property
    def is_large(self) -> bool:
        """Whether the sample is worked through in more than one part."""
        return self.num_positions > self._positions_at_once

    def parts(self, kind: str | None = "logits") -> Iterator[tuple[int, LogitsSample]]:
        """Samples of `CHUNK_BYTES` of positions at a time, and where each part begins."""
        if not self.is_large:
            yield 0, self.taken_as(kind)
            return
        count, size = self.num_positions, self._positions_at_once
        sample = self
        for start in range(0, count, size):
            target, draft = (
                side.reshape(-1, side.shape[-1])[start : start + size]
                for side in (sample.target, sample.draft)
            )
            part = LogitsSample(
                target, draft, source=self.source, draft_token_ids=self.draft_token_ids
            )
            yield start, part.taken_as(kind)
            del part
            del target, draft
            if sample.mapped is not None:
                sample = load_logits(sample.mapped)

    def __repr__(self) -> str:
        return (
            f"LogitsSample(target={self.target.shape} {self.target.dtype}, "
            f"draft={self.draft.shape} {self.draft.dtype}, source={self.source!r})"
        )


def _for_each(values: Any, name: str, count: int) -> Integers | None:
    """Integers, one for each position, flattened; None if none are given."""
    array = None if values is None else integers(values, name).ravel().astype(np.int64)
    if array is not None and array.size != count:
        raise InvalidInput(f"{name} has {array.size} entries: give one for each of {count}")
    return array


def first_axis(rows: tuple[int, ...]) -> Integers | None:
    """Place of each position along the first of several axes, flattened; None if there is one."""
    if len(rows) < 2:
        return None
    return np.repeat(np.arange(rows[0]), math.prod(rows[1:]))


def load_logits(source: Path | Sequence[Path], max_bytes: int = MAX_UNPACKED_BYTES) -> LogitsSample:
    """Read the logits of a target and a draft model.

    From a .npz or .safetensors file with arrays ``target`` and ``draft`` (and perhaps ``sequence``,
    ``position``, ``tokens`` and a JSON string ``metadata``), a .pt file with a dictionary of such
    tensors, or the .npy or .pt files of the target and of the draft. Where the draft's vocabulary
    is a part of the target's, ``draft_token_ids`` says which, or ``d2t`` or ``t2d`` as in EAGLE's
    checkpoints. The arrays of a .npz file may take `max_bytes` of memory; the other formats are
    mapped, not read.

    Raises
    ------
    UnreadableFile
        A file is missing or broken, lacks an array, or its arrays hold no logits or do not fit.
    InvalidInput
        `source` is neither a path nor a pair of paths.
    MissingExtra
        A .pt file, and PyTorch is not installed.
    """
    metadata: dict[str, Any] = {}
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
        elif suffix == ".pt":
            arrays = read_torch(source)
        else:
            arrays, strings = read_safetensors(source)
            described = _described(strings.pop("metadata", None), name)
            metadata = {**strings, **described}
    else:
        paths = list(source)
        if len(paths) != 2:
            raise InvalidInput(
                f"{len(paths)} files given: give one file, or the target's and the draft's"
            )
        name = " and ".join(map(str, paths))
        arrays = {}
        for side, path in zip(("target", "draft"), paths, strict=True):
            for key, array in _of_one_model(path, side).items():
                if key in arrays and not np.array_equal(arrays[key], array):
                    raise UnreadableFile(f"{name} differ in {key!r}: give files of the same texts")
                arrays[key] = array
        suffix = ".npy"
    return replace(_sample(arrays, metadata, name), mapped=None if suffix == ".npz" else source)


#: Arrays of a file that stand beside logits.
_BESIDE = {"sequence", "position", "tokens", "metadata", "draft_token_ids", "d2t", "t2d"}


def _of_one_model(path: Path, side: str) -> Arrays:
    """Logits of one model in a file, under the name of its side, and what stands beside them."""
    known = {
        ".npy": "one array",
        ".pt": "one tensor",
        ".safetensors": "one of the tensors, or 'logits'",
    }
    suffix = checked_suffix(path, known, UnreadableFile)
    if suffix != ".safetensors":
        return {side: only_tensor(path) if suffix == ".pt" else read_npy(path)}
    arrays, _ = read_safetensors(path)
    names = sorted({*arrays} - _BESIDE)
    chosen = [x for x in ("logits", side) if x in names] or names
    if len(chosen) != 1:
        raise UnreadableFile(
            f"{path} has {', '.join(names) or 'no arrays'}: give one tensor of logits in it, or "
            f"name it 'logits' or {side!r}"
        )
    return {side: arrays[chosen[0]], **{x: arrays[x] for x in _BESIDE & {*arrays}}}


def _described(text: str | None, source: str) -> dict[str, Any]:
    """Metadata string as a mapping; text that is no JSON object is kept under "text"."""
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
        draft_token_ids=_token_ids(arrays, draft.shape[-1], target.shape[-1], source),
    )


def _token_ids(arrays: Arrays, draft_size: int, vocab_size: int, source: str) -> Integers | None:
    """Ids in the target of the draft's tokens, which three arrays may give; they must agree."""
    tables = {name: arrays[name] for name in ("draft_token_ids", "d2t", "t2d") if name in arrays}
    if "d2t" in tables:  # differences
        tables["d2t"] = tables["d2t"] + np.arange(tables["d2t"].size)
    if "t2d" in tables:  # which of the target's tokens the draft has
        tables["t2d"] = np.flatnonzero(tables["t2d"])
    maps = [
        checked_token_ids(ids, draft_size, vocab_size, f"{name!r} of {source}")
        for name, ids in tables.items()
    ]
    if not all(np.array_equal(ids, maps[0]) for ids in maps):
        raise UnreadableFile(f"{source}: {' and '.join(tables)} name different tokens of the draft")
    return frozen(maps[0]) if maps else None


def _row_bytes(side: NDArray[Any]) -> int:
    return int(side.shape[-1] * side.itemsize)


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
    """Whether the dtype is bfloat16 or an 8-bit float, which NumPy itself takes for raw bytes."""
    return dtype.name == "bfloat16" or dtype.name.startswith("float8")


def _ids(arrays: Arrays, name: str, rows: tuple[int, ...], source: str) -> Integers | None:
    if name not in arrays:
        return None
    array = arrays[name]
    if array.dtype.kind not in "iu" or array.shape != rows:
        raise UnreadableFile(
            f"{source}: {name} has shape {array.shape} and dtype {array.dtype}: give one integer "
            f"for each row of logits, shape {rows}"
        )
    return frozen(array.astype(np.int64))
