r"""Checks of q-convexity, and of prefixes by p/w: is one of them always an optimal subset?

[Hu25]: for all H and x, y outside it,
:math:`[Q(H+x)-Q(H)]/w_x \le [Q(H+x+y)-Q(H+x)]/w_y`. It makes prefixes optimal: if y in H has a
ratio p/w no smaller than x outside H, and removing y does not help, then adding x does not hurt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise, permutations

import numpy as np

from mdsd_opt.cddlib_checks import double_description
from mdsd_opt.cddlib_checks.condition import FLOW
from mdsd_opt.cddlib_checks.draft_laws import document, mean_model, readable, set_law
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence, approximate
from mdsd_opt.cddlib_checks.subsets import (
    Row,
    best_cut,
    containment_table,
    describe,
    exact_acceptance,
    masses_of_subsets,
    members,
    primitive,
)
from mdsd_opt.drafts import DraftScheme, IndependentDrafts

#: Number of orders tried for each draw of the drafts beyond V = 4, where all would be too many.
_SAMPLED_ORDERS = 24


def _scope(schemes: Sequence[DraftScheme]) -> str:
    first = schemes[0]
    laws = "; ".join(readable(drafts) for drafts in schemes)
    return f"V = {first.vocab_size}, K = {first.num_drafts}, every target; {laws}"


def q_convexity(
    schemes: Sequence[DraftScheme], weights: Sequence[Fraction] | None = None
) -> Evidence:
    """Compare all slopes, in exact arithmetic, in the mean of the draft models unless given."""
    compared = 0
    for drafts in schemes:
        size = drafts.vocab_size
        w = mean_model(drafts) if weights is None else weights
        table = containment_table(set_law(drafts), size)
        weighted = [i for i in range(size) if w[i]]
        for mask in range(1 << size):
            for x in weighted:
                with_x = mask | 1 << x
                if with_x == mask:
                    continue
                for y in weighted:
                    both = with_x | 1 << y
                    if both == with_x:
                        continue
                    compared += 1
                    if (table[with_x] - table[mask]) * w[y] > (table[both] - table[with_x]) * w[x]:
                        counterexample = _steep(drafts, w, mask, x, y)
                        return Evidence(False, _scope([drafts]), (counterexample,))
    return Evidence(True, _scope(schemes), sizes={"slopes_compared": compared})


def convexity_falsifier(vocab_size: int, num_drafts: int, draws: int, seed: int = 0) -> Evidence:
    """Draw different draft models until Q is not convex in their mean."""
    rng = random.Random(seed)
    for draw in range(1, draws + 1):
        drafts = IndependentDrafts([_random_model(rng, vocab_size) for _ in range(num_drafts)])
        evidence = q_convexity([drafts])
        if evidence.holds is False:
            return replace(evidence, sizes={"draws_of_drafts": draw})
    return Evidence(
        None,
        f"V = {vocab_size}, K = {num_drafts}",
        instances=draws,
        reason=f"no counterexample for {draws} draws of the drafts",
    )


def _steep(drafts: DraftScheme, w: Sequence[Fraction], mask: int, x: int, y: int) -> Counterexample:
    def contained(h: int) -> Fraction:  # from the formula of the scheme, not from its set law
        return drafts.law(exact=True).containment(
            np.array([bool(h >> i & 1) for i in range(drafts.vocab_size)])
        )

    with_x, both = mask | 1 << x, mask | 1 << x | 1 << y
    first = (contained(with_x) - contained(mask)) / w[x]
    second = (contained(both) - contained(with_x)) / w[y]
    assert first > second
    return Counterexample(
        kind="not convex",
        explanation=f"adding {x} to {describe(mask)} raises Q by {approximate(first)} a unit of "
        f"weight, adding {y} after it by only {approximate(second)}",
        drafts=document(drafts),
        subset=members(mask),
        confirmed="the formula of Q(H), without the law of draft sets",
    )


def prefix_programmes(
    schemes: Sequence[DraftScheme], weights: Sequence[Fraction] | None = None
) -> Evidence:
    """Settle the claim for given drafts and every target by exact linear programmes."""
    solved = 0
    for drafts in schemes:
        w = mean_model(drafts) if weights is None else weights
        for order in permutations(i for i in range(drafts.vocab_size) if w[i]):
            odd, count = _search_order(drafts, w, order)
            solved += count
            if odd is not None:
                return Evidence(False, _scope([drafts]), (odd,), sizes={"programmes": solved})
    return Evidence(True, _scope(schemes), sizes={"programmes": solved})


def prefix_falsifier(vocab_size: int, num_drafts: int, draws: int, seed: int = 0) -> Evidence:
    """Draw different draft models and look for a target on which every prefix is suboptimal."""
    rng = random.Random(seed)
    solved = 0
    for draw in range(1, draws + 1):
        drafts = IndependentDrafts([_random_model(rng, vocab_size) for _ in range(num_drafts)])
        w = mean_model(drafts)
        if not all(w):
            continue
        orders = list(permutations(range(vocab_size)))
        if vocab_size > 4:
            orders = rng.sample(orders, min(len(orders), _SAMPLED_ORDERS))
        for order in orders:
            odd, count = _search_order(drafts, w, order)
            solved += count
            if odd is not None:
                sizes = {"draws_of_drafts": draw, "programmes": solved}
                return Evidence(False, _scope([drafts]), (odd,), sizes=sizes)
    return Evidence(
        None,
        f"V = {vocab_size}, K = {num_drafts}",
        sizes={"programmes": solved},
        instances=draws,
        reason=f"no counterexample for {draws} draws of the drafts, every target tried for each"
        + (" in some of its orders" if vocab_size > 4 else ""),
    )


def _random_model(rng: random.Random, vocab_size: int) -> list[Fraction]:
    """Random law in tenths; every other model lacks some tokens, where prefixes fail most."""
    total = 10
    while True:
        if rng.random() < 0.5:
            weights = [rng.choice((0, rng.randint(1, 9))) for _ in range(vocab_size)]
        else:
            weights = [rng.randint(1, 9) for _ in range(vocab_size)]
        if sum(weights):
            break
    scaled = [w * total // sum(weights) for w in weights]
    scaled[max(range(vocab_size), key=weights.__getitem__)] += total - sum(scaled)
    return [Fraction(x, total) for x in scaled]


def _search_order(
    drafts: DraftScheme, w: Sequence[Fraction], order: Sequence[int]
) -> tuple[Counterexample | None, int]:
    """Target with p/w ascending along `order` on which another subset beats all prefixes, if any.

    For each other subset A, maximise t with P(A) - Q(A) + t <= P(H) - Q(H) for all prefixes H.
    """
    size = drafts.vocab_size
    law = set_law(drafts)
    table = containment_table(law, size)
    prefixes = list(accumulate((1 << i for i in order), initial=0))
    common = _target_rows(size, w, order)
    objective = [0] * size + [1]
    solved = 0
    for mask in range(1, prefixes[-1]):
        if mask in prefixes or mask & ~prefixes[-1]:
            continue
        better = [
            primitive(
                [table[mask] - table[h], *((h >> i & 1) - (mask >> i & 1) for i in range(size)), -1]
            )
            for h in prefixes
        ]
        solved += 1
        best = double_description.maximise(common + better, objective)
        if best is not None and best[0] > 0:
            p = _strictly_ordered(best[1][:size], w, order, table, prefixes)
            return prefix_counterexample(drafts, p, order), solved
    return None, solved


def _target_rows(size: int, w: Sequence[Fraction], order: Sequence[int]) -> list[Row]:
    """Rows of p >= 0, sum p = 1, p/w ascending; columns constant, p, t."""
    rows = []
    for i in range(size):
        rows.append(primitive([0, *(int(j == i) for j in range(size)), 0]))
    for a, b in pairwise(order):
        row = [Fraction(0)] * (size + 2)
        row[1 + b], row[1 + a] = w[a], -w[b]
        rows.append(primitive(row))
    total = [-1, *[1] * size, 0]
    return [*rows, tuple(total), tuple(-x for x in total)]


def _gap(p: Sequence[Fraction], table: Sequence[Fraction], prefixes: Sequence[int]) -> Fraction:
    """Distance of the best prefix above the best subset."""
    mass = masses_of_subsets(p)
    rate, _ = best_cut(p, table)
    return 1 + min(mass[h] - table[h] for h in prefixes) - rate


def _strictly_ordered(
    p: Sequence[Fraction],
    w: Sequence[Fraction],
    order: Sequence[int],
    table: Sequence[Fraction],
    prefixes: Sequence[int],
) -> tuple[Fraction, ...]:
    """Nearby target without ties of p/w, so that no other order of ties saves the claim."""
    strict = [Fraction(0)] * len(p)
    for rank, i in enumerate(order, start=1):
        strict[i] = rank * w[i]
    total = sum(strict)
    share = Fraction(1, 8)
    while True:
        mixed = tuple((1 - share) * x + share * y / total for x, y in zip(p, strict, strict=True))
        if _gap(mixed, table, prefixes) > 0:
            return mixed
        share /= 2


def prefix_counterexample(
    drafts: DraftScheme, p: tuple[Fraction, ...], order: Sequence[int]
) -> Counterexample | None:
    """Proof that every prefix of `order` is suboptimal, or None if one is optimal."""
    law = set_law(drafts)
    table = containment_table(law, drafts.vocab_size)
    prefixes = list(accumulate((1 << i for i in order), initial=0))
    rate, mask = best_cut(p, table)
    mass = masses_of_subsets(p)
    prefix_value = 1 + min(mass[h] - table[h] for h in prefixes)
    if prefix_value == rate:
        return None
    assert exact_acceptance(p, law) == rate
    return Counterexample(
        kind="suboptimal prefix",
        explanation=f"subset {describe(mask)} gives the optimum, every prefix of the order "
        f"{', '.join(map(str, order))} by p / mean q gives {approximate(prefix_value)} or more",
        drafts=document(drafts),
        target=p,
        acceptance_rate=rate,
        subset=members(mask),
        confirmed=FLOW,
    )
