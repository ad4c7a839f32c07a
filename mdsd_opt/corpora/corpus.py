"""A corpus: a folder of shards, each a file of logits or of rates alone, with a manifest.

And what is to be computed of each of its positions: a `RatesConfig`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from mdsd_opt._version import __version__
from mdsd_opt.base.checked import checked_names, of_kind
from mdsd_opt.base.files import file_sha256, file_size, path_of, read_json, unreadable, write_text
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.corpora.rates import combinations
from mdsd_opt.drafts import checked_num_drafts
from mdsd_opt.errors import InvalidInput, UnreadableFile


class Column(NamedTuple):
    """Meaning of one column of scored rates."""

    scheme: str
    verifier: str
    num_drafts: int


@dataclass(frozen=True, slots=True)
class RatesConfig:
    """Draft schemes, verifiers, numbers of drafts, and settings for probabilities from logits.

    Two configs that are equal give the same numbers, whatever executor computes them; results are
    kept under `digest`, so that those of different configs never mix.

    Attributes
    ----------
    schemes, verifiers : tuple of str
    num_drafts : tuple of int
    temperature, draft_temperature, top_k, top_p, min_p, pad, seed, joint
        As in `mdsd_opt.acceptance_rates`.
    """

    schemes: tuple[str, ...] = ("with_replacement", "without_replacement", "greedy", "top_k")
    verifiers: tuple[str, ...] = ("optimal",)
    num_drafts: tuple[int, ...] = (1, 2, 3, 4)
    temperature: float = 1.0
    draft_temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    pad: bool = False
    seed: int = 0
    joint: bool = False

    def __post_init__(self) -> None:
        filters = self.top_k, self.top_p, self.min_p
        of_both = Sampling.of_both  # checks them
        of_both(self.temperature, self.draft_temperature, *filters, joint=self.joint)
        for name in ("schemes", "verifiers"):
            checked_names(getattr(self, name), name)
        ks = of_kind(self.num_drafts, Iterable, "num_drafts", "several in a tuple")
        combinations(self.schemes, self.verifiers, [*map(checked_num_drafts, ks)])

    @classmethod
    def of(
        cls,
        schemes: Iterable[str],
        verifiers: Iterable[str],
        num_drafts: Iterable[int],
        **options: Any,
    ) -> RatesConfig:
        """Config from any iterables; `options` are the other attributes."""
        return replace(cls(tuple(schemes), tuple(verifiers), tuple(num_drafts)), **options)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the scored rates, in order."""
        groups = combinations(self.schemes, self.verifiers, self.num_drafts)
        return tuple(Column(scheme, verifier, k) for scheme, verifier, ks in groups for k in ks)

    @property
    def options(self) -> dict[str, Any]:
        """Attributes that are keyword arguments of `acceptance_rates`."""
        options = {field.name: getattr(self, field.name) for field in fields(self)[3:]}
        options["rng"] = options.pop("seed")
        return options

    def within(self, stored: RatesConfig) -> RatesConfig:
        """Part of this config that rates stored under another one contain.

        Raises
        ------
        InvalidInput
            The probabilities come from the logits in another way, or nothing of it is there.
        """
        for name in (field.name for field in fields(self)[3:]):
            value, there = getattr(self, name), getattr(stored, name)
            if value != there and name != "pad":  # stored rows are padded already
                raise InvalidInput(
                    f"{name} is {value}, and the rates were stored with {name} {there}: ask for "
                    "that, or capture again"
                )
        names = ("schemes", "verifiers", "num_drafts")
        common: dict[str, Any] = {
            name: tuple(x for x in getattr(self, name) if x in getattr(stored, name))
            for name in names
        }
        for name, shared in common.items():
            if not shared:
                there = ", ".join(map(str, getattr(stored, name)))
                raise InvalidInput(f"none of the {name} asked for is stored. There are: {there}.")
        return replace(stored, **common)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify this config and this version of the package."""
        described = json.dumps({**asdict(self), "version": __version__}, sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()[:16]


#: Key of the stored config among a manifest's settings.
RATES_KEY = "rates"


def stored_config(settings: Mapping[str, Any]) -> RatesConfig | None:
    """Config of the rates in shards with these settings; None if they hold logits."""
    described = settings.get(RATES_KEY)
    if described is None:
        return None
    try:
        values: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in described.items()
        }
        values.pop("version", None)  # of the package that computed them
        return RatesConfig(**values)
    except (AttributeError, TypeError, InvalidInput) as error:
        raise UnreadableFile(f"the manifest has no rates of this version: {error}") from error


MANIFEST_NAME = "manifest.json"
_FORMAT = "mdsd-opt corpus 1"


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """Complete shard: a file in the corpus' folder, and the prompts it holds."""

    name: str
    num_positions: int
    first_sequence: int
    num_sequences: int
    sha256: str = ""  # where nobody noted it, nothing is held against the file


@dataclass(frozen=True, slots=True)
class Manifest:
    """Settings of a capture and the shards that are done, in order.

    The settings are all that the content of the shards depends on, in JSON values; there will be
    `num_shards`.
    """

    settings: Mapping[str, Any]
    num_shards: int
    shards: tuple[ShardEntry, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every shard is there."""
        return len(self.shards) == self.num_shards

    def as_json(self) -> str:
        """Manifest as JSON text."""
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
        """Write the manifest into the corpus' folder, atomically."""
        write_text(folder / MANIFEST_NAME, self.as_json() + "\n")


def load_manifest(folder: Path) -> Manifest | None:
    """Manifest of a folder; None if it has none, an error if it is broken."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return None
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise UnreadableFile(f"{path} is not a manifest of {_FORMAT!r}")
    try:
        shards = tuple(ShardEntry(**entry) for entry in document["shards"])
        manifest = Manifest(dict(document["settings"]), int(document["num_shards"]), shards)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{path} is not a complete manifest: {error!r}") from error
    for shard in shards:
        if Path(shard.name).name != shard.name:
            raise UnreadableFile(f"{path} names {shard.name!r}, which is not a file name")
    return manifest


def require_sum(path: str | os.PathLike[str], sha256: str) -> None:
    """Raise `UnreadableFile`, with both sums, unless the bytes of a shard are those captured."""
    digest = file_sha256(path)
    if digest != sha256:
        raise UnreadableFile(
            f"{path} is not as it was captured: its sha256 is {digest}, and its manifest says "
            f"{sha256}. Run the same capture again, which makes this shard anew, or copy it again; "
            "to read it as it is, turn the check off with verify=False (--no-verify)."
        )


def identity(path: str | os.PathLike[str]) -> str:
    """Identity of a shard, which changes when it is replaced: name, size, time of last change."""
    return json.dumps([Path(path).name, file_size(path), Path(path).stat().st_mtime_ns])


class VerifiedShards:
    """Shards that agreed with their sums in this run; one that changes counts as another."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, str]] = set()

    def add(self, path: Path, sha256: str) -> None:
        """Record that a shard agreed."""
        self._seen.add(_key(path, sha256))

    def has(self, path: Path, sha256: str) -> bool:
        """Whether a shard agreed, and is as it was then."""
        return _key(path, sha256) in self._seen

    def require(self, path: Path, sha256: str) -> None:
        """Run `require_sum` once for each shard."""
        if not self.has(path, sha256):
            key = _key(path, sha256)  # of before: a change meanwhile must not pass
            require_sum(path, sha256)
            self._seen.add(key)


def _key(path: Path, sha256: str) -> tuple[str, str, str]:
    return str(path.absolute()), identity(path), sha256


_SHARD_SUFFIXES = (".safetensors", ".npz")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Shards of a folder, in the order in which they count.

    Attributes
    ----------
    folder : Path
    shards : tuple of Path
        Files that `mdsd_opt.base.files.logits.load_logits` reads; of `stored_rates`, if there are
        any.
    manifest : Manifest or None
        Manifest of a captured corpus.
    """

    folder: Path
    shards: tuple[Path, ...]
    manifest: Manifest | None

    @property
    def sums(self) -> Mapping[str, str]:
        """SHA-256 of the shards by name, for those whose sum the manifest has."""
        shards = () if self.manifest is None else self.manifest.shards
        return {shard.name: shard.sha256 for shard in shards if shard.sha256}

    @property
    def stored_rates(self) -> RatesConfig | None:
        """Config of the rates in the shards, if a capture kept no logits."""
        return None if self.manifest is None else stored_config(self.manifest.settings)


def open_corpus(folder: str | os.PathLike[str]) -> Corpus:
    """Corpus of a folder: the shards of its manifest, or else every logits file in it.

    Raises
    ------
    UnreadableFile
        No such folder, no shard in it, or a shard of the manifest is missing.
    """
    folder = path_of(folder, "folder")
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
        shards = [shard.name for shard in manifest.shards]
    else:
        shards = [x for x in names if x.lower().endswith(_SHARD_SUFFIXES) and x[0] != "."]
    if not shards:
        known = " or ".join(_SHARD_SUFFIXES)
        raise UnreadableFile(f"{folder} holds no shard of logits: {known} files are looked for")
    return Corpus(folder, tuple(folder / name for name in shards), manifest)
