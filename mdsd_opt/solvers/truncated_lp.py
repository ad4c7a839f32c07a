r"""Truncated LP of Khisti et al., for several drafts in stages: a lower bound.

Two drafts X_1 ~ q_1 and X_2 ~ q_2 make the pair {i, j} with mass
:math:`w_{ij} = q_1(i) q_2(j) + q_1(j) q_2(i)`. The truncated LP of [Khisti25] chooses freely
between i and j only if both lie in a small set; in every other pair the token of higher priority
wins. What is selected from two drafts has a known law, so for K > 2 it meets the third draft in an
LP of its own, and so on: K - 1 stages.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np

from mdsd_opt.base.arrays import Flags, Floats, Matrix, Tokens, Vector, frozen
from mdsd_opt.base.checked import checked_integer
from mdsd_opt.errors import InvalidInput, UnknownName, UnsupportedScheme
from mdsd_opt.problem import Found, Status, TransportPlan, TransportProblem
from mdsd_opt.solvers import highs_backend
from mdsd_opt.solvers.highs_backend import LpResult
from mdsd_opt.solvers.linear_programmes import TransportLP, pair_programme
from mdsd_opt.solvers.method import DEFAULT_MAX_BYTES, Method, Needs

#: Most variables, unless the caller sets another limit: about size 1,000.
DEFAULT_MAX_VARIABLES = 600_000

#: Largest vocabulary for which a plan over all V^2 / 2 pairs comes with the solution.
PLAN_MAX_VOCAB = 2000

#: Most draft tuples for which a plan of more than two drafts comes with the solution.
PLAN_MAX_TUPLES = 10_000

#: Seconds that all stages may take, and those of a stage: in any case, for every pair of free
#: tokens, and for every token.
_SECONDS = 2.0
_SECONDS_OF_A_STAGE, _SECONDS_OF_A_PAIR, _SECONDS_OF_A_TOKEN = 6e-4, 1e-6, 1.2e-7

#: Default: of what takes hundredths of a second at any V, measured to lose the least.
DEFAULT_RULE, DEFAULT_SIZE = "ratio", 100
_RULES = ("published", "ratio")
_ORDERS = ("surplus", "mass")
_BYTES_PER_VARIABLE = 500


def solve(
    problem: TransportProblem,
    *,
    size: int | Sequence[int] | None = None,
    rule: str = DEFAULT_RULE,
    order: str = "surplus",
    time_limit: float | None = None,
    max_variables: int = DEFAULT_MAX_VARIABLES,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Found:
    r"""Find the best :math:`\sum_i \min(p_i, p_I(i))` if only pairs of s tokens are free to decide.

    A reproduction of [Khisti25] and something to compare with: subset selection is as cheap and
    exact. Takes two independent drafts or more, of one model or of several. Costs, for each of
    K - 1 stages, O(V log V) and an LP in :math:`s + s (s-1)/2` variables. With K = 2, size V gives
    the optimum; with more drafts each stage is the best for its own two laws, and the whole a
    lower bound. Drafts beyond the stages that are foretold to take seconds are not used.

    Parameters
    ----------
    problem : TransportProblem
    size : int or sequence of int, optional
        s, min(100, V) by default; [Khisti25] has 5. Of several sizes the best value is returned,
        and ``stats["by_size"]`` holds the value of each.
    rule : {"ratio", "published"}
        Winner in the other pairs: the token of larger p / (q_1 + q_2), usually far better but
        without any bound, as it may feed a token that is full already; or "published", the one that
        is earlier in `order` [Khisti25], for which the loss is bounded. ``rule="published",
        size=5`` is the paper's own.
    order : {"surplus", "mass"}
        Order in which tokens become free: largest :math:`p - q_1 q_2` [Khisti25], or largest
        :math:`\max(p, (q_1 + q_2)/2)`.
    time_limit : float, optional
        Seconds for all programmes together.
    max_variables, max_bytes : int
        Budget of the LP.

    Returns
    -------
    Found
        Status BOUND, OPTIMAL if `size` is V and K = 2. The lower bound is the value, `selection`
        the law p_I that attains it. The upper bound is that of the best subset the duals suggest,
        which a certificate can prove; ``stats["loss_bound_tighter"]`` is what the published rule
        loses at most, for K = 2. For two models and V up to 2,000, and for up to 10,000 tuples of
        more drafts, there is a plan; beyond, different models have nothing that a certificate could
        check, which says so.

    Raises
    ------
    UnsupportedScheme
        There is one draft, or they are not independent.
    ProblemTooLarge
        The LP does not fit the budget.
    SolverError
        HiGHS failed.
    """
    laws = _independent_drafts(problem)
    check_names(rule, order)
    sizes = _checked_sizes(size, problem.vocab_size)
    largest = max(sizes)
    variables = largest + largest * (largest - 1) // 2
    Needs(
        method="truncated_lp",
        problem=problem,
        variables=variables,
        num_bytes=_BYTES_PER_VARIABLE * variables,
        max_variables=max_variables,
        max_bytes=max_bytes,
        lists_draft_sets=False,
    ).require()
    used = list(islice(laws, 1 + max(1, stages_in_reach(problem.vocab_size, largest))))
    deadline = None if time_limit is None else time.perf_counter() + time_limit
    solutions = [_solved(problem, used, s, rule, order, deadline) for s in sizes]
    best = max(solutions, key=lambda x: x.acceptance_rate)  # the first of equal ones
    if len(solutions) == 1:
        return best
    values = {x.stats["size"]: x.acceptance_rate for x in solutions}
    return replace(best, stats={**best.stats, "by_size": values})


def _solved(
    problem: TransportProblem,
    laws: Sequence[Floats],
    size: int,
    rule: str,
    order: str,
    deadline: float | None,
) -> Found:
    start = time.perf_counter()
    played = list(rounds(problem.target, laws, size, rule, order, deadline))
    lp_seconds = time.perf_counter() - start
    last = played[-1]
    pairs, selection = last.pairs, last.selection
    value = float(np.minimum(problem.target, selection).sum())
    subset = _suggested_subset(pairs, selection, last.lp.row_duals)
    upper = max(problem.cut_value(subset), value)  # what a certificate can prove

    unused = problem.num_drafts - len(laws)
    stats: dict[str, Any] = {
        "size": size,
        "rule": rule,
        "order": order,
        "stages": len(played),
        "unused_drafts": unused,
        "tokens": tuple(pairs.free.tolist()),
        "variables": size + size * (size - 1) // 2,
        "iterations": sum(x.lp.iterations for x in played),
        "lp_seconds": lp_seconds,
    }
    if rule == "published" and len(played) == 1:
        loss, tighter_loss = pairs.loss_bounds()
        stats |= {"loss_bound": loss, "loss_bound_tighter": tighter_loss}
    if not all(x.lp.optimal for x in played):
        status = Status.LIMIT
    else:
        whole = size == problem.vocab_size and problem.num_drafts == 2
        status = Status.OPTIMAL if whole else Status.BOUND
    plan = None
    if len(played) > 1:
        alone = problem.drafts.prefix_form is None  # nothing but a plan proves the rate
        if alone and not unused and problem.drafts.count_tuples() <= PLAN_MAX_TUPLES:
            plan = _plan_of_stages(problem, played)
    elif problem.drafts.has_many_models and problem.vocab_size <= PLAN_MAX_VOCAB:
        plan = _plan(problem, pairs, selection, last.share)
    return Found(
        acceptance_rate=value,
        lower_bound=value,
        upper_bound=upper,
        status=status,
        subset=subset,
        plan=plan,
        selection=selection,
        message=f"{last.lp.message}; pairs outside the {size} free tokens follow the {rule} rule"
        + (f"; {unused:,} of {problem.num_drafts:,} drafts are not used" if unused else ""),
        stats=stats,
    )


METHOD = Method(
    name="truncated_lp",
    purpose="the truncated LP of [Khisti25]: a lower bound, for K = 2 with a bound on its loss",
    cost="O(V log V) and an LP in s^2/2 variables, K - 1 times",
    needs="two independent drafts or more",
    exact=False,
    solve=solve,
    loads=("highspy", "scipy.sparse"),
)


def stages_in_reach(vocab_size: int, size: int) -> int:
    """Number of stages that are foretold to take seconds; none where one takes longer."""
    size = min(size, vocab_size)
    each = _SECONDS_OF_A_STAGE + size**2 * _SECONDS_OF_A_PAIR + vocab_size * _SECONDS_OF_A_TOKEN
    return int(_SECONDS / each)


def check_names(rule: str, order: str) -> None:
    """Raise `UnknownName` unless rule and order exist."""
    if rule not in _RULES:
        raise UnknownName.among("rule", rule, _RULES)
    if order not in _ORDERS:
        raise UnknownName.among("order", order, _ORDERS)


@dataclass(frozen=True, slots=True, eq=False)
class PairRule:
    """Selection of one of two drafts, and the law p_I of the selected token, shape (V,).

    `share`, shape (s, s), is the mass of the pair of two free tokens that goes to the first of
    them, and `lp` what HiGHS says.
    """

    pairs: TruncatedPairs
    share: Floats
    selection: Floats
    lp: LpResult

    def first_wins(self, first: int, second: int) -> float:
        """Probability that `first` is selected from the pair {first, second}."""
        if first == second:
            return 1.0
        a, b = np.flatnonzero(self.pairs.free == first), np.flatnonzero(self.pairs.free == second)
        if a.size and b.size:
            mine = float(self.share[a[0], b[0]])
            both = mine + float(self.share[b[0], a[0]])
            return mine / both if both > 0 else 0.5
        return float(self.pairs.priority[first] > self.pairs.priority[second])

    def wins(self, weights: Floats) -> Floats:
        """Mass of the pairs {i, j} that select i, each times the weight of j, shape (V,)."""
        won = self.pairs.fixed_wins(weights)
        won[self.pairs.free] += self.share @ weights[self.pairs.free]
        return won


def pair_rule(
    p: Floats,
    q1: Floats,
    q2: Floats,
    size: int,
    rule: str = "published",
    order: str = "surplus",
    time_limit: float | None = None,
) -> PairRule:
    """Rule that the truncated LP finds for two independent drafts; options as in `solve`."""
    pairs = _truncated(p, q1, q2, min(size, p.size), rule, order)
    selection = pairs.fixed_selection()
    share, lp = _choose(pairs, selection[pairs.free], time_limit)
    selection[pairs.free] += share.sum(axis=1)
    return PairRule(pairs, share, selection, lp)


def rounds(
    p: Floats,
    laws: Iterable[Floats],
    size: int,
    rule: str,
    order: str,
    deadline: float | None = None,
) -> Iterator[PairRule]:
    """Pair rules of the winner so far against the next draft, again and again.

    After the deadline, of `time.perf_counter`, each is what its programme begins with.
    """
    laws = iter(laws)
    selection = next(laws)
    for q in laws:
        left = None if deadline is None else max(deadline - time.perf_counter(), 0.0)
        played = pair_rule(p, selection, q, size, rule, order, left)
        selection = played.selection
        yield played


def winners(played: Sequence[PairRule], drafts: Sequence[int]) -> Floats:
    """Probability that each of the drafts, in draw order, is the last winner, shape (K,)."""
    selected = np.zeros(len(drafts))
    selected[0] = 1.0
    for k, rule in enumerate(played, start=1):
        stays = np.array([rule.first_wins(token, drafts[k]) for token in drafts[:k]])
        selected[k] = float(selected[:k] @ (1.0 - stays))
        selected[:k] *= stays
    return selected


def _independent_drafts(problem: TransportProblem) -> Iterator[Floats]:
    drafts = problem.drafts
    laws = drafts.independent_laws() if drafts.num_drafts >= 2 else None
    if laws is not None:
        return laws
    other = "max_flow" if drafts.prefix_form is None else "subset_selection"
    raise UnsupportedScheme(
        "truncated_lp takes two independent drafts or more, WithReplacement(q, 2) or "
        f"IndependentDrafts([q1, q2]), not {drafts.scheme!r} with K={drafts.num_drafts}: use "
        f"method={other!r}"
    )


def _checked_sizes(size: int | Sequence[int] | None, vocab_size: int) -> list[int]:
    if size is None:
        return [min(DEFAULT_SIZE, vocab_size)]
    sizes = [size] if np.ndim(size) == 0 else list(size)  # type: ignore[arg-type]
    if not sizes:
        raise InvalidInput(f"size is {size!r}: give at least one")
    checked = sorted({checked_integer(one, "size") for one in sizes})
    if checked[-1] > vocab_size:
        raise InvalidInput(f"size is {checked[-1]}: give an integer from 1 to V={vocab_size}")
    return checked


def _truncated(
    p: Floats, q1: Floats, q2: Floats, size: int, rule: str, order: str
) -> TruncatedPairs:
    score = p - q1 * q2 if order == "surplus" else np.maximum(p, (q1 + q2) / 2)
    descending = stable_order(-score)
    winner_last = descending[::-1] if rule == "published" else ascending_ratio(p, q1, q2)
    return TruncatedPairs(p, q1, q2, descending[:size], winner_last)


def _choose(
    pairs: TruncatedPairs, fixed: Floats, time_limit: float | None
) -> tuple[Matrix, LpResult]:
    """Shares, [a, b] the mass of the pair of the a-th and b-th free token that selects the a-th.

    The row duals of what HiGHS says are the gain from one more unit of selected mass.
    """
    programme = _programme(pairs, fixed)
    result = highs_backend.solve(programme, time_limit=time_limit)
    size = pairs.free.size
    share = np.zeros((size, size))
    first, second = np.triu_indices(size, 1)
    share[first, second] = result.point[size:]
    share[second, first] = programme.bounds[size:, 1] - share[first, second]
    return share, result


def _programme(pairs: TruncatedPairs, fixed: Floats, others: float = 0.0) -> TransportLP:
    """Programme of the free tokens, which are selected with `fixed` anyway."""
    first, second = np.triu_indices(pairs.free.size, 1)
    masses = pairs.free_pair_mass[first, second]
    p = pairs.p[pairs.free]
    return pair_programme(p, fixed, first, second, masses, "truncated", pairs.free, others)


def programme_of(
    problem: TransportProblem,
    size: int | None = None,
    rule: str = DEFAULT_RULE,
    order: str = "surplus",
) -> TransportLP:
    """Programme of two drafts, or of the last stage; the stages before it are solved."""
    check_names(rule, order)
    *earlier, last = _independent_drafts(problem)
    (one,) = _checked_sizes(size, problem.vocab_size)
    selection = earlier[0]
    for played in rounds(problem.target, earlier, one, rule, order):
        selection = played.selection
    pairs = _truncated(problem.target, selection, last, one, rule, order)
    fixed = pairs.fixed_selection()
    accepted = np.minimum(problem.target, fixed)
    accepted[pairs.free] = 0.0
    return _programme(pairs, fixed[pairs.free], float(accepted.sum()))


def _suggested_subset(pairs: TruncatedPairs, selection: Floats, shadow_price: Floats) -> Flags:
    """Tokens that accept all mass of the target: more selected mass would gain them nothing."""
    subset = pairs.p < selection
    subset[pairs.free] = shadow_price < 0.5
    return subset


def _plan(
    problem: TransportProblem, pairs: TruncatedPairs, selection: Floats, share: Floats
) -> TransportPlan:
    """Plan from the selection rule: selected mass, cut down to what the target accepts."""
    law = problem.drafts.support_law()
    mass = np.repeat(law.mass, np.diff(law.offsets))
    pair = np.flatnonzero(np.diff(law.offsets) == 2)
    arc = law.offsets[pair]
    i, j = law.tokens[arc], law.tokens[arc + 1]
    place = np.full(problem.vocab_size, -1)
    place[pairs.free] = np.arange(pairs.free.size)
    free = (place[i] >= 0) & (place[j] >= 0)
    to_i = np.where(pairs.priority[i] > pairs.priority[j], law.mass[pair], 0.0)
    to_i[free] = np.minimum(share[place[i[free]], place[j[free]]], law.mass[pair[free]])
    mass[arc] = to_i
    mass[arc + 1] = law.mass[pair] - to_i
    accepted = np.ones(problem.vocab_size)
    np.divide(pairs.p, selection, out=accepted, where=selection > pairs.p)
    mass *= accepted[law.tokens]
    return TransportPlan(tokens=law.tokens, offsets=law.offsets, mass=frozen(mass))


def _plan_of_stages(problem: TransportProblem, played: Sequence[PairRule]) -> TransportPlan:
    """Plan from what the stages select of every draft tuple, cut down to what is accepted."""
    law, selection = problem.drafts.support_law(), played[-1].selection
    arcs = {
        (members, token): start + place
        for members, (start, _) in zip(law.sets(), pairwise(law.offsets.tolist()), strict=True)
        for place, token in enumerate(members)
    }
    mass = np.zeros(law.num_arcs)
    tuples, chances = problem.drafts.tuple_law()
    for row, chance in zip(tuples.tolist(), chances.tolist(), strict=True):
        if chance > 0:
            members = tuple(sorted({*row}))
            for token, won in zip(row, winners(played, row).tolist(), strict=True):
                mass[arcs[members, token]] += chance * won
    accepted = np.ones(problem.vocab_size)
    np.divide(problem.target, selection, out=accepted, where=selection > problem.target)
    mass *= accepted[law.tokens]
    return TransportPlan(tokens=law.tokens, offsets=law.offsets, mass=frozen(mass))


@dataclass(frozen=True, eq=False)
class TruncatedPairs:
    """Transport problem with two drafts, in which few pairs are left to decide.

    The LP decides between the `free` tokens, shape (s,); in any other pair the token that is later
    in `order`, shape (V,), wins.
    """

    p: Vector
    q1: Vector
    q2: Vector
    free: Tokens
    order: Tokens

    @functools.cached_property
    def priority(self) -> Tokens:
        """Place of every token in the order, shape (V,)."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(self.order.size)
        return places

    @property
    def free_pair_mass(self) -> Floats:
        """Masses w_ij between the free tokens, zero on the diagonal, shape (s, s)."""
        one_way = np.outer(self.q1[self.free], self.q2[self.free])
        mass = one_way + one_way.T
        np.fill_diagonal(mass, 0.0)
        return mass

    def fixed_selection(self) -> Vector:
        """Selected mass of every token, pairs of two free tokens left out, shape (V,)."""
        return self.q1 * self.q2 + self.fixed_wins(np.ones(self.p.size))

    def fixed_wins(self, weights: Vector) -> Vector:
        """Mass of the fixed pairs {i, j} that select i, each times the weight of j, shape (V,)."""
        q1, q2, weights = self.q1[self.order], self.q2[self.order], weights[self.order]
        is_free = np.zeros(weights.size, dtype=np.bool_)
        is_free[self.free] = True
        free = np.flatnonzero(is_free[self.order])
        won = np.empty(weights.size)
        won[self.order] = q1 * _lost(q2 * weights, free) + q2 * _lost(q1 * weights, free)
        return won

    def loss_bounds(self) -> tuple[float, float]:
        r"""Possible gains from deciding the other pairs, if free tokens win against the rest.

        .. math:: \sum_{i \text{ not free}} (p_i - q_1 q_2)_+ \quad\text{[Khisti25]}\qquad
                  \sum_{i \text{ not free}} \min\bigl((p_i - q_1 q_2)_+, q_1 + q_2 - 2 q_1 q_2\bigr)

        Take an optimal selection and give the mixed pairs to their free tokens. Those only gain;
        another token keeps what it is drafted with alone, at least q_1 q_2, and it never had more
        than all pairs it is in.
        """
        alone = self.q1 * self.q2
        surplus = np.maximum(self.p - alone, 0.0)
        in_pairs = self.q1 + self.q2 - 2.0 * alone
        surplus[self.free] = 0.0
        return float(surplus.sum()), float(np.minimum(surplus, in_pairs).sum())


def _lost(masses: Vector, free: Tokens) -> Vector:
    """Sum of all masses before a bound place, and of the bound ones before a free place."""
    before = np.concatenate([[0.0], np.cumsum(masses[:-1])])
    start, total = 0, 0.0
    for place in free.tolist():
        total += float(masses[start:place].sum())
        before[place] = total
        start = place + 1
    return before


def ascending_ratio(p: Vector, q1: Vector, q2: Vector) -> Tokens:
    """Tokens by p / (q1 + q2), ties towards the lowest id; tokens never drafted come last."""
    drafted = q1 + q2
    ratio = np.full(p.size, np.inf)
    np.divide(p, drafted, out=ratio, where=drafted > 0)
    return stable_order(ratio)


def stable_order(values: Vector) -> Tokens:
    """Order of a stable argsort; NumPy's own takes several times as long.

    The leading bits of a value and its place are sorted as one integer. Values that differ in other
    bits alone are sorted afterwards.
    """
    bits = (values + 0.0).view(np.int64)  # no negative zeros
    keys = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)  # ascend as the values do
    places = np.int64((1 << (values.size - 1).bit_length()) - 1)
    keys = (keys & ~places) | np.arange(values.size)
    keys.sort()
    order = keys & places
    ascending = values[order]
    falls = np.flatnonzero(ascending[1:] < ascending[:-1])
    if falls.size > 0:
        leading = keys & ~places
        run = np.append(0, np.cumsum(leading[1:] != leading[:-1]))
        falls_in_run = np.zeros(run[-1] + 1, dtype=np.bool_)
        falls_in_run[run[falls]] = True
        doubtful = np.flatnonzero(falls_in_run[run])
        order[doubtful] = order[doubtful][np.lexsort((ascending[doubtful], run[doubtful]))]
    return order
