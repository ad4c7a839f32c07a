"""The largest losses that rules for trees are known to have, in Fractions."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest
from support.tables import Table, output_law, target_law

from mdsd_opt.decoding import get_rule, k_ary, tree_bound, whole_paths
from mdsd_opt.errors import InvalidInput
from mdsd_opt.verifiers import worst_case

#: Rule: tree, first token's probability in p and in q at the root and after each token, and loss.
WORST = {
    "traversal": (
        k_ary(2, 2), (F(25, 64), F(57, 64), F(53, 128)), (F(5, 8), F(15, 16), F(165, 256)),
    ),
    "traversal_hull": (k_ary(2, 2), (F(1, 2), F(5, 8), F(5, 16)), (F(15, 32), F(1, 2), F(3, 4))),
    "level_sequential": (k_ary(2, 2), (F(1, 2), F(5, 8), F(5, 16)), (F(15, 32), F(1, 2), F(3, 4))),
    "greedy_multi_path": (whole_paths(2, 2), (F(5, 8), F(1, 2), F(5, 8)), None),
}  # fmt: skip


def table(first: tuple[F, ...]) -> Table:
    """Laws of two tokens after texts of up to two."""
    heads = dict(zip([(), (0,), (1,)], first, strict=True))
    return Table.of(2, 2, lambda text: [heads.get(text, F(1, 2)), 1 - heads.get(text, F(1, 2))])


@pytest.mark.parametrize("rule", WORST)
def test_instances_lose_what_is_told(rule: str) -> None:
    tree, p, q = WORST[rule]
    q = p if q is None else q
    target, draft = table(p), table(q)
    law, accepted = output_law(get_rule(rule), target, draft, tree, "with_replacement")
    assert np.array_equal(law, target_law(target, 3))  # lossless, exactly
    best = tree_bound(target.in_floats(), draft.in_floats(), tree, tolerance=1e-9)
    assert best.upper <= 2 + 1e-9
    told = worst_case(rule, 2, levels=2)
    assert told.at_least == pytest.approx(best.lower - float(accepted), abs=1e-6)
    for text in ((), (0,), (1,)):
        assert np.array_equal(told.target(text), target(text).astype(float))
        assert np.array_equal(told.draft(text), draft(text).astype(float))
    deeper = worst_case(rule, 2, levels=5)
    assert deeper.at_least >= told.at_least
    assert told.draft((0, 1)) @ told.target((0, 1)) == 0  # nothing more is accepted below


@pytest.mark.parametrize("rule", ["traversal", "optimal", "rrs", "kseq", "naive_target"])
@pytest.mark.parametrize("num_drafts", [2, 3, 40, 10**6])
@pytest.mark.parametrize("levels", [2, 4])
def test_rules_that_settle_a_level_lose_what_the_instance_says(
    rule: str, num_drafts: int, levels: int
) -> None:
    told = worst_case(rule, num_drafts, levels=levels)
    limit = (levels - 1) * (num_drafts - 1) * num_drafts ** (-num_drafts / (num_drafts - 1))
    assert told.at_least < told.at_most <= levels
    if num_drafts < 40 and (rule, num_drafts, levels) != ("traversal", 2, 2):
        assert 0.995 * limit < told.at_least < limit
    chance = 1 - (1 - told.draft((0,))[0]) ** num_drafts
    size = told.target(()).size
    assert told.target((0,))[0] == 1 or told.at_least > limit
    if size == 1000:  # a uniform first token, below which one draft is there with `chance`
        rng = np.random.default_rng(0)
        distinct = [np.unique(rng.integers(size, size=min(num_drafts, 10**5))).size for _ in "abc"]
        reached = np.mean([1 - (1 - chance) ** n for n in distinct])
        assert (levels - 1) * (reached - chance) == pytest.approx(told.at_least, abs=2e-3 * levels)
    if rule == "optimal":
        assert (told.at_most, told.least_share) == (levels - 1, 1 / levels)
    if rule == "traversal":
        assert levels - 0.86 < told.at_most < levels - 0.846118


def test_what_is_known_of_rules_that_look_down() -> None:
    for rule in ("traversal_hull", "level_sequential"):
        told = worst_case(rule, 3, levels=3)
        assert (told.at_least, told.at_most, told.least_share) == (0, 2, 1 / 3)
    many = worst_case("greedy_multi_path", 8, levels=2)
    assert many.at_least == pytest.approx(7 * 8 ** (-8 / 7), abs=2e-3)
    assert (many.at_most, many.least_share) == (2, 0)
    for rule in ("block_verification", "traversal", "traversal_hull"):
        chain = worst_case(rule, 1, levels=4)  # one path: block verification is the best
        assert (chain.at_least, chain.at_most, chain.least_share) == (0, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "levels", "said"),
    [
        (("traversal", 2), None, "give levels=2 or more"),
        (("traversal", 2), 1, "levels is 1: give an integer of at least 2"),
        (("traversal", 2), 2.5, "levels is 2.5"),
        (("race", 2), 2, "no worst case is known of the rule 'race'"),
        (("traversal", 2, "without_replacement"), 2, "drafts='without_replacement'"),
        (("block_verification", 2), 2, "takes one path: give num_drafts=1, not 2"),
    ],
)
def test_what_is_not_known_of_trees_is_refused(arguments: tuple, levels: int, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        worst_case(*arguments, levels=levels)


def test_traversal_loses_more_without_replacement() -> None:
    counts = {  # p and q after each text, of 24
        (): [(12, 12, 0), (5, 12, 7)], (0,): [(2, 10, 12), (8, 4, 12)],
        (1,): [(9, 0, 15), (3, 6, 15)], (2,): [(14, 4, 6), (10, 4, 10)],
    }  # fmt: skip
    even = [(8, 8, 8)] * 2
    laws = [
        Table.of(3, 2, lambda text, side=side: [F(n, 24) for n in counts.get(text, even)[side]])
        for side in (0, 1)
    ]
    rule, scheme = get_rule("traversal"), "without_replacement"
    _, accepted = output_law(rule, *laws, k_ary(2, 2), scheme)
    assert accepted == F(583, 408)
    best = tree_bound(*(x.in_floats() for x in laws), k_ary(2, 2), scheme, tolerance=1e-9)
    assert best.lower - float(accepted) == pytest.approx(0.571078, abs=1e-6)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_foremost_path_is_refused_a_quarter_where_p_is_q(size: int) -> None:
    table = Table.of(size, 1, lambda text: [F(1, size)] * size)
    _, accepted = output_law(
        get_rule("greedy_multi_path"), table, table, whole_paths(2, 1), "with_replacement"
    )
    assert accepted == F(3, 4) + (F(1, 4 * size**2) if size % 2 else 0)
