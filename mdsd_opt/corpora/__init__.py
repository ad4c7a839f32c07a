"""Acceptance rates of corpora: folders of logits too large for one array, scored shard by shard."""

from mdsd_opt.corpora.corpus import Corpus, RatesConfig, open_corpus
from mdsd_opt.corpora.executors import EXECUTORS
from mdsd_opt.corpora.scoring import score_shard
from mdsd_opt.corpora.summary import CorpusSummary, corpus_rates

__all__ = [
    "EXECUTORS", "Corpus", "CorpusSummary", "RatesConfig", "corpus_rates", "open_corpus",
    "score_shard",
]  # fmt: skip
