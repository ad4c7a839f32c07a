"""Sizes of exponential lists, known before anything is listed, and their limits.

Counts end at `COUNTLESS`: the true ones would have thousands of digits and take as long to compute
as a hopeless list takes to refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, lgamma, log

from mdsd_opt.errors import ProblemTooLarge

#: Largest count: larger ones are replaced by it.
COUNTLESS = 10**100

#: Most numbers that a list in floating point, and one in Fractions, may take to compute.
MAX_TERMS = 10**10
MAX_EXACT_TERMS = 10**8

#: Most work on Fractions: their number times the square of their length in bits, and the length
#: that takes as long as all that comes with a shorter one.
MAX_EXACT_WORK = 10**12
_LEAST_BITS = 2_500

#: Most passes of Python over all the sets of one size.
MAX_PASSES = 10**6


def count_choices(num_tokens: int, size: int) -> int:
    """Binomial coefficient: num_tokens choose size."""
    if not 0 <= size <= num_tokens:
        return 0
    logarithm = lgamma(num_tokens + 1) - lgamma(size + 1) - lgamma(num_tokens - size + 1)
    if logarithm > log(COUNTLESS) + 1:
        return COUNTLESS
    return min(comb(num_tokens, size), COUNTLESS)


def count_power(base: int, exponent: int) -> int:
    """Power base ** exponent."""
    if base > 1 and exponent * log(base) > log(COUNTLESS) + 1:
        return COUNTLESS
    return min(base**exponent, COUNTLESS)


def count_arrangements(num_tokens: int, size: int) -> int:
    """Number of ordered ways to draw `size` of the tokens without replacement."""
    count = 1
    for choices in range(num_tokens, num_tokens - size, -1):
        count *= choices
        if count >= COUNTLESS:
            return COUNTLESS
    return count


def count_subsets(num_tokens: int, sizes: Sequence[int]) -> tuple[int, int]:
    """Number of sets of these sizes, and of their elements in total (supports, arcs)."""
    supports = arcs = 0
    for size in sizes:
        supports += (count := count_choices(num_tokens, size))
        arcs += size * count
        if supports >= COUNTLESS:
            return COUNTLESS, COUNTLESS
    return supports, min(arcs, COUNTLESS)


def readable(count: int) -> str:
    """Text of a count in few characters."""
    if count >= COUNTLESS:
        return "over 1e+100"
    return f"{count:,}" if count < 10**15 else f"{float(count):.3g}"


def require_short_powers(masses: Sequence[Fraction], exponent: int) -> None:
    """Raise `ProblemTooLarge` if these powers are too long for arithmetic with Fractions."""
    bits = exponent * max(mass.denominator.bit_length() - 1 for mass in masses)  # none for 0 and 1
    require_exact(len(masses), bits)


def require_exact(count: int, bits: int = 0) -> None:
    """Raise `ProblemTooLarge` if arithmetic with so many Fractions of these bits takes long."""
    if count * max(bits, _LEAST_BITS) ** 2 > MAX_EXACT_WORK:
        raise ProblemTooLarge(
            f"exact arithmetic: {readable(count)} fractions of {readable(bits)} bits are too long "
            "to compute with. Use floating point (exact=False), draft fewer tokens or restrict the "
            "vocabulary (top_k, top_p)."
        )


def require_listable(subject: str, terms: int, limit: int) -> None:
    """Raise `ProblemTooLarge` if a list takes more terms to compute than the limit."""
    if terms > limit:
        raise ProblemTooLarge(
            f"{subject} takes {readable(terms)} terms, over the limit of {limit:,}: draft fewer "
            "tokens or restrict the vocabulary (top_k, top_p). Without a list work "
            "method='subset_selection' (with or without replacement, greedy, top-K), "
            "method='submodular' (draws from different models) and the verifier 'optimal'."
        )
