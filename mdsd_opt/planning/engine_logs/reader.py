"""Readers of one format, and functions that several of them need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.planning.counts import AcceptedCounts, merged


class NotThisFormat(Exception):
    """Error where a record is not of the format that a reader knows."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reader of one format, which knows its text or records, and gives their counts.

    Attributes
    ----------
    name : str
        Name of the program that writes the format.
    looks : str
        Looks of the format, for the error on files that no reader knows.
    marker : re.Pattern, optional
        Pattern that the text of every such file has.
    of_text : callable, optional
        Function of text, path and `num_drafts` that gives the counts.
    of_record : callable, optional
        Function of a JSON record, its place and `num_drafts` that gives the counts, or None for a
        record without a draft. It raises `NotThisFormat`.
    joined : callable
        Function that joins the counts of all records.
    """

    name: str
    looks: str
    marker: re.Pattern[str] | None = None
    of_text: Callable[[str, str, int | None], AcceptedCounts] | None = None
    of_record: Callable[[Any, str, int | None], AcceptedCounts | None] | None = None
    joined: Callable[[Sequence[AcceptedCounts], str], AcceptedCounts] = merged


def holder_of(record: Any, *names: str) -> dict[str, Any]:
    """First object, at any depth, with one of these keys; `NotThisFormat` if there is none."""
    for found in _objects(record):
        if any(name in found for name in names):
            return found
    raise NotThisFormat


def _objects(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    if depth > 12:
        return
    if isinstance(value, dict):
        yield value
        for part in value.values():
            if isinstance(part, (dict, list)):
                yield from _objects(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from _objects(part, depth + 1)


def count(record: dict[str, Any], name: str, where: str) -> float:
    """Count in a record; `UnreadableFile` where it is none."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < np.inf:
        raise UnreadableFile(f"{where}: {name} is {value!r:.40}, not a count")
    return float(value)


def cut(where: str, of: str) -> UnreadableFile:
    """Error for a line that ends before its counts do."""
    return UnreadableFile(
        f"{where} is cut or changed: it begins as {of}, and has not all its counts"
    )


def needs_length(where: str, how: str) -> InvalidInput:
    """Error for K that is neither in a file nor given."""
    return InvalidInput(f"{where} does not say how many drafts a step has: give num_drafts{how}")
