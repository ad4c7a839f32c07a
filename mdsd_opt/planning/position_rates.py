"""Optimal acceptance rates position by position, and which position follows which in a text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.array_types import Floats, Integers
from mdsd_opt.base.files.logits import LogitsSample, load_logits
from mdsd_opt.corpora.corpus import RatesConfig, open_corpus
from mdsd_opt.corpora.rates import combinations, rates_by_position
from mdsd_opt.corpora.summary import score_corpus
from mdsd_opt.errors import InvalidInput

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True, eq=False)
class PositionRates:
    """Acceptance rates of 1, 2, ..., K drafts at every position.

    Attributes
    ----------
    by_scheme : mapping of str to ndarray, shape (N, K)
    texts : ndarray of int64, shape (N,), optional
        The text of each position; None where positions stand for themselves.
    following : ndarray of int64, shape (N + 1,)
        The next position of the same text, or N where that is not known; N after N.
    takes_order : bool
        Whether the places of rows in their texts are not named, and taken for their order.
    """

    by_scheme: Mapping[str, Floats]
    texts: Integers | None
    following: Integers
    takes_order: bool = False

    @property
    def num_positions(self) -> int:
        return self.following.size - 1

    @property
    def num_followed(self) -> int:
        """Positions whose next one is known."""
        return int((self.following[:-1] < self.num_positions).sum())


def rates_of_sample(
    sample: LogitsSample,
    config: RatesConfig,
    kind: str | None = "logits",
    num_threads: int | None = None,
    progress: bool = False,
) -> PositionRates:
    """Those of logits in memory or in files that are mapped; see `following_positions`."""
    if sample.num_positions == 0:
        raise InvalidInput(f"{sample.source} holds no position: its arrays are empty")
    combined = combinations(config.schemes, config.verifiers, config.num_drafts)
    options = {**config.options, "num_threads": num_threads}
    found = rates_by_position(sample, combined, kind, progress, options)
    by_scheme = {scheme: rates for (scheme, _, _), rates in zip(combined, found, strict=True)}
    places = None if sample.position is None else sample.position.ravel()
    following = following_positions(sample.num_positions, sample.texts, places)
    takes_order = sample.sequence is not None and places is None
    return PositionRates(by_scheme, sample.texts, following, takes_order)


def rates_of_paths(
    paths: Paths,
    config: RatesConfig,
    kind: str | None = "logits",
    num_threads: int | None = None,
    progress: bool = False,
) -> PositionRates:
    """Those of a file, of two, or of a folder of shards, whose results are kept as for `rates`."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else [*paths]
    if len(given) != 1 or not Path(given[0]).is_dir():
        sample = load_logits(given[0] if len(given) == 1 else given)
        return rates_of_sample(sample, config, kind, num_threads, progress)
    if kind not in (None, "logits"):
        raise InvalidInput(f"kind is {kind!r}, and {given[0]} is a folder: shards hold logits")
    shards = [
        shard.result()
        for shard in score_corpus(given[0], config, num_threads=num_threads, progress=progress)[0]
    ]
    if any(shard is None or shard.sequence is None for shard in shards):
        raise InvalidInput(f"{given[0]} does not name the text of each position ('sequence')")
    rates = np.concatenate([shard.rates for shard in shards if shard is not None])
    texts = np.concatenate([shard.sequence for shard in shards if shard is not None])
    names = [column.scheme for column in config.columns]
    by_scheme = {
        scheme: rates[:, [n for n, name in enumerate(names) if name == scheme]]
        for scheme in dict.fromkeys(names)
    }
    manifest = open_corpus(given[0]).manifest
    spaced = manifest is not None and manifest.settings.get("num_positions") is not None
    following = following_positions(len(rates), None if spaced else texts)
    return PositionRates(by_scheme, texts, following)


def following_positions(
    count: int,
    texts: Integers | None,
    places: Integers | None = None,
) -> Integers:
    """Index of the next position of the same text, shape (count + 1,); `count` where there is none.

    Without `places` in the texts, rows of a text come one after another.
    """
    found = np.full(count + 1, count, np.int64)
    if texts is None or count < 2:
        return found
    order = np.lexsort((np.arange(count) if places is None else places, texts))
    adjacent = np.diff(texts[order]) == 0
    if places is not None:
        adjacent &= np.diff(places[order]) == 1
    found[order[:-1][adjacent]] = order[1:][adjacent]
    return found


def rates_config(
    schemes: Sequence[str], verifier: str, max_drafts: int, sampling: Mapping[str, Any]
) -> RatesConfig:
    """What is asked of every position: all schemes that go with the verifier at 1 .. K drafts."""
    counts = range(1, max_drafts + 1)
    complete = [
        scheme
        for scheme, _, found in combinations(schemes, [verifier], counts)
        if len(found) == max_drafts
    ]
    if not complete:
        raise InvalidInput(
            f"{verifier} has no rates of {', '.join(schemes)} at each of 1 to {max_drafts} drafts"
        )
    return RatesConfig.of(complete, [verifier], counts, **sampling)
