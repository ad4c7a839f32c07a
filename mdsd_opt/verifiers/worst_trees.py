r"""What rules for trees of drafts lose of several levels, between what is proven from both sides.

A rule that settles a level before it looks at the next one accepts a token of which the next
level's draft is as rare as of any other; one that looks down takes a token below which it is there.
Proofs: docs/theory/trees.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mdsd_opt.base.array_types import Vector
from mdsd_opt.errors import InvalidInput

#: Law after a text, given as its tokens.
Laws = Callable[[Sequence[int]], Vector]

#: Tokens of the instances: many, as of few the same ones are drawn again.
_TOKENS = 1000

#: What rules lose of two levels of two drafts with replacement: the first token's probability in p
#: and q at the root and after each of two tokens. Found by benchmarks/worst_trees.py.
_HULL = 0.122498, (1 / 2, 5 / 8, 5 / 16), (15 / 32, 1 / 2, 3 / 4)
_FOUND: Mapping[str, tuple[float, tuple[float, ...], tuple[float, ...]]] = {
    "traversal": (0.360901, (25 / 64, 57 / 64, 53 / 128), (5 / 8, 15 / 16, 165 / 256)),
    "traversal_hull": _HULL,
    "level_sequential": _HULL,
    "greedy_multi_path": (0.566406, (5 / 8, 1 / 2, 5 / 8), (5 / 8, 1 / 2, 5 / 8)),
}

RULES_FOR_TREES = (*_FOUND, "block_verification")


@dataclass(frozen=True, slots=True)
class WorstTree:
    """What a rule for trees loses of several levels, in accepted drafts, and an instance.

    Attributes
    ----------
    rule : str
    num_drafts, levels : int
        Drafts with replacement after every node, and levels of the tree; of "greedy_multi_path",
        whole paths and their length.
    at_least : float
        Loss of the instance, at least: 0 where none is known.
    at_most : float
        No laws of any vocabulary lose more.
    least_share : float
        Share of the optimum that the rule accepts, at least.
    target, draft : callable
        The instance: functions from the tokens of a text to the law (V,) after it.
    """

    rule: str
    num_drafts: int
    levels: int
    at_least: float
    at_most: float
    least_share: float
    target: Laws = field(repr=False)
    draft: Laws = field(repr=False)


def worst_tree(rule: str, k: int, levels: int, shares: Mapping[str, float]) -> WorstTree:
    """Bracket for one rule; `shares` of verifiers, and of `rrs`, are those of one token."""
    if rule == "block_verification" and k != 1:
        raise InvalidInput(f"block_verification takes one path: give num_drafts=1, not {k}")
    same = _by_length(np.full(2, 0.5))
    if k == 1 and rule in RULES_FOR_TREES:  # all of them are block verification
        return WorstTree(rule, k, levels, 0.0, 0.0, 1.0, same, same)
    if rule == "traversal":
        most, share = levels - _kappa(1 - shares["rrs"]), shares["rrs"] / levels
    elif rule == "greedy_multi_path":
        most, share = float(levels), 0.0
    else:
        first = 1.0 if rule in _FOUND else shares[rule]  # of the optimum at the root
        most, share = levels - first, first / levels
    found = [(0.0, same, same)]
    if k == 2 and rule in _FOUND:
        loss, p, q = _FOUND[rule]
        found.append((loss, _heads(p, 0), _heads(q, 1)))
    if rule == "greedy_multi_path":
        found.append(_foremost(k))
    elif rule not in ("traversal_hull", "level_sequential"):
        found.append(_rare_child(k, levels))
    least, target, draft = max(found, key=lambda one: one[0])
    return WorstTree(rule, k, levels, least, most, share, target, draft)


def _kappa(lost: float) -> float:
    """Least of 1 - u + u^2 + (1 - lost) u^3 / -log(1 - u) in between 0 and 1."""
    from scipy import optimize

    found = optimize.minimize_scalar(
        lambda u: 1 - u + u**2 - (1 - lost) * u**3 / np.log1p(-u),
        bounds=(1e-3, 1 - 1e-3), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    return float(found.fun)


def _by_length(*laws: Vector) -> Laws:
    """One law after all texts of a length, the last one after longer ones."""
    return lambda text: laws[min(len(text), len(laws) - 1)]


def _one(size: int, token: int) -> Vector:
    return np.eye(1, size, token)[0]


def _heads(first: tuple[float, ...], beyond: int) -> Laws:
    """Laws of two tokens by the text's first; below two levels all of them on one token."""

    def law(text: Sequence[int]) -> Vector:
        if len(text) > 1:
            return _one(2, beyond)
        head = first[1 + text[0] if text else 0]
        return np.array([head, 1 - head])

    return law


def _rare_child(k: int, levels: int) -> tuple[float, Laws, Laws]:
    """First p = q. After every token p is on one, which is drafted below few; then p = q again."""
    from scipy import optimize, stats

    counts = np.arange(_TOKENS + 1)
    all_in = (counts / _TOKENS) ** k

    def lost(chance: float) -> float:
        """Chance that it is below some drafted token, less that below one of them."""
        return 1 - float(stats.binom.pmf(counts, _TOKENS, 1 - chance) @ all_in) - chance

    found = optimize.minimize_scalar(lambda x: -lost(x), bounds=(1e-6, 1 - 1e-6), method="bounded")
    chance = float(found.x)
    flat, one = np.full(_TOKENS, 1 / _TOKENS), _one(_TOKENS, 0)
    drafted = -np.expm1(np.log1p(-chance) / k)
    rare = _one(_TOKENS, 1) * (1 - drafted) + drafted * one
    loss = (levels - 1) * max(lost(chance), 0.0)
    return loss, _by_length(flat, one), _by_length(flat, rare, one)


def _foremost(k: int) -> tuple[float, Laws, Laws]:
    """First p = q, of which the foremost of K drafts is another law; then nothing is right."""
    kept = np.minimum(np.diff((np.arange(_TOKENS + 1) / _TOKENS) ** k), 1 / _TOKENS)
    flat = np.full(_TOKENS, 1 / _TOKENS)
    right, wrong = (_by_length(flat, _one(_TOKENS, token)) for token in (0, 1))
    return 1 - float(kept.sum()), right, wrong
