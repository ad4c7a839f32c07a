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
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.files import atomic_write, parse_json, read_json
from mdsd_opt.base.files.arrays import (
    checked_suffix,
    missing_array,
    read_npz,
    read_safetensors,
    text_of,
)
from mdsd_opt.drafts import (
    SINGLE_MODEL_SCHEMES,
    DraftScheme,
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
)
from mdsd_opt.errors import InvalidInput, UnknownName, UnreadableFile, UnsupportedScheme
from mdsd_opt.problem import TransportProblem

Document = dict[str, Any]

_FORMATS = {
    ".json": "text, exact fractions allowed",
    ".npz": "NumPy arrays",
    ".safetensors": "arrays and metadata",
}

#: What the document of each draft scheme holds beside its name.
_ENTRIES = {
    **dict.fromkeys(SINGLE_MODEL_SCHEMES, ("q", "num_drafts")),
    "independent": ("q",),
    "set_law": ("vocab_size", "sets", "masses"),
    "mixture": ("masses", "components"),
    "fixed_plus": ("tokens", "drafts"),
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
    suffix = checked_suffix(path, _FORMATS, InvalidInput)
    arrays: dict[str, NDArray[np.float64]] = {}
    document = _with_plain_vectors(
        {
            "target": problem._target.given,
            "drafts": _document_of(problem.drafts),
        },
        None if suffix == ".json" else arrays,
    )
    text = json.dumps(document, indent=1 if suffix == ".json" else None)
    with atomic_write(path) as file:
        if suffix == ".json":
            file.write(text.encode() + b"\n")
        elif suffix == ".npz":
            named: dict[str, Any] = {"problem": np.array(text), **arrays}
            np.savez_compressed(file, allow_pickle=False, **named)
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
    reader = _Reader(source)
    try:
        root = reader.mapping(document, "the problem")
        reader.require_known(root, ("target", "drafts"), "the problem")
        target = reader.vector(reader.entry(root, "target", ""), "target")
        drafts = reader.drafts(reader.entry(root, "drafts", ""), "drafts")
        return TransportProblem(target, drafts)
    except (UnreadableFile, UnknownName):
        raise
    except InvalidInput as error:
        raise UnreadableFile(f"{source}: {error}") from error


def _document_of(drafts: DraftScheme) -> Document:
    """The scheme as a document whose vectors are still Fractions or arrays."""
    document: Document = {"scheme": drafts.scheme}
    if isinstance(drafts, (WithReplacement, WithoutReplacement, GreedyDrafts, TopKDrafts)):
        document |= {"q": drafts.model.given, "num_drafts": drafts.num_drafts}
    elif isinstance(drafts, IndependentDrafts):
        document |= {"q": [model.given for model in drafts.models]}
    elif isinstance(drafts, DraftSetLaw):
        document |= {
            "vocab_size": drafts.vocab_size,
            "sets": [list(members) for members in drafts._sets],
            "masses": drafts._law.given,
        }
    elif isinstance(drafts, MixtureDrafts):
        document |= {
            "masses": drafts._law.given,
            "components": [_document_of(component) for component in drafts.components],
        }
    elif isinstance(drafts, FixedPlusDrafts):
        document |= {
            "tokens": drafts.always_drafted.tolist(),
            "drafts": _document_of(drafts.drafts),
        }
    else:
        raise UnsupportedScheme(f"drafts of type {type(drafts).__name__} have no file format")
    return document


def _with_plain_vectors(
    node: Any, arrays: dict[str, NDArray[np.float64]] | None, place: str = ""
) -> Any:
    """The document with Fractions as strings and arrays as lists, or moved to `arrays`."""
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


def _binary_document(path: str | os.PathLike[str], suffix: str) -> Any:
    source = str(path)
    if suffix == ".npz":
        arrays = read_npz(path)
        text = text_of(arrays["problem"]) if "problem" in arrays else None
        if text is None:
            raise missing_array(source, "problem", arrays)
        del arrays["problem"]
    else:
        arrays, metadata = read_safetensors(path)
        if "problem" not in metadata:
            present = ", ".join(map(repr, sorted(metadata))) or "none"
            raise UnreadableFile(f"{source} has no metadata 'problem'. It has: {present}.")
        text = metadata["problem"]
    document = parse_json(text, f"the string 'problem' of {source}")
    for name, array in arrays.items():
        _put(document, name.split("."), array, source)
    return document


def _put(document: Any, place: list[str], array: NDArray[Any], source: str) -> None:
    """Hang an array into the document at its dotted place."""
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


class _Reader:
    """Checks a document while it is turned into objects; every error names file and place."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._schemes: dict[str, Callable[[Document, str], DraftScheme]] = {
            "independent": self._independent,
            "set_law": self._set_law,
            "mixture": self._mixture,
            "fixed_plus": self._fixed_plus,
        }

    def error(self, place: str, problem: str) -> UnreadableFile:
        return UnreadableFile(f"{self._source}: {place} {problem}")

    def mapping(self, node: Any, place: str) -> Document:
        if not isinstance(node, dict):
            raise self.error(place, f"is {_kind(node)}, not an object with named entries")
        return node

    def entry(self, node: Document, name: str, place: str) -> Any:
        if name not in node:
            present = ", ".join(repr(x) for x in node) or "none"
            where = f"{place!r}" if place else "the problem"
            raise self.error(where, f"has no entry {name!r}. It has: {present}.")
        return node[name]

    def require_known(self, node: Document, known: tuple[str, ...], place: str) -> None:
        """Refuse entries that nobody would read: a misspelt one would be ignored in silence."""
        for name in node:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                listed = ", ".join(map(repr, known))
                raise self.error(
                    place, f"has an unknown entry {name!r:.60}.{hint} It takes: {listed}."
                )

    def integer(self, node: Any, place: str) -> int:
        if type(node) is not int:
            raise self.error(place, f"is {_kind(node)}, not an integer")
        return node

    def items(self, node: Any, place: str) -> list[Any]:
        if isinstance(node, np.ndarray) and node.ndim > 0:
            return list(node)
        if not isinstance(node, list):
            raise self.error(place, f"is {_kind(node)}, not a list")
        return node

    def vector(self, node: Any, place: str) -> Any:
        """A float64 array, or a list of Fractions if any number was written as a string."""
        if isinstance(node, np.ndarray):
            if node.dtype.kind not in "fiub" and node.dtype.name != "bfloat16":
                raise self.error(place, f"has dtype {node.dtype}, not numbers")
            return node.astype(np.float64)
        numbers = [self.number(x, f"{place}[{i}]") for i, x in enumerate(self.items(node, place))]
        if any(isinstance(x, Fraction) for x in numbers):
            return [Fraction(x) for x in numbers]
        return np.array(numbers, dtype=np.float64)

    def number(self, node: Any, place: str) -> float | Fraction:
        if type(node) in (int, float):
            try:
                return float(node)
            except OverflowError as error:
                raise self.error(place, "is too large for a number") from error
        if isinstance(node, str):
            return self.exact_number(node, place)
        raise self.error(place, f"is {_kind(node)}, not a number")

    def exact_number(self, text: str, place: str) -> Fraction:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        if not _EXACT_NUMBER.fullmatch(text):
            raise self.error(place, f"is {shown!r}: write numbers like '3/8', '0.375' or 0.375")
        try:
            return Fraction(text)
        except (ValueError, ZeroDivisionError) as error:
            reason = "has denominator 0" if isinstance(error, ZeroDivisionError) else "is too long"
            raise self.error(place, f"is {shown!r}, which {reason}") from error

    def drafts(self, node: Any, place: str) -> DraftScheme:
        document = self.mapping(node, place)
        scheme = self.entry(document, "scheme", place)
        if isinstance(scheme, str) and scheme in _ENTRIES:
            self.require_known(document, ("scheme", *_ENTRIES[scheme]), place)
        if isinstance(scheme, str) and scheme in SINGLE_MODEL_SCHEMES:
            q = self.distribution(document, "q", place)
            num_drafts = self.entry(document, "num_drafts", place)
            return SINGLE_MODEL_SCHEMES[scheme](q, self.integer(num_drafts, f"{place}.num_drafts"))
        if not isinstance(scheme, str) or scheme not in self._schemes:
            raise UnknownName.among(
                f"draft scheme in {self._source}:", scheme, [*SINGLE_MODEL_SCHEMES, *self._schemes]
            )
        return self._schemes[scheme](document, place)

    def distribution(self, document: Document, name: str, place: str) -> Distribution:
        inside = f"{place}.{name}"
        return Distribution.of(self.vector(self.entry(document, name, place), inside), inside)

    def _independent(self, document: Document, place: str) -> DraftScheme:
        inside = f"{place}.q"
        models = self.items(self.entry(document, "q", place), inside)
        return IndependentDrafts(
            [
                Distribution.of(self.vector(q, f"{inside}[{k}]"), f"{inside}[{k}]")
                for k, q in enumerate(models)
            ]
        )

    def _set_law(self, document: Document, place: str) -> DraftScheme:
        vocab_size = self.integer(self.entry(document, "vocab_size", place), f"{place}.vocab_size")
        sets = [
            self._tokens(members, f"{place}.sets[{s}]")
            for s, members in enumerate(
                self.items(self.entry(document, "sets", place), f"{place}.sets")
            )
        ]
        masses = self.vector(self.entry(document, "masses", place), f"{place}.masses")
        if len(sets) != len(masses):
            raise self.error(place, f"has {len(sets)} sets and {len(masses)} masses")
        if len(set(sets)) < len(sets):
            raise self.error(f"{place}.sets", "lists one set twice: add up its masses")
        return DraftSetLaw(vocab_size, dict(zip(sets, masses, strict=True)))

    def _tokens(self, node: Any, place: str) -> tuple[int, ...]:
        return tuple(
            self.integer(i, f"{place}[{k}]") for k, i in enumerate(self.items(node, place))
        )

    def _mixture(self, document: Document, place: str) -> DraftScheme:
        masses = self.vector(self.entry(document, "masses", place), f"{place}.masses")
        components = [
            self.drafts(component, f"{place}.components[{c}]")
            for c, component in enumerate(
                self.items(self.entry(document, "components", place), f"{place}.components")
            )
        ]
        if len(masses) != len(components):
            raise self.error(place, f"has {len(components)} components and {len(masses)} masses")
        pairs: Any = list(zip(masses, components, strict=True))
        return MixtureDrafts(pairs)

    def _fixed_plus(self, document: Document, place: str) -> DraftScheme:
        tokens = self._tokens(self.entry(document, "tokens", place), f"{place}.tokens")
        inner: Any = self.drafts(self.entry(document, "drafts", place), f"{place}.drafts")
        return FixedPlusDrafts(tokens, inner)


def _kind(node: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return names.get(type(node), "null" if node is None else f"{node!r:.40}")
