"""Prompts and texts from files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from mdsd_opt.base.files import read_bytes
from mdsd_opt.errors import InvalidInput, UnreadableFile

_MAX_BYTES = 1 << 30


def read_prompts(path: str | os.PathLike[str]) -> list[str]:
    """One prompt a line; of a .jsonl file the field ``prompt`` (or ``text``) of each object.

    Raises
    ------
    UnreadableFile
        Missing, not UTF-8, not JSON, without the field, or without a single prompt.
    InvalidInput
        A line or field is empty; the message names it.
    """
    lines = read_text(path).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    prompts = []
    for number, line in enumerate(lines, start=1):
        prompt = line.rstrip("\r")
        if Path(path).suffix.lower() == ".jsonl" and line.strip():
            prompt = _field(line, f"line {number} of {path}")
        if not prompt.strip():
            raise InvalidInput(f"line {number} of {path} is an empty prompt: remove it")
        prompts.append(prompt)
    return prompts


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file.

    Raises
    ------
    UnreadableFile
        Missing, not UTF-8, or blank.
    """
    content = read_bytes(path, _MAX_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not text: byte {error.start} is not UTF-8") from error
    if not text.strip():
        raise UnreadableFile(f"{path} is empty: it should hold prompts or a text")
    return text


def windows(ids: Sequence[int], length: int) -> list[list[int]]:
    """Cut token ids into pieces of one length; a shorter rest is left out unless it is all."""
    if length < 1:
        raise InvalidInput(f"windows of {length} tokens: give at least 1")
    pieces = [list(ids[i : i + length]) for i in range(0, len(ids) - length + 1, length)]
    return pieces or [list(ids)]


def _field(line: str, where: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise UnreadableFile(f"{where} is not JSON: {error}") from error
    prompt = entry.get("prompt", entry.get("text")) if isinstance(entry, dict) else None
    if not isinstance(prompt, str):
        raise UnreadableFile(f'{where} has no text under "prompt" or "text"')
    return prompt
