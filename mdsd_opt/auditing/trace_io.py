"""Reads recorded steps from a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Integers
from mdsd_opt.base.arrays import frozen
from mdsd_opt.base.files import parse_json
from mdsd_opt.base.files.arrays import (
    Arrays,
    checked_suffix,
    missing_array,
    read_npz,
    read_safetensors,
    text_of,
)
from mdsd_opt.errors import UnreadableFile

_FORMATS = {
    ".npz": "arrays target, draft, drafts, tokens, parents",
    ".safetensors": "the same, memory-mapped, bfloat16 allowed",
}


#: Options in the metadata of a file that say how the laws and the drafts were made.
_OPTIONS = ("scheme", "temperature", "draft_temperature", "top_k", "top_p", "min_p", "joint")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Recorded steps of an engine, as `audit_trace` takes them.

    Attributes
    ----------
    target : ndarray, shape (N, V), or (N, M + 1, V) where a step gives several tokens
    draft : ndarray of the same shape, or None
        None if the file has no draft law.
    drafts : ndarray of int64, shape (N, K) or (N, M)
        (N, 0) if the file has no drafts.
    tokens : ndarray of int64, shape (N,) or (N, L)
    parents : ndarray of int64, shape (M,), or None
        None if the file has none.
    metadata : mapping
        Description of the file by itself, such as
        ``{"scheme": "without_replacement", "logits": true, "temperature": 0.8}``.
    """

    target: NDArray[Any]
    draft: NDArray[Any] | None
    drafts: Integers
    tokens: Integers
    parents: Integers | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds_logits(self) -> bool:
        """Whether the rows are logits: by the metadata, else by whether the first row is no law."""
        if isinstance(self.metadata.get("logits"), bool):
            return bool(self.metadata["logits"])
        row = np.asarray(self.target[0], dtype=np.float64)
        row = row[0] if row.ndim == 2 else row
        return bool(row.min() < 0 or abs(row.sum() - 1) > 0.1)

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `audit_trace` that the metadata and the file give."""
        arguments = {name: self.metadata[name] for name in _OPTIONS if name in self.metadata}
        if self.parents is not None:
            arguments["parents"] = self.parents
        return {**arguments, "logits": self.holds_logits}


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read recorded steps from a .npz or .safetensors file.

    Arrays ``target`` (N, V), ``tokens`` (N,), and where recorded ``draft`` (N, V) and ``drafts``
    (N, K), or those of several tokens a step, with ``parents`` (M,) where the drafts are no chain;
    the string ``metadata`` may hold a JSON object. `audit_trace` takes them from there:

    >>> t = load_trace("steps.npz")                                       # doctest: +SKIP
    >>> audit_trace(t.target, t.draft, t.drafts, t.tokens, **t.options)   # doctest: +SKIP

    Raises
    ------
    UnreadableFile
        The file is missing or broken, lacks an array, or its arrays do not fit each other.
    """
    name = str(path)
    if checked_suffix(path, _FORMATS, UnreadableFile) == ".npz":
        arrays = read_npz(path)
        text = text_of(arrays["metadata"]) if "metadata" in arrays else None
    else:
        arrays, strings = read_safetensors(path)
        text = strings.get("metadata")
    for needed in ("target", "tokens"):
        if needed not in arrays:
            raise missing_array(name, needed, arrays)
    target = arrays["target"]
    if target.ndim not in (2, 3) or 0 in target.shape:
        raise UnreadableFile(
            f"{name}: target has shape {target.shape}, not (steps, tokens) or (steps, drafts + 1, "
            "tokens)"
        )
    size = len(target)
    draft = arrays.get("draft")
    if draft is not None and draft.shape != target.shape:
        raise UnreadableFile(
            f"{name}: draft has shape {draft.shape} and target {target.shape}: they must agree"
        )
    return Trace(
        target=frozen(target),
        draft=None if draft is None else frozen(draft),
        drafts=(
            _ids(arrays, "drafts", (size, "K"), name)
            if "drafts" in arrays
            else frozen(np.empty((size, 0), dtype=np.int64))
        ),
        tokens=_ids(arrays, "tokens", (size, "L")[: target.ndim - 1], name),
        parents=_ids(arrays, "parents", ("M",), name) if "parents" in arrays else None,
        metadata=_described(text, name),
    )


def _ids(arrays: Arrays, key: str, shape: tuple[int | str, ...], name: str) -> Integers:
    """Integers of a given shape, in which a letter stands for any number."""
    array = arrays[key]
    fits = array.ndim == len(shape) and (isinstance(shape[0], str) or shape[0] == len(array))
    if not fits or array.dtype.kind not in "iu":
        raise UnreadableFile(
            f"{name}: {key} has shape {array.shape} and dtype {array.dtype}: give integers of "
            f"shape ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
        )
    return frozen(array.astype(np.int64))


def _described(text: str | None, name: str) -> Mapping[str, Any]:
    if text is None:
        return {}
    described = parse_json(text, f"the metadata of {name}")
    if not isinstance(described, dict):
        raise UnreadableFile(f"the metadata of {name} are not a JSON object")
    return described
