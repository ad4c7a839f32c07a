"""Sampling of probabilities from logits: temperature and filters, checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats, Opened, refuse_bits
from mdsd_opt.base.checked import real
from mdsd_opt.errors import InvalidDistribution, InvalidInput


@dataclass(frozen=True, slots=True)
class Sampling:
    r"""Parameters of :math:`p_i \propto \exp(\ell_i / T)`, with filters.

    The order is: temperature, top-k, top-p, min-p, each applied to what the one before has left,
    scaled to one. With `joint`, top-k and top-p both look at the law that the temperature gives,
    and a token stays if both keep it: then `top_p` is a share of the mass of all tokens, not of
    those that top-k keeps, and as many tokens stay or more. Min-p keeps the same tokens in either
    order, since no filter removes the likeliest one. Ties with the last token kept are kept.

    Parameters
    ----------
    temperature : float
        T; 0 gives the one-hot of the largest logit.
    top_k : int, optional
        Keep the `top_k` likeliest tokens, and those tied with the last of them; all for 0 and -1,
        which are kept as None.
    top_p : float, optional
        Keep the fewest likeliest tokens that together hold at least `top_p`, and ties.
    min_p : float, optional
        Keep tokens with at least `min_p` times the largest probability.
    joint : bool
        Whether `top_p` applies to the law before `top_k`, see above.

    Raises
    ------
    InvalidInput
        A parameter is out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    joint: bool = False

    def __post_init__(self) -> None:
        check_sampling_parameters(self.temperature, self.top_k, self.top_p, self.min_p)
        if not isinstance(self.joint, (bool, np.bool_)):
            raise InvalidInput(f"joint is {self.joint!r}: give True or False")
        for name in ("temperature", "top_p", "min_p"):
            value = getattr(self, name)
            if not isinstance(value, int | float | None):  # Fractions, with which NumPy is slow
                object.__setattr__(self, name, float(value))
        if self.top_k is not None and self.top_k <= 0:  # "off", as engines write it
            object.__setattr__(self, "top_k", None)

    @classmethod
    def chosen(cls, sampling: Sampling | None, *parameters: Any) -> Sampling:
        """The sampling that a caller gave, as one object or as parameters, but not as both."""
        if sampling is None:
            return cls(*parameters)
        if not isinstance(sampling, Sampling):
            raise InvalidInput(f"sampling is {sampling!r}: give mdsd_opt.Sampling(temperature=...)")
        if cls(*parameters) != cls():
            raise InvalidInput(
                "give sampling, or temperature, top_k, top_p, min_p and joint, not both"
            )
        return sampling

    @classmethod
    def of_both(
        cls,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        sampling: Sampling | None = None,
        draft_sampling: Sampling | None = None,
        joint: bool = False,
    ) -> tuple[Sampling, Sampling]:
        """Sampling of the target, and of the draft, whose temperature is the same unless given.

        The draft has the same filters, too, unless all of its sampling is given.
        """
        target = cls.chosen(sampling, temperature, top_k, top_p, min_p, joint)
        if draft_sampling is not None:
            if draft_temperature is not None:
                raise InvalidInput("give draft_sampling or draft_temperature, not both")
            return target, cls.chosen(draft_sampling)
        if draft_temperature is None:
            return target, target
        return target, replace(target, temperature=draft_temperature)

    @property
    def masks_tokens(self) -> bool:
        """Whether tokens are filtered out, so that scaling the logits is not enough."""
        return self.temperature == 0 or not self.top_k is self.top_p is self.min_p is None

    @property
    def scale(self) -> float:
        """Scale log2(e) / T, finite for every T."""
        if self.temperature == 0:  # one token is left: any scale will do
            return 1.0
        return math.log2(math.e) / max(float(self.temperature), 1e-300)

    def law(self, logits: Floats, name: str = "logits") -> Floats:
        """Probabilities of every row of logits, which errors call by their name."""
        law = _softmax_rows(*_checked_logits(logits, name), self.temperature)
        return filter_tokens(law, self.top_k, self.top_p, self.min_p, self.joint)


class FilterKeywords(TypedDict, total=False):
    """Temperature and filters of `Sampling.of_both`."""

    temperature: float
    draft_temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    joint: bool


class SamplingKeywords(FilterKeywords, total=False):
    """Keywords of `Sampling.of_both`."""

    sampling: Sampling | None
    draft_sampling: Sampling | None


def softmax(
    logits: Any,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    *,
    joint: bool = False,
    sampling: Sampling | None = None,
) -> Any:
    r"""Probabilities of logits, :math:`p_i \propto \exp(\ell_i / T)`, filtered.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        Any float or integer dtype, bfloat16 included; ``-inf`` marks an impossible token.
    temperature : float
        0 gives the one-hot of the largest logit (the lowest id of several).
    top_k : int, optional
        Keep the `top_k` likeliest tokens, and those tied with the last of them; all for 0 and -1.
    top_p : float, optional
        Keep the fewest likeliest tokens that together hold at least `top_p`, and ties.
    min_p : float, optional
        Keep tokens with at least `min_p` times the largest probability.
    joint : bool
        Whether `top_p` applies to the law before `top_k`, see `Sampling`.
    sampling : Sampling, optional
        All of these in one, in their place.

    Returns
    -------
    array, shape (..., V)
        float64, each row summing to one, in the library of the input.

    Raises
    ------
    InvalidDistribution
        A row is all ``-inf`` or has a NaN or ``+inf``; the message names the row.
    InvalidInput
        A parameter is out of range, or there is no token at all.
    """
    chosen = Sampling.chosen(sampling, temperature, top_k, top_p, min_p, joint)
    opened = Opened.of(logits, "logits")
    return opened.like(chosen.law(opened.numpy()))


def checked_softmax(logits: NDArray[Any], **sampling: Any) -> Floats:
    """`softmax` of an array of NumPy, by the parameters of a `Sampling`."""
    return Sampling(**sampling).law(logits)


def check_sampling_parameters(
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> None:
    """Raise `InvalidInput` unless the sampling parameters are in range."""
    if not 0 <= real(temperature) < np.inf:
        raise InvalidInput(f"temperature is {temperature!r}: give a finite number, 0 or larger")
    whole = isinstance(top_k, Real) and not isinstance(top_k, bool) and top_k % 1 == 0
    if top_k is not None and not (whole and top_k >= -1):
        raise InvalidInput(
            f"top_k is {top_k!r}: give an integer of at least 1; None, 0 or -1 for no such filter"
        )
    if top_p is not None and not (isinstance(top_p, Real) and 0 < top_p <= 1):
        raise InvalidInput(f"top_p is {top_p!r}: give a number in (0, 1], or None")
    if min_p is not None and not (isinstance(min_p, Real) and 0 <= min_p <= 1):
        raise InvalidInput(f"min_p is {min_p!r}: give a number in [0, 1], or None")


def _checked_logits(logits: NDArray[Any], name: str = "logits") -> tuple[Floats, Floats]:
    """Logits in float64 and the largest of each row, or an error that names the first bad row."""
    refuse_bits(logits, name)
    values = logits.astype(np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise InvalidInput(f"{name} has shape {values.shape}: the last axis must hold the tokens")
    if values.size == 0:
        return values, values[..., 0]
    best: Floats = values.max(axis=-1)  # NaN if the row holds one
    finite = np.isfinite(best)
    if not finite.all():
        row = np.argwhere(~finite)[0]
        raise bad_row_error(name, row, values[tuple(row)])
    return values, best


def bad_row_error(name: str, row: Sequence[int] | NDArray[Any], values: Any) -> InvalidDistribution:
    """Say what is wrong with one row of logits."""
    values = np.asarray(values, dtype=np.float64)
    where = "" if len(row) == 0 else f" row {', '.join(str(int(i)) for i in row)}"
    if np.isnan(values).any():
        problem = f"has a NaN (first at token {int(np.flatnonzero(np.isnan(values))[0])})"
    elif (values == np.inf).any():
        problem = f"has a +inf (first at token {int(np.flatnonzero(values == np.inf)[0])})"
    else:
        problem = "is all -inf, so no token is possible"
    return InvalidDistribution(f"{name}{where} {problem}. Check the model's output or its mask.")


def _softmax_rows(values: Floats, best: Floats, temperature: float) -> Floats:
    """Overwrites the values: the memory of large arrays costs as much as what is done to them."""
    if temperature == 0:
        first = values.argmax(axis=-1).reshape(-1)
        values[...] = 0.0
        values.reshape(-1, values.shape[-1])[np.arange(first.size), first] = 1.0
        return values
    with np.errstate(over="ignore"):  # huge gaps and tiny temperatures end at -inf: exp gives 0
        values -= best[..., None]
        if temperature != 1:
            values /= temperature
    np.exp(values, out=values)
    values /= values.sum(axis=-1, keepdims=True)
    return values


def filter_tokens(
    probabilities: Floats,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    joint: bool = False,
) -> Floats:
    """Apply top-k, top-p and min-p, in the order that `Sampling` states, and renormalise."""
    result = probabilities
    if top_k is not None and 0 < top_k < result.shape[-1]:
        last = np.partition(result, -top_k, axis=-1)[..., -top_k, None]
        result = _renormalised(np.where(result >= last, result, 0.0))
    if top_p is not None and top_p < 1:
        seen = probabilities if joint else result
        descending = -np.sort(-seen, axis=-1)
        mass_before = np.cumsum(descending, axis=-1) - descending
        num_tokens = (mass_before < top_p).sum(axis=-1, keepdims=True)
        last = np.take_along_axis(descending, num_tokens - 1, axis=-1)
        result = _renormalised(np.where(seen >= last, result, 0.0))
    if min_p is not None and min_p > 0:
        floor = min_p * result.max(axis=-1, keepdims=True)
        result = _renormalised(np.where(result >= floor, result, 0.0))
    return result


def _renormalised(weights: Floats) -> Floats:
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
