"""Relaxed targets: no budget is overspent, and a little more acceptance would overspend it."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

import mdsd_opt as mo
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from stress import reference
from stress.problems import BUILDERS, Case, draw_case
from stress.tally import Tally, Trial
from stress.weights import Weights

#: Of a rate; and of what the rate of a batch of logits may lack.
CLOSED_FORM, LACKING = 1e-12, 1e-6

#: More acceptance than is bought must cost too much.
_STEP = Fraction(1, 10**9)

#: Of a sum of a few floats, relative; and of a law, whose floats do not quite sum to one.
_ROUNDING, _REST = 1e-13, 1e-16

_NAMES = ("tv", "kl", "chi2")


def check(rng: np.random.Generator, tally: Tally) -> None:
    """One problem of each scheme, by one budget."""
    for scheme in BUILDERS:
        case = draw_case(rng, scheme)
        name = _NAMES[rng.integers(len(_NAMES))]
        budget = float(10.0 ** rng.uniform(-12, 0))
        for kind, holds in (("relax", _floats), ("relax exactly", _exactly)):
            with tally.trial(
                f"{kind}: {scheme}",
                lambda case=case, name=name, budget=budget: f"{name}={budget!r}, {case}",
            ) as trial:
                holds(trial, case, name, budget)


def _floats(trial: Trial, case: Case, name: str, budget: float) -> None:
    found = mo.relax(case.problem, **{name: budget})
    trial.that(getattr(found, name) <= budget, f"spent {getattr(found, name)!r}")
    spent = distance(name, found.target, case.problem.target)
    trial.that(spent <= budget * (1 + _ROUNDING) + _REST, f"spent {float(spent)!r}, recomputed")
    trial.near(found.lossless_acceptance_rate, case.optimum, 1e-9, "lossless rate")
    reached = reference.optimum(Weights.of(found.target), case.drafts.contained)
    trial.near(reached, found.acceptance_rate, found.gap + CLOSED_FORM, "rate of the law")
    trial.that(found.gap <= LACKING * 10, f"a gap of {found.gap!r}")
    _is_most(trial, case, name, budget, Fraction(found.acceptance_rate))
    scheme, q = case.problem.drafts.scheme, getattr(case.problem.drafts, "q", None)
    if scheme in SINGLE_MODEL_SCHEMES:
        rate = mo.relaxed_rates(
            case.problem.target, q, case.problem.num_drafts, scheme, kind="probs", num_threads=1,
            **{name: budget},
        )  # fmt: skip
        low, high = found.acceptance_rate - LACKING, found.acceptance_rate + 1e-9
        trial.that(low <= rate <= high, f"rate of a batch {float(rate)!r}, not {high!r}")


def _exactly(trial: Trial, case: Case, name: str, budget: float) -> None:
    found = mo.relax(case.problem, exact=True, **{name: budget})
    x, p = found.problem.exact_target, case.target.exact
    trial.that(getattr(found, name) <= budget, f"spent {getattr(found, name)!r}")
    trial.that(sum(x) == 1 and min(x) >= 0, f"no law: {[str(mass) for mass in x]}")
    trial.that(found.lossless_acceptance_rate == case.optimum, "lossless rate")
    trial.that(found.tv == sum(abs(a - b) for a, b in zip(x, p, strict=True)) / 2, "tv")
    trial.that(found.tv == found.acceptance_rate - case.optimum, "each unit of tv buys one")
    _is_most(trial, case, name, budget, found.acceptance_rate)


def _is_most(trial: Trial, case: Case, name: str, budget: float, rate: Fraction) -> None:
    """A billionth more acceptance costs more than the budget, if it is possible at all."""
    more = rate + _STEP
    if more > 1 - case.drafts.contained[0]:
        return
    cost = getattr(mo.relax(case.problem, acceptance_rate=more, exact=True), name)
    trial.that(cost > budget * (1 - 1e-9), f"{float(more)!r} costs {float(cost)!r}")


def distance(name: str, law: np.ndarray, target: np.ndarray) -> Fraction:
    """Between the laws that these floats, divided by their sums, are."""
    x, p = (Weights.of(values).exact for values in (law, target))
    pairs = list(zip(x, p, strict=True))
    if name == "tv":
        return sum(abs(a - b) for a, b in pairs) / 2
    if any(a and not b for a, b in pairs):
        return Fraction(10**9)  # infinite
    if name == "chi2":
        return sum(((a - b) ** 2 / b for a, b in pairs if b), Fraction(0))
    with localcontext() as context:
        context.prec = 60
        terms = [a * Fraction(_log(a / b)) for a, b in pairs if a]
    return sum(terms, Fraction(0))


def _log(ratio: Fraction) -> Decimal:
    return (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
