"""A pair of logits: the target's and the draft's, with how laws are read from them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import (
    Opened,
    as_logits,
    checked_token_ids,
    masked,
    require_broadcast,
    spread,
)
from mdsd_opt.base.checked import check_truth, floats
from mdsd_opt.base.keywords import Formerly
from mdsd_opt.base.sampling import Sampling, SamplingKeywords
from mdsd_opt.errors import InvalidInput

Path = str | os.PathLike[str]
P = ParamSpec("P")
T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """How laws are read from rows of both models, without the rows."""

    target: Sampling
    draft: Sampling
    pad: bool = False
    draft_token_ids: Any = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of `Logits` for logits that are read alike, the draft's at their places."""
        sides = {"sampling": self.target, "draft_sampling": self.draft}
        return {**sides, "pad": self.pad, "kind": "logits"}

    @property
    def filters_alike(self) -> bool:
        """Whether both sides have the same filters, whatever their temperatures."""
        one, other = ((x.top_k, x.top_p, x.min_p, x.joint) for x in (self.target, self.draft))
        return one == other


class Logits:
    r"""Logits of a target and a draft model at the same positions, and how laws are read from them.

    They are opened and checked here, once. All functions of such a pair take it in place of their
    first two arguments; to those that are given two arrays, the options here are keywords.

    Parameters
    ----------
    target, draft : array_like, shape (..., V)
        Any float dtype (bfloat16 included) or integers; ``-inf`` marks an impossible token. Arrays
        of NumPy, CuPy, torch, JAX or Dask; leading axes broadcast. A tuple or list of tensors
        [B, V], as ``generate(output_logits=True)`` of transformers gives, one for each step, are B
        texts: [B, T, V].
    sampling : Sampling, optional
        Temperature and filters in one, in place of the keywords.
    draft_sampling : Sampling, optional
        Temperature and filters of the draft, where its filters are others than the target's, which
        is done on the CPU; see `mdsd_opt.best_draft_filter`.
    kind : {None, "logits", "logprobs", "probs"}
        What the rows hold: logits, logprobs or probs. None takes them for logits, and asks where
        the first of them look like probabilities: those are not negative and sum to one. Of
        probabilities and their logarithms every row has to sum to one, up to 1e-3 and the rounding
        of its numbers. Lists of the likeliest tokens do not: `acceptance_interval` takes those.
    pad : bool
        Take the tokens that the narrower vocabulary lacks as impossible on its side.
    mask : array_like of bool, shape (V,) or (..., V), optional
        Tokens that a grammar allows, the others have logits of -inf before temperature and filters.
        Rates are those of the masked law of each step, which is not the law of texts given that
        the grammar takes them.
    mask_draft : bool
        Whether the draft is masked as well, which never lowers the optimum, and lifted, which may.
    lift : array_like of float, shape (V,) or (..., V), optional
        Weights of the tokens, from 0: the target is p_i w_i, scaled up, with p after mask,
        temperature and filters. With the probability that an allowed text follows each token, that
        is the law of texts given that the grammar takes them [Zhang26]. On the CPU.
    draft_token_ids : array_like of int, shape (draft's V,), optional
        The target's id of each of the draft's tokens, where its vocabulary is a part of the
        target's: its logits are put at their places. Of EAGLE's d2t: i + d2t[i].
    temperature : float
        Of the target; 0 leaves the likeliest token alone.
    draft_temperature : float, optional
        Of the draft; the target's unless given.
    top_k : int, optional
        Top-k filter, on each side; 0 for none. See `mdsd_opt.Sampling`.
    top_p : float, optional
        Top-p filter, on each side.
    min_p : float, optional
        Min-p filter, on each side.
    joint : bool
        Top-p filter on the law before top-k, not on what that leaves. On the CPU.

    Raises
    ------
    InvalidDistribution
        Rows are no probabilities that are said to be.
    InvalidInput
        An option is out of range, or shapes do not fit: neither to each other nor, without `pad`
        and `draft_token_ids`, the vocabularies.

    Examples
    --------
    >>> import mdsd_opt as mo
    >>> pair = mo.Logits([[2.0, 1.0, 0.0]], [[0.0, 1.0, 2.0]], sampling=mo.Sampling(top_k=2))
    >>> mo.acceptance_rates(pair, 2).round(6).tolist()
    [0.268941]
    """

    def __init__(
        self,
        target: Any,
        draft: Any,
        *,
        sampling: Sampling | None = None,
        draft_sampling: Sampling | None = None,
        kind: str | None = None,
        pad: bool = False,
        mask: Any = None,
        mask_draft: bool = True,
        lift: Any = None,
        draft_token_ids: Any = None,
        temperature: float = 1.0,
        draft_temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        joint: bool = False,
    ) -> None:
        check_truth(pad=pad, mask_draft=mask_draft, joint=joint)
        sides = Sampling.of_both(
            temperature, draft_temperature, top_k, top_p, min_p, sampling, draft_sampling, joint
        )
        self.target = as_logits(Opened.of(target, "target_logits"), kind)
        self.draft = as_logits(Opened.of(draft, "draft_logits"), kind)
        for side in (self.target, self.draft):
            if side.shape[-1:] in ((), (0,)):
                raise InvalidInput(
                    f"{side.name} has shape {side.shape}: the last axis must hold the tokens"
                )
        sizes = self.draft.shape[-1], self.target.shape[-1]
        if mask_draft and sizes[0] != sizes[1] and not (mask is None and lift is None):
            raise InvalidInput(
                f"a mask for {sizes[1]:,} tokens does not fit a draft of {sizes[0]:,}: set the "
                "draft's logits to -inf where it is False, and give mask_draft=False"
            )
        if draft_token_ids is not None:
            draft_token_ids = checked_token_ids(draft_token_ids, *sizes, "draft_token_ids")
        elif sizes[0] != sizes[1] and not pad:
            raise InvalidInput(
                f"target_logits has {sizes[1]} tokens and draft_logits has {sizes[0]}. If the "
                "first tokens of both are the same, pad=True (--pad) takes those that the narrower "
                "one lacks as impossible there; else tell draft_token_ids (of EAGLE: i + d2t[i])."
            )
        if not self.is_lazy:
            batch_shape(self.target.shape, self.draft.shape)
        if mask is not None:
            self.target = masked(self.target, mask)
            self.draft = masked(self.draft, mask) if mask_draft else self.draft
        self.tells_draft = sides[0] != sides[1]
        self.lifts_draft = lift is not None and mask_draft
        if self.lifts_draft:
            self.draft = _lifted(self.draft, lift, sides[1])
        if lift is not None:
            self.target = _lifted(self.target, lift, sides[0])
            sides = Sampling(), Sampling() if mask_draft else sides[1]
        self.reading = Reading(*sides, pad, draft_token_ids)

    @classmethod
    def of(cls, target: Any, draft: Any, options: Mapping[str, Any]) -> Logits:
        """Pair that a function was given as its first argument, or in parts."""
        if not isinstance(target, Logits):
            return cls(target, draft, **options)
        if options:
            told = " and ".join(options)
            raise InvalidInput(f"a pair of logits has its own {told}: give mdsd_opt.Logits that")
        return target

    @property
    def index_shape(self) -> tuple[int, ...]:
        """Shape without the vocabulary."""
        return batch_shape(self.target.shape, self.draft.shape)

    def placed(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Both sides on the host, of one width, each token of the draft at its place."""
        target, draft = self.target.numpy(), self.draft.numpy()
        if self.reading.draft_token_ids is not None:
            return target, spread(draft, self.reading.draft_token_ids, target.shape[-1])
        width = max(target.shape[-1], draft.shape[-1])
        target, draft = (
            x if x.shape[-1] == width else spread(x, slice(x.shape[-1]), width)
            for x in (target, draft)
        )
        return target, draft

    def require_open_draft(self, apart: bool = False) -> None:
        """Raise `InvalidInput` where the draft's sampling, which is to be found, is told.

        `apart` says that it may differ from the target's in what is not looked for.
        """
        if self.lifts_draft:
            raise InvalidInput("the draft is not sought behind a lift: give mask_draft=False")
        if not apart and self.tells_draft:
            raise InvalidInput(
                "the draft's temperature and filters are what is found here: leave "
                "draft_temperature and draft_sampling out"
            )

    @property
    def sides(self) -> tuple[Opened, Opened, Reading]:
        """Both sides, and how laws are read from them."""
        return self.target, self.draft, self.reading

    @property
    def reference(self) -> Opened:
        """Side in whose library results are returned."""
        return self.draft if self.target.library == "numpy" else self.target

    @property
    def is_lazy(self) -> bool:
        """Whether a side is an array of Dask."""
        return "dask" in (self.target.library, self.draft.library)

    def __repr__(self) -> str:
        sides = (f"{x.name}={x.shape} of {x.library}" for x in (self.target, self.draft))
        return f"Logits({', '.join(sides)}, {self.reading})"


def batch_shape(target: Sequence[int], draft: Sequence[int]) -> tuple[int, ...]:
    """Shape of a batch without its vocabulary; `InvalidInput` if both sides do not fit."""
    try:
        return np.broadcast_shapes(tuple(target)[:-1], tuple(draft)[:-1])
    except ValueError:
        raise InvalidInput(
            f"target_logits has shape {tuple(target)} and draft_logits has shape {tuple(draft)}: "
            "all axes but the last must fit to each other"
        ) from None


def _lifted(given: Opened, lift: Any, sampling: Sampling) -> Opened:
    """Logarithms of the laws of logits (..., V), each probability times the weight of its token.

    Raises `InvalidInput` for weights that are negative, not finite or of a shape that does not fit.
    """
    opened = Opened.of(lift, "lift")
    require_broadcast(opened, given, "number")
    weights = floats(opened.array, "lift")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InvalidInput("lift has weights that are negative or not finite: give numbers from 0")
    if given.library == "dask":
        raise InvalidInput("lift takes no Dask arrays: call acceptance_rates on their blocks")
    with np.errstate(divide="ignore"):
        rows = np.log(sampling.law(given.numpy())) + np.log(weights)
    return Opened(given.name, given.like(rows), given.library)


class LogitsKeywords(SamplingKeywords, total=False):
    """Options of `Logits`, as keywords of functions that are given two arrays."""

    kind: str | None
    pad: bool
    mask: Any
    mask_draft: bool
    lift: Any
    draft_token_ids: Any


class OfLogits(Protocol[P, T]):
    """Function of a pair of logits, which may be given in parts; some take files."""

    @overload
    def __call__(self, logits: Logits, /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(
        self, target_logits: Any, draft_logits: Any, /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    def __call__(self, files: Path | Sequence[Path], /, *args: Any, **kwargs: Any) -> T: ...
    @overload
    def __call__(self, *, target_logits: Any, draft_logits: Any, **kwargs: Any) -> T: ...


def of_logits(
    *beside: type, late: tuple[str, ...] = (), **renamed: str
) -> Callable[[Callable[Concatenate[Any, Any, P], T]], OfLogits[P, T]]:
    """Decorator of functions of two arrays and `LogitsKeywords`, which may be one pair instead.

    Parameters of other classes, `beside`, may be among the keywords. Those of `late` may be given
    by place as well, and those of `renamed`, old names with new ones, by their old names.
    """

    def decorated(function: Callable[Concatenate[Any, Any, P], T]) -> OfLogits[P, T]:
        written = inspect.signature(function)
        own = {name: x for name, x in written.parameters.items() if x.kind is not x.VAR_KEYWORD}
        options = dict(inspect.signature(Logits).parameters)
        flat = {name: options[name] for name in LogitsKeywords.__annotations__}
        for one in beside:
            flat |= inspect.signature(one).parameters
        known = [*own.values(), *(x.replace(kind=x.KEYWORD_ONLY) for x in flat.values())]
        names = {*own, *flat, *renamed}
        former = Formerly.of(function, late, renamed)

        @functools.wraps(function)
        def asked(*args: Any, **keywords: Any) -> Any:
            if not keywords.keys() <= names:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument "
                    f"{min(keywords.keys() - names)!r}"
                )
            if args and isinstance(args[0], Logits):
                if "draft_logits" in keywords:
                    raise InvalidInput("draft_logits is a part of the pair: leave it out")
                args = (args[0], None, *args[1:])
            if len(args) > former.places or not keywords.keys().isdisjoint(renamed):
                return former.call(args, keywords)
            return cast("Any", function)(*args, **keywords)

        asked.__dict__["__signature__"] = written.replace(parameters=known)
        return cast("OfLogits[P, T]", asked)

    return decorated
