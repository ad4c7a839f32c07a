"""Acceptance rates of one sample of logits: every draft scheme, K and verifier, in rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mdsd_opt.batch import acceptance_rates
from mdsd_opt.errors import InvalidInput
from mdsd_opt.logits_io import LogitsSample
from mdsd_opt.report.intervals import MeanInterval, mean_interval


@dataclass(frozen=True, slots=True)
class RateRow:
    """Mean acceptance rate of one scheme at one K under one verifier."""

    scheme: str
    num_drafts: int
    verifier: str
    acceptance: MeanInterval

    @property
    def tokens_per_call(self) -> float:
        """Expected tokens per target call: one, and one more if a draft is accepted."""
        return 1.0 + self.acceptance.mean

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; missing interval ends are None."""
        interval = {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in asdict(self.acceptance).items()
        }
        return {
            "scheme": self.scheme,
            "num_drafts": self.num_drafts,
            "verifier": self.verifier,
            **interval,
            "tokens_per_call": self.tokens_per_call,
        }


def rate_rows(
    sample: LogitsSample,
    schemes: Sequence[str],
    num_drafts: Sequence[int],
    verifiers: Sequence[str] = ("optimal",),
    confidence: float = 0.95,
    **options: Any,
) -> list[RateRow]:
    """One row for each scheme, verifier and K.

    Parameters
    ----------
    sample : LogitsSample
    schemes, num_drafts, verifiers : sequences
        What to combine.
    confidence : float
        Of the intervals.
    **options
        Passed on to `acceptance_rates`: temperature, top_k, num_threads, progress, pad, ...
    """
    if sample.num_positions == 0:
        raise InvalidInput(f"{sample.source} holds no position: its arrays are empty")
    groups = None if sample.sequence is None else sample.sequence.ravel()
    rows = []
    for scheme in schemes:
        for verifier in verifiers:
            rates = acceptance_rates(
                sample.target,
                sample.draft,
                num_drafts=list(num_drafts),
                drafts=scheme,
                verifier=verifier,
                **options,
            )
            by_position = np.asarray(rates).reshape(-1, len(num_drafts))
            rows += [
                RateRow(scheme, k, verifier, mean_interval(column, groups, confidence))
                for k, column in zip(num_drafts, by_position.T, strict=True)
            ]
    return rows
