"""Content of files, of standard input and of addresses, as text or as records of JSON.

Records are those of a document, of lines, or of a stream's chunks ("data: ..."). The chunks of one
answer are put together: what they list is joined, and what they count is the sum so far.
"""

from __future__ import annotations

import functools
import gzip
import importlib
import io
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from mdsd_opt.base.files import parse_json, read_bytes
from mdsd_opt.errors import MissingExtra, UnreadableFile

_MAX_BYTES = 1 << 30

#: A document or lines of JSON; lines of a log may begin with a bracket too.
_JSON = re.compile(r"\s*(\{|\[\s*[\[{\]])")
_DATA = re.compile(r"^data:", re.MULTILINE)
#: Colours of a terminal.
_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")

#: Names of counts, which grow from chunk to chunk.
_COUNT = re.compile(r"_tokens$|^spec_(verify|num|accept\w*_|draft)\w*|^num_\w+|^\w+_n(_accepted)?$")

#: Lists of a chunk that are of its own tokens alone.
_OF_ITS_TOKENS = {"logprobs", "completion_probabilities", "content", "tokens", "top_logprobs",
                  "token_logprobs", "top_tokens"}  # fmt: skip


def text_of(path: str | os.PathLike[str]) -> str:
    """Text of a file, also if compressed by gzip; of standard input ("-"), or of an address."""
    name = str(path)
    if name.startswith(("http://", "https://")):
        return scraped_twice(name)
    is_stdin = name in ("-", "/dev/stdin")
    content = _all_of(sys.stdin.buffer) if is_stdin else read_bytes(path, _MAX_BYTES)
    if content.startswith(b"\x1f\x8b"):
        try:
            content = _inflated(content, name)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableFile(f"{name} is compressed by gzip, and cut or changed") from error
    text = _COLOURS.sub("", content.decode("utf-8-sig", errors="replace"))
    if not text.strip():
        raise UnreadableFile(f"{name} is empty")
    return text


@functools.lru_cache(maxsize=1)
def _all_of(stream: BinaryIO) -> bytes:
    """Content of standard input, which can be read once, and is looked at several times."""
    return stream.read(_MAX_BYTES)


def _inflated(content: bytes, name: str) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        found = file.read(_MAX_BYTES + 1)
    if len(found) > _MAX_BYTES:
        raise UnreadableFile(f"{name} unpacks to more than {_MAX_BYTES:,} bytes: is it a log?")
    return found


def scraped_twice(
    address: str, seconds: float = 10.0, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Metrics at an address at two moments, the first marked as what was there before."""
    try:
        httpx: Any = importlib.import_module("httpx")
    except ImportError as error:
        raise MissingExtra.of("httpx", "server", "reading an address") from error
    texts = []
    for pause in (seconds, 0.0):
        try:
            answer = httpx.get(address, timeout=30.0)
            answer.raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreadableFile(
                f"cannot read {address} ({error}): give the address of a server's metrics, such as "
                "http://127.0.0.1:8000/metrics"
            ) from error
        texts.append(answer.text)
        sleep(pause)
    return f"{BEFORE}\n{texts[0]}\n{texts[1]}"


#: First line of two scrapes whose first is not counted itself.
BEFORE = "# the first scrape is what was counted before"


def is_json(text: str) -> bool:
    """Whether a text is JSON."""
    return _JSON.match(text) is not None


def is_stream(text: str) -> bool:
    """Whether a text has the lines of a stream."""
    return _DATA.search(text) is not None


def records_of(text: str, source: str) -> list[tuple[str, Any]]:
    """Records, each with words for its place; the chunks of an answer are one record."""
    if not _JSON.match(text):
        return _folded(_chunks(text, source), source, of_stream=True)
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    try:
        found = [(source, parse_json(text, source))]
    except UnreadableFile:
        try:
            first = parse_json(lines[0][1], source)
        except UnreadableFile:
            first = None
        if len(lines) < 2 or not isinstance(first, (dict, list)):
            raise  # one document, and cut
        places = ((f"line {n} of {source}", line) for n, line in lines)
        found = [(where, parse_json(line, where)) for where, line in places]
    each = [
        (f"record {n} of {where}" if isinstance(value, list) else where, one)
        for where, value in found
        for n, one in enumerate(value if isinstance(value, list) else [value], start=1)
    ]
    return _folded(each, source, of_stream=False)


def _chunks(text: str, source: str) -> Iterator[tuple[str, Any]]:
    ended = True
    for n, line in enumerate(text.split("\n"), start=1):
        if not line.startswith("data:"):
            continue
        content = line[5:].strip()
        where = f"line {n} of {source}"
        chunk = None if content == "[DONE]" else parse_json(content, where)
        ended = chunk is None or _is_last(chunk)
        yield where, chunk
    if not ended:
        raise UnreadableFile(
            f"{source} is a stream that is cut: it ends before 'data: [DONE]'. Save all of it"
        )


def _is_last(chunk: Any) -> bool:
    if not isinstance(chunk, dict):
        return False
    choices = chunk.get("choices")
    own = chunk.get("meta_info")
    return bool(
        (choices == [] and "usage" in chunk)
        or chunk.get("stop") is True
        or chunk.get("details")
        or chunk.get("generated_text") is not None
        or (isinstance(own, dict) and own.get("finish_reason"))
        or (choices and all(isinstance(x, dict) and x.get("finish_reason") for x in choices))
    )


def _folded(
    records: Iterator[tuple[str, Any]] | list[tuple[str, Any]], source: str, of_stream: bool
) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    open_: dict[Any, tuple[int, int]] = {}  # place in `found` of a stream, and its chunks so far
    for where, record in records:
        if record is None:  # [DONE]
            open_ = {key: x for key, x in open_.items() if key is not None}
            continue
        key = _stream(record)
        if not (of_stream or _is_chunk(record) or (key is not None and key in open_)):
            found.append((where, record))
            continue
        if key not in open_:
            open_[key] = len(found), 0
            found.append((where, {}))
        place, chunks = open_[key]
        falls: list[str] = []
        if isinstance(record, dict) and {"token", "top_tokens"} <= record.keys():  # TGI's
            own = {"tokens": [record["token"]], "top_tokens": [record["top_tokens"]]}
            record = {"details": own}
        _join(found[place][1], record, where, falls)
        if falls:
            raise UnreadableFile(
                f"{where} contradicts itself: in chunk {chunks + 1} of an answer "
                f"{'; '.join(falls)} in a chunk before, neither sums so far nor counts of each "
                "chunk. Give the stream as the engine wrote it"
            )
        open_[key] = place, chunks + 1
        if isinstance(record, dict) and (record.get("done") is True or record.get("stop") is True):
            del open_[key]
    return found


def _stream(record: Any) -> Any:
    if not isinstance(record, dict):
        return None
    own = record.get("meta_info")
    return record.get("id") or (own.get("id") if isinstance(own, dict) else None)


def _is_chunk(record: Any) -> bool:
    """Whether a record is a part of an answer, which says itself that it is not at its end."""
    if not isinstance(record, dict):
        return False
    choices, own = record.get("choices"), record.get("meta_info")
    parts = [x for x in [*(choices if isinstance(choices, list) else []), own]
             if isinstance(x, dict)]  # fmt: skip
    return (
        str(record.get("object", "")).endswith(".chunk")
        or choices == []
        or record.get("stop") is False
        or isinstance(record.get("done"), bool)
        or any("finish_reason" in x and x["finish_reason"] is None for x in parts)
    )


def _join(into: dict[str, Any], chunk: Any, where: str, falls: list[str]) -> None:
    """Add a chunk to those before it of one answer; counts that fall are put into `falls`."""
    if not isinstance(chunk, dict):
        raise UnreadableFile(f"{where}: a chunk of a stream is {chunk!r:.40}, not an object")
    for name, value in chunk.items():
        old = into.get(name)
        if old is None or value is None:
            into[name] = _copied(name, value) if old is None else old
        elif name == "choices" and isinstance(old, list) and isinstance(value, list):
            for n, choice in enumerate(value):
                at = choice.get("index", n) if isinstance(choice, dict) else n
                same = next(
                    (x for x in old if isinstance(x, dict) and x.get("index", 0) == at), None
                )
                if same is None:
                    old.append(_copied(name, choice))
                else:
                    _join(same, choice, where, falls)
        elif isinstance(old, dict) and isinstance(value, dict):
            _join(old, value, where, falls)
        elif isinstance(old, list) and isinstance(value, list) and name in _OF_ITS_TOKENS:
            old.extend(value)
        else:
            is_count = _COUNT.search(name) and all(type(x) in (int, float) for x in (old, value))
            if is_count and value < old:
                falls.append(f"{name} is {value:g}, and {old:g}")
            into[name] = value


def _copied(name: str, value: Any) -> Any:
    """Value that later chunks may be joined to."""
    if isinstance(value, dict):
        return {key: _copied(key, x) for key, x in value.items()}
    return [_copied(name, x) for x in value] if isinstance(value, list) else value


def holders(
    record: Any, *names: str, without: str = "", null: bool = False, depth: int = 0
) -> list[dict[str, Any]]:
    """Outermost objects with one of these keys; none are sought under the key `without`.

    Nor in what stands there for each token. A null counts only where `null` says so.
    """
    if depth > 12:
        return []
    if isinstance(record, dict):
        if any(name in record and (null or record[name] is not None) for name in names):
            return [record]
        record = [x for key, x in record.items() if key not in _OF_ITS_TOKENS and key != without]
    if not isinstance(record, list):
        return []
    return [
        x
        for value in record
        if isinstance(value, (dict, list))
        for x in holders(value, *names, without=without, null=null, depth=depth + 1)
    ]


def count(record: dict[str, Any], name: str, where: str) -> float:
    """Count in a record; `UnreadableFile` where it is none."""
    value = record.get(name)
    if isinstance(value, dict):  # AIPerf's value with its unit
        value = value.get("avg", value.get("value"))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        raise UnreadableFile(
            f"{where}: {name} is {value!r:.40}, not a count: the file is cut or changed"
        )
    return float(value)


def counted(record: dict[str, Any], name: str, where: str) -> float | None:
    """Count in a record; None where there is none."""
    return None if record.get(name) is None else count(record, name, where)


def cut(where: str, of: str) -> UnreadableFile:
    """Error for a line that ends before its counts do."""
    return UnreadableFile(
        f"{where} is cut or changed: it begins as {of}, and has not all its counts. Leave the line "
        "out, or give the whole file"
    )
