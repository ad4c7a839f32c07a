"""What a corpus says about itself: the file manifest.json beside its shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mdsd_opt.base.files import atomic_write, read_json
from mdsd_opt.errors import UnreadableFile

MANIFEST_NAME = "manifest.json"
_FORMAT = "mdsd-opt corpus 1"


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard that is complete.

    Attributes
    ----------
    name : str
        File name in the corpus' folder.
    num_positions : int
        Rows of logits.
    first_sequence, num_sequences : int
        Which prompts it holds.
    sha256 : str
        Of the file; empty if nobody noted it, and then nothing is held against it.
    """

    name: str
    num_positions: int
    first_sequence: int
    num_sequences: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Settings of a capture and the shards that are done.

    Attributes
    ----------
    settings : mapping
        Everything the content of the shards depends on; JSON values.
    num_shards : int
        How many there will be.
    shards : tuple of ShardEntry
        Those that are complete, in order.
    """

    settings: Mapping[str, Any]
    num_shards: int
    shards: tuple[ShardEntry, ...] = field(default=())

    @property
    def is_complete(self) -> bool:
        """Whether every shard is there."""
        return len(self.shards) == self.num_shards

    def as_json(self) -> str:
        """What its file holds."""
        document = {
            "format": _FORMAT,
            "complete": self.is_complete,
            "settings": dict(self.settings),
            "num_shards": self.num_shards,
            "num_positions": sum(shard.num_positions for shard in self.shards),
            "shards": [asdict(shard) for shard in self.shards],
        }
        return json.dumps(document, indent=1)

    def save(self, folder: Path) -> None:
        """Write it into the corpus' folder, atomically."""
        with atomic_write(folder / MANIFEST_NAME) as file:
            file.write(self.as_json().encode() + b"\n")


def load_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a folder; None if it has none.

    Raises
    ------
    UnreadableFile
        There is one, and it is broken or of another format.
    """
    path = folder / MANIFEST_NAME
    if not path.exists():
        return None
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise UnreadableFile(f"{path} is not a manifest of {_FORMAT!r}")
    try:
        shards = tuple(ShardEntry(**entry) for entry in document["shards"])
        manifest = Manifest(dict(document["settings"]), int(document["num_shards"]), shards)
        for shard in shards:
            if Path(shard.name).name != shard.name:
                raise UnreadableFile(f"{path} names {shard.name!r}, which is not a file name")
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"{path} is not a complete manifest: {error!r}") from error
    return manifest
