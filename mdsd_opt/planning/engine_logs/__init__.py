"""Counts of accepted drafts from what engines write, told apart by content.

There is one file for each engine or format. A reader takes the text of a file, or one JSON record
of it, and gives counts, or None where it is not its format. To add one: a file here with `READERS`,
and its name in those below.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from mdsd_opt.base.files import parse_json, read_bytes
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.planning.counts import AcceptedCounts
from mdsd_opt.planning.engine_logs import (
    llamacpp,
    openai_usage,
    prometheus,
    sglang,
    steps,
    trtllm_stats,
    vllm,
)
from mdsd_opt.planning.engine_logs.reader import NotThisFormat, Reader

#: Readers of all formats; a record is read by the first that knows it.
READERS: tuple[Reader, ...] = (
    *(*vllm.READERS, *prometheus.READERS, *sglang.READERS, *trtllm_stats.READERS),
    *(*llamacpp.READERS, *openai_usage.READERS, *steps.READERS),
)

#: Lines of a log may begin with a bracket too.
_JSON = re.compile(r"\s*(\{|\[\s*[\[{\]])")

_MAX_BYTES = 1 << 30


def read_counts(path: str | os.PathLike[str], num_drafts: int | None = None) -> AcceptedCounts:
    """Counts of a log, a scrape of metrics, or a file of requests, over all of it.

    Parameters
    ----------
    path : path
        Path of a file, whose format is seen from its content.
    num_drafts : int, optional
        Number of drafts of a step, where the file does not say it.

    Returns
    -------
    AcceptedCounts

    Raises
    ------
    UnreadableFile
        The file is missing, cut, of no known format, or mixes several.
    InvalidInput
        Its counts cannot be, or K is neither in the file nor given.
    """
    if Path(path).suffix in (".npz", ".npy"):
        return steps.of_arrays(path, num_drafts)
    content = read_bytes(path, _MAX_BYTES)
    text = content.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise UnreadableFile(f"{path} is empty")
    try:
        if _JSON.match(text):
            return _of_records(text, str(path), num_drafts)
        return _of_text(text, str(path), num_drafts)
    except InvalidInput as error:
        told = str(error)
        raise InvalidInput(told if str(path) in told else f"{path}: {told}") from None


def _of_text(text: str, path: str, num_drafts: int | None) -> AcceptedCounts:
    found = [x for x in READERS if x.marker is not None and x.marker.search(text)]
    if not found:
        raise _unknown(path)
    reader = _only(found, path)
    assert reader.of_text is not None
    return reader.of_text(text, path, num_drafts)


def _only(found: Collection[Reader], path: str) -> Reader:
    """Reader that alone knows a file; `UnreadableFile` where several do."""
    if len(found) > 1:
        raise UnreadableFile(
            f"{path} mixes what {' and '.join(reader.name for reader in found)} write: give a file "
            "of one of them"
        )
    return next(iter(found))


def _of_records(text: str, path: str, num_drafts: int | None) -> AcceptedCounts:
    found: dict[Reader, list[AcceptedCounts]] = {}
    without = 0
    records = _records(text, path)
    for where, record in records:
        for reader in READERS:
            if reader.of_record is None:
                continue
            try:
                counts = reader.of_record(record, where, num_drafts)
            except NotThisFormat:
                continue
            except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
                if isinstance(error, (InvalidInput, UnreadableFile)):
                    raise
                raise UnreadableFile(
                    f"{where}: counts of {reader.name} in a form that is not known "
                    f"({type(error).__name__}: {error})"
                ) from error
            if counts is not None:
                found.setdefault(reader, []).append(counts)
            break
        else:
            without += 1
    if not found:
        if len(records) > without:
            raise InvalidInput(f"{path}: no step with a draft, so that nothing was accepted or not")
        raise _unknown(path)
    reader = _only(found, path)
    parts = found[reader]
    return reader.joined(parts, f"{path} ({reader.name})")


def _records(text: str, path: str) -> list[tuple[str, Any]]:
    """Records of a JSON document or of lines, each behind the words for its place."""
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    try:
        whole = parse_json(text, path)
    except UnreadableFile:
        try:
            first = parse_json(lines[0][1], path)
        except UnreadableFile:
            first = None
        if len(lines) < 2 or not isinstance(first, (dict, list)):
            raise  # one document, and cut
        return [
            (f"line {n} of {path}", record)
            for n, line in lines
            for record in _each(parse_json(line, f"line {n} of {path}"))
        ]
    return [(f"record {n} of {path}", record) for n, record in enumerate(_each(whole), start=1)]


def _each(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _unknown(path: str) -> UnreadableFile:
    formats = "; ".join(f"{reader.name}: {reader.looks}" for reader in READERS)
    return UnreadableFile(
        f"{path} has no counts of accepted drafts in a known form. Known: {formats}"
    )
