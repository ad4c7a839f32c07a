"""Rules that see q at their drafts alone: a rule that is lossless, and the limit of all of them."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.cddlib_checks.blind_rules import BlindRule
from mdsd_opt.data import sample_logits_path


def random_law(rng: random.Random, size: int, zeros: bool = False) -> list[Fraction]:
    weights = [rng.choice((1, 1, 2, 5, 30)) * rng.choice((1, 1, 7)) for _ in range(size)]
    if zeros:
        weights[rng.randrange(size)] = 0
    return [Fraction(x, sum(weights)) for x in weights]


@pytest.mark.parametrize(("size", "num_drafts"), [(3, 2), (5, 2), (4, 3), (6, 3), (5, 4)])
def test_the_rule_is_lossless_and_between_matching_and_its_limit(
    size: int, num_drafts: int
) -> None:
    rng = random.Random(size * num_drafts)
    reached = 0
    for trial in range(30):
        p, q = random_law(rng, size, trial % 5 == 4), random_law(rng, size, trial % 3 == 2)
        if trial == 0:  # laws so flat that no T is bounded by the mass on its drafts
            p = q = [Fraction(1, size)] * size
        rule = BlindRule(p, q, num_drafts)
        subsets = [
            frozenset(part)
            for n in range(1, num_drafts + 1)
            for part in combinations([i for i, x in enumerate(q) if x], n)
        ]
        joint = {subset: rule.joint(subset) for subset in subsets}
        assert min(min(masses) for masses in joint.values()) >= 0
        assert [sum(column) for column in zip(*joint.values(), strict=True)] == p
        rate = sum(masses[i] for subset, masses in joint.items() for i in subset)
        matched, limit = (
            verifiers.get("naive_target").enumerated_acceptance_rate(
                mo.TransportProblem(p, kind(q, num_drafts)), exact=True
            )
            for kind in (mo.WithReplacement, mo.WithoutReplacement)
        )
        assert matched <= rate <= limit
        if not any(rule.is_bound(subset) for subset in subsets if len(subset) < num_drafts):
            assert rate == limit
            reached += 1
    assert bool(reached) == (num_drafts == 2)


def test_what_is_seen_is_what_is_used() -> None:
    """Other laws with the same q at the drafts have the same law of the output."""
    p = random_law(random.Random(1), 5)
    q = [Fraction(x, 20) for x in (3, 5, 4, 6, 2)]
    other = [Fraction(x, 20) for x in (3, 5, 7, 1, 4)]
    assert BlindRule(p, q, 2).joint(frozenset({0, 1})) == BlindRule(p, other, 2).joint(
        frozenset({0, 1})
    )


@pytest.mark.parametrize(
    ("temperature", "digits"), [(1.0, (0.274, 0.283, 0.286)), (0.3, (0.667, 0.697, 0.773))]
)
def test_the_page_has_the_rates_of_real_logits(
    temperature: float, digits: tuple[float, ...]
) -> None:
    sample = np.load(sample_logits_path())
    p, q = (mo.softmax(sample[side], temperature=temperature) for side in ("target", "draft"))
    matched = 1 - (p * (1 - q) ** 2).sum(axis=1)
    both = (p * q).sum(axis=1, keepdims=True)
    spent = np.minimum(q * (1 - p) / np.maximum(1 - q, 1e-300), 2 * p)
    rule = matched + (q * spent * (both - p * q) / np.maximum(1 - p, 1e-300)).sum(axis=1)
    limit = mo.acceptance_rates(
        p, q, 2, drafts="without_replacement", verifier="naive_target", kind="probs"
    )
    found = [rates.mean() for rates in (matched, rule, limit)]
    assert found == pytest.approx(digits, abs=6e-4)
