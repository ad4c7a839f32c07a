"""Acceptance rates of corpora: folders of logits too large for one array, scored shard by shard.

`capture` writes a corpus, `shards` has what a folder of one is and what is computed of a shard,
`executors` runs that, and `sums` adds it up. `sample_rates` has the rows of one sample of logits,
`engine_output` those of what engines counted or listed; `reproduce` the experiments of papers.
"""

import lazy_loader

from mdsd_opt._gone import telling

__all__ = [
    "EXECUTORS", "Corpus", "CorpusSummary", "RatesConfig", "corpus_rates", "open_corpus",
    "score_shard",
]  # fmt: skip

_named, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = telling(__name__, _named)
