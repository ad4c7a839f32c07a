"""Rules of papers and of their code, written anew from descriptions, to be held against ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from mdsd_opt.trees import Node, Stop, TreeRule
from mdsd_opt.trees.rules.rule import completed

Text = tuple[int, ...]


class UniVer(TreeRule):
    """UniVer, arXiv 2605.04543, for greedy drafts: K - 1 fixed children of a node and a drawn one.

    Let r be the chance that a node is to be passed, m its drawn child of law q, and
    Z = 1 - r + sum (r p - q)_+, with q = 0 at the fixed children. Child m gets min(1, r p_m / q_m),
    a fixed child x gets r p_x (1 - that of m) / Z, and no text from here on gets
    (1 - r) (1 - that of m) / Z. The children are tested one after another, each with its mass over
    one less those before it. The order is free.
    """

    name: ClassVar[str] = "univer"

    def __init__(self, order: str = "by mass") -> None:
        self._place: Callable[[bool, Any], Any] = {
            "by mass": lambda drawn, mass: -mass,
            "drawn child last": lambda drawn, mass: drawn,
            "drawn child first": lambda drawn, mass: not drawn,
        }[order]

    def stops(self, root: Node) -> list[Stop]:
        found: list[Stop] = []
        return completed(found, root, self._visit(root, 1, 1, found))

    def _visit(self, node: Node, reach: Any, demand: Any, found: list[Stop]) -> Any:
        """Add the ways to end at or below a node; return the chance that there is none."""
        if reach <= 0 or demand <= 0:
            return reach
        if node.drafts is None:
            found.append(Stop(node, reach * demand))
            return reach * (1 - demand)
        drafts: Any = node.drafts
        target = demand * node.target
        fixed = drafts.always_drafted.tolist()
        exact = target.dtype == object
        q = drafts.law(exact).last_draw
        (drawn,) = [token for token in node.draws.tolist() if token not in fixed]
        left = np.maximum(target - q, 0)
        total = 1 - demand + left.sum()
        one = 1 + 0 * target[0]  # a float or a Fraction
        of_drawn = one if drawn < 0 else min(one, target[drawn] / q[drawn])
        masses = {x: target[x] * (1 - of_drawn) / total if total > 0 else 0 for x in fixed}
        none = (1 - demand) * (1 - of_drawn) / total if total > 0 else 0
        masses[drawn] = of_drawn
        tested = 0
        for token in sorted(masses, key=lambda x: (self._place(x == drawn, masses[x]), x)):
            if masses[token] <= 0 or tested >= 1:
                continue
            share = min(masses[token] / (1 - tested), 1)
            reach = self._visit(node.children[token], reach, share, found)
            tested += masses[token]
        if tested >= 1:
            return reach
        ends = 1 - none / (1 - tested)
        left[fixed] = 0
        found.append(Stop(node, reach * ends, left))
        return reach * (1 - ends)


def spectr_gbv_code(
    target: Callable[[Text], Any], draft: Callable[[Text], Any], length: int, num_paths: int
) -> tuple[Any, Any]:
    """The law of the first tokens after a step of SpecTr-GBV's public code, and the mean accepted.

    The code is junemily/SpecTr-GBV at commit e399f44, `src/engine.py`. The law has length + 1 axes:
    what a step leaves of them is completed by the target, as its next step would.
    """
    q = draft(())
    law = np.zeros_like(q, shape=(q.size,) * (length + 1))
    mean = 0
    every = list(product(range(q.size), repeat=length))
    for paths in product(every, repeat=num_paths):
        drawn = prod(_chance(draft, path) for path in paths)
        if not drawn:
            continue
        for ending, chance in _endings(target, draft, paths):
            path, accepted = ending
            mean += drawn * chance * accepted
            extra = _extra_law(target, draft, path, accepted, num_paths)
            for token in range(q.size):
                begun = (*path[:accepted], token)
                for rest in product(range(q.size), repeat=length - accepted):
                    text = (*begun, *rest)
                    goes_on = _chance(target, text) / _chance(target, begun) if rest else 1
                    law[text] += drawn * chance * extra[token] * goes_on
    return law, mean


def spectr_gbv_masses(p: Any, q: Any, num_paths: int) -> Any:
    """Mass that each token is to be accepted with by design, p (1 - (1 - min(q/p, 1))^K)."""
    return np.array([x * (1 - _miss(y, x, num_paths)) for x, y in zip(p, q, strict=True)])


def _chance(model: Callable[[Text], Any], text: Text) -> Any:
    return prod(model(text[:n])[token] for n, token in enumerate(text))


def _ratio(above: Any, below: Any) -> Any:
    if below == 0:
        return 1 if above > 0 else 0
    return min(above / below, 1)


def _miss(q: Any, p: Any, num_paths: int) -> Any:
    return (1 - _ratio(q, p)) ** num_paths


def _endings(target: Any, draft: Any, paths: Any) -> Iterator[tuple[tuple[Text, int], Any]]:
    """Chosen path and its number of accepted tokens, with the chance, for every way to pass tests.

    Each path is tested at its beginnings that are longer than what is accepted, but not at one that
    was refused before; then as a whole, also if an equal one was refused. The last beginning that
    passes counts, and a whole path ends it.
    """
    num_paths, length = len(paths), len(paths[0])

    def beginning(text: Text) -> Any:
        of_draft, of_target = _chance(draft, text), _chance(target, text)
        ahead = [
            (of_draft * y, of_target * x)
            for x, y in zip(target(text), draft(text), strict=True)
        ]  # fmt: skip
        missed = sum(x * _miss(y, x, num_paths) for y, x in ahead)
        above = missed - of_target * _miss(of_draft, of_target, num_paths)
        below = 1 - (1 - of_draft) ** num_paths - (of_target - missed)
        if below == 0:
            return 1 if above > 0 else 0
        return max(min(above / below, 1), 0)

    def whole(text: Text) -> Any:
        of_draft, of_target = _chance(draft, text), _chance(target, text)
        below = 1 - (1 - of_draft) ** num_paths
        return min(of_target * (1 - _miss(of_draft, of_target, num_paths)) / below, 1)

    def tests(j: int, n: int, ending: Any, refused: frozenset[Text], chance: Any) -> Any:
        """Tests from beginning n + 1 of path j on."""
        if not chance:
            return
        if j == num_paths:
            yield ending, chance
        elif n + 1 < length:
            text = paths[j][: n + 1]
            if text in refused:
                yield from tests(j, n + 1, ending, refused, chance)
                return
            passes = beginning(text)
            yield from tests(j, n + 1, (paths[j], n + 1), refused, chance * passes)
            yield from tests(j, n + 1, ending, refused | {text}, chance * (1 - passes))
        else:
            passes = whole(paths[j])
            if passes:
                yield (paths[j], length), chance * passes
            yield from tests(j + 1, ending[1], ending, refused, chance * (1 - passes))

    yield from tests(0, 0, (paths[0], 0), frozenset(), 1)


def _extra_law(target: Any, draft: Any, path: Text, accepted: int, num_paths: int) -> Any:
    """Law of the token after what is accepted: p (1 - min(q/p, 1)^K), where K = 1 has p - q."""
    text = path[:accepted]
    p = target(text)
    if accepted == len(path):
        return p
    of_draft, of_target = _chance(draft, text), _chance(target, text)
    left = [
        of_target * x * (1 - _ratio(of_draft * y, of_target * x) ** num_paths)
        for x, y in zip(p, draft(text), strict=True)
    ]
    return np.array([x / sum(left) for x in left]) if sum(left) else p
