"""Files of engines, told apart by content: by the format that knows it, and by no other."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.files import path_of
from mdsd_opt.base.files.arrays import missing_array, read_npy, read_npz
from mdsd_opt.base.installed import loaded
from mdsd_opt.base.registry import files_that_declare
from mdsd_opt.errors import InvalidInput, MdsdError, UnreadableFile
from mdsd_opt.formats.answer import Answer
from mdsd_opt.formats.checks import Told, agree
from mdsd_opt.formats.content import (
    counted,
    holders,
    is_json,
    is_stream,
    name_of,
    records_of,
    text_of,
)
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Speed, merged, of_steps

PathLike = str | os.PathLike[str]

_PACKAGE = "mdsd_opt.formats"

#: What broken content makes readers raise; every reader's own errors are `MdsdError`.
_BROKEN = (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True)
class Format:
    """Reader of one format, of a text or of single JSON records.

    Attributes
    ----------
    name : str
        Program that writes it, and what.
    looks : str
        How it looks, for the error on files that nothing reads; "" for what is refused.
    marker : re.Pattern, optional
        Pattern that the text of every such file has.
    of_text : callable, optional
        Function of a text and its name that gives the counts of each part; None where nothing was
        drafted.
    of_record : callable, optional
        The same of a JSON record; it gives nothing where the record is of another format.
    answers : callable, optional
        Function of a JSON record, its name and the number of tokens that were asked for, if known,
        that gives the texts with their log-probabilities; none where there are none.
    takes_depth : bool
        Whether `of_text` takes a given depth, without which it may have to refuse a file.
    beside : bool
        Whether records of other formats may hold this one too; then both must agree.
    speeds : callable, optional
        Function of a text and its name that gives tokens and seconds of a run, which may have no
        drafts; none where the text is of another format.
    forced : re.Pattern, optional
        Pattern of a setting by which an engine accepts drafts whatever they are, for a benchmark.
    """

    name: str
    looks: str
    marker: re.Pattern[str] | None = None
    of_text: Callable[..., Iterable[AcceptedCounts | None]] | None = None
    of_record: Callable[[Any, str], Iterable[AcceptedCounts | None]] | None = None
    answers: Callable[[Any, str, int | None], Iterable[Answer]] | None = None
    takes_depth: bool = False
    beside: bool = False
    speeds: Callable[[str, str], Iterable[Speed]] | None = None
    forced: re.Pattern[str] | None = None


@functools.cache
def formats() -> tuple[Format, ...]:
    """Formats of all files that declare some."""
    places = files_that_declare("FORMATS", _PACKAGE).values()
    return tuple(each for place in places for each in loaded(place))


def read_counts(path: PathLike | Sequence[PathLike], depth: int | None = None) -> AcceptedCounts:
    """Counts of a log, a scrape of metrics, a saved stream or a file of answers, over all of it.

    Parameters
    ----------
    path : path, or sequence of paths
        A file, also if compressed by gzip, whose format is seen from its content; "-" for standard
        input; or the address of a server's metrics, which are read twice, ten seconds apart.
    depth : int, optional
        Longest chain of a step, where the file does not say it.

    Returns
    -------
    AcceptedCounts
        What is not told is None.

    Raises
    ------
    UnreadableFile
        The file is missing, cut, of no known format, mixes several, or contradicts itself.
    InvalidInput
        Its counts cannot be, or no step drafted.
    """
    return _counts_of_texts(list(_texts(path)), depth)


def _texts(
    path: PathLike | Sequence[PathLike], seconds: float = 10.0
) -> Iterator[tuple[str, str | None]]:
    """Name of each file, as messages have it, and its text, or None if it has arrays."""
    several = path if isinstance(path, list | tuple) else [path]
    for x in dict.fromkeys(
        str(path_of(each)) if not isinstance(each, str) else each for each in several
    ):
        name = name_of(x)
        yield name, None if Path(name).suffix in _ARRAYS else text_of(x, seconds)


def _counts_of_texts(texts: list[tuple[str, str | None]], depth: int | None) -> AcceptedCounts:
    parts = [_counts(name, text, depth) for name, text in _joined_metrics(texts)]
    names = " and ".join(name for name, _ in texts)
    written = [text for _, text in texts if text and not is_json(text)]
    if len(written) > 1:  # a run is one engine's
        marked = {x for text in written for x in _marked(text)}
        if logs := [x for x in formats() if x.name.endswith("log") and x in marked]:
            _only(logs, f"the run of {names}")
    whole = parts[0] if len(parts) == 1 else merged(parts, names)
    return replace(whole.deepened(depth), forced=_forced(" ".join(x for _, x in texts if x)))


def _forced(text: str) -> str:
    """Setting of a text by which drafts are accepted whatever they are; "" without one."""
    found = (x.forced.search(text) for x in formats() if x.forced is not None)
    return next((match[0] for match in found if match), "")


@dataclass(frozen=True, slots=True)
class Run:
    """A run with drafts, how fast it was, and how fast one without drafts, where that is told."""

    counts: AcceptedCounts
    speeds: tuple[Speed, ...]
    plain: tuple[Speed, ...]
    plain_name: str = ""


def read_run(
    path: PathLike | Sequence[PathLike], depth: int | None = None, seconds: float = 10.0
) -> Run:
    """Counts and speeds of a run, and speeds of another without drafts, each in files.

    Files that have no counts of drafts are those of the run without. The arguments are those of
    `read_counts`, and the seconds between two scrapes of an address.

    Raises as `read_counts` does, and where no file has counts.
    """
    counted, plain = [], []
    for name, text in _texts(path, seconds):
        if text is None or _has_counts(text, name, depth):
            counted.append((name, text))
        else:
            plain.append((name, text, _speeds(text, name)))
    if unread := [name for name, _, speeds in plain if not speeds]:
        raise _unknown(unread[0])
    if not counted:
        raise UnreadableFile(
            f"{plain[0][0]} is of a run without drafts, and there is no other file: give the log "
            "of a run with drafts, too"
        )
    for name, text, _ in plain:
        if found := _SPECULATES.search(text):
            raise UnreadableFile(
                f"{name} counts no drafts, but its settings have {found[0]:.60}: it is no run "
                "without drafts, or it is cut"
            )
    return Run(
        _counts_of_texts(counted, depth),
        tuple(x for name, text in counted if text is not None for x in _speeds(text, name)),
        tuple(x for _, _, speeds in plain for x in speeds),
        " and ".join(name for name, _, _ in plain),
    )


#: Settings of a server that drafts.
_SPECULATES = re.compile(
    r"num_spec(?:ulative)?_tokens['\"]?[=:] ?[1-9]\d*|speculative_algorithm['\"]?[=:] ?['\"]\w+"
)


def _has_counts(text: str, name: str, depth: int | None) -> bool:
    try:
        _of_content(text, name, depth)
    except UnknownFormat:
        return False
    except InvalidInput:
        pass  # that its counts cannot be is told where they are asked for
    return True


def _speeds(text: str, name: str) -> list[Speed]:
    """Tokens and seconds of a text, by the one format that knows them."""
    if is_json(text):
        return []
    speeds = {x: parts for x in formats() if x.speeds is not None
              if (parts := _called(x.speeds, x.name, name, text, name))}  # fmt: skip
    return speeds[_only(speeds, name)] if speeds else []


def _joined_metrics(named: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Name and text of each file; scrapes of one server in several files are one text."""
    metrics = next(x.marker for x in formats() if x.name == "metrics")
    if all(x is not None and metrics is not None and metrics.search(x) for _, x in named):
        return [(" and ".join(x for x, _ in named), "".join(x for _, x in named if x is not None))]
    return named


def _counts(name: str, text: str | None, depth: int | None) -> AcceptedCounts:
    if text is None:
        return _of_arrays(_read_arrays(name), name, depth)
    try:
        return _of_content(text, name, depth)
    except InvalidInput as error:
        message = str(error)
        raise InvalidInput(message if name in message else f"{name}: {message}") from None


def _of_content(text: str, name: str, depth: int | None) -> AcceptedCounts:
    if not is_json(text):
        if known := _marked(text):
            reader = _only(known, name)
            more = [depth] if reader.takes_depth else []
            parts = _called(reader.of_text, reader.name, name, text, name, *more)
            return merged((x for x in parts if x is not None), f"{name} ({reader.name})")
        if not is_stream(text):
            raise _unknown(name)
    records = records_of(text, name)
    if any(_is_step(record) for _, record in records):
        return _of_arrays(_in_arrays(records), name, depth)
    return _of_records(records, name)


def _marked(text: str) -> list[Format]:
    """Formats whose mark a text has."""
    return [x for x in formats() if x.marker is not None and x.marker.search(text)]


def _called(reader: Any, of: str, where: str, *arguments: Any) -> list[Any]:
    """What a reader finds; what it stumbles over is an error that says where."""
    try:
        return [*reader(*arguments)]
    except MdsdError:
        raise
    except _BROKEN as error:
        raise UnreadableFile(
            f"{where}: {of} in a form that is not known ({type(error).__name__}: {error}): it is "
            "cut or changed, or of another version"
        ) from error


def _only(readers: Collection[Format], name: str) -> Format:
    """Format that alone knows a file; `UnreadableFile` where several do."""
    if len(readers) > 1:
        raise UnreadableFile(
            f"{name} mixes what {' and '.join(reader.name for reader in readers)} write: give a "
            "file of one of them"
        )
    return next(iter(readers))


def _of_records(records: list[tuple[str, Any]], name: str) -> AcceptedCounts:
    groups: dict[Format, list[AcceptedCounts]] = {}
    tokens = Measured()
    for where, record in records:
        own = _claimed(record, where)
        tokens += Measured(_tokens(record, where))
        if own is not None:
            reader, parts = own
            groups.setdefault(reader, []).extend(x for x in parts if x is not None)
    if not groups:
        raise _unknown(name)
    drafting = {reader: parts for reader, parts in groups.items() if parts}
    reader = _only(drafting or [*groups][:1], name)
    return merged(groups[reader], f"{name} ({reader.name})").with_measured(tokens)


def _claimed(record: Any, where: str) -> tuple[Format, list[AcceptedCounts | None]] | None:
    """Format of a record, with its counts; those of another in it must be the same."""
    read = {x: _called(x.of_record, x.name, where, record, where)
            for x in formats() if x.of_record is not None}  # fmt: skip
    groups = {reader: parts for reader, parts in read.items() if parts}
    richer = [reader for reader in groups if not reader.beside]
    if not richer:
        return next(iter(groups.items()), None)
    reader = _only(richer, where)
    for other in [x for x in groups if x.beside]:
        for name in ("accepted", "drafted") if any(groups[other]) else ():
            both = [
                Told(f"{name} by {each.looks}", sum(x.sum(name) for x in groups[each] if x))
                for each in (reader, other)
                if all(not x or x.total(name) is not None for x in groups[each])
            ]
            if len(both) == 2:
                agree(where, *both)
    return reader, groups[reader]


def _tokens(record: Any, where: str) -> float | None:
    """Generated tokens of an answer, whether it drafted or not."""
    for name in ("completion_tokens", "output_token_count", "predicted_n"):
        sizes = [counted(x, name, where) for x in holders(record, name)]
        if sizes:
            return sum(x or 0.0 for x in sizes)
    return None


def _known(formats_: Iterable[Format]) -> str:
    return "; ".join(f"{x.name}: {x.looks}" for x in formats_ if x.looks)


class UnknownFormat(UnreadableFile):
    """A file without counts of drafts in any known format."""


def _unknown(name: str) -> UnknownFormat:
    known = _known(x for x in formats() if x.of_text or x.of_record)
    steps = "steps: JSON lines with 'accepted' and 'depth'"
    return UnknownFormat(
        f"{name} has no counts of accepted drafts in a known form. Known: {known}; {steps}"
    )


# --- steps ---

#: Fields of a single step in a form of our own, for engines that write none: `accepted` drafts,
#: `depth` places one after another, `num_drafts` that compete for each, and the `sequence`.
_FIELDS = ("accepted", "num_drafts", "depth", "sequence")

#: Suffixes of files of arrays.
_ARRAYS = (".npz", ".npy")


def _read_arrays(path: str) -> dict[str, Any]:
    """Arrays of a file, by the names of `mdsd_opt.accepted_rates`."""
    if Path(path).suffix == ".npy":
        return {"accepted": read_npy(path)}
    arrays = read_npz(path)
    if "accepted" not in arrays:
        raise missing_array(path, "accepted", arrays)
    return {name: arrays[name] for name in _FIELDS if name in arrays}


def _is_step(record: Any) -> bool:
    """Whether a record is a step."""
    return isinstance(record, dict) and (
        "accepted" in record or bool(record and record.keys() <= {*_FIELDS})
    )


def _in_arrays(steps: list[tuple[str, Any]]) -> dict[str, Any]:
    """Steps as arrays; all must have the same fields."""
    for where, step in steps:
        if not _is_step(step) or "accepted" not in step:
            raise UnreadableFile(f"{where} has no 'accepted': the accepted tokens of one step")
        wrong = [x for x in _FIELDS if x in step and type(step[x]) is not int]
        if wrong or step.keys() & {*_FIELDS} != steps[0][1].keys() & {*_FIELDS}:
            raise UnreadableFile(
                f"{where}: give integers, and the same of {', '.join(_FIELDS)} in every line"
            )
    names = [name for name in _FIELDS if name in steps[0][1]]
    return {name: np.array([step[name] for _, step in steps]) for name in names}


def _of_arrays(arrays: dict[str, Any], source: str, depth: int | None) -> AcceptedCounts:
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


def read_steps(path: PathLike) -> dict[str, Any] | None:
    """Arrays of single steps, by the names of `mdsd_opt.accepted_rates`; None if it has none."""
    name = str(path)
    if Path(name).suffix in _ARRAYS:
        return _read_arrays(name)
    text = text_of(path)
    records = records_of(text, name) if is_json(text) else []
    if not any(_is_step(record) for _, record in records):
        return None
    return _in_arrays(records)


# --- log-probabilities ---


def read_answers(path: PathLike, top: int | None = None) -> Iterator[list[Answer]]:
    """Texts of each request of a file, with the likeliest tokens of each place.

    Raises `UnreadableFile`, which names the line, if the file is missing, broken, or without lists.
    """
    text, name = text_of(path), name_of(path)
    if not (is_json(text) or is_stream(text)):
        raise _no_lists(name)
    for where, record in records_of(text, name):
        yield answers_of(record, where, top)


def answers_of(record: Any, where: str = "the answer", top: int | None = None) -> list[Answer]:
    """All texts of one answer of a server; `UnreadableFile` if it has none with their laws.

    `top` is the number of likeliest tokens that were asked for, if it is known.
    """
    answers: list[Answer] = []
    for x in formats():
        if x.answers is not None:
            of = f"lists of log-probabilities of {x.name}"
            answers += _called(x.answers, of, where, record, where, top)
    if not answers:
        raise _no_lists(where)
    return answers


def scored(answers: list[Answer]) -> list[Answer]:
    """Prompts of a request that were scored, or the texts that it generated."""
    return [x for x in answers if x.is_prompt] or answers


def _no_lists(where: str) -> UnreadableFile:
    known = _known(x for x in formats() if x.answers is not None)
    return UnreadableFile(f"{where} has no lists of log-probabilities. Known: {known}")


def summary(path: PathLike) -> dict[str, Any]:
    """What a file says, in sums over all of it; what it does not tell is None.

    Counts of drafts, with the tokens, times and batches beside them: ``steps``, ``drafted``,
    ``accepted``, ``accepted_by_position``, ``num_drafts`` (of one place), ``depth``,
    ``iterations``, ``mean_accepted``, ``tokens``, ``seconds``, ``running``, ``ms_per_step``,
    ``ms_draft_per_step``, and ``assumed`` where the number of steps is a weight; ``logprobs`` with
    the sizes and sums of its lists. Raises `UnreadableFile` where it has neither.
    """
    counts, error = {}, None
    try:
        counts = _summary_of_counts(read_counts(path))
    except UnknownFormat as unknown:
        error = unknown
    try:
        return {**counts, "logprobs": _summary_of_lists(path)}
    except UnreadableFile as other:
        if error is not None:
            raise (error if "has no lists" in str(other) else other) from None
    return counts


def _summary_of_counts(counts: AcceptedCounts) -> dict[str, Any]:
    measured, whole = counts.measured, counts.to_dict()
    batches = [x for x in measured.by_batch if x is not None]
    ms = [x for x in measured.by_batch.values() if x is not None]
    accepted, steps_ = counts.sum("accepted"), counts.total("steps")
    is_weight = counts.assumed and counts.unit == "runs"
    return {
        **{x: None if is_weight else whole[x] for x in ("steps", "drafted", "accepted")},
        "accepted_by_position": whole["by_position"],
        "num_drafts": 1,
        "depth": counts.depth,
        "iterations": measured.rounds,
        "mean_accepted": accepted / steps_ if steps_ else None,
        "tokens": measured.tokens,
        "seconds": measured.seconds,
        "running": batches[0] if len(batches) == 1 else batches or None,
        "ms_per_step": ms[0] if len(ms) == 1 else ms or None,
        "ms_draft_per_step": measured.draft_ms,
        "assumed": counts.assumed,
    }


def _summary_of_lists(path: PathLike) -> dict[str, Any]:
    texts = [x for request in read_answers(path) for x in scored(request)]
    return {
        "texts": len(texts),
        "positions": [len(x.lists) for x in texts],
        "by": "id" if all(x.by_id for x in texts) else "text",
        "sizes": [[len(row or ()) for row in x.lists] for x in texts],
        "extra": [[int(more) for more in x.extra] for x in texts],
        "mass": [[round(sum(map(math.exp, (row or {}).values())), 4) for row in x.lists]
                 for x in texts],
    }  # fmt: skip
