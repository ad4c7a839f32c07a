r"""Whether :math:`(Q - c)_+` is supermodular, as the laws beyond lossless acceptance need it.

Q is monotone and supermodular, and a convex function that does not fall keeps both. For two sets
the inequality is piecewise linear in c, with kinks at four values of Q, below and above which it
says nothing new: so all c are settled by these.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mdsd_opt.cddlib_checks.draft_laws import document, scope_of
from mdsd_opt.cddlib_checks.result import Counterexample, Evidence, approximate
from mdsd_opt.cddlib_checks.subsets import containment_table, describe, members
from mdsd_opt.drafts import DraftScheme


def excess_supermodular(drafts: DraftScheme) -> Evidence:
    """Compare all pairs of sets, at every c."""
    table = containment_table(drafts.exact_support_law(), drafts.vocab_size)
    compared = 0
    for a in range(len(table)):
        for b in range(a):
            values = table[a], table[b], table[a | b], table[a & b]
            for level in sorted({Fraction(0), *values}):
                compared += 1
                if _lacks(values, level):
                    told = f"of {describe(a)} and {describe(b)}, at c = {approximate(level)}"
                    odd = Counterexample(
                        "not supermodular", told, document(drafts), subset=members(a)
                    )
                    return Evidence(False, scope_of(drafts), (odd,))
    return Evidence(True, scope_of(drafts), sizes={"comparisons": compared})


def _lacks(values: Sequence[Fraction], level: Fraction) -> bool:
    first, second, union, common = (max(x - level, Fraction(0)) for x in values)
    return first + second > union + common
