"""Content of files, of standard input and of addresses, as text or as records of JSON.

Records are those of a document, of lines, or of a stream's chunks ("data: ..."). The chunks of one
answer are put together: what they list is joined, and what they count is the sum so far.
"""

from __future__ import annotations

import copy
import functools
import gzip
import importlib
import io
import os
import re
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from mdsd_opt.base.files import parse_json, read_bytes
from mdsd_opt.errors import MissingExtra, UnreadableFile

_MAX_BYTES = 1 << 30

#: A document or lines of JSON; lines of a log may begin with a bracket too.
_JSON = re.compile(r"\s*(\{|\[\s*[\[{\]])")
_DATA = re.compile(r"^data:", re.MULTILINE)
#: Colours of a terminal.
_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")

#: First bytes of a file that the shell of Windows writes for ``> run.log``.
_MARKS_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

#: A line, or a part of one, in the files that Docker keeps of a container.
_DOCKER = re.compile(r'^\{"log":("(?:[^"\\]|\\.)*"),"stream":"', re.MULTILINE)

_STDIN = "standard input"

#: Names of counts, which grow from chunk to chunk.
_COUNT = re.compile(r"_tokens$|^spec_(verify|num|accept\w*_|draft)\w*|^num_\w+|^\w+_n(_accepted)?$")

#: Lists of a chunk that are of its own tokens alone.
_OF_ITS_TOKENS = {"logprobs", "completion_probabilities", "content", "tokens", "top_logprobs",
                  "token_logprobs", "top_tokens"}  # fmt: skip


def text_of(path: str | os.PathLike[str], seconds: float = 10.0) -> str:
    """Text of a file, also if compressed by gzip; of standard input ("-"), or of an address.

    An address is read twice, as many seconds apart.
    """
    name = name_of(path)
    if name.startswith(("http://", "https://")):
        return scraped_twice(name, seconds)
    content = _all_of(sys.stdin.buffer) if name == _STDIN else read_bytes(path, _MAX_BYTES)
    if content.startswith(b"\x1f\x8b"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(_MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableFile(f"{name} is compressed by gzip, and cut or changed") from error
        if len(content) > _MAX_BYTES:
            raise UnreadableFile(f"{name} unpacks to more than {_MAX_BYTES:,} bytes: is it a log?")
    coding = "utf-16" if content.startswith(_MARKS_OF_UTF_16) else "utf-8-sig"
    text = content.decode(coding, errors="replace")
    if _DOCKER.match(text):
        text = "".join(parse_json(line, name) for line in _DOCKER.findall(text))
    text = _COLOURS.sub("", text)
    if not text.strip():
        raise UnreadableFile(f"{name} is empty")
    return text


def name_of(path: str | os.PathLike[str]) -> str:
    """Name of a file, as messages have it."""
    return _STDIN if str(path) in ("-", "/dev/stdin") else str(path)


@functools.lru_cache(maxsize=1)
def _all_of(stream: BinaryIO) -> bytes:
    """Content of standard input, which can be read once, and is looked at several times."""
    return stream.read(_MAX_BYTES)


def scraped_twice(address: str, seconds: float) -> str:
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
            told = str(error).partition("\n")[0]  # without the address of a page on it
            raise UnreadableFile(
                f"cannot read {address} ({told}): give the address of a server's metrics, such as "
                "http://127.0.0.1:8000/metrics"
            ) from error
        texts.append(answer.text)
        time.sleep(pause)
    return f"{BEFORE}\n{texts[0]}\n{texts[1]}"


#: First line of two scrapes whose first is not counted itself.
BEFORE = "# the first scrape is what was counted before"


def lines_of(text: str, source: str) -> Iterator[tuple[str, str]]:
    """Lines of a text, each with words for its place."""
    lines = re.split(r"\r\n?|\n", text)  # other ends of lines may stand in strings of JSON
    return ((f"line {n} of {source}", line) for n, line in enumerate(lines, start=1))


def is_json(text: str) -> bool:
    """Whether a text is JSON."""
    return _JSON.match(text) is not None


def is_stream(text: str) -> bool:
    """Whether a text has the lines of a stream."""
    return _DATA.search(text) is not None


def records_of(text: str, source: str) -> list[tuple[str, Any]]:
    """Records, each with words for its place; the chunks of an answer are one record."""
    if not is_json(text):
        return _folded(_chunks(text, source), of_stream=True)
    lines = [(where, line) for where, line in lines_of(text, source) if line.strip()]
    try:
        values = [(source, parse_json(text, source))]
    except UnreadableFile:
        if len(lines) < 2 or not _is_whole(lines[0][1]):
            raise  # one document, and cut
        values = [(where, parse_json(line, where)) for where, line in lines]
    each: list[tuple[str, Any]] = []
    for where, value in values:
        several = enumerate(value, start=1) if isinstance(value, list) else ()
        each += [(f"record {n} of {where}", one) for n, one in several] or [(where, value)]
    return _folded(each, of_stream=False)


def _is_whole(line: str) -> bool:
    try:
        return isinstance(parse_json(line, ""), dict | list)
    except UnreadableFile:
        return False


def _chunks(text: str, source: str) -> Iterator[tuple[str, Any]]:
    """Chunks of a stream; None at the end of an answer."""
    ended = True
    for where, line in lines_of(text, source):
        if line.startswith("data:"):
            content = line[5:].strip()
            chunk = None if content == "[DONE]" else parse_json(content, where)
            ended = chunk is None or _is_last(chunk)
            yield where, chunk
    if not ended:
        raise UnreadableFile(
            f"{source} is a stream that is cut: it ends before 'data: [DONE]'. Save all of it"
        )


def _stream(record: Any) -> str | None:
    """Id of the answer that a record is of, if it has one."""
    if not isinstance(record, dict):
        return None
    own = record.get("meta_info")
    name = record.get("id") or (own.get("id") if isinstance(own, dict) else None)
    return str(name) if name else None


def _parts(record: Any) -> list[dict[str, Any]]:
    """Objects of a record that say whether a text is at its end."""
    choices, own = (record.get(x) for x in ("choices", "meta_info"))
    parts = [*choices, own] if isinstance(choices, list) else [own]
    return [x for x in parts if isinstance(x, dict)]


def _is_last(chunk: Any) -> bool:
    if not isinstance(chunk, dict):
        return False
    parts = _parts(chunk)
    return bool(
        (chunk.get("choices") == [] and "usage" in chunk)
        or chunk.get("stop") is True
        or chunk.get("details")
        or chunk.get("generated_text") is not None
        or (parts and all(x.get("finish_reason") for x in parts))
    )


def _is_chunk(record: Any) -> bool:
    """Whether a record is a part of an answer, which says itself that it is not at its end."""
    return isinstance(record, dict) and (
        str(record.get("object", "")).endswith(".chunk")
        or record.get("choices") == []
        or record.get("stop") is False
        or isinstance(record.get("done"), bool)
        or any("finish_reason" in x and x["finish_reason"] is None for x in _parts(record))
    )


def _folded(records: Iterable[tuple[str, Any]], of_stream: bool) -> list[tuple[str, Any]]:
    """Records, where the chunks of one answer are joined."""
    joined: list[tuple[str, Any]] = []
    open_: dict[Any, tuple[int, int]] = {}  # place in `joined` of a stream, and its chunks so far
    for where, record in records:
        if record is None:  # [DONE]
            open_ = {key: x for key, x in open_.items() if key is not None}
            continue
        key = _stream(record)
        if not (of_stream or _is_chunk(record) or (key is not None and key in open_)):
            joined.append((where, record))
            continue
        if not isinstance(record, dict):
            raise UnreadableFile(f"{where}: a chunk of a stream is {record!r:.40}, not an object")
        place, chunks = open_.get(key, (len(joined), 0))
        if not chunks:
            joined.append((where, {}))
        if {"token", "top_tokens"} <= record.keys():  # TGI's
            own = {"tokens": [record["token"]], "top_tokens": [record["top_tokens"]]}
            record = {"details": own}
        falls = _join(joined[place][1], record)
        if falls:
            raise UnreadableFile(
                f"{where} contradicts itself: in chunk {chunks + 1} of an answer "
                f"{'; '.join(falls)} in a chunk before, neither sums so far nor counts of each "
                "chunk. Give the stream as the engine wrote it"
            )
        open_[key] = place, chunks + 1
        if record.get("done") is True or record.get("stop") is True:
            del open_[key]
    return joined


def _join(into: dict[str, Any], chunk: dict[str, Any]) -> list[str]:
    """Add a chunk to those before it of one answer; words for counts that fall."""
    falls = []
    for name, value in chunk.items():
        old = into.get(name)
        both = isinstance(old, list) and isinstance(value, list)
        if old is None or value is None:
            into[name] = copy.deepcopy(value) if old is None else old
        elif isinstance(old, dict) and isinstance(value, dict):
            falls += _join(old, value)
        elif both and name in _OF_ITS_TOKENS:
            old.extend(value)
        elif both and name == "choices" and all(isinstance(x, dict) for x in (*old, *value)):
            for n, choice in enumerate(value):
                same = [x for x in old if x.get("index", 0) == choice.get("index", n)]
                if same:
                    falls += _join(same[0], choice)
                else:
                    old.append(copy.deepcopy(choice))
        else:
            is_count = _COUNT.search(name) and all(type(x) in (int, float) for x in (old, value))
            if is_count and value < old:
                falls.append(f"{name} is {value:g}, and {old:g}")
            into[name] = value
    return falls


def holders(
    record: Any, *names: str, without: str = "", null: bool = False, depth: int = 0
) -> list[dict[str, Any]]:
    """Outermost objects with one of these keys; none are sought under the key `without`.

    Nor in what stands there for each token. A null counts only where `null` says so.
    """
    if isinstance(record, dict):
        if any(name in record and (null or record[name] is not None) for name in names):
            return [record]
        record = [x for key, x in record.items() if key not in _OF_ITS_TOKENS and key != without]
    inner = record if isinstance(record, list) and depth <= 12 else ()
    return [
        x for value in inner if isinstance(value, dict | list)
        for x in holders(value, *names, without=without, null=null, depth=depth + 1)
    ]  # fmt: skip


def count(record: Mapping[str, Any], name: str, where: str) -> float:
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
