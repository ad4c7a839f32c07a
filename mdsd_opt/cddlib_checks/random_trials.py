"""Random instances of the claims, and the gap of each claim in floating point and in fractions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.cddlib_checks.condition import FLOW
from mdsd_opt.cddlib_checks.draft_laws import document, mean_model, set_law
from mdsd_opt.cddlib_checks.prefixes import prefix_counterexample, q_convexity
from mdsd_opt.cddlib_checks.provers import smaller_acceptance
from mdsd_opt.cddlib_checks.result import Counterexample, approximate
from mdsd_opt.cddlib_checks.subsets import (
    best_cut,
    containment_table,
    describe,
    exact_acceptance,
    members,
    priority_law,
)
from mdsd_opt.drafts import DraftScheme, IndependentDrafts, WithoutReplacement, WithReplacement

#: Gaps below this are attributed to rounding.
_TOLERANCE = 1e-11


@dataclass(frozen=True, slots=True)
class Instance:
    """A target and drafts with integer weights, so that both are exact rationals."""

    target: tuple[Fraction, ...]
    drafts: DraftScheme
    other: DraftScheme | None = None


@dataclass(frozen=True, slots=True)
class RandomSearch:
    """Functions that draw instances of a claim, suspect one, and settle the suspicion.

    The gap is positive in floating point where the claim seems to fail; what confirms it is a
    counterexample in fractions, None if rounding misled. The control is another search, on a claim
    known to be false; a control has none itself.
    """

    draw: Callable[[np.random.Generator, int, int], Instance]
    gap: Callable[[Instance], float]
    confirm: Callable[[Instance], Counterexample | None]
    control: RandomSearch | None = None
    control_statement: str = ""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """Results of a range of trials."""

    done: int
    caught: int
    false_alarms: int
    found_at: int
    counterexample: Counterexample | None


def run_slice(
    search: RandomSearch,
    vocab_size: int,
    num_drafts: int,
    seed: int,
    first: int,
    last: int,
    seconds: float,
    count_all: bool = False,
) -> SliceResult:
    """Run trials first .. last - 1; stop at a first counterexample unless all are counted."""
    deadline = time.perf_counter() + seconds
    caught = false_alarms = 0
    counterexample, found_at = None, -1
    for trial in range(first, last):
        if time.perf_counter() >= deadline:
            return SliceResult(trial - first, caught, false_alarms, found_at, counterexample)
        instance = search.draw(np.random.default_rng([seed, trial]), vocab_size, num_drafts)
        if search.gap(instance) <= _TOLERANCE:
            continue
        proof = search.confirm(instance)
        if proof is None:
            false_alarms += 1
            continue
        caught += 1
        if counterexample is None:
            counterexample, found_at = proof, trial
        if not count_all:
            return SliceResult(trial + 1 - first, caught, false_alarms, found_at, counterexample)
    return SliceResult(last - first, caught, false_alarms, found_at, counterexample)


def _random_law(rng: np.random.Generator, size: int) -> tuple[Fraction, ...]:
    """Law of integer weights, of one magnitude or of several."""
    power = rng.choice([1, 2, 4], size) if rng.random() < 0.5 else 1
    weights = rng.integers(1, 11, size) ** power
    total = int(weights.sum())
    return tuple(Fraction(int(w), total) for w in weights)


def _single(rng: np.random.Generator, size: int, num_drafts: int) -> Instance:
    scheme = WithReplacement if rng.random() < 0.5 else WithoutReplacement
    return Instance(_random_law(rng, size), scheme(list(_random_law(rng, size)), num_drafts))


def _different(rng: np.random.Generator, size: int, num_drafts: int) -> Instance:
    models = [list(_random_law(rng, size)) for _ in range(num_drafts)]
    return Instance(_random_law(rng, size), IndependentDrafts(models))


def _near_boundary(rng: np.random.Generator, size: int, num_drafts: int) -> Instance:
    """Vertex of the acceptance-one polytope, every other time moved a little."""
    drafts = _single(rng, size, num_drafts).drafts
    vertex = priority_law(set_law(drafts), rng.permutation(size).tolist())
    share = Fraction(int(rng.integers(2)), int(10 ** rng.integers(1, 6)))
    moved = _random_law(rng, size)
    p = tuple((1 - share) * x + share * y for x, y in zip(vertex, moved, strict=True))
    return Instance(p, drafts)


def _two_schemes(rng: np.random.Generator, size: int, num_drafts: int, more: int = 0) -> Instance:
    """Instance of drafts without replacement, and of `more` drafts than these with it."""
    q = list(_random_law(rng, size))
    drafts = WithoutReplacement(q, num_drafts)
    return Instance(_random_law(rng, size), drafts, WithReplacement(q, num_drafts + more))


def _masses(p: Any) -> Floats:
    """Masses P of every mask."""
    table = np.zeros(1)
    for x in p:
        table = np.concatenate([table, table + float(x)])
    return table


def _containment(drafts: DraftScheme) -> Floats:
    """Containment Q of every mask."""
    models = drafts.independent_models
    if models is not None:
        return np.prod([_masses(model.values) ** count for model, count in models], axis=0)
    law = drafts.support_law()
    masks = np.bitwise_or.reduceat(1 << law.tokens.astype(np.int64), law.offsets[:-1])
    table = np.zeros(1 << drafts.vocab_size)
    table[masks] = law.mass
    for i in range(drafts.vocab_size):
        halves = table.reshape(-1, 2, 1 << i)
        halves[:, 1] += halves[:, 0]
    return table


def _prefix_gap(instance: Instance) -> float:
    p = np.array(instance.target, dtype=np.float64)
    w = np.array(mean_model(instance.drafts), dtype=np.float64)
    values = _masses(p) - _containment(instance.drafts)
    prefixes = np.cumsum(1 << np.argsort(p / w, kind="stable"))
    return min(0.0, float(values[prefixes].min())) - float(values.min())


def _confirm_prefix(instance: Instance) -> Counterexample | None:
    p, w = instance.target, mean_model(instance.drafts)
    ratios = [x / y for x, y in zip(p, w, strict=True)]
    if len(set(ratios)) < len(ratios):  # another order of the tied tokens may do
        return None
    order = sorted(range(len(p)), key=ratios.__getitem__)
    return prefix_counterexample(instance.drafts, p, order)


def _convexity_gap(instance: Instance) -> float:
    q = [float(x) for x in mean_model(instance.drafts)]
    table = _containment(instance.drafts)
    masks = np.arange(table.size)
    worst = 0.0
    for x in range(len(q)):
        for y in range(len(q)):
            if x != y:
                free = masks[(masks & (1 << x | 1 << y)) == 0]
                with_x = table[free | 1 << x]
                first = (with_x - table[free]) * q[y]
                second = (table[free | 1 << x | 1 << y] - with_x) * q[x]
                worst = max(worst, float((first - second).max()))
    return worst


def _confirm_convexity(instance: Instance) -> Counterexample | None:
    evidence = q_convexity([instance.drafts])
    return evidence.counterexamples[0] if evidence.counterexamples else None


def _containment_gap(instance: Instance) -> float:
    assert instance.other is not None
    return float((_containment(instance.drafts) - _containment(instance.other)).max())


def _confirm_containment(instance: Instance) -> Counterexample | None:
    assert instance.other is not None
    return smaller_acceptance(instance.drafts, instance.other)


def _verdict_gap(instance: Instance, small: bool = False) -> float:
    """One if the subsets and the maximum flow disagree about acceptance one, else 0."""
    claimed = _least_excess(instance, small) > -_TOLERANCE
    return float(claimed != (_flow_value(instance) > 1 - _TOLERANCE))


def _formula_gap(instance: Instance, small: bool = False) -> float:
    """Difference of the formula and the maximum flow."""
    return abs(1 + _least_excess(instance, small) - _flow_value(instance))


def _least_excess(instance: Instance, small: bool) -> float:
    """Least P(A) - Q(A), over all subsets or the small ones, of at most one token."""
    values = _masses(instance.target) - _containment(instance.drafts)
    if small:
        values = values[np.bitwise_count(np.arange(values.size)) <= 1]
    return float(values.min())


def _flow_value(instance: Instance) -> float:
    from mdsd_opt.problem import TransportProblem
    from mdsd_opt.solvers import solve

    problem = TransportProblem(list(instance.target), instance.drafts)
    return solve(problem, "max_flow").acceptance_rate


def _confirm_formula(instance: Instance, small: bool = False) -> Counterexample | None:
    law = set_law(instance.drafts)
    table = containment_table(law, instance.drafts.vocab_size)
    values = [  # the others are never the best
        Fraction(-1) if small and mask.bit_count() > 1 else x for mask, x in enumerate(table)
    ]
    rate, mask = best_cut(instance.target, values)
    flow = exact_acceptance(instance.target, law)
    if flow == rate:
        return None
    return Counterexample(
        kind="unequal value",
        explanation=f"the formula gives {approximate(rate)}, at {describe(mask)}",
        drafts=document(instance.drafts),
        target=instance.target,
        acceptance_rate=flow,
        subset=members(mask),
        confirmed=FLOW,
    )


_SMALL = partial(_confirm_formula, small=True)
_CONVEXITY_OF_DIFFERENT = RandomSearch(_different, _convexity_gap, _confirm_convexity)
_PREFIX_OF_DIFFERENT = RandomSearch(_different, _prefix_gap, _confirm_prefix)
_DIFFERENT = "the same for different drafts and their mean"

ACCEPTANCE_ONE = RandomSearch(
    _near_boundary,
    _verdict_gap,
    _confirm_formula,
    RandomSearch(_near_boundary, partial(_verdict_gap, small=True), _SMALL),
    "the condition for sets of one token alone",
)
OPTIMAL_VALUE = RandomSearch(
    _different,
    _formula_gap,
    _confirm_formula,
    RandomSearch(_different, partial(_formula_gap, small=True), _SMALL),
    "the minimum over sets of at most one token",
)
CONVEXITY = RandomSearch(
    _single, _convexity_gap, _confirm_convexity, _CONVEXITY_OF_DIFFERENT, _DIFFERENT
)
PREFIX = RandomSearch(_single, _prefix_gap, _confirm_prefix, _PREFIX_OF_DIFFERENT, _DIFFERENT)
DOMINANCE = RandomSearch(
    _two_schemes,
    _containment_gap,
    _confirm_containment,
    RandomSearch(partial(_two_schemes, more=1), _containment_gap, _confirm_containment),
    "K drafts without replacement against K + 1 with it",
)
CONVEXITY_NON_IDENTICAL = replace(
    _CONVEXITY_OF_DIFFERENT, control=_CONVEXITY_OF_DIFFERENT, control_statement="itself"
)
PREFIX_NON_IDENTICAL = replace(
    _PREFIX_OF_DIFFERENT, control=_PREFIX_OF_DIFFERENT, control_statement="itself"
)
