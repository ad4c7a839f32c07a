"""Rules for trees of likeliest tokens that engines have in kernels, written from descriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tree_rules import drawn

import mdsd_opt as mo
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import Node, Topology

PAGE = Path(__file__).parents[2] / "docs" / "shipped.md"

Law = list[Any]

P = [Fraction(n, 10) for n in (5, 3, 2)]
Q = [Fraction(n, 10) for n in (6, 3, 1)]


def each_by_its_ratio(p: Law, q: Law, drafts: Sequence[int]) -> tuple[Law, Law]:
    """Chance of each draft to be accepted, and weights of the token after all are refused.

    Draft x passes with min(1, p(x) / q(x)), whatever came before it; then comes max(p - q, 0).
    """
    chances, left = [], 1 + 0 * p[0]
    for x in drafts:
        chances.append(left * min(p[x] / q[x], 1))
        left -= chances[-1]
    return chances, [max(a - b, 0 * a) for a, b in zip(p, q, strict=True)]


def by_the_target_alone(p: Law, q: Law, drafts: Sequence[int]) -> tuple[Law, Law]:
    """The same: one uniform falls below the sum of p over the drafts so far, or comes the rest."""
    chances = [p[x] * (x not in drafts[:n]) for n, x in enumerate(drafts)]
    return chances, [0 * a if x in drafts else a for x, a in enumerate(p)]


Rule = Callable[[Law, Law, Sequence[int]], tuple[Law, Law]]


def one_token(rule: Rule, p: Law, q: Law, drafts: Sequence[int]) -> Law:
    """Law of the first token."""
    chances, rest = rule(p, q, drafts)
    refused, total = 1 - sum(chances), sum(rest)
    law = [refused * a / total if total else refused * b for a, b in zip(rest, p, strict=True)]
    for x, chance in zip(drafts, chances, strict=True):
        law[x] += chance
    return law


def distance(law: Law, p: Law) -> Fraction:
    return sum((abs(a - b) for a, b in zip(law, p, strict=True)), Fraction()) / 2


@pytest.mark.parametrize(("num_drafts", "law"), [(1, "5/6, 0, 1/6"), (2, "5/6, 1/6, 0")])
def test_ratios_suppose_drafts_that_are_drawn(num_drafts: int, law: str) -> None:
    """The likeliest tokens of q are certain, and their ratios are those of drawn ones."""
    found = one_token(each_by_its_ratio, P, Q, range(num_drafts))
    assert ", ".join(map(str, found)) == law
    assert distance(found, P) == Fraction(1, 3)
    assert f"({law})" in PAGE.read_text()


def test_drawn_siblings_need_a_residual_each() -> None:
    """One drawn draft is right; of two, the second is tested as if there were no first."""
    for num_drafts, expected in ((1, Fraction(0)), (2, Fraction(2, 25))):
        law = [Fraction()] * 3
        for drafts in product(range(3), repeat=num_drafts):
            chance = np.prod([Q[x] for x in drafts])
            for x, mass in enumerate(one_token(each_by_its_ratio, P, Q, drafts)):
                law[x] += chance * mass
        assert distance(law, P) == expected


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_the_target_alone_is_right_for_any_distinct_drafts(num_drafts: int) -> None:
    for drafts in product(range(3), repeat=num_drafts):
        if len(set(drafts)) == num_drafts:
            assert one_token(by_the_target_alone, P, Q, drafts) == P


def of_trees(rule: Rule) -> Any:
    """Texts of three tokens: the two likeliest, and two more after the first."""

    def verify(root: Node, rng: np.random.Generator) -> list[int]:
        node, tokens = root, []
        while node.children:
            assert node.drafts is not None
            drafts = node.draws.tolist()
            chances, rest = rule(node.target.tolist(), node.drafts.q.tolist(), drafts)
            weights = [*chances, max(1 - sum(chances), 0.0)]
            n = drawn(np.array(weights), rng)
            if n == len(drafts):
                return [*tokens, drawn(np.array(rest) if any(rest) else node.target, rng)]
            tokens.append(drafts[n])
            node = node.children[drafts[n]]
        return [*tokens, drawn(node.target, rng)]

    return mo.audit_tree(
        verify, TableModel(3, 6), TableModel(3, 7), Topology({(): 2, (0,): 2}, "likeliest"), 0,
        scheme="top_k", method="driven", driven_checks=5, num_trials=1_000,
    )  # fmt: skip


def test_whole_texts() -> None:
    wrong, right = of_trees(each_by_its_ratio), of_trees(by_the_target_alone)
    assert wrong.verdict_class == "lossy"
    assert right.verdict_class == "lossless", right.verdict
    # no rule accepts more of certain drafts than the target's own tokens do
    p, q = TableModel(3, 6), TableModel(3, 7)
    first, second = (np.argsort(-q(text))[:2] for text in ((), (int(np.argmax(q(()))),)))
    most = p(())[first].sum() + p(())[first[0]] * p((int(first[0]),))[second].sum()
    assert right.accept_length == pytest.approx(1 + most, abs=1e-9)
    text = " ".join(PAGE.read_text().split())
    assert f"lossy, {wrong.total_variation:.2g}" in text
