r"""What a rule can lose at most: the largest gap to the optimum over all targets and drafts.

Rates of most rules depend on p and q by one curve, :math:`\varphi(s) = \sum_i (p_i - s q_i)_+`, and
grow where it falls. Merging tokens lowers it, and never lowers the optimum, so that the worst
instances have two tokens, or one curve of thin ones. Proofs: docs/theory/worst-cases.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np

from mdsd_opt.base.array_types import Vector
from mdsd_opt.base.checked import checked_integer, is_among, of_kind
from mdsd_opt.drafts import WithoutReplacement, WithReplacement, checked_num_drafts
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers.worst_trees import RULES_FOR_TREES, WorstTree, worst_tree

#: Number of tokens, for each draft, of an instance that is reached in the limit of thin ones only,
#: and the most of them that are made.
_THIN, _MOST = 2000, 1 << 22

#: Mass that vanishes in the limit.
_FEW = 1e-9

#: A Gauss-Legendre rule on [-1, 1].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True, slots=True)
class WorstCase:
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
