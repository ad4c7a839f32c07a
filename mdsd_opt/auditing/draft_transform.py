r"""Draft tuples turned into independent uniforms, and back into questions about the draft law.

The conditional law of every draft given the earlier ones is known for every scheme. With F_k its
distribution function in a fixed order of the tokens and v_k uniform noise,
:math:`u_k = F_k(x_k^-) + v_k \Pr(x_k \mid x_1..x_{k-1})` is uniform and independent of the earlier
ones exactly if the tuples follow the scheme (Rosenblatt's transform, randomised).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import (
    DraftScheme,
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    TopKDrafts,
    WithoutReplacement,
    WithReplacement,
)
from mdsd_opt.drafts.mixture import SortedMixtureDrafts
from mdsd_opt.errors import UnsupportedScheme

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]

#: Up to this many tokens, sums over the tokens before each one are quicker than a sort.
_FEW = 16

#: Draft tuples of a scheme without a formula of its own that are listed.
_MAX_LISTED = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class DraftPoints:
    """Transformed draft tuples.

    Attributes
    ----------
    uniforms : ndarray, shape (N, J)
        J random choices in each tuple; rows of impossible tuples mean nothing.
    possible : ndarray of bool, shape (N,)
        Whether the scheme can draft this tuple.
    """

    uniforms: Vector
    possible: NDArray[np.bool_]


@singledispatch
def transform(drafts: DraftScheme, tuples: Tokens, rng: np.random.Generator) -> DraftPoints:
    """Transform draft tuples (N, K), padded with -1, under the law of a scheme.

    By default one choice, of the tuple, out of the listed law.

    Raises
    ------
    UnsupportedScheme
        There are too many tuples to list them.
    """
    count = drafts.count_tuples()
    if count > _MAX_LISTED:
        raise UnsupportedScheme(
            f"the audit would have to list {count:,} draft tuples of {drafts.scheme!r} drafts, "
            f"more than {_MAX_LISTED:,}"
        )
    listed: dict[tuple[int, ...], float] = {}
    for row, mass in zip(*(x.tolist() for x in drafts.tuple_law()), strict=True):
        listed[tuple(row)] = listed.get(tuple(row), 0.0) + mass
    place = {row: n for n, row in enumerate(listed)}
    chosen = [place.get(tuple(row), -1) for row in tuples.tolist()]
    law = np.array(list(listed.values()))
    below, mass_at = _law_at(law, np.array(chosen, dtype=np.int64)[:, None])
    return DraftPoints(below + rng.random(mass_at.shape) * mass_at, _all(mass_at > 0))


@transform.register
def _with_replacement(
    drafts: WithReplacement, tuples: Tokens, rng: np.random.Generator
) -> DraftPoints:
    below, mass = _law_at(drafts.q, tuples)
    return DraftPoints(below + rng.random(tuples.shape) * mass, _all(mass > 0))


@transform.register
def _independent(
    drafts: IndependentDrafts, tuples: Tokens, rng: np.random.Generator
) -> DraftPoints:
    columns = [_law_at(q, tuples[:, k]) for k, q in enumerate(drafts.q)]
    below = np.stack([column[0] for column in columns], axis=1)
    mass = np.stack([column[1] for column in columns], axis=1)
    return DraftPoints(below + rng.random(tuples.shape) * mass, _all(mass > 0))


@transform.register
def _without_replacement(
    drafts: WithoutReplacement, tuples: Tokens, rng: np.random.Generator
) -> DraftPoints:
    drawn = min(drafts.num_drafts, drafts.support.size)
    below, mass = _without_replacement_law(drafts.q, tuples[:, :drawn])
    possible = _all(mass > 0) & _all(tuples[:, drawn:] == -1)
    return DraftPoints(below + rng.random(mass.shape) * mass, possible)


@transform.register
def _greedy(drafts: GreedyDrafts, tuples: Tokens, rng: np.random.Generator) -> DraftPoints:
    fixed = drafts.always_drafted.size
    possible = (tuples[:, :fixed] == drafts.always_drafted).all(axis=1)
    drawn = int(drafts.draws_one)
    possible &= (tuples[:, fixed + drawn :] == -1).all(axis=1)
    below, mass = _law_at(drafts.last_draw, tuples[:, fixed : fixed + drawn])
    return DraftPoints(below + rng.random(mass.shape) * mass, possible & _all(mass > 0))


@transform.register
def _top_k(drafts: TopKDrafts, tuples: Tokens, rng: np.random.Generator) -> DraftPoints:
    fixed = drafts.always_drafted.size
    possible = (tuples[:, :fixed] == drafts.always_drafted).all(axis=1)
    possible &= (tuples[:, fixed:] == -1).all(axis=1)
    return DraftPoints(np.empty((len(tuples), 0)), possible)


@transform.register
def _fixed_plus(drafts: FixedPlusDrafts, tuples: Tokens, rng: np.random.Generator) -> DraftPoints:
    fixed = drafts.always_drafted.size
    inner = transform(drafts.drafts, tuples[:, fixed:], rng)
    held = (tuples[:, :fixed] == drafts.always_drafted).all(axis=1)
    return DraftPoints(inner.uniforms, inner.possible & held)


@transform.register
def _set_law(drafts: DraftSetLaw, tuples: Tokens, rng: np.random.Generator) -> DraftPoints:
    """One choice, of the set; a set may be listed in any order."""
    law = drafts.support_law()
    place = {members: n for n, members in enumerate(law.sets())}
    chosen = [place.get(tuple(sorted(row[row >= 0].tolist())), -1) for row in tuples]
    below, mass = _law_at(law.mass, np.array(chosen, dtype=np.int64)[:, None])
    return DraftPoints(below + rng.random(mass.shape) * mass, _all(mass > 0))


@transform.register
def _mixture(drafts: SortedMixtureDrafts, tuples: Tokens, rng: np.random.Generator) -> DraftPoints:
    """Components weighted by how likely they made the drafts so far; padding comes last."""
    size = len(tuples)
    below = np.zeros(tuples.shape)
    mass = np.zeros(tuples.shape)
    likelihood = np.tile(drafts.mixture_weights, (size, 1))
    laws = []
    for component in drafts.components:
        rows = tuples[:, : component.num_drafts]
        if isinstance(component, WithReplacement):
            laws.append(_law_at(component.q, rows))
        else:
            laws.append(_without_replacement_law(component.q, rows))
    for k in range(drafts.num_drafts):
        total = likelihood.sum(axis=1)
        ended = tuples[:, k] == -1
        for c, component in enumerate(drafts.components):
            if k < component.num_drafts:
                before, at = laws[c][0][:, k], laws[c][1][:, k]
            else:  # this component has stopped: everything but the padding comes before it
                before, at = np.zeros(size), ended.astype(np.float64)
            before = np.where(ended, float(k < component.num_drafts), before)
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(total > 0, likelihood[:, c] / total, 0.0)
            below[:, k] += share * before
            mass[:, k] += share * at
            likelihood[:, c] *= at
    return DraftPoints(below + rng.random(mass.shape) * mass, _all(mass > 0))


def _all(condition: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether it holds at every place of the tuple."""
    return np.asarray(condition.all(axis=1))


def _law_at(q: Vector, tokens: Tokens) -> tuple[Vector, Vector]:
    """Mass before each token in the order of falling q, and its own; 0 outside the vocabulary."""
    known = (tokens >= 0) & (tokens < q.size)
    safe = np.where(known, tokens, 0)
    mass = np.where(known, q[safe], 0.0)
    below = np.where(known, _mass_before(q, safe), 0.0)
    return below, mass


def _mass_before(q: Vector, tokens: Tokens) -> Vector:
    if tokens.size <= _FEW:
        ids = np.arange(q.size)
        sums = [q[(q > q[i]) | ((q == q[i]) & (ids < i))].sum() for i in tokens.ravel().tolist()]
        return np.array(sums, dtype=np.float64).reshape(tokens.shape)
    order = np.argsort(-q, kind="stable")
    before = np.empty(q.size)
    before[order] = np.cumsum(q[order]) - q[order]
    return np.asarray(before[tokens])


def _without_replacement_law(q: Vector, tuples: Tokens) -> tuple[Vector, Vector]:
    below, mass = _law_at(q, tuples)
    result_below, result_mass = np.zeros_like(below), np.zeros_like(mass)
    for k in range(tuples.shape[1]):
        drawn = np.zeros(len(tuples))
        drawn_before = np.zeros(len(tuples))
        fresh = np.ones(len(tuples), dtype=np.bool_)
        for earlier in range(k):
            fresh &= tuples[:, earlier] != tuples[:, k]
            drawn += mass[:, earlier]
            ahead = (mass[:, earlier] > mass[:, k]) | (
                (mass[:, earlier] == mass[:, k]) & (tuples[:, earlier] < tuples[:, k])
            )
            drawn_before += np.where(ahead, mass[:, earlier], 0.0)
        rest = np.maximum(1.0 - drawn, mass[:, k])  # rounding must not leave less than the draw
        with np.errstate(invalid="ignore", divide="ignore"):
            result_mass[:, k] = np.where(fresh & (mass[:, k] > 0), mass[:, k] / rest, 0.0)
            result_below[:, k] = np.where(
                rest > 0, np.clip((below[:, k] - drawn_before) / rest, 0.0, 1.0), 0.0
            )
    return result_below, result_mass


@singledispatch
def marginals(drafts: DraftScheme) -> list[tuple[list[int], Vector]]:
    """Groups of places of the tuple whose tokens are independent draws from one known law."""
    return []


@marginals.register
def _(drafts: WithReplacement) -> list[tuple[list[int], Vector]]:
    return [(list(range(drafts.num_drafts)), drafts.q)]


@marginals.register
def _(drafts: WithoutReplacement) -> list[tuple[list[int], Vector]]:
    return [([0], drafts.q)]


@marginals.register
def _(drafts: IndependentDrafts) -> list[tuple[list[int], Vector]]:
    return [([k], q) for k, q in enumerate(drafts.q)]


@marginals.register
def _(drafts: GreedyDrafts) -> list[tuple[list[int], Vector]]:
    return [([drafts.always_drafted.size], drafts.last_draw)] if drafts.draws_one else []


@singledispatch
def repeat_probabilities(drafts: DraftScheme) -> dict[tuple[int, int], float]:
    """Probability that the drafts at two places are the same token, where it is simple."""
    return {}


@repeat_probabilities.register
def _(drafts: WithReplacement) -> dict[tuple[int, int], float]:
    same = float(drafts.q @ drafts.q)
    k = drafts.num_drafts
    return {(i, j): same for i in range(k) for j in range(i + 1, k)}


@repeat_probabilities.register
def _(drafts: IndependentDrafts) -> dict[tuple[int, int], float]:
    k = drafts.num_drafts
    same = drafts.q @ drafts.q.T
    return {(i, j): float(same[i, j]) for i in range(k) for j in range(i + 1, k)}
