"""Drafts hotter than the target, after [Khisti25], arXiv 2410.18234.

The target is at temperature 1.0. First K drafts of one model at temperatures from 1.2 to 2.4; then
two drafts at different temperatures, where the truncated LP of the paper gives bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.sampling import softmax
from mdsd_opt.corpora.reproduce import (
    Agreement,
    CapturedLogits,
    Published,
    Reproduction,
    ResultTable,
    Row,
    compared,
    measured_range,
    per_position,
)
from mdsd_opt.corpora.shards import RatesConfig
from mdsd_opt.drafts import IndependentDrafts, WithReplacement
from mdsd_opt.evidence import MeanInterval, mean_interval
from mdsd_opt.problem import TransportProblem

_SCHEME = "with_replacement"
_VERIFIERS = ("optimal", "importance_sampling", "kseq", "rrs")

#: Fig. 2, two uniform drafts of three tokens against (first, x, 1 - first - x): by its side the
#: first, and by x the optimum, K-SEQ and recursive rejection, as read off the figure.
FIGURE_2: dict[str, tuple[Fraction, dict[str, tuple[str, str, str]]]] = {
    "left": (
        Fraction(1, 3),
        {
            "1/50": ("0.9089", "0.8258", "0.7911"),
            "1/10": ("0.9889", "0.8814", "0.8444"),
            "1/9": ("1", "0.8889", "0.8519"),
            "3/10": ("1", "0.9935", "0.9778"),
            "3/5": ("0.9556", "0.8587", "0.8222"),
        },
    ),
    "right": (
        Fraction(1, 6),
        {
            "1/50": ("0.7422", "0.7020", "0.6800"),
            "1/5": ("0.9222", "0.8353", "0.8000"),
            "3/10": ("1", "0.9035", "0.8667"),
        },
    ),
}
_OF_FIGURE_2 = ("optimal", "kseq", "rrs")

#: Points of a curve of Fig. 2 besides those that are quoted.
_BETWEEN = 12


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
    if of_bounds is Agreement.DISAGREES:  # lower bounds of gains refute nothing
        of_bounds = Agreement.OPEN
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
            *(_figure_2(side) for side in FIGURE_2),
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
        )
        + tuple(_held_against_figure_2(side) for side in FIGURE_2),
        (
            "Other models and texts; the paper's target has 13 billion parameters.",
            "One level of drafts: the acceptance rate of a step, not the block efficiency of "
            "several steps.",
            "The column of importance sampling is a lower bound: hits of its residual are not "
            "counted. Beyond K = 2 it selects by a tournament of pairs.",
        ),
    )


def _rates_of_figure_2(first: Fraction, x: Fraction) -> list[float]:
    from mdsd_opt import verifiers

    third = [Fraction(1, 3)] * 3
    problem = TransportProblem([first, x, 1 - first - x], WithReplacement(third, 2))
    return [float(verifiers.get(name).acceptance_rate(problem)) for name in _OF_FIGURE_2]


def _figure_2(side: str) -> ResultTable:
    """Curves of Fig. 2, which need no logits, with the values quoted."""
    first, quoted = FIGURE_2[side]
    places = {(1 - first) * n / _BETWEEN for n in range(_BETWEEN + 1)}
    rows: list[Row] = [
        (float(x), *(MeanInterval(y, np.nan, np.nan, 1) for y in _rates_of_figure_2(first, x)))
        for x in sorted(places.union(map(Fraction, quoted)))
    ]
    points = {
        name: tuple((float(Fraction(x)), float(values[n])) for x, values in quoted.items())
        for n, name in enumerate(_OF_FIGURE_2)
    }
    title = f"Fig. 2, {side}: two uniform drafts of three tokens, target ({first}, x, rest)"
    panel = f"Fig. 2, {side}"
    return ResultTable(title, ("x", *_OF_FIGURE_2), tuple(rows), panel=panel, points=points)


def _held_against_figure_2(side: str) -> Published:
    first, quoted = FIGURE_2[side]
    off = [
        abs(rate - float(value))
        for x, values in quoted.items()
        for rate, value in zip(_rates_of_figure_2(first, Fraction(x)), values, strict=True)
    ]
    return Published(
        "",
        f"Fig. 2, {side}",
        "; ".join(f"x = {x}: {', '.join(values)}" for x, values in quoted.items()),
        f"the largest of {len(off)} differences ({', '.join(_OF_FIGURE_2)}) is {max(off):.1e}",
        Agreement.AGREES if max(off) <= _ROUNDED else Agreement.DISAGREES,
    )


#: How far a value with four digits may be from what was rounded.
_ROUNDED = 5.001e-5


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
        rows.append((t, *means))
    table = ResultTable(
        f"Acceptance rate of two drafts, one at {first:g}; truncated LP of size {size}",
        ("draft temperature", "truncated LP ≥", "optimal", "rrs"),
        tuple(rows),
        panel=f"two drafts, one at {first:g}",
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
