"""Scores of one shard: rates of every position, written once, or stored by a capture."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.checked import of_kind
from mdsd_opt.base.files import path_of
from mdsd_opt.base.files.arrays import missing_array, read_safetensors, write_safetensors
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.corpora.corpus import RatesConfig, identity, require_sum
from mdsd_opt.corpora.rates import combinations, rates_of_rows
from mdsd_opt.errors import UnreadableFile


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
