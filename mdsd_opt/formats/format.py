"""One format of a file: how it is known, and what is read of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mdsd_opt.formats.answer import Answer
from mdsd_opt.formats.counts import AcceptedCounts, Speed


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
