"""Certified bounds on the optimal acceptance rate from the likeliest tokens alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.batch.top_logprobs import contained
from mdsd_opt.batch.top_logprobs.listed import Listed
from mdsd_opt.batch.top_logprobs.subsets import Subsets
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.drafts.base import checked_num_drafts
from mdsd_opt.drafts.by_name import checked_scheme
from mdsd_opt.errors import InvalidInput, UnsupportedScheme

#: Q of every subset and K, at its largest or smallest.
_Contained = Callable[[Subsets, list[int], bool], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class AcceptanceInterval:
    """Where the optimal acceptance rate lies, whatever the unknown tails are.

    Attributes
    ----------
    lower, upper : float
    target_tail, draft_tail : float
        Mass of the tokens that are not listed.
    """

    lower: float
    upper: float
    target_tail: float
    draft_tail: float


def acceptance_interval(
    target_top: Mapping[Any, float],
    draft_top: Mapping[Any, float],
    num_drafts: int,
    drafts: str = "with_replacement",
    vocab_size: int | None = None,
) -> AcceptanceInterval:
    r"""Certified interval of the optimal acceptance rate from top-k log-probabilities.

    A token that is not listed has at most the smallest probability that is, and those of one side
    share what the listed ones leave of one. Of all laws p and q of that kind,

    .. math::

       \min_{p, q} \alpha^* = 1 + \min_H \bigl[ \min_p P(H) - \max_q Q(H) \bigr], \qquad
       \max_{p, q} \alpha^* \le 1 + \min_H \bigl[ \max_p P(H) - \min_q Q(H) \bigr],

    the second with equality for drafts with replacement. Dividing the listed probabilities by
    their sum would give another law, and a rate that may lie outside.

    Parameters
    ----------
    target_top, draft_top : mapping of token id to float
        Natural logarithms of the probabilities of the likeliest tokens, k of them on each side,
        which need not be the same number. Tokens may be named by anything that both sides share.
    num_drafts : int
        K.
    drafts : {"with_replacement", "without_replacement"}
    vocab_size : int, optional
        V; without it the vocabulary may be of any size. Where all V tokens are listed on both
        sides, both ends are the rate.

    Returns
    -------
    AcceptanceInterval
        With replacement both ends are attained, or approached as the vocabulary grows. Without,
        they are bounds: the lower one spreads the draft's tail infinitely thin, and the upper one
        chooses the tail for each H.

    Raises
    ------
    InvalidInput
        No mappings, or more tokens than there are in the vocabulary.
    InvalidDistribution
        The numbers are no logarithms of the largest probabilities of a law.
    UnsupportedScheme
        Other drafts.

    Examples
    --------
    >>> import numpy as np
    >>> import mdsd_opt as mo
    >>> found = mo.acceptance_interval(
    ...     {5: np.log(0.6), 7: np.log(0.2)}, {5: np.log(0.5), 2: np.log(0.3)}, num_drafts=2
    ... )
    >>> round(found.lower, 3), round(found.upper, 3)
    (0.6, 0.95)
    """
    if vocab_size is not None and vocab_size < 1:
        raise InvalidInput(f"vocab_size is {vocab_size!r}: give the number of tokens, or None")
    ends, target, draft = interval_ends(
        target_top, draft_top, [checked_num_drafts(num_drafts)], drafts, vocab_size
    )
    lower, upper = ends[0].tolist()
    return AcceptanceInterval(lower, upper, target.tail, draft.tail)


def interval_ends(
    target_top: Mapping[Any, float],
    draft_top: Mapping[Any, float],
    counts: Sequence[int],
    scheme: str,
    vocab_size: int | None,
) -> tuple[NDArray[np.float64], Listed, Listed]:
    """Both ends for several K, shape (len(counts), 2), and what the lists say."""
    contained_in = _contained(checked_scheme(scheme))
    if contained_in is None:
        known = " or ".join(name for name in SINGLE_MODEL_SCHEMES if _contained(name))
        raise UnsupportedScheme(
            f"there are no intervals for {scheme!r} drafts from top-k log-probabilities: give "
            f"{known}, or the log-probabilities of all tokens"
        )
    target = Listed.of(target_top, "target_top", vocab_size)
    draft = Listed.of(draft_top, "draft_top", vocab_size)
    union = target.probabilities.keys() | draft.probabilities.keys()
    if vocab_size is not None and len(union) > vocab_size:
        raise InvalidInput(
            f"both sides together list {len(union)} tokens, and vocab_size is {vocab_size}"
        )
    if len(target.probabilities) == len(draft.probabilities) == vocab_size:
        rates = _rates_of_all(target, draft, counts, scheme)
        return np.stack([rates, rates], axis=1), target, draft
    subsets = Subsets.of(target, draft, vocab_size)
    upper = _least_value(subsets, list(counts), contained_in, most_accepted=True)
    lower = _least_value(subsets, list(counts), contained_in, most_accepted=False)
    return np.stack([np.minimum(lower, upper), upper], axis=1), target, draft


def _contained(scheme: str) -> _Contained | None:
    """What bounds Q for drafts that are all drawn at random; None for others."""
    made = SINGLE_MODEL_SCHEMES[scheme].composition
    if made is None or not made.is_random:
        return None
    return contained.with_replacement if made.is_replaced else contained.without_replacement


def _least_value(
    subsets: Subsets, counts: list[int], contained_in: _Contained, most_accepted: bool
) -> NDArray[np.float64]:
    """min over H of 1 + P(H) - Q(H), for every K, with the tails that leave it large or small."""
    of_row = subsets.target_mass(most=most_accepted)
    # Q grows from row to row: of rows with the same p the last has the least value.
    last = np.append(of_row[1:] > of_row[:-1], True)
    subsets, of_row = subsets.rows(last), of_row[last]
    p = of_row[:, None] + np.concatenate([[0.0], np.cumsum(subsets.common_p)])
    q = contained_in(subsets, counts, not most_accepted)
    values: NDArray[np.float64] = (1.0 + p[..., None] - q).min(axis=(0, 1))
    return np.clip(values, 0.0, 1.0)


def _rates_of_all(
    target: Listed, draft: Listed, counts: Sequence[int], scheme: str
) -> NDArray[np.float64]:
    from mdsd_opt.batch import acceptance_rates

    tokens = list(target.probabilities)
    if target.probabilities.keys() != draft.probabilities.keys():
        raise InvalidInput("both sides list a whole vocabulary, and not the same one")
    p, q = (np.array([side.probabilities[token] for token in tokens]) for side in (target, draft))
    return np.asarray(acceptance_rates(p, q, num_drafts=counts, drafts=scheme, kind="probs"))
