"""A folder of shards, each a file of logits, or of rates alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mdsd_opt.base.files import unreadable
from mdsd_opt.corpora.config import RatesConfig
from mdsd_opt.corpora.manifest import Manifest, load_manifest
from mdsd_opt.corpora.scoring import stored_config
from mdsd_opt.errors import UnreadableFile

_SHARD_SUFFIXES = (".safetensors", ".npz")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Shards in the order in which they count.

    Attributes
    ----------
    folder : Path
    shards : tuple of Path
        Files that `mdsd_opt.base.files.logits.load_logits` reads; of `stored_rates`, if there are
        any.
    manifest : Manifest or None
        Of a captured corpus.
    """

    folder: Path
    shards: tuple[Path, ...]
    manifest: Manifest | None

    @property
    def sums(self) -> Mapping[str, str]:
        """SHA-256 of the shards by name, of those whose sum the manifest has."""
        shards = () if self.manifest is None else self.manifest.shards
        return {shard.name: shard.sha256 for shard in shards if shard.sha256}

    @property
    def stored_rates(self) -> RatesConfig | None:
        """What the shards hold rates of, where a capture kept no logits."""
        return None if self.manifest is None else stored_config(self.manifest.settings)


def open_corpus(folder: str | os.PathLike[str]) -> Corpus:
    """List the shards of a folder: those of its manifest, or else every logits file in it.

    Raises
    ------
    UnreadableFile
        No such folder, no shard in it, or a shard of the manifest is missing.
    """
    folder = Path(folder)
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError as error:
        raise unreadable(folder, error) from error
    manifest = load_manifest(folder)
    if manifest is not None:
        missing = [shard.name for shard in manifest.shards if shard.name not in names]
        if missing:
            raise UnreadableFile(
                f"{folder} lacks {len(missing)} of the {len(manifest.shards)} shards that its "
                f"manifest lists, the first is {missing[0]}: copy them again, or run the same "
                "capture again, which makes what is missing"
            )
        found = [shard.name for shard in manifest.shards]
    else:
        found = [
            name
            for name in names
            if name.lower().endswith(_SHARD_SUFFIXES) and not name.startswith(".")
        ]
    if not found:
        known = " or ".join(_SHARD_SUFFIXES)
        raise UnreadableFile(f"{folder} holds no shard of logits: {known} files are looked for")
    return Corpus(folder, tuple(folder / name for name in found), manifest)
