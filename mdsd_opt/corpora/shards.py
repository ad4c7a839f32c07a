"""A corpus: a folder of shards, each a file of logits or of rates alone, with a manifest.

And what is computed of each of their positions, by a `RatesConfig`: rates, a file a shard.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt._version import __version__
from mdsd_opt.base.checked import checked_names, of_kind
from mdsd_opt.base.files import file_sha256, file_size, path_of, read_json, unreadable, write_text
from mdsd_opt.base.files.arrays import missing_array, read_safetensors, write_safetensors
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.corpora.sample_rates import combinations, rates_of_rows
from mdsd_opt.drafts import checked_num_drafts
from mdsd_opt.errors import InvalidInput, UnreadableFile


class StoredColumn(NamedTuple):
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
    def columns(self) -> tuple[StoredColumn, ...]:
        """Columns of the scored rates, in order."""
        groups = combinations(self.schemes, self.verifiers, self.num_drafts)
        return tuple(
            StoredColumn(scheme, verifier, k) for scheme, verifier, ks in groups for k in ks
        )

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


# --- scores, written once, or stored by a capture ---


@dataclass(frozen=True, slots=True, eq=False)
class ShardRates:
    """Rates of the positions of one shard: memory-mapped, columns as in the config."""

    rates: NDArray[np.float64]  # [N, C]
    sequence: NDArray[np.int64] | None  # prompt of each position
    vocab_size: int


def score_shard(
    path_in: str | os.PathLike[str],
    path_out: str | os.PathLike[str],
    config: RatesConfig,
    num_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    sha256: str | None = None,
    is_verified: bool = False,
) -> bool:
    """Write the rates of every position of a shard, unless they are there already.

    The result appears all at once or not at all, and depends on nothing but the shard and the
    config: to run this twice, in two places at a time, or again after a kill changes nothing.

    Parameters
    ----------
    path_in : path
        A .safetensors or .npz file of logits; of the former a chunk at a time is looked at.
    path_out : path
        A .safetensors file.
    config : RatesConfig
    num_threads : int, optional
        As in `mdsd_opt.acceptance_rates`.
    progress : callable, optional
        Called with the number of positions done since the last call.
    sha256 : str, optional
        Sum that the shard must have. It is held against the bytes before they are read, and noted
        in the result; a result without this note does not count as there.
    is_verified : bool
        The sum was held against the shard before, in the same run.

    Returns
    -------
    bool
        False if the result of this config for this shard was there.

    Raises
    ------
    UnreadableFile, InvalidInput
        The shard is broken, has another sum, or holds rows that are no logits; the message says
        where.
    """
    path_in, path_out = path_of(path_in, "path_in"), path_of(path_out, "path_out")
    of_kind(config, RatesConfig, "config", "a RatesConfig")
    if load_rates(path_in, path_out, config, sha256) is not None:
        return False
    shard = identity(path_in)
    if sha256 is not None and not is_verified:
        require_sum(path_in, sha256)
    sample = load_logits(path_in)
    count = sample.num_positions
    sequence = None if sample.sequence is None else sample.sequence.ravel()
    rates = np.empty((count, len(config.columns)))
    for start, part in sample.parts(None):
        stop = start + part.num_positions
        target, draft = (side.reshape(-1, side.shape[-1]) for side in (part.target, part.draft))
        where = f"{sample.source}, in the part that begins with position {start}"
        rates[start:stop] = rates_by_column(target, draft, config, where, num_threads)
        if progress is not None:
            progress(stop - start)
    arrays: dict[str, NDArray[Any]] = {"rates": rates}
    if sequence is not None:
        arrays["sequence"] = sequence
    metadata = {"config": config.digest, "shard": shard, "vocab_size": str(sample.vocab_size)}
    if sha256 is not None:
        metadata["sha256"] = sha256
    write_safetensors(path_out, arrays, metadata)
    return True


def load_rates(
    path_in: str | os.PathLike[str],
    path_out: str | os.PathLike[str],
    config: RatesConfig,
    sha256: str | None = None,
) -> ShardRates | None:
    """Result of `score_shard`; None if it is missing, broken, or of another shard or config.

    With `sha256`, also None unless it was computed from a shard of this sum.
    """
    if not Path(path_out).exists():
        return None
    try:
        arrays, metadata = read_safetensors(path_out)
    except UnreadableFile:
        return None
    if metadata.get("config") != config.digest or metadata.get("shard") != identity(path_in):
        return None
    if sha256 is not None and metadata.get("sha256") != sha256:
        return None
    return ShardRates(arrays["rates"], arrays.get("sequence"), int(metadata["vocab_size"]))


def rates_by_column(
    target: Any,
    draft: Any,
    config: RatesConfig,
    where: str,
    num_threads: int | None = None,
) -> NDArray[np.float64]:
    """Columns of a config for rows of logits of any library, [N, C].

    Errors say which rows (`where`) are meant.
    """
    combined = combinations(config.schemes, config.verifiers, config.num_drafts)
    options = {**config.options, "num_threads": num_threads}
    return np.concatenate(list(rates_of_rows(target, draft, combined, options, where)), axis=1)


@dataclass(frozen=True, slots=True)
class Task:
    """One shard to score, with the arguments of `score_shard`."""

    path_in: Path
    path_out: Path
    config: RatesConfig
    num_threads: int | None
    sha256: str | None = None
    is_verified: bool = False

    def result(self) -> ShardRates | None:
        """Rates of the shard, if they are stored already."""
        return load_rates(self.path_in, self.path_out, self.config, self.sha256)

    def with_threads(self, share: int) -> Task:
        """Task with this number of threads, unless it has one."""
        return replace(self, num_threads=self.num_threads or share)

    def run(self) -> str:
        """Score the shard and return its name."""
        score_shard(
            self.path_in, self.path_out, self.config, self.num_threads,
            sha256=self.sha256, is_verified=self.is_verified,
        )  # fmt: skip
        return self.path_in.name


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard whose rates are stored, in place of a `Task` that has run."""

    path_in: Path
    config: RatesConfig  # what is wanted of it
    stored: RatesConfig  # what it holds
    vocab_size: int  # of the logits, which are gone

    def result(self) -> ShardRates:
        """Requested columns of the rates."""
        arrays, _ = read_safetensors(self.path_in)
        rates = arrays.get("rates")
        if rates is None:
            raise missing_array(str(self.path_in), "rates", arrays)
        columns = self.stored.columns
        if rates.ndim != 2 or rates.shape[1] != len(columns):
            raise UnreadableFile(
                f"{self.path_in} holds rates of shape {rates.shape}, and its manifest speaks of "
                f"{len(columns)} columns"
            )
        chosen = [columns.index(column) for column in self.config.columns]
        return ShardRates(np.asarray(rates)[:, chosen], arrays.get("sequence"), self.vocab_size)
