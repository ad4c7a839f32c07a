"""Decisions for batches of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.base.arrays import Opened, to_numpy
from mdsd_opt.batch.batch import Batch
from mdsd_opt.batch.job import Job
from mdsd_opt.batch.rates import check_device
from mdsd_opt.batch.rows import Sampling, batch_shape
from mdsd_opt.drafts.by_name import checked_scheme
from mdsd_opt.errors import InvalidInput
from mdsd_opt.gpu.philox import Randomness
from mdsd_opt.verifiers.base import Verifier
from mdsd_opt.verifiers.verdicts import BatchVerdict, Uniforms


def verify_batch(
    target_logits: Any,
    draft_logits: Any,
    drafts: Any,
    *,
    scheme: str = "with_replacement",
    verifier: str | Verifier = "optimal",
    temperature: float = 1.0,
    draft_temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int = 0,
    step: int = 0,
    uniforms: Any = None,
    with_rates: bool = False,
    num_threads: int | None = None,
    device: str | None = None,
    kind: str | None = None,
    relax: Mapping[str, float] | None = None,
) -> BatchVerdict:
    r"""Choose one output token for every row of logits, given its drafts.

    The output has the target's law p exactly. On the CPU decisions are those of
    `Verifier.verify_batch` on the probabilities in float64. On a device the optimal rule for drafts
    with and without replacement is that of a marginal with a constant ratio to q in each of 2048
    bins of p/q, and of tokens that are heavy by themselves: lossless for whatever bins, and it
    loses up to some ten-thousandths of acceptance, which `with_rates` shows. p and q are there of
    single precision, and their sums over bins rounded to :math:`2^{-32}` of the row's: the law of
    the output was seen to be off by less than 1e-7 in every token.

    Parameters
    ----------
    target_logits, draft_logits : array_like, shape (..., V)
        Leading axes broadcast. A device reads float32, float16 and bfloat16.
    drafts : array_like of int, shape (..., K)
        Token ids in draw order. With replacement, -1 marks a draft that is missing for a reason
        that has nothing to do with the tokens: a row with fewer drafts is verified as such, and
        without any the output is drawn from the target. In other schemes -1 is padding where the
        law drafts fewer.
    scheme : {"with_replacement", "without_replacement", "greedy", "top_k"}
        How the drafts come from q.
    verifier : str or Verifier
        A name of `mdsd_opt.verifiers.names`, ``"module:attribute"``, or a verifier.
    temperature, draft_temperature : float
        Of the target, and of the draft if it differs. 0 leaves the likeliest token alone.
    top_k, top_p, min_p : optional
        Filters, applied to either side in this order; see `mdsd_opt.softmax`.
    seed, step : int
        Random numbers are Philox4x32-10 with the row's number and `step` as counter: give another
        step for every decision. The four numbers of a row are separate streams.
    uniforms : array_like of float, shape (..., 4), optional
        Random numbers of [0, 1) instead, in the order of `mdsd_opt.verifiers.Uniforms`.
    with_rates : bool
        Tell for every row the rule's acceptance rate, and by how much the optimum may exceed it.
    num_threads : int, optional
        Of the CPU: as many as there are processors for this process by default. The result does
        not depend on it.
    device : {None, "cpu", "gpu"}
        None goes by the logits, see `acceptance_rates`. "gpu" sends NumPy arrays of any size to
        the device in chunks, which does not change the result, and raises where None would turn to
        the CPU.
    kind : {None, "logits", "logprobs", "probs"}
        What the rows are, see `acceptance_rates`.
    relax : mapping, optional
        A budget for each row, as ``{"kl": 0.01}`` (or "tv", "chi2", "acceptance_rate", see
        `mdsd_opt.relax`): outputs follow the relaxed targets, the rates are theirs, and the verdict
        tells the distances of each row and of all together. On the CPU.

    Returns
    -------
    BatchVerdict
        In the library of the target's logits. The optimum is between a rate and that rate with its
        gap, up to the error of `acceptance_rates`, or 1e-6 on a device. On the CPU the optimal
        verifier's gap is zero. On a device the rare residual draws that hit a draft come on top of
        the rate, at most `gap` of them.

    Raises
    ------
    InvalidDistribution
        A row has a NaN or ``+inf`` or is all ``-inf``.
    InvalidInput
        A parameter out of range, shapes that do not fit, or, on the CPU, drafts that q cannot have
        drawn; a device counts those as missing.
    UnknownName
        No such draft scheme or verifier.
    UnsupportedScheme
        The verifier is not lossless for these drafts, or has no formula for its rate. Or no kernel,
        and the device was asked for.
    NoDevice
        A device was asked for, and there is none.
    """
    check_device(device)
    checked_scheme(scheme)
    verifiers.get(verifier)  # an error of names comes before one of arrays
    if not 0 <= seed < 1 << 64 or not 0 <= step < 1 << 32:
        raise InvalidInput(f"seed is {seed} and step is {step}: give 64 and 32 bits at most")
    samplings = Sampling.of_both(temperature, draft_temperature, top_k, top_p, min_p)
    ids = Opened.of(drafts, "drafts")
    job = Job(scheme, verifier, ids.shape[-1:], *samplings, num_threads)
    batch = Batch.open(target_logits, draft_logits, job, device, kind)
    index_shape = batch_shape(batch.target.shape, batch.draft.shape)
    _check_drafts(ids, index_shape)
    given = None if uniforms is None else _checked_uniforms(uniforms, index_shape)
    return batch.decide(ids, given, Randomness(seed, step), with_rates, relax)


def _check_drafts(drafts: Opened, index_shape: tuple[int, ...]) -> None:
    """Raise unless the drafts are token ids that fit to the batch."""
    shape, dtype = drafts.shape, drafts.array.dtype
    if "int" not in str(dtype) or not shape or shape[-1] == 0:
        raise InvalidInput(f"drafts have shape {shape} and dtype {dtype}: give token ids, (..., K)")
    if shape[:-1] != index_shape:
        raise InvalidInput(
            f"drafts have shape {shape} and the logits {index_shape} rows: all axes of "
            "drafts but the last must be those of the logits"
        )


def _checked_uniforms(uniforms: Any, index_shape: tuple[int, ...]) -> NDArray[np.float64]:
    """As rows, shape (num_rows, 4)."""
    values = to_numpy(uniforms, "uniforms").astype(np.float64)
    width = len(Uniforms._fields)
    if values.shape != (*index_shape, width) or not ((values >= 0) & (values < 1)).all():
        raise InvalidInput(
            f"uniforms have shape {values.shape}: give numbers of [0, 1), of shape "
            f"{(*index_shape, width)}"
        )
    return np.ascontiguousarray(values.reshape(-1, width))
