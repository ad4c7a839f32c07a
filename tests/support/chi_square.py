"""Pearson's chi-square test of drawn tuples against a law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np


def p_value(drawn: Iterable[Hashable], law: Mapping[Any, Any]) -> float:
    """Chance of a deviation at least this large if `drawn` follows `law`.

    0 if something impossible was drawn. Cells expected less than 5 times share one cell, where the
    chi-square approximation would be poor.
    """
    from scipy.stats import chi2

    counts = Counter(drawn)
    if not set(counts) <= {outcome for outcome, mass in law.items() if mass > 0}:
        return 0.0
    total = sum(counts.values())
    expected = np.array([float(mass) * total for mass in law.values()])
    observed = np.array([counts[outcome] for outcome in law], dtype=float)
    rare = expected < 5
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    positive = expected > 0
    if positive.sum() < 2:
        return 1.0
    statistic = ((observed - expected)[positive] ** 2 / expected[positive]).sum()
    return float(chi2.sf(statistic, positive.sum() - 1))
