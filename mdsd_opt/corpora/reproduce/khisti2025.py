"""Drafts hotter than the target, after [Khisti25], arXiv 2410.18234.

The target is at temperature 1.0. First K drafts of one model at temperatures from 1.2 to 2.4; then
two drafts at different temperatures, where the truncated LP of the paper gives bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.sampling import softmax
from mdsd_opt.corpora.corpus import RatesConfig
from mdsd_opt.corpora.reproduce.experiment import (
    CapturedLogits,
    Outcome,
    Published,
    Reproduction,
    ResultTable,
    Row,
    compared,
    measured_range,
    per_position,
)
from mdsd_opt.drafts import IndependentDrafts
from mdsd_opt.evidence import MeanInterval, mean_interval
from mdsd_opt.problem import TransportProblem

_SCHEME = "with_replacement"
_VERIFIERS = ("optimal", "importance_sampling", "kseq", "rrs")


def run(
    logits: CapturedLogits,
    draft_temperatures: Sequence[float] = (1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4),
    numbers: Sequence[int] = (2, 3, 4, 6, 8),
    first_temperature: float = 1.2,
    size: int = 5,
) -> Reproduction:
    """Run the experiment; `size` is that of the truncated LP."""
    rows: list[Row] = []
    leads = []
    for t in draft_temperatures:
        scored = logits.score(
            RatesConfig((_SCHEME,), _VERIFIERS, tuple(numbers), 1.0, draft_temperature=t)
        )
        for k in numbers:
            means = [scored.mean(_SCHEME, verifier, k) for verifier in _VERIFIERS]
            own = (_SCHEME, "importance_sampling", k)
            leads += [(k, scored.gain(own, (_SCHEME, other, k))) for other in ("kseq", "rrs")]
            rows.append((t, str(k), *means))
    first = next(iter(scored.columns.values()))
    pairs, lead = _two_models(logits, draft_temperatures, first_temperature, size)
    ahead = [k for k, gain in leads if gain.low > 0]
    of_bounds = compared([gain for _, gain in leads])
    if of_bounds is Outcome.DISAGREES:  # lower bounds of gains refute nothing
        of_bounds = Outcome.OPEN
    bounds = (
        "the lower bound of importance sampling is above kseq, and above rrs, in "
        f"{len(ahead)} of {2 * len(rows)} comparisons; at K = 2 in {ahead.count(2)} of "
        f"{2 * len(draft_temperatures) * (2 in numbers)}"
    )
    return Reproduction(
        "khisti2025",
        "Khisti et al., Multi-Draft Speculative Sampling: Canonical Decomposition and Theoretical "
        "Limits, ICLR 2025, arXiv 2410.18234",
        logits.models(),
        first.size,
        scored.of(first).num_groups,
        (
            ResultTable(
                "Acceptance rate of K drafts of one model; target at temperature 1.0",
                ("draft temperature", "K", "optimal", "importance sampling ≥", "kseq", "rrs"),
                tuple(rows),
                by="K",
            ),
            pairs,
        ),
        tuple(
            Published(
                "consistent improvements in the achievable block efficiency and token rates over "
                "baseline schemes in a number of scenarios",
                f"abstract, {which}",
                "a gain, in some scenarios",
                here,
                outcome,
            )
            for which, here, outcome in (
                ("one draft model", bounds, of_bounds),
                (
                    "two draft models",
                    f"truncated LP minus rrs: {measured_range(lead)}",
                    compared(lead),
                ),
            )
        ),
        (
            "Other models and texts; the paper's target has 13 billion parameters.",
            "One level of drafts: the acceptance rate of a step, not the block efficiency of "
            "several steps.",
            "The column of importance sampling is a lower bound: hits of its residual are not "
            "counted. Beyond K = 2 it selects by a tournament of pairs.",
        ),
    )


def _two_models(
    logits: CapturedLogits, temperatures: Sequence[float], first: float, size: int
) -> tuple[ResultTable, list[MeanInterval]]:
    """Table of two drafts at different temperatures, and the lead of the truncated LP."""
    rows: list[Row] = []
    lead = []
    for t in temperatures:
        values, groups = per_position(logits, partial(_pair, first=first, second=t, size=size))
        means = [
            mean_interval(column, groups, logits.confidence).within(0.0, 1.0) for column in values.T
        ]
        lead.append(mean_interval(values[:, 0] - values[:, 2], groups, logits.confidence))
        rows.append((f"{first:g}, {t:g}", *means))
    table = ResultTable(
        f"Acceptance rate of two drafts at different temperatures; truncated LP of size {size}",
        ("draft temperatures", "truncated LP ≥", "optimum", "rrs"),
        tuple(rows),
    )
    return table, lead


def _pair(
    target: NDArray[Any], draft: NDArray[Any], first: float, second: float, size: int
) -> NDArray[np.float64]:
    """Value of the truncated LP, the optimum, and the rate of recursive rejection."""
    from mdsd_opt import verifiers
    from mdsd_opt.solvers import solve

    width = max(target.size, draft.size)
    p = np.pad(softmax(target), (0, width - target.size))
    laws = [np.pad(softmax(draft, t), (0, width - draft.size)) for t in (first, second)]
    problem = TransportProblem(p, IndependentDrafts(laws))
    solution = solve(problem, "truncated_lp", size=min(size, width), rule="published")
    rrs = verifiers.get("rrs").acceptance_rate(problem)
    optimum = solve(problem, method="submodular").acceptance_rate
    return np.array([solution.lower_bound, optimum, float(rrs)])
