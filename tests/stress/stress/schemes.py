"""Draft schemes: Q of every subset, laws of sets and tuples, prefix curves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from support import oracles

from stress import reference
from stress.problems import BUILDERS, draw_case
from stress.tally import Tally, Trial

TOLERANCE = 1e-12


def check(rng: np.random.Generator, tally: Tally) -> None:
    for name in BUILDERS:
        case = draw_case(rng, name)
        with tally.trial(name, lambda case=case: str(case)) as trial:
            _check(rng, trial, case.drafts.scheme, case.drafts.contained, name)
        if name in _TUPLES:
            _check_tuples(tally, name, case)


def _check(rng, trial: Trial, scheme, contained, name: str) -> None:
    size = scheme.vocab_size
    for h, exact in enumerate(contained):
        subset = np.array([h >> i & 1 for i in range(size)], dtype=np.bool_)
        trial.near(scheme.containment(subset), exact, TOLERANCE, f"containment of {h:b}")
        trial.that(scheme.law(True).containment(subset) == exact, f"exact containment of {h:b}")
    order = rng.permutation(size)
    masks = [reference.mask_of(order[:j].tolist()) for j in range(size + 1)]
    curve = scheme.prefix_containment(order)
    for j, h in enumerate(masks):
        trial.near(curve[j], contained[h], TOLERANCE, f"prefix {j} of {order.tolist()}")
    exact_curve = scheme.law(True).prefix_containment(order).tolist()
    trial.that(exact_curve == [contained[h] for h in masks], "exact prefix curve")

    law = scheme.support_law()
    masses = {
        reference.mask_of(members): mass
        for members, mass in zip(law.sets(), law.mass.tolist(), strict=True)
    }
    _compare(trial, masses, _set_masses(contained, size), "set")
    exact_law = {
        reference.mask_of(s): m for s, m in scheme.law(True).support_law().masses().items()
    }
    trial.that(exact_law == _set_masses(contained, size), "exact law of the draft set")
    sample = scheme.sample(rng, 8)
    possible = _set_masses(contained, size)
    for row in sample:
        drawn = reference.mask_of([i for i in row.tolist() if i >= 0])
        trial.that(drawn in possible, f"sampled {row.tolist()}, which is impossible")


def _set_masses(contained, size: int) -> dict[int, Fraction]:
    """Law of the draft set from Q, by Moebius inversion."""
    masses = list(contained)
    for i in range(size):
        for h in range(1 << size):
            if h >> i & 1:
                masses[h] -= masses[h ^ 1 << i]
    return {h: mass for h, mass in enumerate(masses) if mass}


def _compare(trial: Trial, found: dict, exact: dict, what: str) -> None:
    for key in {*found, *exact}:
        mass, true = found.get(key, 0.0), exact.get(key, Fraction(0))
        trial.near(mass, true, TOLERANCE, f"mass of {what} {key}")
        trial.that(mass >= 0 and not (mass > 0 and true == 0), f"{what} {key} has mass {mass}")


_TUPLES = {
    "with replacement": oracles.with_replacement,
    "without replacement": oracles.without_replacement,
    "greedy": oracles.greedy,
    "top-K": oracles.top_k,
}


def _check_tuples(tally: Tally, name: str, case) -> None:
    """Laws of ordered tuples, where the order is defined."""
    scheme, q = case.drafts.scheme, case.drafts.model
    k = scheme.num_drafts
    with tally.trial(f"{name}, ordered", lambda: str(case)) as trial:
        law = {
            (*drafts, *(-1,) * (k - len(drafts))): mass
            for drafts, mass in _TUPLES[name](q.exact, k).items()
        }
        if name in ("greedy", "top-K"):  # which tokens are likeliest is decided by floats
            fixed = scheme.always_drafted.size
            ranks = [tuple(sorted(drafts[:fixed])) + drafts[fixed:] for drafts in law]
            law = dict(zip(ranks, law.values(), strict=True))
        tuples, masses = scheme.tuple_law()
        found = {tuple(t): m for t, m in zip(tuples.tolist(), masses.tolist(), strict=True) if m}
        rows, exact_masses = scheme.law(True).tuple_law()
        exact = dict(zip(map(tuple, rows.tolist()), exact_masses.tolist(), strict=True))
        if name in ("greedy", "top-K"):
            found = {tuple(sorted(t[:fixed])) + t[fixed:]: m for t, m in found.items()}
            exact = {tuple(sorted(t[:fixed])) + t[fixed:]: m for t, m in exact.items()}
        _compare(trial, found, law, "tuple")
        trial.that(exact == law, "exact law of the tuples")
