"""Decisions for batches of logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt import verifiers
from mdsd_opt.arrays import library_of, like, to_numpy
from mdsd_opt.batch.device_rates import Request, filter_settings
from mdsd_opt.batch.device_verification import VerificationRequest, verify_on_device
from mdsd_opt.batch.rates import acceptance_rates
from mdsd_opt.batch.rows import LogitRows, Sampling, batch_shape, paired_rows
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.gpu import interop
from mdsd_opt.gpu.philox import Randomness, uniforms_of
from mdsd_opt.problem import TransportProblem
from mdsd_opt.threads import available_threads
from mdsd_opt.verifiers.base import BatchVerdict, Uniforms, Verifier, draw, first_places

_WITH_REPLACEMENT = "with_replacement"
_MISSING = -1


def verify_batch(
    target_logits: Any,
    draft_logits: Any,
    drafts: Any,
    *,
    scheme: str = _WITH_REPLACEMENT,
    verifier: str = "optimal",
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
) -> BatchVerdict:
    r"""Choose one output token for every row of logits, given its drafts.

    The output has the target's law p exactly. On the CPU decisions are those of
    `Verifier.verify_batch` on the probabilities in float64. On a device the optimal rule for drafts
    with replacement is that of a marginal with a constant ratio to q in each of 2048 bins of p/q:
    lossless for whatever bins, and on small vocabularies, and where acceptance is far from one, it
    accepts as often as any verifier can. Elsewhere it loses up to some thousandths, which
    `with_rates` shows: bins are about 2 percent wide. p and q are there those of the logits with
    weights rounded to :math:`2^{-44}` of the row's largest.

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
    verifier : str
        A name of `mdsd_opt.verifiers.names`.
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
    if device not in (None, "cpu", "gpu"):
        raise InvalidInput(f'device is {device!r}: give None, "cpu" or "gpu"')
    if scheme not in SINGLE_MODEL_SCHEMES:
        raise UnknownName.among("draft scheme", scheme, SINGLE_MODEL_SCHEMES)
    rule = verifiers.get(verifier)
    if not 0 <= seed < 1 << 64 or not 0 <= step < 1 << 32:
        raise InvalidInput(f"seed is {seed} and step is {step}: give 64 and 32 bits at most")
    target_sampling = Sampling(temperature, top_k, top_p, min_p)
    draft_sampling = target_sampling
    if draft_temperature is not None:
        draft_sampling = replace(target_sampling, temperature=draft_temperature)
    index_shape = batch_shape(np.shape(target_logits), np.shape(draft_logits))
    num_drafts = _check_drafts(drafts, index_shape)
    given = None if uniforms is None else _checked_uniforms(uniforms, index_shape)
    randomness = Randomness(seed, step)

    if device == "gpu" or (device is None and _any_on_device(target_logits, draft_logits)):
        filters = filter_settings(target_sampling, draft_sampling)
        scales = target_sampling.scale, draft_sampling.scale
        request = VerificationRequest(
            Request(scheme, verifier, (num_drafts,), *scales, filters), randomness, with_rates
        )
        found = verify_on_device(target_logits, draft_logits, drafts, given, request, device)
        if found is not None:
            return found

    target, draft = paired_rows(
        target_logits, draft_logits, target_sampling, draft_sampling, pad=False
    )
    tokens = to_numpy(drafts, "drafts").astype(np.int64).reshape(-1, num_drafts)
    if given is None:
        given = uniforms_of(randomness, np.arange(len(tokens)))
    threads = available_threads() if num_threads is None else num_threads
    found_tokens = _decide_rows(rule, scheme, target, draft, tokens, given, threads)
    columns: list[NDArray[Any]] = [found_tokens, first_places(tokens, found_tokens)]
    if with_rates:
        columns += _rates(verifier, scheme, target, draft, tokens, num_threads)
    reference = draft_logits if library_of(target_logits) == "numpy" else target_logits
    return BatchVerdict(*(like(reference, column.reshape(index_shape)) for column in columns))


def _any_on_device(*arrays: Any) -> bool:
    return any(interop.is_on_device(array) for array in arrays)


def _check_drafts(drafts: Any, index_shape: tuple[int, ...]) -> int:
    """K, if the drafts are token ids that fit to the batch."""
    array = drafts if hasattr(drafts, "dtype") else to_numpy(drafts, "drafts")
    shape = tuple(array.shape)
    if "int" not in str(array.dtype) or not shape or shape[-1] == 0:
        raise InvalidInput(
            f"drafts have shape {shape} and dtype {array.dtype}: give token ids, (..., K)"
        )
    if shape[:-1] != index_shape:
        raise InvalidInput(
            f"drafts have shape {shape} and the logits {index_shape} rows: all axes of "
            "drafts but the last must be those of the logits"
        )
    return shape[-1]


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


def _decide_rows(
    rule: Verifier,
    scheme: str,
    target: LogitRows,
    draft: LogitRows,
    drafts: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    num_threads: int,
) -> NDArray[np.int64]:
    """Output tokens by the CPU."""
    make = SINGLE_MODEL_SCHEMES[scheme]
    counts = _counts(scheme, drafts)
    with_drafts = np.flatnonzero(counts > 0)
    there = [drafts[row] for row in with_drafts]
    if scheme == _WITH_REPLACEMENT:
        there = [row[row != _MISSING] for row in there]

    def problem_of(n: int) -> TransportProblem:
        row = int(with_drafts[n])
        q = draft.probabilities(row)
        return TransportProblem(target.probabilities(row), make(q, there[n].size))

    tokens = np.empty(len(drafts), np.int64)
    tokens[with_drafts] = rule.verify_rows(
        problem_of,
        there,
        uniforms[with_drafts],
        num_threads,
        lambda n: target.name_of(int(with_drafts[n])),
    )
    for row in np.flatnonzero(counts == 0).tolist():
        draft.probabilities(row)  # a bad row is an error without drafts, too
        tokens[row] = draw(target.probabilities(row), Uniforms(*uniforms[row].tolist()).residual)
    return tokens


def _rates(
    verifier: str,
    scheme: str,
    target: LogitRows,
    draft: LogitRows,
    drafts: NDArray[np.int64],
    num_threads: int | None,
) -> list[NDArray[np.float64]]:
    """Acceptance rates of the rows and their gaps; both are zero without drafts."""
    counts = _counts(scheme, drafts)
    numbers = np.unique(counts[counts > 0])
    rates, optima = np.zeros(len(drafts)), np.zeros(len(drafts))
    if numbers.size == 0:
        return [rates, optima]
    sampling = target.sampling
    has_drafts = np.flatnonzero(counts > 0)
    places = np.searchsorted(numbers, counts[has_drafts])
    for column, name in ((rates, verifier), (optima, "optimal")):
        found = acceptance_rates(
            target.values,
            draft.values,
            numbers.tolist(),
            scheme,
            name,
            temperature=sampling.temperature,
            draft_temperature=draft.sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            num_threads=num_threads,
        ).reshape(len(drafts), -1)
        column[has_drafts] = found[has_drafts, places]
        if verifier == "optimal":
            return [rates, optima]
    return [rates, np.maximum(optima - rates, 0.0)]


def _counts(scheme: str, drafts: NDArray[np.int64]) -> NDArray[np.int64]:
    """K of every row. Only with replacement are rows verified with fewer drafts than others."""
    if scheme == _WITH_REPLACEMENT:
        return np.asarray((drafts != _MISSING).sum(axis=1))
    return np.full(len(drafts), drafts.shape[1])
