r"""What a rule can lose at most: the largest gap to the optimum over all targets and drafts.

Rates of most rules depend on p and q by one curve, :math:`\varphi(s) = \sum_i (p_i - s q_i)_+`, and
grow where it falls. Merging tokens lowers it, and never lowers the optimum, so that the worst
instances have two tokens, or one curve of thin ones. Proofs: docs/theory/worst-cases.md.

Of several levels, a rule that settles a level before it looks at the next one accepts a token of
which the next level's draft is as rare as of any other; one that looks down takes a token below
which it is there. Proofs: docs/theory/trees.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, overload

import numpy as np

from mdsd_opt.base.arrays import Vector
from mdsd_opt.base.checked import checked_integer, is_among, of_kind
from mdsd_opt.base.frames import Result
from mdsd_opt.drafts import WithoutReplacement, WithReplacement, checked_num_drafts
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.problem import TransportProblem

#: Number of tokens, for each draft, of an instance that is reached in the limit of thin ones only,
#: and the most of them that are made.
_THIN, _MOST = 2000, 1 << 22

#: Mass that vanishes in the limit.
_FEW = 1e-9

#: A Gauss-Legendre rule on [-1, 1].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True, slots=True)
class WorstCase(Result):
    r"""The largest gap between the optimum and a rule, and an instance that shows it.

    Attributes
    ----------
    rule, drafts : str
        The verifier, and the scheme by which the drafts of the optimum are drawn.
    num_drafts : int
    gap : float
        Supremum of :math:`\alpha^* - \alpha` over all p, q and vocabularies.
    least_share : float or None
        Infimum of :math:`\alpha / \alpha^*`; None where it is not known.
    proven : bool
        Whether it is proven that no instance has a larger gap; otherwise none was found.
    attained : bool
        Whether `problem` has this gap exactly; otherwise it comes near.
    problem : TransportProblem
        The instance.
    """

    rule: str
    drafts: str
    num_drafts: int
    gap: float
    least_share: float | None
    proven: bool
    attained: bool
    problem: TransportProblem = field(repr=False)

    columns: ClassVar = (
        "rule", "drafts", "num_drafts", "gap", "least_share", "proven", "attained",
    )  # fmt: skip


class _Case(NamedTuple):
    gap: float
    least_share: float | None
    target: Vector
    draft: Vector
    proven: bool = True
    attained: bool = True


#: Most levels of a tree: its instances are written out text by text.
_MOST_LEVELS = 10_000


@overload
def worst_case(
    rule: str, num_drafts: int, drafts: str | None = None, *, levels: None = None
) -> WorstCase: ...
@overload
def worst_case(
    rule: str, num_drafts: int, drafts: str | None = None, *, levels: int
) -> WorstTree: ...
def worst_case(
    rule: str, num_drafts: int, drafts: str | None = None, *, levels: int | None = None
) -> WorstCase | WorstTree:
    r"""Supremum of :math:`\alpha^*_K - \alpha_K` of a rule, over all targets and drafts.

    With K i.i.d. drafts the constants are sharp and proven. Of rrs it is
    :math:`\frac{K-1}{2K-1} (\frac{K}{2K-1})^{K/(K-1)}`, which rises to 1/4; of K-SEQ it is
    :math:`u^K` with :math:`K (\frac{K}{K-1})^{K-1} u^{K-1} = 1 + u + \dots + u^{K-1}`, which rises
    to .173637; of the race :math:`\max_A \int_A^1 (1 - \frac{1}{1 + A + (K-1)y})^K dy`, which falls
    to .148496; of what SpecTr-GBV is to accept of one token :math:`\int (1 - K^{-1}
    y^{1/K-1})_+^K dy` over [0, 1], from .096574 at K = 2 towards .148496 as well. Without
    replacement 1/4 (rrs) and :math:`3 - 2\sqrt 2` (race) are reached, and no more was found.

    Of several levels the supremum is bracketed, with K drafts with replacement after every node.
    `traversal`, and any verifier from the root down, settle a draft before they know what is below
    it, and lose up to almost all but one level; `traversal_hull` and `level_sequential` look down,
    and no such loss of them is known.

    Parameters
    ----------
    rule : str
        "optimal", "rrs", "kseq", "race", "naive_target" or "spectr_gbv". Of several levels one of
        the first three or "naive_target", which go down from the root, "traversal",
        "traversal_hull", "level_sequential", "block_verification" or "greedy_multi_path".
    num_drafts : int
        K.
    drafts : str, optional
        "with_replacement" or "without_replacement"; what the rule takes, if it takes one of them.
        The race, whose drafts are distinct, is compared with either optimum.
    levels : int, optional
        Levels of a tree, two or more.

    Returns
    -------
    WorstCase
        Or a `WorstTree`, with `levels`.

    Raises
    ------
    InvalidInput
        Nothing is known of the rule with such drafts.
    ProblemTooLarge
        No instance of thin tokens is made for so many drafts.

    Notes
    -----
    Source: this package.
    """
    k, rule = checked_num_drafts(num_drafts), of_kind(rule, str, "rule", "its name")
    if levels is not None:
        down = {name: make(k) for (name, kind), make in WORST_CASES.items()
                if kind == "with_replacement" and name in ("optimal", "rrs", "kseq")}  # fmt: skip
        shares = {name: case.least_share or 0.0 for name, case in down.items()}
        shares["naive_target"] = 0.0
        if rule not in (*RULES_FOR_TREES, *shares) or not is_among(drafts, ("with_replacement",)):
            raise InvalidInput(
                f"of several levels no worst case is known of the rule {rule!r} with "
                f"drafts={drafts!r}: there are {', '.join((*shares, *RULES_FOR_TREES))}, with "
                "replacement"
            )
        return worst_tree(rule, k, checked_integer(levels, "levels", 2, _MOST_LEVELS), shares)
    if rule in RULES_FOR_TREES:
        raise InvalidInput(f"{rule!r} is a rule for trees: give levels=2 or more")
    known = [scheme for name, scheme in WORST_CASES if name == rule]
    scheme = next(iter(known), None) if drafts is None else drafts
    if scheme is None or not is_among(scheme, known):
        have = ", ".join(f"{name!r} ({scheme})" for name, scheme in WORST_CASES)
        raise InvalidInput(
            f"no worst case is known of the rule {rule!r} with drafts={drafts!r}: there are {have}"
        )
    case = WORST_CASES[rule, scheme](k)
    kind = WithReplacement if scheme == "with_replacement" else WithoutReplacement
    problem = TransportProblem(case.target, kind(case.draft, k))
    return WorstCase(
        rule, scheme, k, case.gap, case.least_share, case.proven, case.attained, problem
    )


def _two_tokens(x: float, k: int) -> tuple[Vector, Vector]:
    """Target and draft of two tokens at which K draws with replacement have acceptance one."""
    return np.array([x**k, 1 - x**k]), np.array([x, 1 - x])


def _nothing_lost(k: int) -> _Case:
    return _Case(0.0, 1.0, *_two_tokens(0.5, k))


def _rrs(k: int) -> _Case:
    if k == 1:
        return _nothing_lost(k)
    shrinks = k / (2 * k - 1)
    x = shrinks ** (1 / (k - 1))
    gap = (k - 1) / (2 * k - 1) * shrinks * x
    return _Case(gap, 1 - gap, *_two_tokens(x, k))


def _kseq(k: int) -> _Case:
    """The root u by bisection of logarithms, both sides divided by u^(K-1), so that one falls."""
    if k == 1:
        return _nothing_lost(k)
    wanted = math.log(k) - (k - 1) * math.log1p(-1 / k)
    low, high = 0.0, (k - 1) / k
    while low < (middle := (low + high) / 2) < high:
        sums = -math.expm1(k * math.log(middle)) / (1 - middle)  # 1 + u + ... + u^(K-1)
        falling = math.log(sums) - (k - 1) * math.log(middle)
        low, high = (middle, high) if falling > wanted else (low, middle)
    gap = math.exp(k * math.log(high))
    return _Case(gap, 1 - gap, *_two_tokens(k * high / (k - 1), k))


def _thin(k: int) -> int:
    """Number of tokens that are thin beside K drafts; `ProblemTooLarge` for too many."""
    if k * _THIN <= _MOST:
        return k * _THIN
    raise ProblemTooLarge(
        f"an instance that shows it with K = {k} takes more than {_MOST:,} tokens, {_THIN} for "
        f"each draft: give num_drafts up to {_MOST // _THIN}"
    )


def _naive_target(k: int) -> _Case:
    size = _thin(k)
    flat = np.full(size, 1 / size)
    return _Case(1.0, 0.0, flat, flat, attained=False)


def _race_with(k: int) -> _Case:
    from scipy import optimize

    def kept(a: float) -> float:
        return -_lost_on_thin(a, k, lambda y: 1 + a + (k - 1) * y)

    least = optimize.minimize_scalar(
        kept, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-9}
    )
    share = -math.expm1(k * math.log1p(-1 / (k + 1)))
    thin = _thin_tokens(float(least.x), k, _thin(k))
    return _Case(-float(least.fun), share, *thin, attained=False)


def _spectr_gbv(k: int) -> _Case:
    if k == 1:
        return _nothing_lost(k)
    gap = _lost_on_thin(k ** (-k / (k - 1)), k, lambda y: k * y ** (1 - 1 / k))
    share = -math.expm1(k * math.log1p(-1 / k))
    return _Case(gap, share, *_thin_tokens(0.0, k), attained=False)


def _lost_on_thin(low: float, k: int, ratio: Callable[[Vector], Vector]) -> float:
    """Integral of (1 - 1/w)^K over y from `low` to 1, where w is the `ratio` at y."""
    y = low + (1 - low) * (_NODES + 1) / 2
    return float((1 - low) / 2 * (_WEIGHTS @ np.exp(k * np.log1p(-1 / ratio(y)))))


def _thin_tokens(rejected: float, k: int, refused: int = _THIN) -> tuple[Vector, Vector]:
    """Thin tokens whose prefixes have p(H) = (q(H)^K - rejected)_+: none is better than another.

    Those with p have as much of it each, whatever K; those without are `refused` in number.
    """
    p = np.full(_THIN // 2, (1 - rejected) / (_THIN // 2))
    with np.errstate(divide="ignore"):
        above = -np.expm1(np.log(rejected + np.append(0.0, np.cumsum(p))) / k)  # 1 - q(H)
    below = np.full(refused if rejected else 0, (1 - above[0]) / refused)
    q = np.concatenate([below, -np.diff(above), [0.0]])
    return np.concatenate([np.zeros(below.size), p, [rejected]]), q


def _race_without(k: int) -> _Case:
    """K - 1 drafts are spent on tokens without p; the race for one draft is what is left."""
    p, q = _behind(*_thin_tokens(math.sqrt(2) - 1, 1), k - 1)
    return _Case(3 - 2 * math.sqrt(2), None, p, q, proven=k == 1, attained=False)


def _rrs_without(k: int) -> _Case:
    """The likely token comes first, and its refusal leaves a draft that is right half the time."""
    if k == 1:
        return _nothing_lost(k)
    p, q = np.array([0.0, 0.5, 0.5]), np.array([_FEW, 1 - 2 * _FEW, _FEW])
    return _Case(0.25, None, *_behind(p, q, k - 2), proven=False, attained=False)


def _behind(p: Vector, q: Vector, spent: int) -> tuple[Vector, Vector]:
    """The same behind tokens that are nearly always drafted first, and have no p."""
    if spent == 0:
        return p, q
    first = np.full(spent, (1 - _FEW) / spent)
    return np.concatenate([np.zeros(spent), p]), np.concatenate([first, _FEW * q])


#: Constants by rule and by the scheme of the optimum's drafts, the usual scheme first.
WORST_CASES: dict[tuple[str, str], Callable[[int], _Case]] = {
    ("optimal", "with_replacement"): _nothing_lost,
    ("optimal", "without_replacement"): _nothing_lost,
    ("rrs", "with_replacement"): _rrs,
    ("rrs", "without_replacement"): _rrs_without,
    ("kseq", "with_replacement"): _kseq,
    ("spectr_gbv", "with_replacement"): _spectr_gbv,
    ("race", "without_replacement"): _race_without,
    ("race", "with_replacement"): _race_with,
    ("naive_target", "with_replacement"): _naive_target,
    ("naive_target", "without_replacement"): _naive_target,
}


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
class WorstTree(Result):
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

    columns: ClassVar = (
        "rule", "num_drafts", "levels", "at_least", "at_most", "least_share",
    )  # fmt: skip


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
