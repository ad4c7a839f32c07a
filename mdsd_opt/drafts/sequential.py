"""Drafts by a law of one's own: of the next draft, given those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.array_types import Flags, Floats, Integers, Numbers
from mdsd_opt.base.foreign import foreign
from mdsd_opt.drafts.set_law import DraftSetLaw
from mdsd_opt.drafts.single_model import SingleModelDrafts
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.errors import InvalidDistribution, ProblemTooLarge

#: ``next_law(q, earlier)``: q, shape (V,), and the k drafts before, in draw order, shape (k,) ->
#: probabilities of the next draft, shape (V,). What is missing to a sum of one is the probability
#: that drafting ends here.
NextLaw = Callable[[NDArray[np.float64], NDArray[np.int64]], Any]

#: Most draft tuples that are listed.
_MAX_TUPLES = 200_000

#: Largest excess over one of a sum of probabilities.
_ROUNDING = 1e-9


class SequentialDrafts(SingleModelDrafts):
    r"""K drafts, one after another: :math:`\Pr(x) = \prod_k r(x_k \mid q, x_1..x_{k-1})`.

    The base of schemes that `mdsd_opt.drafts.register` makes of a function r. All tuples are
    listed, so that r must leave few tokens or K be small.

    Parameters
    ----------
    q : array_like, shape (V,)
        The draft distribution.
    num_drafts : int
        K.

    Attributes
    ----------
    sets : DraftSetLaw
        The law of the draft set.

    Raises
    ------
    InvalidDistribution
        r gives something else than probabilities.
    ProblemTooLarge
        There are more than 200,000 draft tuples.
    """

    rule: ClassVar[NextLaw]

    @foreign("the function of a draft scheme")
    def __init__(self, q: Any, num_drafts: int) -> None:
        super().__init__(q, num_drafts)
        count, size = self.num_drafts, self.vocab_size
        ended: dict[tuple[int, ...], float] = {}
        going: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(count):
            longer: dict[tuple[int, ...], float] = {}
            for earlier, mass in going.items():
                law = self._law_after(np.array(earlier, dtype=np.int64), size)
                rest = 1.0 - float(law.sum())
                if rest > _ROUNDING:
                    ended[earlier] = mass * rest
                possible = np.flatnonzero(law)
                if len(longer) + possible.size > _MAX_TUPLES:
                    raise ProblemTooLarge(
                        f"{self.scheme!r} drafts at K = {count} have more than {_MAX_TUPLES:,} "
                        "tuples, which would all be listed: take fewer drafts, or top_k"
                    )
                for token, share in zip(possible.tolist(), law[possible].tolist(), strict=True):
                    longer[(*earlier, token)] = mass * share
            going = longer
        self._tuples = {**ended, **going}
        masses: dict[tuple[int, ...], float] = {}
        for drafts, mass in self._tuples.items():
            members = tuple(sorted(set(drafts)))
            masses[members] = masses.get(members, 0.0) + mass
        self.sets = DraftSetLaw(size, masses)

    def _law_after(self, earlier: Integers, size: int) -> Floats:
        try:
            law = np.asarray(type(self).rule(self.q, earlier), dtype=np.float64)
        except Exception as error:  # the rule is not ours: anything may come
            raise InvalidDistribution(
                f"{self.scheme!r} drafts give no law after {earlier.tolist()}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if law.shape != (size,) or not (law >= 0).all() or not law.sum() <= 1 + _ROUNDING:
            raise InvalidDistribution(
                f"{self.scheme!r} drafts give after {earlier.tolist()} no probabilities: return "
                f"an array of shape ({size},), not negative, with a sum of at most one"
            )
        return law

    def _sample(self, rng: np.random.Generator, size: int) -> Integers:
        tuples, masses = self.tuple_law()
        chosen = rng.choice(len(masses), size=size, p=masses / masses.sum())
        return tuples[chosen].astype(np.int64)

    def next_law(self, earlier: Integers) -> Floats:
        if earlier.size >= self.num_drafts:
            return np.zeros(self.vocab_size)
        return self._law_after(earlier, self.vocab_size)

    def _containment(self, subset: Flags) -> Any:
        return self.sets.containment(subset)

    def prefix_containment(self, order: Integers) -> Numbers:
        return self.sets.prefix_containment(order)

    def count_supports(self) -> tuple[int, int]:
        return self.sets.count_supports()

    def support_law(self) -> SupportLaw:
        return self.sets.support_law()

    def count_tuples(self) -> int:
        return len(self._tuples)

    def in_fractions(self) -> SequentialDrafts:
        return self._with_fractions(sets=self.sets.law(exact=True))

    def tuple_law(self) -> tuple[NDArray[np.int32], Numbers]:
        if self.exact:  # of the sets: they are added up from rounded numbers
            return super().tuple_law()
        tuples = np.full((len(self._tuples), self.num_drafts), -1, dtype=np.int32)
        for row, drafts in zip(tuples, self._tuples, strict=True):
            row[: len(drafts)] = drafts
        return tuples, np.array(list(self._tuples.values()))

    def __repr__(self) -> str:
        return (
            f"RegisteredDrafts({self.scheme!r}, vocab_size={self.vocab_size}, "
            f"num_drafts={self.num_drafts})"
        )
