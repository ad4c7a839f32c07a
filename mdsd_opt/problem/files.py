"""Transport problems in files: JSON, .npz and .safetensors, the numbers exactly as given.

A problem is a small document, for instance ``{"target": ["309/500", ...], "drafts": {"scheme":
"with_replacement", "q": [0.25, 0.75], "num_drafts": 2}}``. Numbers written as strings, fractions
or decimals, are exact. In the binary formats the floating-point vectors of the document are arrays
named by their place in it ("target", "drafts.q"), and the rest is JSON in a string "problem".
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.files import atomic_write, parse_json, read_json
from mdsd_opt.base.files.arrays import (
    checked_suffix,
    missing_array,
    read_npz,
    read_safetensors,
    text_of,
)
from mdsd_opt.drafts import DraftScheme, all_schemes
from mdsd_opt.errors import InvalidInput, UnknownName, UnreadableFile
from mdsd_opt.problem.transport_problem import TransportProblem, checked_problem

Document = dict[str, Any]

_FORMATS = {
    ".json": "text, exact fractions allowed",
    ".npz": "NumPy arrays",
    ".safetensors": "arrays and metadata",
}

_EXACT_NUMBER = re.compile(r"[+-]?(\d+(/\d+)?|(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,4})?)", re.ASCII)


def save_problem(problem: TransportProblem, path: str | os.PathLike[str]) -> None:
    """Write a problem; `load_problem` gives back exactly the same numbers, Fractions included.

    Parameters
    ----------
    problem : TransportProblem
    path : path
        Its suffix chooses the format: .json, .npz or .safetensors. An existing file is replaced
        at once, never half.

    Raises
    ------
    InvalidInput
        Unknown suffix, or the file cannot be written.
    """
    suffix, law = checked_suffix(path, _FORMATS, InvalidInput), checked_problem(problem).target_law
    arrays: dict[str, Floats] = {}
    document = _with_plain_vectors(
        {"target": law.given, "drafts": problem.drafts.to_entry(lambda law: law.given)},
        None if suffix == ".json" else arrays,
    )
    text = json.dumps(document, indent=1 if suffix == ".json" else None)
    with atomic_write(path) as file:
        if suffix == ".json":
            file.write(text.encode() + b"\n")
        elif suffix == ".npz":
            named: dict[str, Any] = {"problem": np.array(text), **arrays}
            np.savez_compressed(file, **named)
        else:
            from safetensors.numpy import save

            contiguous = {name: np.ascontiguousarray(x) for name, x in arrays.items()}
            file.write(save(contiguous, metadata={"problem": text}))


def load_problem(path: str | os.PathLike[str]) -> TransportProblem:
    """Read a problem from a .json, .npz or .safetensors file.

    Raises
    ------
    UnreadableFile
        The file is missing, broken, or does not describe a problem; the message says where.
    UnknownName
        It names a draft scheme that does not exist.
    """
    suffix = checked_suffix(path, _FORMATS, UnreadableFile)
    source = str(path)
    document = read_json(path) if suffix == ".json" else _binary_document(path, suffix)
    try:
        root = _Entry(source, document)
        root.require_known(("target", "drafts"))
        return TransportProblem(root["target"].vector(), root["drafts"].scheme())
    except (UnreadableFile, UnknownName):
        raise
    except InvalidInput as error:
        raise UnreadableFile(f"{source}: {error}") from error


def _with_plain_vectors(node: Any, arrays: dict[str, Floats] | None, place: str = "") -> Any:
    """Document with Fractions as strings and arrays as lists, or moved to `arrays`."""
    if isinstance(node, dict):
        plain = {
            name: _with_plain_vectors(child, arrays, f"{place}.{name}".lstrip("."))
            for name, child in node.items()
        }
        return {name: child for name, child in plain.items() if child is not None}
    if isinstance(node, list):
        return [_with_plain_vectors(x, arrays, f"{place}.{i}") for i, x in enumerate(node)]
    if isinstance(node, tuple):
        return [_written(x) for x in node]
    if isinstance(node, np.ndarray):
        if arrays is None:
            return node.tolist()
        arrays[place] = node
        return None
    return node


def _written(x: Fraction) -> str:
    try:
        return str(x)
    except ValueError as error:  # Python refuses to write integers of more than 4300 digits
        raise InvalidInput(f"a fraction is too long to write: {error}") from error


def _refuse_logits(source: str, arrays: Mapping[str, Any]) -> None:
    if {"target", "draft"} <= arrays.keys():
        raise UnreadableFile(
            f"{source} holds logits, not a problem: save_problem writes one, such as "
            "TransportProblem.from_logits makes of a row"
        )


def _binary_document(path: str | os.PathLike[str], suffix: str) -> Any:
    source = str(path)
    if suffix == ".npz":
        arrays = read_npz(path)
        text = text_of(arrays["problem"]) if "problem" in arrays else None
        if text is None:
            _refuse_logits(source, arrays)
            raise missing_array(source, "problem", arrays)
        del arrays["problem"]
    else:
        arrays, metadata = read_safetensors(path)
        if "problem" not in metadata:
            _refuse_logits(source, arrays)
            raise missing_array(source, "problem", metadata, "metadata")
        text = metadata["problem"]
    document = parse_json(text, f"the string 'problem' of {source}")
    for name, array in arrays.items():
        _put(document, name.split("."), array, source)
    return document


def _put(document: Any, place: list[str], array: NDArray[Any], source: str) -> None:
    """Store an array in the document at its dotted place."""
    node = document
    for name in place[:-1]:
        node = _child(node, name)
    last = place[-1]
    if isinstance(node, dict) and last not in node:
        node[last] = array
    elif isinstance(node, list) and last.isdecimal() and int(last) < len(node):
        node[int(last)] = array
    else:
        raise UnreadableFile(f"{source} has an array {'.'.join(place)!r} that has no place in it")


def _child(node: Any, name: str) -> Any:
    if isinstance(node, dict):
        return node.get(name)
    if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
        return node[int(name)]
    return None


class _Entry:
    """A place in a document, checked while it becomes an object; errors name file and place.

    An `EntryReader`.
    """

    __slots__ = ("_node", "_place", "_source")

    def __init__(self, source: str, node: Any, place: str = "") -> None:
        self._source, self._node, self._place = source, node, place

    def error(self, problem: str) -> UnreadableFile:
        return UnreadableFile(f"{self._source}: {self._place or 'the problem'} {problem}")

    def require_known(self, known: tuple[str, ...]) -> None:
        """Refuse entries that nobody would read: a misspelt one would be ignored silently."""
        for name in self._named():
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                listed = ", ".join(map(repr, known))
                raise self.error(f"has an unknown entry {name!r:.60}.{hint} It takes: {listed}.")

    def _named(self) -> Document:
        if not isinstance(self._node, dict):
            raise self.error(f"is {_kind(self._node)}, not an object with named entries")
        return self._node

    def __getitem__(self, name: str) -> _Entry:
        named = self._named()
        if name not in named:
            present = ", ".join(map(repr, named)) or "none"
            raise self.error(f"has no entry {name!r}. It has: {present}.")
        place = f"{self._place}.{name}" if self._place else name
        return _Entry(self._source, named[name], place)

    def items(self) -> list[_Entry]:
        node = self._node
        if not isinstance(node, list) and not (isinstance(node, np.ndarray) and node.ndim > 0):
            raise self.error(f"is {_kind(node)}, not a list")
        return [_Entry(self._source, x, f"{self._place}[{i}]") for i, x in enumerate(node)]

    def integer(self) -> int:
        if type(self._node) is not int:
            raise self.error(f"is {_kind(self._node)}, not an integer")
        return self._node

    def tokens(self) -> tuple[int, ...]:
        return tuple(item.integer() for item in self.items())

    def vector(self) -> Any:
        """A float64 array, or a list of Fractions if any number was written as a string."""
        node = self._node
        if isinstance(node, np.ndarray):
            if node.dtype.kind not in "fiub" and node.dtype.name != "bfloat16":
                raise self.error(f"has dtype {node.dtype}, not numbers")
            return node.astype(np.float64)
        if isinstance(node, list) and all(type(x) is float for x in node):  # mostly
            return np.array(node, dtype=np.float64)
        numbers = [item._number() for item in self.items()]
        if any(isinstance(x, Fraction) for x in numbers):
            return [Fraction(x) for x in numbers]
        return np.array(numbers, dtype=np.float64)

    def _number(self) -> float | Fraction:
        node = self._node
        if type(node) in (int, float):
            try:
                return float(node)
            except OverflowError as error:
                raise self.error("is too large for a number") from error
        if isinstance(node, str):
            return self._exact_number(node)
        raise self.error(f"is {_kind(node)}, not a number")

    def _exact_number(self, text: str) -> Fraction:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        if not _EXACT_NUMBER.fullmatch(text):
            raise self.error(f"is {shown!r}: write numbers like '3/8', '0.375' or 0.375")
        try:
            return Fraction(text)
        except (ValueError, ZeroDivisionError) as error:
            reason = "has denominator 0" if isinstance(error, ZeroDivisionError) else "is too long"
            raise self.error(f"is {shown!r}, which {reason}") from error

    def law(self) -> Distribution:
        return Distribution.of(self.vector(), self._place)

    def scheme(self) -> DraftScheme:
        known, name = all_schemes(), self["scheme"]._node
        if not isinstance(name, str) or name not in known:
            raise UnknownName.among(f"draft scheme in {self._source}:", name, known)
        self.require_known(("scheme", *known[name].entries))
        return known[name].from_entry(self)


def _kind(node: Any) -> str:
    """Name of a JSON value's type."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return names.get(type(node), "null" if node is None else f"{node!r:.40}")
