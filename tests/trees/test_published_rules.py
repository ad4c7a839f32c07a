"""Rules of papers and of their code, written anew, against ours: in Fractions, all trees listed."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from support import orders
from support.published_rules import UniVer, spectr_gbv_code, spectr_gbv_masses
from support.tables import output_law, pair, target_law, trees

import mdsd_opt as mo
from mdsd_opt.cddlib_checks import optimum
from mdsd_opt.decoding import get_rule, k_ary, tree_bound

GREEDY = "greedy"


def tables(seed, vocab_size, depth):
    return tuple(table.in_fractions() for table in pair(seed, vocab_size, depth))


LAST, FIRST = "drawn child last", "drawn child first"


def accepted_by(rule, seed, topology, vocab_size=3):
    target, draft = tables(seed, vocab_size, topology.depth)
    return output_law(rule, target, draft, topology, GREEDY)[1]


@pytest.mark.parametrize("order", ["by mass", LAST, FIRST])
@pytest.mark.parametrize("seed", range(3))
def test_univer_is_lossless_in_every_order(seed, order):
    target, draft = tables(seed, 3, 2)
    law, _ = output_law(UniVer(order), target, draft, k_ary(2, 2), GREEDY)
    assert (law == target_law(target, 3)).all()


@pytest.mark.parametrize(("topology", "vocab_size"), [(k_ary(2, 2), 3), (k_ary(3, 2), 4)])
@pytest.mark.parametrize("seed", range(3))
def test_univer_ends_where_the_traversal_by_the_hull_does(seed, topology, vocab_size):
    """The same ways to end, chances and laws, in Fractions: not only the same mean."""
    target, draft = tables(seed, vocab_size, topology.depth)
    for root, _ in trees(draft, topology, GREEDY):
        for node in root.walk():
            node.target = target(node.tokens)
        ways = [
            {stop.node.tokens: (stop.probability, tuple(stop.law)) for stop in rule.stops(root)
             if stop.probability}
            for rule in (UniVer(), get_rule("traversal_hull"))
        ]  # fmt: skip
        assert ways[0] == ways[1]


def test_the_order_of_tests_matters_from_two_levels_on():
    for seed in range(3):
        means = {accepted_by(UniVer(order), seed, k_ary(2, 1)) for order in ("by mass", LAST)}
        assert len(means) == 1
    ahead = [
        accepted_by(UniVer(order), seed, k_ary(2, 2)) - accepted_by(UniVer(), seed, k_ary(2, 2))
        for seed in range(6)
        for order in (LAST, FIRST)
    ]
    assert min(ahead) < 0 < max(ahead)  # neither order is the better one


def test_univer_is_below_the_optimum_of_the_tree():
    gaps = []
    for seed in range(6):
        model = (table.in_floats() for table in tables(seed, 3, 2))
        best = tree_bound(*model, k_ary(2, 2), GREEDY)
        assert best.gap < 1e-9
        orders = (UniVer(), UniVer(LAST), UniVer(FIRST))
        gaps.append(best.lower - max(float(accepted_by(r, seed, k_ary(2, 2))) for r in orders))
    assert min(gaps) > -1e-9
    assert max(gaps) > 1e-3


def fractions(*weights):
    return np.array([Fraction(n, sum(weights)) for n in weights], dtype=object)


def of_code(p, q, length, num_paths):
    return spectr_gbv_code(lambda text: p, lambda text: q, length, num_paths)


def off(law, p, num_tokens):
    """Total variation between the law of the first tokens and the target's."""
    right = p
    for _ in range(num_tokens - 1):
        right = np.multiply.outer(right, p)
    return abs(law.sum(axis=tuple(range(num_tokens, law.ndim))) - right).sum() / 2


def test_the_code_of_spectr_gbv_with_one_path_of_one_token_is_speculative_sampling():
    p, q = fractions(5, 3, 1), fractions(1, 1, 1)
    law, accepted = of_code(p, q, 1, 1)
    assert law.sum() == 1
    assert off(law, p, 2) == 0
    assert accepted == np.minimum(p, q).sum()


def test_the_code_of_spectr_gbv_with_two_paths_is_not_lossless():
    """By hand: three chances of acceptance, one residual."""
    p, q = fractions(5, 3, 1), fractions(1, 1, 1)
    law, accepted = of_code(p, q, 1, 2)
    passes = [
        x * (1 - (1 - min(y / x, 1)) ** 2) / (1 - (1 - y) ** 2) for x, y in zip(p, q, strict=True)
    ]
    refused = sum(y * (1 - a) for y, a in zip(q, passes, strict=True))
    left = p * [1 - min(y / x, 1) ** 2 for x, y in zip(p, q, strict=True)]
    first = q * passes * (1 + refused) + refused**2 * left / left.sum()
    assert (law.sum(axis=1) == first).all()
    assert accepted == 1 - refused**2
    assert off(law, p, 1) == Fraction(64, 1125)
    same = fractions(1, 1)
    assert of_code(same, same, 1, 2)[1] == Fraction(8, 9)  # where one draft alone would always pass


def test_the_code_of_spectr_gbv_with_one_path_of_two_tokens_is_not_lossless():
    """The first token is right, and the two after it are not: a step carries nothing to the next.

    Block verification of the same chain is lossless.
    """
    p, q = fractions(1, 4), fractions(2, 3)
    law, accepted = of_code(p, q, 2, 1)
    assert [off(law, p, n) for n in (1, 2, 3)] == [0, Fraction(1, 25), Fraction(1, 25)]
    pairs = [np.multiply.outer(x, x) for x in (p, q)]
    greedy = np.minimum(p, q).sum() + np.minimum(*pairs).sum()  # of greedy block verification
    assert accepted == greedy
    best = tree_bound(
        lambda text: p.astype(np.float64), lambda text: q.astype(np.float64), k_ary(1, 2)
    )
    assert accepted > best.upper + 1e-3


@pytest.mark.parametrize("seed", range(20))
def test_the_masses_of_its_design_fit_under_what_is_drafted(seed):
    """So that some lossless rule accepts them, and the optimum is not below."""
    rng = np.random.default_rng(seed)
    p, q = (fractions(*(rng.integers(0, 9, 4) + np.array([1, 0, 0, 1])).tolist()) for _ in range(2))
    num_paths = int(rng.integers(1, 5))
    masses = spectr_gbv_masses(p, q, num_paths)
    subsets = chain.from_iterable(combinations(range(4), n) for n in range(1, 5))
    for tokens in map(list, subsets):
        assert masses[tokens].sum() <= 1 - (1 - q[tokens].sum()) ** num_paths
    problem = mo.TransportProblem(p.tolist(), mo.WithReplacement(q.tolist(), num_paths))
    assert masses.sum() <= optimum(problem)
    if num_paths == 1:
        assert masses.sum() == optimum(problem)


def test_its_design_is_below_the_optimum_and_some_simple_rules():
    p, q = fractions(5, 3, 1), fractions(1, 1, 1)
    problem = mo.TransportProblem(p.tolist(), mo.WithReplacement(q.tolist(), 2))
    assert optimum(problem) == 1
    assert spectr_gbv_masses(p, q, 2).sum() == Fraction(41, 45)


SCHEMES = (GREEDY, "with_replacement", "without_replacement")


@pytest.mark.parametrize(
    ("scheme", "order"),
    list(zip(SCHEMES, [orders.as_drawn, orders.by_least_mass, orders.by_ratio], strict=True)),
)
def test_the_order_of_tests_changes_no_law(scheme, order):
    target, draft = tables(1, 3, 2)
    law, accepted = output_law(orders.InOrder(order), target, draft, k_ary(2, 2), scheme)
    assert (law == target_law(target, 3)).all()
    assert accepted == orders.Orders(target, draft, k_ary(2, 2), scheme, order).accepted()


class PeekingOrder(orders.InOrder):
    """Tests those children first after which token 0 was drawn."""

    def __init__(self):
        super().__init__(self.peek)

    def stops(self, root):
        self.nodes = {node.tokens: node for node in root.walk()}
        return super().stops(root)

    def peek(self, text, p, drafts, draws, masses):
        return sorted(masses, key=lambda x: 0 not in self.nodes[(*text, x)].draws)


def test_an_order_by_what_is_drawn_below_the_children_is_not_lossless():
    target, draft = tables(1, 3, 2)
    law, _ = output_law(PeekingOrder(), target, draft, k_ary(2, 2), "with_replacement")
    assert abs(law - target_law(target, 3)).sum() > Fraction(1, 1000)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_levels_need_no_trees_to_find_the_best_order(scheme):
    """The drafts after a child are accepted with its alpha in the mean: that tells the order."""
    model = *tables(0, 3, 2), k_ary(2, 2), scheme
    best = orders.Orders(*model).accepted()
    assert orders.Orders(*model, orders.one_level_on(*model)).accepted() == best
    hull = output_law(get_rule("traversal_hull"), *model)[1]
    assert hull == orders.Orders(*model, orders.by_mass).accepted() <= best
    assert best <= tree_bound(*(x.in_floats() for x in model[:2]), *model[2:]).upper + 1e-9


def test_no_order_that_is_blind_to_the_laws_after_the_children_is_the_best():
    """Two models that differ after the children alone: alpha(r) is min(r, 2/3), or min(r, 1/3)."""
    p = fractions(1, 1, 3)
    found = []
    for after in (fractions(1, 2, 2), fractions(2, 2, 1)):
        model = (
            lambda text: fractions(0, 0, 1) if text else p,
            lambda text, q=after: q if text else p,
            k_ary(2, 2), GREEDY,
        )  # fmt: skip
        below = {
            way: orders.Orders(*model).after((), {0: Fraction(2, 5), 2: Fraction(3, 5)}, way)
            for way in ((2, 0), (0, 2))
        }
        by_mass, by_least = (
            orders.Orders(*model, order).accepted()
            for order in (orders.by_mass, orders.by_least_mass)
        )
        assert by_mass - by_least == below[2, 0] - below[0, 2]  # after draws of 0 and of 1 alike
        found.append((below[2, 0], below[0, 2]))
    assert found == [
        (Fraction(13, 15), Fraction(12, 15)), (Fraction(7, 15), Fraction(8, 15)),
    ]  # fmt: skip


def test_at_three_levels_the_order_that_is_best_for_two_may_be_behind():
    model = *pair(17, 2, 3, near=True), k_ary(2, 3), "with_replacement"
    ahead, by_mass, best = (
        orders.Orders(*model, order).accepted()
        for order in (orders.one_level_on(*model), orders.by_mass, None)
    )
    assert ahead < by_mass - 1e-4 < best
