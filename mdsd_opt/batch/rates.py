"""Acceptance rates of batches of logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard, Unpack

from mdsd_opt.base.checked import is_among
from mdsd_opt.base.keywords import by_place, renamed
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.base.seeds import Rng, drawn_seed
from mdsd_opt.batch.batch import Batch, RowWork
from mdsd_opt.drafts import checked_num_drafts
from mdsd_opt.errors import InvalidInput
from mdsd_opt.verifiers import Verifier


@renamed("seed", "rng")
@of_logits()
@by_place("temperature", "draft_temperature", "top_k", "top_p", "min_p")
def acceptance_rates(
    target_logits: Any,
    draft_logits: Any,
    num_drafts: int | Sequence[int] = 3,
    drafts: str = "with_replacement",
    verifier: str | Verifier = "optimal",
    *,
    num_threads: int | None = None,
    progress: bool = False,
    rng: Rng = 0,
    device: str | None = None,
    **options: Unpack[LogitsKeywords],
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
        Logits of both models; or a pair of them, `mdsd_opt.Logits`, as the first argument.
    num_drafts : int or sequence of int
        K. Several of them share the work and are the last axis of the result.
    drafts : {"with_replacement", "without_replacement", "greedy", "top_k"}
        Scheme by which the drafts come from q: K independent draws; K draws without replacement;
        the K - 1 likeliest tokens and one draw from the rest; the K likeliest tokens. Ties go to
        the lowest token id. Or a name that was registered (`mdsd_opt.drafts.register`).
    verifier : str or Verifier
        Verification algorithm: a name of `mdsd_opt.verifiers.names`, ``"module:attribute"``, or a
        verifier. Of "importance_sampling" [Khisti25], "gumbel" [GLS] and "race" the rates are lower
        bounds.
        A verifier of your own that declares no `batch_rates` for these drafts is asked for its rate
        position by position.
    num_threads : int, optional
        Threads; as many as there are processors for this process by default. The result does not
        depend on it, bit for bit.
    progress : bool
        Show a progress bar on stderr.
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator that draws one. It is that of "rrs" without replacement,
        which is exact at K <= 2 and on small vocabularies (up to 223 tokens at K = 3), and
        otherwise an average over 256 sequences of rejected tokens: its standard error on the
        bundled real logits is 0.0002 a row on average, 0.0013 at most. The estimate depends on
        nothing but the row, the seed and its own K.
    device : {None, "cpu", "gpu", "cuda"}
        Device to compute on. None goes by the logits: those on a CUDA device stay there, if CuPy is
        installed and there are kernels for what is asked; all else is done by the CPU. "gpu" sends
        NumPy arrays to the device, too, in chunks, and raises where None would turn to the CPU.
    **options
        How laws are read from the logits, unless a pair tells: temperature, draft_temperature,
        top_k, top_p, min_p, joint, sampling, draft_sampling, kind, pad, mask, mask_draft, lift,
        draft_token_ids, see `mdsd_opt.Logits`.

    Returns
    -------
    array, shape (...) or (..., len(num_drafts))
        float64, in the library of the input (float32 in JAX unless it has 64 bits enabled). The
        error is below 1e-12 (1e-9 for K > 64 without replacement); with replacement from logits of
        16 or 32 bits it is below 1e-7. On a device it is below 2e-6. With drafts of a scheme of
        yours "optimal" has the rates of its rule, up to 1e-6 below the optimum.

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
    work = RowWork(drafts, verifier, counts, num_threads, progress, drawn_seed(rng))
    _ = work.declared  # an error of names comes before one of arrays
    batch = Batch(work, Logits.of(target_logits, draft_logits, options), device)
    keep_axis = is_several(num_drafts)
    if batch.may_use_a_device and not batch.logits.is_lazy:
        from mdsd_opt.batch.device import RatesRequest, device_rates

        pair = batch.logits
        rates = device_rates(pair.target, pair.draft, RatesRequest(work, pair.reading), device)
        if rates is not None:
            return rates if keep_axis else rates[..., 0]
    return batch.rates(keep_axis)


def check_device(device: str | None) -> None:
    """Raise `InvalidInput` unless this is a place to compute; "cuda" is another word for "gpu"."""
    if not is_among(device, ("cpu", "gpu", "cuda")):
        raise InvalidInput(f'device is {device!r:.60}: give None, "cpu", "gpu" or "cuda"')


def is_several(num_drafts: Any) -> TypeGuard[Iterable[int]]:
    """Whether these are several numbers of drafts; an array without axes is one."""
    return isinstance(num_drafts, Iterable) and getattr(num_drafts, "ndim", 1) > 0


def checked_counts(num_drafts: int | Sequence[int]) -> tuple[int, ...]:
    """Numbers of drafts K; `InvalidInput` unless there is one, and each is a number."""
    counts = tuple(num_drafts) if is_several(num_drafts) else (num_drafts,)
    if not counts:
        raise InvalidInput("num_drafts is empty: give at least one number of drafts")
    return tuple(checked_num_drafts(count) for count in counts)
