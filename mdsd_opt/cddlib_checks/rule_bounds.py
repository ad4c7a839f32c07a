r"""Bounds of what rules accept, held in fractions against exact rates of small instances.

The rates come by other ways than those of the verifiers: recursive rejection by its residuals, not
by :math:`\varphi(s) = \sum_i (p_i - s q_i)_+`; K-SEQ by a bracket of its scale; the race and list
sampling by their closed forms.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from mdsd_opt.cddlib_checks.blind_rules import BlindRule
from mdsd_opt.cddlib_checks.draft_laws import document, exact_models, scope_of, set_law
from mdsd_opt.cddlib_checks.provers import varied_targets
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence, approximate
from mdsd_opt.cddlib_checks.subsets import exact_acceptance
from mdsd_opt.drafts import DraftScheme, WithoutReplacement, WithReplacement
from mdsd_opt.problem import TransportProblem
from mdsd_opt.solvers import relax
from mdsd_opt.verifiers import get, gumbel, race, worst_case

Law = Sequence[Fraction]

#: Steps of the bisection that brackets K-SEQ, and slack of constants that are given as floats.
_STEPS = 60
_SLACK = Fraction(1, 10**10)

#: Most terms of the closed form of list sampling, V (V + 1)^(K - 1).
_MAX_TERMS = 400


def optimum(p: Law, q: Law, num_drafts: int, kind: type[DraftScheme] = WithReplacement) -> Fraction:
    """Largest acceptance rate, by an integer maximum flow over the law of the draft sets."""
    drafts = kind(list(q), num_drafts)  # type: ignore[call-arg]
    return exact_acceptance(p, set_law(drafts))


def surplus(p: Law, q: Law, scale: Fraction) -> Fraction:
    """The curve sum (p - s q)_+."""
    return sum((max(x - scale * y, Fraction(0)) for x, y in zip(p, q, strict=True)), Fraction(0))


def rejected_by_rrs(p: Law, q: Law, num_drafts: int) -> Fraction:
    """Probability that recursive rejection takes none of K i.i.d. drafts."""
    left, undecided = list(p), Fraction(1)
    for _ in range(num_drafts):
        left = [max(x - undecided * y, Fraction(0)) for x, y in zip(left, q, strict=True)]
        undecided = sum(left, Fraction(0))
    return undecided


def rejected_by_kseq(p: Law, q: Law, num_drafts: int) -> tuple[Fraction, Fraction]:
    """Bounds of the probability u^K that K-SEQ takes no draft, phi(1 + u + ... + u^(K-1)) = u^K."""
    low, high = Fraction(0), Fraction(1)
    if surplus(p, q, Fraction(1)) == 0:
        return low, low
    guess, step = 0.5, 0.25  # floats propose, fractions decide
    xs, ys = ([float(x) for x in law] for law in (p, q))
    for _ in range(_STEPS):
        scale = sum(guess**i for i in range(num_drafts))
        left = sum(max(x - scale * y, 0.0) for x, y in zip(xs, ys, strict=True))
        guess, step = guess + (step if left > guess**num_drafts else -step), step / 2
    tried = [Fraction(guess) + n * Fraction(2) ** (1 - _STEPS) for n in (-64, 64, -1, 1)]
    while high - low > Fraction(1, 2**_STEPS):
        u = tried.pop() if tried else (low + high) / 2
        if low < u < high:
            level = surplus(p, q, sum((u**i for i in range(num_drafts)), Fraction(0)))
            low, high = (u, high) if level > u**num_drafts else (low, u)
    return low**num_drafts, high**num_drafts


def race_bound(p: Law, q: Law, num_drafts: int) -> Fraction:
    """Bound M_K of the race, by its definition."""
    total = Fraction(0)
    for x, y in zip(p, q, strict=True):
        if x > 0 and y > 0:
            share = 1 / sum((max(a, b * x / y) for a, b in zip(p, q, strict=True)), Fraction(0))
            total += x * (1 - (1 - share) ** num_drafts)
    return total


def race_rate(p: Law, q: Law, num_drafts: int) -> Fraction:
    """Rate A_K of the race, over the sets of its drafts."""
    drafted = [i for i, x in enumerate(q) if x > 0]
    total = Fraction(0)
    for drafts in combinations(drafted, min(num_drafts, len(drafted))):
        masses = race.joint_masses(p, q, drafts)
        total += sum(masses[i] for i in drafts)
    return total


def _is_below(claim: str, low: Fraction, high: Fraction) -> Iterator[str]:
    if low > high:
        yield f"{claim}: {approximate(low)} is above {approximate(high)}"


def _race_has_bounds(p: Law, q: Law, k: int) -> Iterator[str]:
    bound, rate = race_bound(p, q, k), race_rate(p, q, k)
    yield from _is_below("M_K below A_K", bound, rate)
    yield from _is_below("A_K below the optimum", rate, optimum(p, q, k, WithoutReplacement))
    if len(p) * (len(p) + 1) ** (k - 1) <= _MAX_TERMS:
        yield from _is_below("list sampling below M_K", gumbel.acceptance(p, q, k), bound)
    d = surplus(p, q, Fraction(1))
    yield from _is_below("the bound by total variation", (1 - d) * (1 - (d / (1 + d)) ** k), bound)


def _race_loses_little(p: Law, q: Law, k: int) -> Iterator[str]:
    best, bound = optimum(p, q, k), race_bound(p, q, k)
    yield from _is_below("the gap", best - bound, _constant("race", k))
    share = 1 - Fraction(k, k + 1) ** k
    yield from _is_below("the share of the optimum", share * best, bound)


def _rrs_loses_little(p: Law, q: Law, k: int) -> Iterator[str]:
    refused, constant = rejected_by_rrs(p, q, k), _constant("rrs", k)
    best = optimum(p, q, k)
    yield from _is_below("the gap", best - (1 - refused), constant)
    yield from _is_below("the share of the optimum", (1 - constant) * best, 1 - refused)
    most = Fraction(0)
    for size in range(1, len(p)):
        for subset in combinations(range(len(p)), size):
            mass, drafted = sum(p[i] for i in subset), sum(q[i] for i in subset)
            most = max(most, drafted ** (k - 1) * (drafted - mass))
    yield from _is_below("what is refused", refused, most)


def _kseq_loses_little(p: Law, q: Law, k: int) -> Iterator[str]:
    (low, high), constant = rejected_by_kseq(p, q, k), _constant("kseq", k)
    best = optimum(p, q, k)
    yield from _is_below("the gap", best - 1 + low, constant)
    yield from _is_below("the share of the optimum", (1 - constant) * best, 1 - low)
    yield from _is_below("K-SEQ refuses at most as often as rrs", low, rejected_by_rrs(p, q, k))
    pairs = [rejected_by_kseq(*_merged(p, q, prefix), k) for prefix in _by_ratio(p, q)]
    yield from _is_below("two tokens refuse less", low, max(most for _, most in pairs))
    yield from _is_below("two tokens refuse more", max(least for least, _ in pairs), high)


def _kseq_gains_little(p: Law, q: Law, k: int) -> Iterator[str]:
    gain = rejected_by_rrs(p, q, k) - rejected_by_kseq(p, q, k)[1]
    yield from _is_below("what K-SEQ accepts more", gain, _constant("kseq beside rrs", k))


def _plan_loses_little(p: Law, q: Law, k: int) -> Iterator[str]:
    refused = [x * max(1 - y / x, Fraction(0)) ** k for x, y in zip(p, q, strict=True) if x > 0]
    best, rate = optimum(p, q, k), 1 - sum(refused, Fraction(0))
    yield from _is_below("the plan below the optimum", rate, best)
    yield from _is_below("the gap", best - rate, _constant("spectr_gbv", k))
    share = 1 - Fraction(k - 1, k) ** k
    yield from _is_below("the share of the optimum", share * best, rate)


def _distinct_lose_a_quarter(p: Law, q: Law, k: int) -> Iterator[str]:
    """Targets with one ratio of p to q wherever p > q: what p has more there is shared anew."""
    above = sum((y for x, y in zip(p, q, strict=True) if x > y), Fraction(0))
    ratio = 1 + surplus(p, q, Fraction(1)) / above if above else Fraction(1)
    if above or surplus(p, q, Fraction(1)) == 0:  # else the ratio is infinite: p may stay
        p = [y * ratio if x > y else x for x, y in zip(p, q, strict=True)]
    problem = TransportProblem(list(p), WithoutReplacement(list(q), k))
    rate = get("rrs").enumerated_acceptance_rate(problem, exact=True)
    best, lost = optimum(p, q, k, WithoutReplacement), _constant("rrs", k, "without_replacement")
    yield from _is_below("the gap", best - rate, lost)
    yield from _is_below("the share of the optimum", (1 - lost) * best, rate)


def _closest_law_is_tight(p: Law, q: Law, k: int) -> Iterator[str]:
    """Level sets of p_a / p are tight, which no law that allows as much can be nearer than."""
    p = [(x + Fraction(1, len(p))) / 2 for x in p]  # every token has mass
    best, drafts = optimum(p, q, k), WithReplacement(list(q), k)
    rate = (1 + best) / 2
    found = relax(TransportProblem(list(p), drafts), acceptance_rate=rate, exact=True)
    x = found.problem.exact_target
    ratios = [a / b for a, b in zip(x, p, strict=True)]
    levels = [tuple(i for i, y in enumerate(ratios) if y >= level) for level in set(ratios)]
    for size in range(1, len(x)):
        for subset in combinations(range(len(x)), size):
            drafted = sum((q[i] for i in subset), Fraction(0)) ** k
            forced, mass = max(drafted - 1 + rate, Fraction(0)), sum(x[i] for i in subset)
            yield from _is_below("what is forced", forced, Fraction(mass))
            if subset in levels:
                yield from _is_below("a level set", Fraction(mass), forced)
    yield from _is_below("the price", surplus(x, p, Fraction(1)), rate - best)
    yield from _is_below("what is bought", rate - best, surplus(x, p, Fraction(1)))


def _blind_rule_gains(p: Law, q: Law, k: int) -> Iterator[str]:
    rule, output, rate = BlindRule(p, q, k), [Fraction(0)] * len(p), Fraction(0)
    drafted = [i for i, x in enumerate(q) if x]
    for held in (x for size in range(1, k + 1) for x in combinations(drafted, size)):
        masses = rule.joint(frozenset(held))
        yield from _is_below("zero below a probability", Fraction(0), min(masses))
        output = [x + y for x, y in zip(output, masses, strict=True)]
        rate += sum((masses[i] for i in held), Fraction(0))
    for x, y in zip(output, p, strict=True):
        yield from _is_below("the output beside the target", abs(x - y), Fraction(0))
    matched, limit = (
        get("naive_target").enumerated_acceptance_rate(
            TransportProblem(list(p), kind(list(q), k)), exact=True
        )
        for kind in (WithReplacement, WithoutReplacement)
    )
    yield from _is_below("matching below the rule", matched, rate)
    yield from _is_below("the rule below its limit", rate, limit)


def _gains_fall(p: Law, q: Law, k: int) -> Iterator[str]:
    before, here, after = (optimum(p, q, n) if n else Fraction(0) for n in (k - 1, k, k + 1))
    yield from _is_below("the gain of one more draft", after - here, here - before)


def _by_ratio(p: Law, q: Law) -> list[list[int]]:
    order = sorted(range(len(p)), key=lambda i: p[i] / q[i] if q[i] else Fraction(10**9))
    return [order[:size] for size in range(1, len(p) + 1)]


def _merged(p: Law, q: Law, subset: Sequence[int]) -> tuple[Law, Law]:
    """Target and draft with a subset merged into one token, and all others into a second."""
    mass, drafted = sum(p[i] for i in subset), sum(q[i] for i in subset)
    return (Fraction(mass), Fraction(1 - mass)), (Fraction(drafted), Fraction(1 - drafted))


def _constant(rule: str, num_drafts: int, drafts: str = "with_replacement") -> Fraction:
    if rule != "kseq beside rrs":
        return Fraction(worst_case(rule, num_drafts, drafts).gap) + _SLACK
    k, most = num_drafts, 0.0
    for u in np.linspace(0, 1, 10_001) if k > 1 else ():
        sums = [sum(u**i for i in range(n)) for n in (k, k - 1)]
        most = max(
            most, u * (((k - 1) / k * sums[0] / sums[1]) ** (k - 1) * sums[0] / k - u ** (k - 1))
        )
    return Fraction(most) + Fraction(1, 10**7)  # of the grid, at a smooth maximum


#: Checks of one instance, by the name of the claim; they yield what fails.
CHECKS: dict[str, Callable[[Law, Law, int], Iterator[str]]] = {
    "race_between_bounds": _race_has_bounds,
    "race_loses_at_most": _race_loses_little,
    "rrs_loses_at_most": _rrs_loses_little,
    "kseq_loses_at_most": _kseq_loses_little,
    "gains_of_drafts_fall": _gains_fall,
    "kseq_gains_at_most": _kseq_gains_little,
    "spectr_gbv_loses_at_most": _plan_loses_little,
    "rrs_of_distinct_drafts_loses_a_quarter": _distinct_lose_a_quarter,
    "closest_law_for_a_rate": _closest_law_is_tight,
    "rule_without_q_gains": _blind_rule_gains,
}


def bounds_hold(schemes: Sequence[DraftScheme], name: str, targets: int, seed: int = 0) -> Evidence:
    """Check a bound on targets of all kinds, those among them at which a prefix is just accepted.

    With a prefix H of the drafted tokens, p(H) = q(H)^K is where rejection loses most.
    """
    rng = random.Random(seed)
    count = 0
    for drafts in schemes:
        q, k = exact_models(drafts)[0], drafts.num_drafts
        critical = [_at_the_limit(q, size, k) for size in range(1, len(q))]
        for p in (*varied_targets(drafts, targets, rng), *critical):
            count += 1
            failed = next(CHECKS[name](p, q, k), "")
            if failed:
                odd = Counterexample("bound", failed, document(drafts), tuple(p), optimum(p, q, k))
                return Evidence(False, scope_of(drafts, "this target"), (odd,))
    size = f"V = {schemes[0].vocab_size}, K = {schemes[0].num_drafts}"
    scope = f"{size}, {len(schemes)} laws of the drafts, {count} instances"
    return Evidence(None, scope, instances=count)


def _at_the_limit(q: Law, size: int, num_drafts: int) -> tuple[Fraction, ...]:
    drafted = sum(q[:size], Fraction(0))
    if not 0 < drafted < 1:
        return tuple(q)
    inside, outside = drafted ** (num_drafts - 1), (1 - drafted**num_drafts) / (1 - drafted)
    return tuple(x * (inside if i < size else outside) for i, x in enumerate(q))


def gains_rise(vocab_size: int, num_drafts: int) -> Evidence:
    """Refute that gains fall without replacement: the last token is worth all that was missing."""
    scope = f"V = {vocab_size}, K = {num_drafts}"
    if num_drafts >= vocab_size:
        return Evidence(None, scope, reason="K tokens are all that there are: try V above K")
    rest = Fraction(99, 100) / num_drafts
    q = [rest] * num_drafts + [Fraction(1, 100)] + [Fraction(0)] * (vocab_size - num_drafts - 1)
    p = tuple(Fraction(int(i == num_drafts)) for i in range(vocab_size))
    counts = range(num_drafts - 1, num_drafts + 2)
    rates = [optimum(p, q, n, WithoutReplacement) if n else Fraction(0) for n in counts]
    assert rates[2] - rates[1] > rates[1] - rates[0]
    told = (
        f"alpha* is {', '.join(map(approximate, rates))} for {', '.join(map(str, counts))} drafts"
    )
    drafts = WithoutReplacement(q, num_drafts)
    odd = Counterexample("gains rise", told, document(drafts), p, rates[1])
    return Evidence(False, scope, (odd,))
