"""What a reader of one format is, and what several of them need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.planning.counts import AcceptedCounts, merged


class NotThisFormat(Exception):
    """A record is not of the format a reader knows."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One format: how its text or its records are known, and read.

    Attributes
    ----------
    name : str
        Who writes it.
    looks : str
        What to look for, in the error for files that nobody knows.
    marker : re.Pattern, optional
        Found in the text of every such file.
    of_text : callable, optional
        Counts by text, path and `num_drafts`.
    of_record : callable, optional
        Counts by a JSON record, where it stands, and `num_drafts`; None for one without a draft.
        Raises `NotThisFormat`.
    joined : callable
        Counts of all records by those of each, put together.
    """

    name: str
    looks: str
    marker: re.Pattern[str] | None = None
    of_text: Callable[[str, str, int | None], AcceptedCounts] | None = None
    of_record: Callable[[Any, str, int | None], AcceptedCounts | None] | None = None
    joined: Callable[[Sequence[AcceptedCounts], str], AcceptedCounts] = merged


def holder_of(record: Any, *names: str) -> dict[str, Any]:
    """The first object, at any depth, with one of these keys; raises `NotThisFormat`."""
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
    """A count of a record; `UnreadableFile` where it is none."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < np.inf:
        raise UnreadableFile(f"{where}: {name} is {value!r:.40}, not a count")
    return float(value)


def cut(where: str, of: str) -> UnreadableFile:
    """The error for a line that ends before its counts do."""
    return UnreadableFile(
        f"{where} is cut or changed: it begins as {of}, and has not all its counts"
    )


def needs_length(where: str, how: str) -> InvalidInput:
    """The error where K is neither in a file nor given."""
    return InvalidInput(f"{where} does not say how many drafts a step has: give num_drafts{how}")
