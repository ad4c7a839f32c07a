"""Log of an audit: complete lines of JSON, from which another run can continue.

An audit learns only by records. What is learned is written first and put to the evidence then, so
that a log that is read again gives the evidence as it was.
"""

from __future__ import annotations

import json
import mmap
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mdsd_opt.base.files import json_lines
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.servers.laws import Law
from mdsd_opt.servers.tally import TokenTally

#: Kind of the first record of a log, and the version of its form.
HEADER, FORM = "audit", 1

#: Most cells of laws that are kept, 64 MB of them; the least recently used laws are dropped first.
MOST_CELLS = 4_000_000


class KnownLaws:
    """Laws by the text before them, as many as there is room for."""

    def __init__(self) -> None:
        self._laws: OrderedDict[tuple[int, ...], Law] = OrderedDict()
        self._cells = 0

    def put(self, prefix: Sequence[int], law: Law) -> None:
        """Keep a law."""
        old = self._laws.pop(tuple(prefix), None)
        self._cells += law.p.size - (0 if old is None else old.p.size)
        self._laws[tuple(prefix)] = law
        while self._cells > MOST_CELLS and len(self._laws) > 1:
            self._cells -= self._laws.popitem(last=False)[1].p.size

    def get(self, prefix: Sequence[int]) -> Law | None:
        """Law after a text, if it is kept."""
        law = self._laws.get(tuple(prefix))
        if law is not None:
            self._laws.move_to_end(tuple(prefix))
        return law

    def __len__(self) -> int:
        return len(self._laws)


class Learned:
    """Contents of an audit's records, added to a tally one after another."""

    def __init__(self, tally: TokenTally) -> None:
        self.tally = tally
        self.laws, self.drafts = KnownLaws(), KnownLaws()
        self.visited: list[tuple[int, ...]] = []
        self.requests = 0
        self.seconds = 0.0

    def take(self, record: dict[str, Any]) -> None:
        """Learn from a record."""
        kind = record["kind"]
        self.requests += record.get("requests", 0)
        if kind in ("law", "draft law"):
            known = self.laws if kind == "law" else self.drafts
            known.put(record["prefix"], Law.from_record(record["law"]))
        elif kind == "text":
            self._text(record)
        elif kind == "noise":
            self.tally.noise = max(record["distance"], self.tally.noise or 0.0)
        elif kind == "difference":
            self.tally.differences.append(record["distance"])
            if record["distance"] >= max(self.tally.differences):
                self.tally.farthest = tuple(record.get("prefix", ()))
        elif kind == "known draft":
            p, q = self.laws.get(record["prefix"]), self.drafts.get(record["prefix"])
            if p is not None and q is not None:
                self.tally.acceptance.count_known(
                    record["drafted"], record["accepted"], p, q, self.tally.tau
                )
        elif kind == "counters":
            counted = self.tally.acceptance
            counted.drafted, counted.accepted = record["drafted"], record["accepted"]
            counted.by_position = tuple(record.get("by_position", ()))
        elif kind == "no law":
            self.tally.has_laws = False
        elif kind == "end":
            self.seconds += record["seconds"]
            self.tally.has_ended_early = record.get("early", False)

    def _text(self, record: dict[str, Any]) -> None:
        prompt, tokens = record["prompt"], record["tokens"]
        is_control = record["control"]
        prefixes = [(*prompt, *tokens[:n]) for n in range(len(tokens))]
        stated = record.get("laws")
        laws = (
            [self.laws.get(prefix) for prefix in prefixes]
            if stated is None
            else [None if law is None else Law.from_record(law) for law in stated]
        )
        drafts = [self.drafts.get(prefix) for prefix in prefixes]
        if not is_control:
            self.tally.acceptance.count(record.get("drafted"), record.get("accepted"))
            if len(self.visited) < 50_000:
                self.visited += prefixes[self.tally.num_first :]
        self.tally.add_text(prompt, tokens, laws, drafts, is_control=is_control)


class Log:
    """A log to which records are added, or none.

    Parameters
    ----------
    path : path-like or None
    header : dict
        Subject of the audit: a log of another one is refused.
    learned : Learned
        Takes what is in the log already, and every record that is added.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, header: dict[str, Any], learned: Learned
    ) -> None:
        self._learned = learned
        self._file: BinaryIO | None = None
        self.resumed = 0
        if path is None:
            return
        place = Path(path)
        header = json.loads(json.dumps({"kind": HEADER, "form": FORM, **header}))
        if place.exists() and place.stat().st_size:
            _cut_half_line(place)
            self._read(place, header)
        try:
            self._file = place.open("ab")
        except OSError as error:
            raise InvalidInput(f"cannot write {path}: {error.strerror}") from error
        if place.stat().st_size == 0:
            self._write(header)

    def _read(self, path: Path, header: dict[str, Any]) -> None:
        records = json_lines(path)
        first, _ = next(records, (None, ""))
        there = first if isinstance(first, dict) else {}
        if different := [x for x in {**header, **there} if there.get(x) != header.get(x)]:
            raise InvalidInput(
                f"{path} is the log of another audit ({', '.join(sorted(different))} differ): give "
                "another file"
            )
        for record, where in records:
            _take(self._learned, record, where)
            self.resumed += 1

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            self._file.flush()

    def add(self, kind: str, **fields: Any) -> None:
        """Write a record, and learn from it."""
        record = {"kind": kind, **fields}
        self._write(record)
        self._learned.take(record)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def is_log(path: Any) -> bool:
    """Whether a file is the log of an audit."""
    try:
        first = next(json_lines(path), (None, ""))[0]
    except UnreadableFile:  # a stream, or a file that is compressed: no log of this audit
        return False
    return isinstance(first, dict) and first.get("kind") == HEADER


def replayed(path: Any, tally: TokenTally) -> Learned:
    """Contents of a log, added to a tally."""
    learned = Learned(tally)
    for record, where in json_lines(path):
        if not (isinstance(record, dict) and record.get("kind") == HEADER):
            _take(learned, record, where)
            tally.look()
    return learned


def _take(learned: Learned, record: Any, where: str) -> None:
    try:
        learned.take(record)
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise UnreadableFile(f"{where} is no record of an audit ({error})") from error


def _cut_half_line(path: Path) -> None:
    """Remove the incomplete last line of a log whose writer was killed."""
    with path.open("rb+") as file:
        with mmap.mmap(file.fileno(), 0) as content:
            end = content.rfind(b"\n") + 1
        file.truncate(end)
