"""Many drafts and many tokens, where a prefix of the exact order is the best subset."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

import mdsd_opt as mo
from mdsd_opt.drafts import DraftScheme
from stress import reference
from stress.tally import Tally
from stress.weights import Weights, draw_beside, draw_weights, floating, rational

#: Closed forms; without replacement beyond 64 drafts.
CLOSED_FORM, MANY_DRAFTS = 1e-12, 1e-9

Curve = list[Fraction]


def check(rng: np.random.Generator, tally: Tally) -> None:
    for build in BUILDERS:
        q, k, curve_of, make = build(rng)
        p = _beside(rng, q)
        _try(rng, tally, build.__name__.strip("_").replace("_", " "), p, q, k, curve_of, make)


CurveOf = Callable[[Weights, list[int], int], Curve]
Built = tuple[Weights, int, CurveOf, type[DraftScheme]]


def _beside(rng: np.random.Generator, q: Weights) -> Weights:
    return draw_beside(rng, q) if rng.random() < 0.7 else draw_weights(rng, q.size)


def _with_replacement(rng: np.random.Generator) -> Built:
    size, k = _sizes(rng, 60, 400, 8000)
    return draw_weights(rng, size), k, reference.power_curve, mo.WithReplacement


def _without_replacement_uniform(rng: np.random.Generator) -> Built:
    """Q is a ratio of binomial coefficients, whatever K."""
    support = int(rng.integers(2, 400))
    k = int(rng.integers(1, support + 1)) if rng.random() < 0.5 else _log_uniform(rng, support)
    numbers = rng.permutation([1] * support + [0] * int(rng.integers(0, 3))).tolist()
    q = rational(numbers) if rng.random() < 0.5 else floating(numbers)
    return q, k, _race(reference.uniform_race_curve), mo.WithoutReplacement


def _without_replacement_two_weights(rng: np.random.Generator) -> Built:
    size = int(rng.integers(3, 80))
    k = min(_log_uniform(rng, size), 25)
    ratio = float(rng.choice([1.0 + 1e-15, 0.5, 3.0, 1e-3, 1e-9, 1e-17, 1e-100]))
    heavy = rng.random(size) < rng.choice([0.02, 0.2, 0.5, 0.9])
    heavy[0] = True
    q = floating(np.where(rng.permutation(heavy), 1.0, ratio))
    if len({n for n in q.numerators if n}) != 2:
        return q, k, _race(reference.uniform_race_curve), mo.WithoutReplacement
    return q, k, _race(reference.two_weight_race_curve), mo.WithoutReplacement


def _without_replacement_few_drafts(rng: np.random.Generator) -> Built:
    """Any q; K at most 3, where the race can be summed over tokens."""
    size = int(rng.integers(2, 14))
    k = int(rng.integers(1, 4))

    def curve(q: Weights, order: list[int], k: int) -> Curve:
        contained = reference.without_replacement(q, k)
        return [contained[reference.mask_of(order[:j])] for j in range(len(order) + 1)]

    return draw_weights(rng, min(size, 9)), k, curve, mo.WithoutReplacement


BUILDERS = (
    _with_replacement,
    _without_replacement_uniform,
    _without_replacement_two_weights,
    _without_replacement_few_drafts,
)


def _sizes(rng: np.random.Generator, most: int, drafts: int, work: int) -> tuple[int, int]:
    size = int(rng.integers(1, most + 1))
    return size, min(_log_uniform(rng, drafts), max(1, work // size))


def _log_uniform(rng: np.random.Generator, most: int) -> int:
    return int(np.exp(rng.uniform(0.0, np.log(most + 0.5))))


def _race(curve_of: CurveOf) -> CurveOf:
    """All of the support, once K reaches it."""

    def curve(q: Weights, order: list[int], k: int) -> Curve:
        if k >= len(q.support):
            return [Fraction(0)] * len(order) + [Fraction(1)]
        return curve_of(q, order, k)

    return curve


def _try(
    rng: np.random.Generator,
    tally: Tally,
    kind: str,
    p: Weights,
    q: Weights,
    k: int,
    curve_of: CurveOf,
    make: type[DraftScheme],
) -> None:
    text = f"TransportProblem({p}, {make.__name__}({q}, {k}))"
    order = reference.ratio_order(p, q)
    contained = curve_of(q, order, k)
    optimum = reference.best_prefix(p, order, contained)
    without = make is mo.WithoutReplacement
    tolerance = MANY_DRAFTS if without and k > 64 else CLOSED_FORM
    with tally.trial(f"{kind}: subset_selection", lambda: text) as trial:
        problem = mo.TransportProblem(p.given, make(q.given, k))
        solution = mo.solve(problem)
        trial.near(solution.acceptance_rate, optimum, tolerance, "acceptance rate")
        certificate = mo.certify(problem, solution)
        trial.between(certificate.lower, optimum, certificate.upper, tolerance, "certificate")
        trial.that(certificate.valid, f"violations {certificate.violations}")
        trial.near(certificate.gap, Fraction(0), 1e-9, "gap of the certificate")
    with tally.trial(f"{kind}: Q of prefixes", lambda: f"{order} of {text}") as trial:
        found = make(q.given, k).prefix_containment(np.array(order, dtype=np.int64))
        worst = max(range(len(found)), key=lambda j: abs(found[j] - float(contained[j])))
        trial.near(found[worst], contained[worst], tolerance, f"prefix {worst}")
    with tally.trial(f"{kind}: optimal verifier", lambda: text) as trial:
        _decide(rng, trial, problem, p)
    with tally.trial(f"{kind}: batch", lambda: text) as trial:
        _batch(trial, p, q, k, make, optimum, tolerance)


def _decide(rng: np.random.Generator, trial, problem, p: Weights) -> None:
    """A law for some drafts, and an output that is possible."""
    verifier = mo.verifiers.get("optimal")
    drafts = problem.drafts.sample(rng)
    law = verifier.conditional_law(problem, drafts)
    trial.that((law >= 0).all(), f"a negative probability given {drafts.tolist()}")
    rng.choice(law.size, p=law)
    for _ in range(3):
        verdict = verifier.verify(problem, drafts, rng)
        trial.that(p.numerators[verdict.token] > 0, f"impossible {verdict}, {drafts.tolist()}")
        trial.that(verdict.accepted == (verdict.token in drafts), f"accepted is wrong: {verdict}")


def _batch(trial, p: Weights, q: Weights, k: int, make, optimum: Fraction, tolerance: float):
    """From logarithms, whose rounding moves each probability by some ulps."""
    with np.errstate(divide="ignore"):
        target, draft = (np.log(np.array([float(x) for x in w.given])) for w in (p, q))
    rate = mo.acceptance_rates(target, draft, k, make.scheme, num_threads=1)
    trial.near(rate, optimum, tolerance, "rate")
