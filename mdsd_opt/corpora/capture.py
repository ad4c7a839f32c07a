"""Capture of logits: a target continues prompts, and target and draft both read the texts.

The models are anything that satisfies `LanguageModel`; those of the transformers library come from
`mdsd_opt.decoding.loading`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mdsd_opt._version import __version__
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.base.files import file_sha256, read_bytes
from mdsd_opt.base.files.arrays import read_safetensors, write_safetensors
from mdsd_opt.base.sampling import softmax
from mdsd_opt.corpora.shards import (
    MANIFEST_NAME,
    RATES_KEY,
    Manifest,
    RatesConfig,
    ShardEntry,
    load_manifest,
    rates_by_column,
)
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName, UnreadableFile
from mdsd_opt.verifiers import draw

__all__ = [
    "CaptureSettings", "LanguageModel", "capture", "continue_by_logits", "read_prompts",
    "read_text", "windows",
]  # fmt: skip

_DTYPES = ("bfloat16", "float32")


class LanguageModel(Protocol):
    """Interface of a model that a capture reads."""

    @property
    def vocab_size(self) -> int:
        """Number of logits."""

    def logits(self, ids: Sequence[int], rows: Sequence[int]) -> NDArray[Any]:
        """Logits of the token after ``ids[: r + 1]`` for each r of `rows`, [len(rows), V]."""

    def continuation(
        self, ids: Sequence[int], count: int, choose: Callable[[NDArray[Any]], int]
    ) -> list[int]:
        """At most `count` tokens after `ids`, each chosen by `choose` from its logits."""


def continue_by_logits(
    model: LanguageModel, ids: Sequence[int], count: int, choose: Callable[[NDArray[Any]], int]
) -> list[int]:
    """Continuation for a model that has no faster one: one pass for each token."""
    text = list(ids)
    for _ in range(count):
        text.append(choose(model.logits(text, [len(text) - 1])[0]))
    return text[len(ids) :]


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Settings by which logits are captured.

    Attributes
    ----------
    num_tokens : int
        Tokens the target adds to each prompt; 0: the logits of the prompts. Fewer where it ends the
        text.
    temperature : float
        Of the sampling; 0 is greedy. The logits are stored as the models give them.
    seed : int
        Of the sampling. Each prompt has its own stream, so that no other prompt changes its
        text.
    num_positions : int or None
        Evenly spaced positions to keep of each prompt; all if left out.
    dtype : {"bfloat16", "float32"}
        Of the stored logits: bfloat16, float32.
    pad : bool
        Pad the narrower logits with impossible tokens; its model reads its last token for one that
        it does not have.
    shard_bytes : int
        Size of a shard, about.
    """

    num_tokens: int = 64
    temperature: float = 1.0
    seed: int = 0
    num_positions: int | None = None
    dtype: str = "bfloat16"
    pad: bool = False
    shard_bytes: int = 256_000_000

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise UnknownName.among("dtype", self.dtype, _DTYPES)
        checked_integer(self.num_tokens, "num_tokens", 0)
        checked_integer(self.seed, "seed", 0)
        if self.num_positions is not None:
            checked_integer(self.num_positions, "num_positions")
        softmax(np.zeros(2), self.temperature)  # says what is wrong with a temperature


def capture(
    prompts: Sequence[Sequence[int]],
    target: LanguageModel,
    draft: LanguageModel,
    folder: str | os.PathLike[str],
    settings: CaptureSettings | None = None,
    description: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] | None = None,
    rates: RatesConfig | None = None,
    num_threads: int | None = None,
) -> Manifest:
    """Write a corpus of logits, or continue one that was begun with the same settings.

    With `rates` every position is scored as soon as its logits are there, and its rates are kept
    instead of them: the same numbers, bit for bit, as `corpus_rates` finds in the stored logits.

    Each shard appears all at once, and the manifest after it: a capture that is killed loses the
    shard it was at, and the same call finishes it. It first reads what is there: a shard that is
    missing, or whose bytes are not those of its sum in the manifest, is captured again.

    Parameters
    ----------
    prompts : sequence of sequences of int
        Token ids.
    target, draft : LanguageModel
    folder : path
        Made if it is not there.
    settings : CaptureSettings, optional
    description : mapping, optional
        Other facts that the content depends on, such as the names of the models: JSON values.
    force : bool
        Overwrite another capture in the folder.
    progress : callable, optional
        Called with the numbers of prompts done and of tokens captured since the last call; prompts
        that were there already come first, with no token.
    tell : callable, optional
        Called with a line about each shard that is captured again.
    rates : RatesConfig, optional
        Config of rates to keep instead of logits. Shards hold as many prompts as with logits, so
        that a kill loses no more.
    num_threads : int, optional
        Threads of the scoring, as in `mdsd_opt.acceptance_rates`.

    Returns
    -------
    Manifest

    Raises
    ------
    InvalidInput
        No prompt, an empty one, models that do not fit together, or a folder in use: with other
        settings, or without a manifest.
    InvalidDistribution
        Logits that are NaN.
    """
    settings = settings or CaptureSettings()
    if not prompts:
        raise InvalidInput("there is no prompt: give at least one")
    for i, prompt in enumerate(prompts):
        least = 1 if settings.num_tokens else 2
        if len(prompt) < least:
            raise InvalidInput(f"prompt {i + 1} has {len(prompt)} tokens: at least {least} needed")
    vocab_size = _common_vocab_size(target, draft, settings.pad)
    place, per_shard = Path(folder), _prompts_per_shard(prompts, vocab_size, settings)
    pieces = [
        _Piece(place / f"shard-{n:05d}.safetensors", first, prompts[first : first + per_shard])
        for n, first in enumerate(range(0, len(prompts), per_shard))
    ]
    described = {
        **(description or {}),
        **asdict(settings),
        "vocab_size": vocab_size,
        "num_prompts": len(prompts),
        "prompts_sha256": _digest([list(map(int, prompt)) for prompt in prompts]),
        **({} if rates is None else {RATES_KEY: {**asdict(rates), "version": __version__}}),
    }
    tell = tell or (lambda line: None)
    progress = progress or (lambda prompts, tokens: None)
    keep = _keeper(vocab_size, settings.dtype, rates, num_threads)
    on_device = (getattr(model, "is_on_device", False) for model in (target, draft))
    in_place = rates is not None and all(on_device)  # where rates are all that is kept
    manifest = _begin(place, described, len(pieces), force)
    entries = []
    for i, piece in enumerate(pieces):  # all before the work, so that one hears at once
        entries.append(_found(piece, manifest.shards[i : i + 1], _digest(manifest.settings), tell))
        progress(0 if entries[i] is None else len(piece.prompts), 0)
    for i, (piece, entry) in enumerate(zip(pieces, entries, strict=True)):
        if entry is None:
            arrays = _shard(piece, target, draft, keep, settings, progress, in_place)
            metadata = {"settings": _digest(described), "metadata": json.dumps(described)}
            write_safetensors(piece.path, arrays, metadata)
            entry = piece.entry(len(arrays["tokens"]), file_sha256(piece.path))
        known = manifest.shards[i : i + 1]
        if known != (entry,):
            if known and known[0].sha256 not in ("", entry.sha256):
                tell(
                    f"{entry.name} has other bytes than before: the models rounded differently, "
                    "on another machine perhaps. The manifest has its new sum."
                )
            shards = (*manifest.shards[:i], entry, *manifest.shards[i + 1 :])
            manifest = Manifest(described, len(pieces), shards)
            manifest.save(place)
    return manifest


@dataclass(frozen=True, slots=True)
class _Piece:
    """Prompts of one shard, from the number of the first of them."""

    path: Path
    first: int
    prompts: Sequence[Sequence[int]]

    def entry(self, num_positions: int, sha256: str) -> ShardEntry:
        return ShardEntry(self.path.name, num_positions, self.first, len(self.prompts), sha256)


def _begin(folder: Path, described: Mapping[str, Any], num_shards: int, force: bool) -> Manifest:
    """Manifest to continue with; the folder is made, or cleared if forced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot make the folder {folder}: {error.strerror}") from error
    present = sorted(path.name for path in folder.glob("shard-*.safetensors"))
    if force:
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        for name in present:
            (folder / name).unlink()
    manifest = load_manifest(folder)
    if manifest is None:
        if present and not force:
            raise InvalidInput(
                f"{folder} holds {len(present)} shards and no manifest: choose another folder, or "
                "overwrite them with force (--force)"
            )
        manifest = Manifest(described, num_shards)
        manifest.save(folder)
        return manifest
    there, now = manifest.settings, json.loads(json.dumps(described))
    if there != now:
        changes = "; ".join(
            f"{name}: {_short(there.get(name))} there, {_short(now.get(name))} now"
            for name in sorted(there.keys() | now.keys())
            if there.get(name) != now.get(name)
        )
        raise InvalidInput(
            f"{folder} holds a capture with other settings ({changes}). Choose another folder, or "
            "overwrite it with force (--force)."
        )
    return manifest


def _found(
    piece: _Piece, listed: Sequence[ShardEntry], settings: str, tell: Callable[[str], None]
) -> ShardEntry | None:
    """Entry of a shard that is complete already; None, with a remark, if it has to be captured.

    A shard that the manifest does not list, or without a sum, as one that was written just before
    a kill, is known by the digest of its settings.
    """
    path = piece.path
    if not listed and not path.exists():
        return None
    try:
        sha256 = file_sha256(path)
        if listed and listed[0].sha256:
            if sha256 != listed[0].sha256:
                raise UnreadableFile(
                    f"{path} has sha256 {sha256}, and its manifest says {listed[0].sha256}"
                )
            return piece.entry(listed[0].num_positions, sha256)
        arrays, metadata = read_safetensors(path)
        if metadata.get("settings") != settings or "tokens" not in arrays:
            raise UnreadableFile(f"{path} is not of this capture")
    except UnreadableFile as error:
        tell(f"{error}: this shard is captured again")
        return None
    return piece.entry(len(arrays["tokens"]), sha256)


def _shard(
    piece: _Piece,
    target: LanguageModel,
    draft: LanguageModel,
    keep: _Keeper,
    settings: CaptureSettings,
    progress: Callable[[int, int], None],
    in_place: bool,
) -> dict[str, NDArray[Any]]:
    """Arrays of one shard; with `in_place` logits are kept from tensors where the models are."""
    parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
    for number, prompt in enumerate(piece.prompts, start=piece.first):
        text = [int(token) for token in prompt]
        start = 1
        if settings.num_tokens:
            start = len(text)
            choose = _chooser(settings.temperature, np.random.default_rng([settings.seed, number]))
            text += target.continuation(text, settings.num_tokens, choose)
        places = _places(start, len(text), settings.num_positions)
        rows = [place - 1 for place in places]
        ours, theirs = (_logits(x, text[:-1], rows, in_place) for x in (target, draft))
        for name, array in keep(ours, theirs, f"prompt {number + 1}").items():
            parts[name].append(array)
        parts["sequence"].append(np.full(len(places), number, np.int64))
        parts["position"].append(np.asarray(places, np.int32))
        parts["tokens"].append(np.asarray([text[place] for place in places], np.int32))
        progress(1, len(text) - start)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _logits(model: Any, text: Sequence[int], rows: Sequence[int], in_place: bool) -> Any:
    """Logits of some rows, as an array or, `in_place`, as a tensor where the model is."""
    last = model.vocab_size - 1
    known = [min(token, last) for token in text]
    return model.logits_in_place(known, rows) if in_place else np.asarray(model.logits(known, rows))


def _chooser(temperature: float, rng: np.random.Generator) -> Callable[[NDArray[Any]], int]:
    """Function that samples a token from logits, by one uniform number each."""
    return lambda x: draw(softmax(np.asarray(x, dtype=np.float64), temperature), rng.random())


def _places(start: int, stop: int, count: int | None) -> list[int]:
    """Evenly spaced places, the first and the last among them."""
    if count is None or count >= stop - start:
        return list(range(start, stop))
    return sorted({int(x) for x in np.linspace(start, stop - 1, count).round()})


#: Maps logits of both models to the arrays that are kept, by name; errors say where the rows are.
_Keeper = Callable[[Any, Any, str], dict[str, NDArray[Any]]]


def _keeper(
    vocab_size: int, dtype: str, config: RatesConfig | None, num_threads: int | None
) -> _Keeper:
    def logits(target: Any, draft: Any, where: str) -> dict[str, Any]:
        sides = {"target": target, "draft": draft}
        for name, side in sides.items():
            if (side != side).any():  # so that it is for tensors, too
                raise InvalidDistribution(
                    f"{where}: the {name} gives logits that are NaN: its weights are damaged, or "
                    "too large for its precision"
                )
        return {name: _stored(side, vocab_size, dtype) for name, side in sides.items()}

    def rates(target: Any, draft: Any, where: str) -> dict[str, NDArray[Any]]:
        assert config is not None
        target, draft = logits(target, draft, where).values()  # rounded as they would be stored
        return {"rates": rates_by_column(target, draft, config, where, num_threads)}

    return logits if config is None else rates


def _stored(logits: Any, vocab_size: int, dtype: str) -> Any:
    """Logits rounded as they are stored, and filled up; a tensor stays one."""
    if not isinstance(logits, np.ndarray):
        import torch

        missing = vocab_size - logits.shape[1]
        rounded = logits.to(getattr(torch, dtype))
        return torch.nn.functional.pad(rounded, (0, missing), value=-np.inf)
    import ml_dtypes

    wanted = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(np.float32)
    stored = logits.astype(wanted, copy=False)
    missing = vocab_size - stored.shape[1]
    if missing:
        stored = np.pad(stored, ((0, 0), (0, missing)), constant_values=-np.inf)
    return stored


def _common_vocab_size(target: LanguageModel, draft: LanguageModel, pad: bool) -> int:
    ours, theirs = target.vocab_size, draft.vocab_size
    if ours != theirs and not pad:
        raise InvalidInput(
            f"the target gives {ours:,} logits and the draft {theirs:,}. If the first tokens of "
            "both are the same, pad (--pad) takes those that the narrower one lacks as impossible."
        )
    return max(ours, theirs)


def _prompts_per_shard(
    prompts: Sequence[Sequence[int]], vocab_size: int, settings: CaptureSettings
) -> int:
    longest = settings.num_tokens or max(map(len, prompts))
    positions = min(longest, settings.num_positions or longest)
    item = 2 if settings.dtype == "bfloat16" else 4
    return max(1, settings.shard_bytes // (2 * item * vocab_size * positions))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_MAX_BYTES = 1 << 30


def read_prompts(path: str | os.PathLike[str]) -> list[str]:
    """Prompts of a file, one per line; in .jsonl the field ``prompt`` (or ``text``) of each.

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
    """Text of a file.

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
