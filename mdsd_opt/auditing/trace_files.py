"""Reads recorded steps from a file.

Checked input of `audit_trace`: steps of one token each, or of several.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers, Tokens, Vector, frozen, to_numpy
from mdsd_opt.base.distributions import Distribution
from mdsd_opt.base.files import parse_json
from mdsd_opt.base.files.arrays import (
    Arrays,
    checked_suffix,
    missing_array,
    read_npz,
    read_safetensors,
    text_of,
)
from mdsd_opt.drafts import DraftScheme, SchemeMaker, scheme_maker
from mdsd_opt.errors import InvalidInput, MdsdError, UnreadableFile

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
            "tokens) with at least one of each"
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


ToProbabilities = Callable[[Any], Any]


def _require_in_vocabulary(ids: NDArray[Any], lowest: int, vocab_size: int, name: str) -> None:
    wrong = (ids < lowest) | (ids >= vocab_size)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise InvalidInput(
            f"step {int(place[0])}: {name} {int(ids[tuple(place)])} lies outside "
            f"0..{vocab_size - 1}: is this the vocabulary of the logits?"
        )


class StepTree:
    """Positions of the drafts of a step in its tree.

    Draft i is node i + 1, a child of the node ``parents[i]``; node 0 is the root. No parents make a
    chain. `children` of each node stand in draw order; `depth` is the most that can be accepted.
    """

    def __init__(self, parents: Any, num_drafts: int) -> None:
        nodes = np.arange(num_drafts) if parents is None else to_numpy(parents, "parents")
        fits = nodes.shape == (num_drafts,) and (nodes.dtype.kind in "iu" or not num_drafts)
        if not (fits and ((nodes >= 0) & (nodes <= np.arange(num_drafts))).all()):
            raise InvalidInput(
                f"parents is {nodes.tolist()}: give the node of each of the {num_drafts} drafts "
                "after which it was drawn, 0 for the root and i + 1 for draft i, which comes first"
            )
        self.children: list[list[int]] = [[] for _ in range(num_drafts + 1)]
        levels = [0]
        for node, parent in enumerate(nodes.tolist(), start=1):
            self.children[parent].append(node)
            levels.append(levels[parent] + 1)
        self.depth, self.is_chain = max(levels), max(map(len, self.children)) == 1

    def drafts_after(self, node: int, drafts: Tokens) -> Tokens:
        """Columns of the drafts (..., M) that were drawn after a node; empty if none are known."""
        if not drafts.shape[-1]:
            return drafts
        return drafts[..., [child - 1 for child in self.children[node]]]

    def path(self, drafts: Tokens, accepted: Sequence[int]) -> list[int] | None:
        """Nodes from the root on along accepted drafts; None if they are no path.

        A token that was drawn several times is several nodes; any of them may go on.
        """
        reached, path = [0], [0]
        for token in accepted:
            reached = [c for node in reached for c in self.children[node] if drafts[c - 1] == token]
            if not reached:
                return None
            path.append(reached[0])
        return path


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSteps:
    """Steps of a chain or a tree of drafts each; those that give one token are trees of depth one.

    The target has rows of the root alone, shape (N, V), where a step gives one token, else of every
    node, (N, M + 1, V); the draft law has as many, or a scheme for each step, and is None where
    drafts or law were not recorded.
    """

    tree: StepTree
    target: Any
    draft_law: Any
    drafts: Tokens  # (N, M) or (N, 0)
    tokens: Tokens  # (N, L)
    of_target: ToProbabilities  # from a recorded row
    of_draft: ToProbabilities
    make: SchemeMaker | None

    @property
    def several(self) -> bool:
        return len(self.target.shape) == 3

    def drafts_after(self, n: int, node: int) -> Tokens:
        return self.tree.drafts_after(node, self.drafts[n])

    def law(self, n: int, node: int = 0) -> Vector:
        row = self.target[n][node] if self.several else self.target[n]
        return _probabilities(row, self.of_target, _named("target", n, node))

    def scheme(self, n: int, node: int = 0) -> DraftScheme | None:
        """Scheme of the drafts after a node; None if it is not known or there are none."""
        if self.draft_law is None:
            return None
        if isinstance(self.draft_law, Sequence):
            return self.draft_law[n]
        drafts = self.drafts_after(n, node)
        if node and not (drafts >= 0).any():  # below the root, which always drafts
            return None
        assert self.make is not None
        row = self.draft_law[n][node] if self.several else self.draft_law[n]
        q = _probabilities(row, self.of_draft, _named("draft", n, node))
        return self.make(q, drafts.size)


def _named(side: str, n: int, node: int) -> str:
    return f"{side} row {node} of step {n}" if node else f"{side} row {n}"


def _probabilities(row: Any, to_probabilities: ToProbabilities, name: str) -> Vector:
    """Law of a recorded row, or an error that names the row."""
    try:
        return Distribution.of(to_probabilities(row), name).values
    except MdsdError as error:
        text = str(error)
        raise type(error)(text if name in text else f"{name}: {text}") from error


def recorded_steps(
    target: Any,
    draft_law: Any,
    drafts: Any,
    tokens: Any,
    parents: Any,
    scheme: str,
    of_target: ToProbabilities,
    of_draft: ToProbabilities,
) -> RecordedSteps:
    """Input of `audit_trace`, checked."""
    rows = target if hasattr(target, "shape") else to_numpy(target, "target")
    several = len(rows.shape) == 3
    if parents is not None and not several:
        raise InvalidInput(
            "parents say where drafts hang in a tree: give target of shape (N, M + 1, V) with them"
        )
    if several and 0 in rows.shape:
        raise InvalidInput(f"target has shape {tuple(rows.shape)}: there is nothing to audit")
    if not several and (len(rows.shape) != 2 or 0 in rows.shape):
        raise InvalidInput(
            f"target has shape {tuple(rows.shape)}: give one row of probabilities or logits for "
            "each step, shape (N, V), or (N, M + 1, V) where a step gives several tokens"
        )
    size, vocab_size = rows.shape[0], rows.shape[-1]
    proposed = to_numpy(drafts, "drafts")
    known = proposed.shape != (size, 0)
    if not known:
        proposed = proposed.astype(np.int64)
    widest = proposed.shape[1] if proposed.ndim == 2 else 0
    num_drafts = rows.shape[1] - 1 if several else widest
    if proposed.shape not in ((size, num_drafts), (size, 0)) or proposed.dtype.kind not in "iu":
        wanted = f"give token ids of shape ({size}, K), padded with -1"
        if several:
            wanted = (
                f"target has {num_drafts + 1} rows a step, for the root and after each draft, so "
                f"give token ids of shape ({size}, {num_drafts}), padded with -1, or ({size}, 0) "
                "if they were not recorded"
            )
        raise InvalidInput(
            f"drafts has shape {proposed.shape} and dtype {proposed.dtype}: {wanted}"
        )
    tree = StepTree(parents if several else np.zeros(num_drafts, dtype=np.int64), num_drafts)
    emitted = _emitted(tokens, size, tree.depth + 1 if several else None)
    _require_in_vocabulary(emitted, -1 if several else 0, vocab_size, "token")
    _require_in_vocabulary(proposed, -1, vocab_size, "draft")
    laws = _draft_law(draft_law, rows, proposed) if known or several else None
    by_name = several or not (laws is None or isinstance(laws, Sequence))
    return RecordedSteps(
        tree,
        rows,
        laws if known else None,
        proposed.astype(np.int64),
        emitted,
        of_target,
        of_draft,
        scheme_maker(scheme) if by_name else None,
    )


def _emitted(tokens: Any, size: int, most: int | None) -> Tokens:
    """Tokens (N, L) of steps that give at most `most` each, or one each (None)."""
    emitted = to_numpy(tokens, "tokens")
    if most is None:
        fits, wanted = emitted.shape == (size,), f"give one token id for each of the {size} steps"
    else:
        fits = emitted.ndim == 2 and len(emitted) == size and 1 <= emitted.shape[1] <= most
        wanted = (
            f"give the accepted drafts of each of the {size} steps and one more token, up to "
            f"{most}, padded with -1"
        )
    if not fits or emitted.dtype.kind not in "iu":
        raise InvalidInput(f"tokens has shape {emitted.shape} and dtype {emitted.dtype}: {wanted}")
    rows = emitted.reshape(size, -1).astype(np.int64)
    absent = rows < 0
    gaps = np.flatnonzero(absent[:, 0] | (absent[:, :-1] & ~absent[:, 1:]).any(axis=1))
    if most is not None and gaps.size:
        raise InvalidInput(
            f"step {gaps[0]}: tokens {rows[gaps[0]].tolist()} have -1 before a token: pad at the "
            "end, after one token at least"
        )
    return rows


def _draft_law(draft_law: Any, rows: Any, drafts: Tokens) -> Any:
    """Rows of draft probabilities or logits, or a scheme for each step; None if not recorded."""
    size, vocab_size, several = rows.shape[0], rows.shape[-1], len(rows.shape) == 3
    if draft_law is None:
        return None
    if several:
        if tuple(getattr(draft_law, "shape", ())) != tuple(rows.shape):
            raise InvalidInput(
                f"draft_law has shape {tuple(getattr(draft_law, 'shape', ()))}: give an array of "
                f"the shape of the target, {tuple(rows.shape)}, or None"
            )
        return draft_law
    # schemes or probabilities may be given
    if isinstance(draft_law, Sequence) and all(isinstance(s, DraftScheme) for s in draft_law):
        if len(draft_law) != size:
            raise InvalidInput(f"{len(draft_law)} draft schemes given for {size} steps")
        for n, scheme in enumerate(draft_law):
            if (scheme.vocab_size, scheme.num_drafts) != (vocab_size, drafts.shape[1]):
                raise InvalidInput(
                    f"step {n}: {scheme!r} does not fit {vocab_size} tokens and {drafts.shape[1]} "
                    "drafts"
                )
        return draft_law
    laws = draft_law if hasattr(draft_law, "shape") else to_numpy(draft_law, "draft_law")
    if tuple(laws.shape) != (size, vocab_size):
        raise InvalidInput(
            f"draft_law has shape {tuple(laws.shape)}: give ({size}, {vocab_size}) like the "
            "target, or one draft scheme for each step"
        )
    return laws
