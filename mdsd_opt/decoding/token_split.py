r"""The optimal token rule at a node that is itself passed with some probability only.

With r the probability that the node is to be passed, the target of its drafts is r p:
sub-normalised, and the rule stays the same. :math:`\alpha(r) = \min_H [1 - Q(H) + r P(H)]` of the
mass goes on to drafts, and draft t gets :math:`I_t = \min(r p_t, p_I(t))` of it on average over the
draws.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.device_laws.laws import BinnedDrafts
from mdsd_opt.decoding.first_tries import first_tries
from mdsd_opt.decoding.hull_plan import hull_masses
from mdsd_opt.decoding.recursive_rejection import (
    after_refusal,
    draft_law,
    whole_support_masses,
)
from mdsd_opt.decoding.valued_rules import Values
from mdsd_opt.drafts import DraftScheme, WithReplacement
from mdsd_opt.errors import UnsupportedScheme
from mdsd_opt.verifiers.rejection import accepted

Law = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class TokenSplit:
    """What goes on to the drafts of a node.

    Attributes
    ----------
    masses : dict of int to float
        Probability that each drafted token is passed, given the draws; at most 1 in sum.
    kept : ndarray, shape (V,)
        I, its mean over the draws.
    """

    masses: dict[int, float]
    kept: Law

    @property
    def alpha(self) -> float:
        """Mean probability that some draft is passed."""
        mass: float = self.kept.sum()
        return min(mass, 1)


def token_split(
    target: Law,
    drafts: DraftScheme | None,
    draws: NDArray[np.int64],
    values: Values,
) -> TokenSplit:
    """What goes on to the drafts of a node; the target is of mass at most one.

    Parameters
    ----------
    target : ndarray, shape (V,)
        r p.
    drafts : DraftScheme or None
        None at a leaf: nothing goes on.
    draws : ndarray of int64, shape (K,)
    values : ndarray, shape (K,)
        What each place is worth, known before the draws.

    Raises
    ------
    UnsupportedScheme
        The drafts have no prefix order.
    """
    if drafts is None or not target.any():
        return TokenSplit({}, 0 * target)
    law, made = cast(Any, target), cast(Any, drafts)
    if isinstance(made, BinnedDrafts):  # no scheme: weights on a device
        passed, remains = made.passed(law, draws, values)
        return TokenSplit(_by_token(draws, passed), cast(Any, remains))
    if drafts.prefix_form is None:
        raise UnsupportedScheme(
            f"{drafts!r} has no prefix order, which this rule needs: take the name of a verifier "
            "that is lossless for such drafts, which goes token by token"
        )
    fixed, free = drafts.always_drafted, drafts.beside_fixed
    if free is None:
        kept = np.zeros_like(target)
        kept[fixed] = target[fixed]
        if drafts.random_draws is not None:
            q = draft_law(drafts, target)
            return TokenSplit(_by_token(draws, whole_support_masses(target, q, draws)), kept)
        return TokenSplit({t: target[t] for t in fixed.tolist()}, kept)
    assert free.prefix_form is not None
    random = drafts.random_places(draws)
    rest = target
    if fixed.size:
        rest = target.copy()
        rest[fixed] = 0
    passed, kept = hull_masses(rest, free.prefix_form, draws[random], values[random])
    masses = _by_token(draws[random], passed)
    if not fixed.size:
        return TokenSplit(masses, kept)
    # Fixed tokens are there whatever is drawn: they share what the others leave.
    left = 1 - kept.sum()
    if left > 0:
        share = max(1 - sum(masses.values()), 0) / left
        for token in fixed.tolist():
            masses[token] = masses.get(token, 0) + share * target[token]
    kept[fixed] += target[fixed]
    return TokenSplit(masses, kept)


def _by_token(draws: NDArray[np.int64], masses: Law) -> dict[int, float]:
    """Sums over draws that coincide."""
    sums: defaultdict[int, float] = defaultdict(int)
    for token, mass in zip(draws.tolist(), masses.tolist(), strict=True):
        if token >= 0:
            sums[token] += mass
    return dict(sums)


def split_with_tries(
    target: Law,
    demand: float,
    drafts: DraftScheme | None,
    draws: NDArray[np.int64],
    values: Values,
) -> TokenSplit:
    """`token_split` after `first_tries`, as one plan; with replacement only.

    What a try leaves is a problem of the same kind, whatever was drawn. Without replacement it
    depends on the draw that was refused, and its mean has no closed form: no try is made.

    Parameters
    ----------
    target : ndarray, shape (V,)
        r p, of mass `demand`.
    demand : float
    drafts, draws, values
        As for `token_split`.
    """
    tries = []
    if drafts is not None and drafts.random_draws is not None and drafts.random_draws.is_replaced:
        tries = first_tries(target, demand, drafts, values)
    if drafts is None or not tries:
        return token_split(target, drafts, draws, values)
    masses: defaultdict[int, float] = defaultdict(int)
    q, rest = draft_law(drafts, target), target
    left = left_on_average = 1 - target[:1].sum() * 0  # a float or a Fraction
    for k in tries:
        token = int(draws[k])
        chance = accepted(rest[token], q[token])
        masses[token] += left * chance
        left *= 1 - chance
        rest, demand, refused = after_refusal(rest, demand, q)
        left_on_average *= refused
    draws, values = np.delete(draws, tries), np.delete(values, tries)
    (model,) = drafts.models
    others = token_split(rest, WithReplacement(model, draws.size), draws, values)
    for token, mass in others.masses.items():
        masses[token] += left * mass
    return TokenSplit(dict(masses), target - left_on_average * (rest - others.kept))
