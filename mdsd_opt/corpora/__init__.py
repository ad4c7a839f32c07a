"""Acceptance rates of corpora: folders of logits too large for one array, scored shard by shard."""

from __future__ import annotations

import warnings
from typing import Any

from mdsd_opt.corpora.corpus import Corpus, RatesConfig, open_corpus
from mdsd_opt.corpora.executors import EXECUTORS
from mdsd_opt.corpora.scoring import score_shard
from mdsd_opt.corpora.summary import CorpusSummary, corpus_rates

__all__ = [
    "EXECUTORS", "Corpus", "CorpusSummary", "RatesConfig", "corpus_rates", "open_corpus",
    "score_shard",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "ENGINES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    told = "corpora.ENGINES is now corpora.EXECUTORS; the old name goes with the next release"
    warnings.warn(told, DeprecationWarning, stacklevel=2)
    return EXECUTORS
