"""Reports of small audits, so that a verb can be tried on them without auditing anew."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.auditing import audit_chain


def _right(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> list[int]:
    tokens: list[int] = []
    for row in p:
        tokens.append(int(rng.choice(row.size, p=row)))
        if tokens[-1:] != [*map(int, drafts)][len(tokens) - 1 : len(tokens)]:
            break
    return tokens


def _wrong(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> list[int]:
    return [*map(int, drafts), 0]


@functools.cache
def chain_report(is_right: bool) -> mo.PortfolioReport:
    """Report on laws of two tokens, of a function that asks for no draft or one that takes all."""
    laws = np.log([[[0.5, 0.5]] * 2, [[0.3, 0.7]] * 2])
    report: mo.PortfolioReport = audit_chain(
        _right if is_right else _wrong, laws=(laws[0], laws[1]), num_drafts=1, method="driven"
    )
    return report


class RecordedChains:
    """An `audit_chain` that answers with a recorded report, and remembers how it was called."""

    def __init__(self, is_right: bool = True) -> None:
        self.is_right = is_right
        self.calls: list[dict[str, Any]] = []

    def __call__(self, verify: Any, rng: Any, **options: Any) -> mo.PortfolioReport:
        self.calls.append({"verify": verify, "rng": rng, **options})
        return chain_report(self.is_right)
