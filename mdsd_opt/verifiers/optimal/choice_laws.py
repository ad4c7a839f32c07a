r"""The law of the draft chosen by potentials, and its potential function Phi = E max.

The tokens compete in two leagues: a draft outside the subset H beats every draft inside. Within a
league the largest theta + noise wins (`noisy_choice`). The law of the winner is the gradient of the
convex function :math:`\Phi(\theta) = E \max`, and both are known exactly for any draft law that is
made of independent draws, or listed set by set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.drafts import DraftScheme, SupportLaw
from mdsd_opt.drafts.counting import readable, require_listable
from mdsd_opt.drafts.product_form import ProductForm, product_form
from mdsd_opt.errors import ProblemTooLarge
from mdsd_opt.verifiers.optimal.quadrature import gauss_rule

Vector = NDArray[np.float64]

#: Elements of all draft sets together that a listed law may have.
_MAX_ARCS = 20_000_000


#: Draws up to which a rule is fitted: an evaluation of potentials takes K^2 V steps.
MAX_DRAWS = 100


class League(Protocol):
    """The draft law as seen by the tokens that compete with each other."""

    @property
    def members(self) -> NDArray[np.int64]:
        """The tokens that compete, ascending."""
        ...

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """E max, and the probability that each member wins; theta is of shape (members,)."""
        ...


def leagues_of(drafts: DraftScheme, subset: NDArray[np.bool_]) -> tuple[League, League]:
    """The league of the tokens inside H, and that of the tokens outside."""
    form = product_form(drafts)
    if form is not None:
        return _independent_league(form, subset, False), _independent_league(form, subset, True)
    law = drafts.support_law()
    return _listed_league(law, subset, False), _listed_league(law, subset, True)


def require_leagues(drafts: DraftScheme) -> None:
    """Raise `ProblemTooLarge` for too many draws, or too many draft sets to list."""
    form = product_form(drafts)
    if form is not None:
        most = int(form.powers.sum(axis=1).max())
        require_listable(f"{drafts!r}: potentials by draws from it", most, MAX_DRAWS)
        return
    supports, arcs = drafts.count_supports()
    if arcs > _MAX_ARCS:
        raise ProblemTooLarge(
            f"{drafts!r} has up to {readable(supports)} draft sets of {readable(arcs)} tokens "
            f"together; potentials need them listed, up to {_MAX_ARCS:,}. Restrict the vocabulary "
            "(top_k, top_p) or draft fewer tokens."
        )


@dataclass(frozen=True, slots=True, eq=False)
class _IndependentLeague:
    members: NDArray[np.int64]
    parts: list[tuple[float, NDArray[np.float64], Vector]]  # weight, q (n, K), base (K,)

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        from mdsd_opt.verifiers.optimal.choice_kernels import independent_law

        order = np.argsort(theta)
        value, law = 0.0, np.zeros(theta.size)
        for weight, q, base in self.parts:
            part = np.zeros(theta.size)
            nodes, weights = gauss_rule(q.shape[1])
            room = np.empty((5, q.shape[1] + 1))
            value += weight * independent_law(theta, order, q, base, nodes, weights, room, part)
            law += weight * part
        return value, np.maximum(law, 0.0)


def _independent_league(
    form: ProductForm, subset: NDArray[np.bool_], outside: bool
) -> _IndependentLeague:
    drafted = (form.q > 0).any(axis=0)
    members = np.flatnonzero(drafted & (subset != outside))
    lost = form.q[:, subset].sum(axis=1) if outside else np.zeros(len(form.q))
    parts = [
        (float(weight), np.ascontiguousarray(form.q[drawn][:, members].T), lost[drawn])
        for weight, powers in zip(form.weights, form.powers, strict=True)
        for drawn in [np.repeat(np.arange(powers.size), powers)]
        if weight > 0
    ]
    return _IndependentLeague(members, parts)


@dataclass(frozen=True, slots=True, eq=False)
class _ListedLeague:
    members: NDArray[np.int64]
    tokens: NDArray[np.int64]  # places in `members`
    offsets: NDArray[np.int64]
    mass: Vector

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        from mdsd_opt.verifiers.optimal.choice_kernels import listed_law

        largest = int(np.diff(self.offsets).max(initial=0))
        nodes, weights = gauss_rule(largest)
        law, room = np.zeros(theta.size), np.empty((3, largest + 1))
        value = listed_law(theta, self.tokens, self.offsets, self.mass, nodes, weights, room, law)
        return float(value), law


def _listed_league(law: SupportLaw, subset: NDArray[np.bool_], outside: bool) -> _ListedLeague:
    """Sets with a token outside H belong to the league outside, with those tokens only."""
    is_out = ~subset[law.tokens]
    has_out = np.bincount(law.arc_support[is_out], minlength=law.num_supports) > 0
    kept = is_out if outside else ~has_out[law.arc_support]
    sets = has_out if outside else ~has_out
    sizes = np.bincount(law.arc_support[kept], minlength=law.num_supports)[sets]
    members, tokens = np.unique(law.tokens[kept], return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return _ListedLeague(members.astype(np.int64), tokens, offsets, law.mass[sets])
