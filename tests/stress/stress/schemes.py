"""Draft schemes: Q of every subset, laws of sets and tuples, prefix curves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from support import oracles

from stress import reference
from stress.problems import BUILDERS, Drafts, draw_case
from stress.tally import Tally, Trial

TOLERANCE = 1e-12


def check(rng: np.random.Generator, tally: Tally) -> None:
    for name in BUILDERS:
        case = draw_case(rng, name)
        with tally.trial(name, lambda case=case: str(case)) as trial:
            _check(rng, trial, case.drafts)
        if name in _ORDERED:
            with tally.trial(f"{name}, ordered", lambda case=case: str(case)) as trial:
                _check_tuples(trial, case.drafts, name in ("greedy", "top-K"))


def _check(rng, trial: Trial, drafts: Drafts) -> None:
    scheme, contained, size = drafts.scheme, drafts.contained, drafts.scheme.vocab_size
    sets = {reference.mask_of([*s]): mass for s, mass in oracles.set_law(drafts.law).items()}
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
    _compare(trial, masses, sets, "set")
    exact_law = {
        reference.mask_of(s): m for s, m in scheme.law(True).support_law().masses().items()
    }
    trial.that(exact_law == sets, "exact law of the draft set")
    sample = scheme.sample(rng, 8)
    for row in sample:
        drawn = reference.mask_of([i for i in row.tolist() if i >= 0])
        trial.that(drawn in sets, f"sampled {row.tolist()}, which is impossible")


def _compare(trial: Trial, found: dict, exact: dict, what: str) -> None:
    for key in {*found, *exact}:
        mass, true = found.get(key, 0.0), exact.get(key, Fraction(0))
        trial.near(mass, true, TOLERANCE, f"mass of {what} {key}")
        trial.that(mass >= 0 and not (mass > 0 and true == 0), f"{what} {key} has mass {mass}")


#: Of these the order of a tuple is defined.
_ORDERED = ("with replacement", "without replacement", "greedy", "top-K")


def _check_tuples(trial: Trial, drafts: Drafts, has_fixed: bool) -> None:
    """Laws of ordered tuples, but for the order of drafts that are certain."""
    k, fixed = drafts.scheme.num_drafts, 0
    if has_fixed:
        fixed = drafts.scheme.always_drafted.size

    def ordered(tuples, masses) -> dict:
        rows = [(tuple(sorted(row[:fixed])) + tuple(row[fixed:])) for row in tuples]
        return {row: mass for row, mass in zip(rows, masses, strict=True) if mass}

    rows = [(*x, *(-1,) * (k - len(x))) for x in drafts.law]
    law = ordered(rows, drafts.law.values())
    found, exact = (
        ordered(*(x.tolist() for x in scheme.tuple_law()))
        for scheme in (drafts.scheme, drafts.scheme.law(True))
    )
    _compare(trial, found, law, "tuple")
    trial.that(exact == law, "exact law of the tuples")
