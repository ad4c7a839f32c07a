"""Acceptance rates of batches of logits."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from mdsd_opt.base.sampling import Sampling
from mdsd_opt.batch.batch import Batch, RowWork
from mdsd_opt.drafts import checked_num_drafts
from mdsd_opt.errors import InvalidInput
from mdsd_opt.verifiers import Verifier


def acceptance_rates(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int | Sequence[int] = 3,
    drafts: str = "with_replacement",
    verifier: str | Verifier = "optimal",
    temperature: float = 1.0,
    draft_temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    num_threads: int | None = None,
    progress: bool = False,
    pad: bool = False,
    seed: int = 0,
    device: str | None = None,
    kind: str | None = None,
    draft_token_ids: Any = None,
    *,
    sampling: Sampling | None = None,
    mask: Any = None,
    mask_draft: bool = True,
    lift: Any = None,
    draft_sampling: Sampling | None = None,
    joint: bool = False,
) -> Any:
    r"""Probability that the output token is among the drafts, for every row of logits.

    With p the target's and q the draft's distribution of a row, the best that any lossless
    verifier can reach is

    .. math:: \alpha^* = 1 + \min_{H \subseteq [V]} \left[ P(H) - \Pr(\text{all drafts in } H)
              \right]

    attained on a prefix of the tokens ordered by p/q [Hu25]. Other verifiers reach less.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Any float dtype (bfloat16 included) or integers; ``-inf`` marks an impossible token. Arrays
        of NumPy, CuPy, torch, JAX or Dask; leading axes broadcast. A tuple or list of tensors
        [B, V], as ``generate(output_logits=True)`` of transformers gives, one for each step, are B
        texts: [B, T, V].
    num_drafts : int or sequence of int
        K. Several of them share the work and are the last axis of the result.
    drafts : {"with_replacement", "without_replacement", "greedy", "top_k"}
        Scheme by which the drafts come from q: K independent draws; K draws without replacement;
        the K - 1 likeliest tokens and one draw from the rest; the K likeliest tokens. Ties go to
        the lowest token id.
    verifier : str or Verifier
        Verification algorithm: a name of `mdsd_opt.verifiers.names`, ``"module:attribute"``, or a
        verifier. Of "importance_sampling" [Khisti25], "gumbel" [GLS] and "race" the rates are lower
        bounds.
        A verifier of your own that declares no `batch_rates` for these drafts is asked for its rate
        position by position.
    temperature, draft_temperature : float
        Temperature of the target, and of the draft if it differs. 0 leaves the likeliest token
        alone.
    top_k, top_p, min_p, joint : optional
        Filters of either side, and their order; see `mdsd_opt.Sampling`. Joint ones on the CPU.
    num_threads : int, optional
        Threads; as many as there are processors for this process by default. The result does not
        depend on it, bit for bit.
    progress : bool
        Show a progress bar on stderr.
    pad : bool
        Take the tokens that the narrower vocabulary lacks as impossible on its side.
    seed : int
        Seed of "rrs" without replacement, which is exact at K <= 2 and on small vocabularies (up to
        223 tokens at K = 3), and otherwise an average over 256 sequences of rejected tokens: its
        standard error on the bundled real logits is 0.0002 a row on average, 0.0013 at most. The
        estimate depends on nothing but the row, the seed and its own K.
    device : {None, "cpu", "gpu"}
        Device to compute on. None goes by the logits: those on a CUDA device stay there, if CuPy is
        installed and there are kernels for what is asked; all else is done by the CPU. "gpu" sends
        NumPy arrays to the device, too, in chunks, and raises where None would turn to the CPU.
    kind : {None, "logits", "logprobs", "probs"}
        Kind of the rows. None takes them for logits, and asks where the first of them look like
        probabilities: those are not negative and sum to one. Of probabilities and their logarithms
        every row has to sum to one, up to 1e-3 and the rounding of its numbers. Lists of the
        likeliest tokens do not: `acceptance_interval` takes those.
    draft_token_ids : array_like of int, shape (draft's V,), optional
        The target's id of each of the draft's tokens, where its vocabulary is a part of the
        target's: its logits are put at their places. Of EAGLE's d2t: i + d2t[i].
    sampling : Sampling, optional
        Temperature and filters in one, in place of the keywords.
    mask : array_like of bool, shape (V,) or (..., V), optional
        Tokens that a grammar allows, the others have logits of -inf before temperature and filters.
        The rates are those of the masked law of each step, which is not the law of texts given that
        the grammar takes them.
    mask_draft : bool
        Whether the draft is masked as well, which never lowers the optimum, and lifted, which may.
    lift : array_like of float, shape (V,) or (..., V), optional
        Weights of the tokens, from 0: the target is p_i w_i, scaled up, with p after mask,
        temperature and filters. With the probability that an allowed text follows each token, that
        is the law of texts given that the grammar takes them [Zhang26]. On the CPU.
    draft_sampling : Sampling, optional
        Temperature and filters of the draft, where its filters are others than the target's, which
        is done on the CPU; see `mdsd_opt.best_draft_filter`.

    Returns
    -------
    array, shape (...) or (..., len(num_drafts))
        float64, in the library of the input (float32 in JAX unless it has 64 bits enabled). The
        error is below 1e-12 (1e-9 for K > 64 without replacement); with replacement from logits of
        16 or 32 bits it is below 1e-7. On a device it is below 2e-6.

    Raises
    ------
    InvalidDistribution
        A row has a NaN or ``+inf`` or is all ``-inf``; the message names the row. Or rows are no
        probabilities that are said to be.
    InvalidInput
        A parameter out of range or shapes that do not fit.
    UnknownName
        No such draft scheme or verifier.
    UnsupportedScheme
        No formula for this verifier with these drafts, or this K; the message lists those that
        there are. Or no kernel, and the device was asked for.
    NoDevice
        A device was asked for, and there is none; the message says what is missing.
    ProblemTooLarge
        There are so many drafts without replacement that a row would take more than about ten
        seconds.
    """
    check_device(device)
    counts = checked_counts(num_drafts)
    work = RowWork(
        drafts,
        verifier,
        counts,
        *Sampling.of_both(
            temperature, draft_temperature, top_k, top_p, min_p, sampling, draft_sampling, joint
        ),
        None if num_threads is None else checked_integer(num_threads, "num_threads"),
        progress,
        pad,
        checked_integer(seed, "seed", 0),
        draft_token_ids,
    )
    _ = work.declared  # an error of names comes before one of arrays
    batch = Batch.open(target_logits, draft_logits, work, device, kind, mask, mask_draft, lift)
    keep_axis = isinstance(num_drafts, Iterable)
    if batch.may_use_a_device and not batch.is_lazy:
        from mdsd_opt.batch.device import Request, device_rates

        found = device_rates(batch.target, batch.draft, Request(batch.work), device)
        if found is not None:
            return found if keep_axis else found[..., 0]
    return batch.rates(keep_axis)


def check_device(device: str | None) -> None:
    """Raise unless it is a place to compute."""
    if device not in (None, "cpu", "gpu"):
        raise InvalidInput(f'device is {device!r}: give None, "cpu" or "gpu"')


def checked_counts(num_drafts: int | Sequence[int]) -> tuple[int, ...]:
    """Numbers of drafts K; `InvalidInput` unless there is one, and each is a number."""
    given = tuple(num_drafts) if isinstance(num_drafts, Iterable) else (num_drafts,)
    if not given:
        raise InvalidInput("num_drafts is empty: give at least one number of drafts")
    return tuple(checked_num_drafts(checked_integer(count, "num_drafts")) for count in given)


def checked_integer(value: Any, name: str, least: int = 1) -> int:
    """Value as an int; `InvalidInput` for anything else, and below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InvalidInput(f"{name} is {value!r}: give an integer of at least {least}")
    return number
