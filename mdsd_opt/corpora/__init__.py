"""Acceptance rates of corpora: folders of logits too large for one array, scored shard by shard."""

import lazy_loader

__all__ = [
    "EXECUTORS", "Corpus", "CorpusSummary", "RatesConfig", "corpus_rates", "open_corpus",
    "score_shard",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
