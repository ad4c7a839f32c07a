"""Rates and decisions for whole batches of logits, on the CPU or a CUDA device.

Public are the names below, and `top_logprobs`: certified intervals where only the likeliest tokens
are known. `acceptance` knows whose arrays a batch holds, and what is asked of every row: a
`RowWork`, which cuts rows into tasks for threads. Verifiers declare what computes their rates for
which drafts; `device` does it on CUDA. `acceptance`, `relaxed` and `verification` are the doors,
`plans` those of calls that are prepared once.
"""

import lazy_loader

__all__ = [
    "DecisionsPlan", "RatesPlan", "acceptance_rates", "relaxed_rates", "verify_batch",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
