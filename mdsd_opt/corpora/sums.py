"""Shards held against the sums in their manifest, each before it is first read in a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from mdsd_opt.base.files import file_sha256, file_size
from mdsd_opt.errors import UnreadableFile


def require_sum(path: str | os.PathLike[str], sha256: str) -> None:
    """Raise unless the bytes of a shard are those that were captured.

    Raises
    ------
    UnreadableFile
        They are not; the message has both sums.
    """
    found = file_sha256(path)
    if found != sha256:
        raise UnreadableFile(
            f"{path} is not as it was captured: its sha256 is {found}, and its manifest says "
            f"{sha256}. Run the same capture again, which makes this shard anew, or copy it again; "
            "to read it as it is, turn the check off with verify=False (--no-verify)."
        )


def identity(path: str | os.PathLike[str]) -> str:
    """What changes when a shard is replaced: name, size and time of the last change."""
    size = file_size(path)
    return json.dumps([Path(path).name, size, Path(path).stat().st_mtime_ns])


class VerifiedShards:
    """Shards that agreed with their sums in this run; one that changes counts as another."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, path: Path, sha256: str) -> None:
        """Note that a shard agreed."""
        self._seen.add(_key(path, sha256))

    def has(self, path: Path, sha256: str) -> bool:
        """Whether a shard agreed, and is as it was then."""
        return _key(path, sha256) in self._seen

    def require(self, path: Path, sha256: str) -> None:
        """`require_sum`, once."""
        if not self.has(path, sha256):
            key = _key(path, sha256)  # of before: a change meanwhile must not pass
            require_sum(path, sha256)
            self._seen.add(key)


def _key(path: Path, sha256: str) -> tuple[str, str, str]:
    return str(path.absolute()), identity(path), sha256
