"""Corpora that hold rates instead of logits, as `capture` with a config of rates leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.base.files.arrays import missing_array, read_safetensors
from mdsd_opt.corpora.config import RatesConfig
from mdsd_opt.corpora.scoring import ShardRates
from mdsd_opt.errors import InvalidInput, UnreadableFile

#: Where a manifest says it, among its settings.
RATES_KEY = "rates"


def stored_config(settings: Mapping[str, Any]) -> RatesConfig | None:
    """What the shards of a manifest with these settings hold rates of; None if they hold logits.

    Raises
    ------
    UnreadableFile
        The settings are of no config that this version knows.
    """
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


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard whose rates are there, in the place of a `Task` that has run.

    Attributes
    ----------
    path_in : Path
    config : RatesConfig
        What is wanted of it.
    stored : RatesConfig
        What it holds.
    vocab_size : int
        Of the logits, which are gone.
    """

    path_in: Path
    config: RatesConfig
    stored: RatesConfig
    vocab_size: int

    def result(self) -> ShardRates:
        """The columns that are wanted."""
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
