"""Files: written all at once, and read with a one-line error for any way to fail.

Here: bytes and JSON. `arrays`: .npy, .npz, .safetensors and .pt; `logits`: those of a target and a
draft model.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from mdsd_opt.errors import InvalidInput, UnreadableFile

__all__ = [
    "atomic_write",
    "check_writable",
    "file_sha256",
    "file_size",
    "json_lines",
    "parse_json",
    "path_of",
    "read_bytes",
    "read_json",
    "unreadable",
    "write_json",
    "write_text",
]

#: Error codes of a full disk, a quota or a limit on file sizes that is reached.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Largest text file that `read_json` takes, in bytes.
MAX_JSON_BYTES = 1 << 30


def path_of(path: Any, name: str = "path") -> Path:
    """A path; `InvalidInput` for what is none, such as None."""
    if isinstance(path, str | os.PathLike):
        return Path(path)
    raise InvalidInput(f"{name} is {path!r:.60}: give the name of a file")


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write a file so that a reader sees the old content or the new, never half of it.

    The bytes go to a temporary name in the same folder, which takes the place of `path` at the end;
    if the block raises, `path` is left as it was. Raises `InvalidInput` where the folder is missing
    or not writable, `path` is a folder, or the disk is full.
    """
    target, temporary = _places(path)
    try:
        file = temporary.open("xb")  # closed below, before the rename
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise InvalidInput(
                f"cannot write {path}: {error.strerror}. Make room and run it again; nothing was "
                "overwritten."
            ) from error
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text by `atomic_write`, in UTF-8."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike[str], document: Any, indent: int | None = 1) -> None:
    """Write strict JSON by `atomic_write`, indented unless that is None."""
    write_text(path, json.dumps(document, indent=indent, allow_nan=False) + "\n")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise `InvalidInput` where `atomic_write` would, before the work instead of after it."""
    _, temporary = _places(path)
    try:
        with temporary.open("xb"):
            pass
        temporary.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def _places(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """File to write, through a link instead of over it, and a temporary one beside it."""
    try:
        target = path_of(path).resolve()
        if target.is_dir():
            raise InvalidInput(f"cannot write {path}: it is a folder. Give the name of a file.")
        if target.exists() and not target.is_file():
            raise InvalidInput(f"cannot write {path}: it is not a regular file. Give another name.")
        target.parent.stat()
        return target, target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise _unwritable(path, error) from error


def _unwritable(path: str | os.PathLike[str], error: Exception) -> InvalidInput:
    reason = getattr(error, "strerror", None) or error
    return InvalidInput(
        f"cannot write {path}: {reason}. Give a name in a folder that exists and may be written to."
    )


def read_bytes(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Content of a file; `UnreadableFile` if it is missing, not readable, or too large."""
    size = file_size(path)
    if size > max_bytes:
        raise UnreadableFile(
            f"{path} has {size:,} bytes, over the limit of {max_bytes:,}: is it the right file?"
        )
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def file_size(path: str | os.PathLike[str]) -> int:
    """Size of a file in bytes; `UnreadableFile` if it is missing, or not a regular file."""
    try:
        status = path_of(path).stat()
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise unreadable(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableFile(f"{path} is a folder: give a file")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(f"{path} is not a regular file: give a file on disk")
    return status.st_size


def file_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of the bytes of a file, in hexadecimal digits; errors as `file_size`."""
    file_size(path)
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str | os.PathLike[str], error: Exception) -> UnreadableFile:
    """Error that says in one line why the system refused to read a file."""
    if isinstance(error, FileNotFoundError):
        return UnreadableFile(f"{path} does not exist")
    reason = getattr(error, "strerror", None) or error
    return UnreadableFile(f"cannot read {path}: {reason}")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Content of a JSON file; see `parse_json`."""
    return parse_json(read_bytes(path, MAX_JSON_BYTES), str(path))


def parse_json(content: bytes | str, source: str) -> Any:
    """Parse strict JSON of text, or of UTF-8 with or without a byte order mark.

    No NaN or Infinity, no key twice in one object: `UnreadableFile`, which calls it by `source` and
    gives line and column.
    """
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UnreadableFile(
                f"{source} is not JSON: byte {error.start} is not UTF-8 text"
            ) from error
    if not content.strip():
        raise UnreadableFile(f"{source} is empty")
    try:
        return json.loads(
            content, parse_constant=_no_constant, object_pairs_hook=_without_repeated_keys
        )
    except json.JSONDecodeError as error:
        raise UnreadableFile(
            f"{source} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError as error:
        raise UnreadableFile(f"{source} is nested too deeply") from error
    except ValueError as error:
        raise UnreadableFile(f"{source}: {error}") from error


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[Any, str]]:
    """Contents of a file's lines, each with a name for messages; blank ones are left out.

    Raises `UnreadableFile` if the file is missing, or a line is no JSON.
    """
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    where = f"line {number} of {path}"
                    yield parse_json(line, where), where
    except OSError as error:
        raise unreadable(path, error) from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON knows")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name in counts if counts[name] > 1)
        raise ValueError(f"the key {repeated!r} appears twice in one object")
    return result
