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


def table(first: tuple[F, ...], dtype: type) -> Table:
    """Laws of two tokens after texts of up to two."""
    made = Table(np.random.default_rng(0), 2, 2)
    heads = dict(zip([(), (0,), (1,)], first, strict=True))
    for text in made.laws:
        x = heads.get(text, F(1, 2))
        made.laws[text] = np.array([x, 1 - x], dtype=object).astype(dtype)
    return made


@pytest.mark.parametrize("rule", WORST)
def test_instances_lose_what_is_told(rule: str) -> None:
    tree, p, q = WORST[rule]
    q = p if q is None else q
    target, draft = table(p, object), table(q, object)
    law, accepted = output_law(get_rule(rule), target, draft, tree, "with_replacement")
    assert np.array_equal(law, target_law(target, 3))  # lossless, exactly
    best = tree_bound(table(p, float), table(q, float), tree, tolerance=1e-9)
    assert best.upper <= 2 + 1e-9
    told = f"is open: {best.lower - float(accepted):.6f}".rstrip("0")
    with pytest.raises(InvalidInput, match=told):
        worst_case(rule, 2)


def test_traversal_loses_more_without_replacement() -> None:
    counts = {  # p and q after each text, of 24
        (): [(12, 12, 0), (5, 12, 7)], (0,): [(2, 10, 12), (8, 4, 12)],
        (1,): [(9, 0, 15), (3, 6, 15)], (2,): [(14, 4, 6), (10, 4, 10)],
    }  # fmt: skip
    laws = [Table(np.random.default_rng(0), 3, 2) for _ in "pq"]
    for side, one in enumerate(laws):
        for text in one.laws:
            law = counts.get(text, [(8, 8, 8)] * 2)[side]
            one.laws[text] = np.array([F(n, 24) for n in law], dtype=object)
    rule, scheme = get_rule("traversal"), "without_replacement"
    _, accepted = output_law(rule, *laws, k_ary(2, 2), scheme)
    assert accepted == F(583, 408)
    in_floats = (lambda text, one=one: one(text).astype(float) for one in laws)
    best = tree_bound(*in_floats, k_ary(2, 2), scheme, tolerance=1e-9)
    assert best.lower - float(accepted) == pytest.approx(0.571078, abs=1e-6)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_foremost_path_is_refused_a_quarter_where_p_is_q(size: int) -> None:
    table = Table(np.random.default_rng(0), size, 1)
    for text in table.laws:
        table.laws[text] = np.array([F(1, size)] * size, dtype=object)
    _, accepted = output_law(
        get_rule("greedy_multi_path"), table, table, whole_paths(2, 1), "with_replacement"
    )
    assert accepted == F(3, 4) + (F(1, 4 * size**2) if size % 2 else 0)
