"""Acceptance rates of corpora: folders of logits too large for one array, scored shard by shard."""

from __future__ import annotations

from mdsd_opt.corpora.config import RatesConfig
from mdsd_opt.corpora.corpus import Corpus, open_corpus
from mdsd_opt.corpora.executors import ENGINES
from mdsd_opt.corpora.scoring import score_shard
from mdsd_opt.corpora.summary import CorpusSummary, corpus_rates

__all__ = [
    "ENGINES",
    "Corpus",
    "CorpusSummary",
    "RatesConfig",
    "corpus_rates",
    "open_corpus",
    "score_shard",
]
