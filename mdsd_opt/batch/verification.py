"""Decisions for batches of logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from mdsd_opt import verifiers
from mdsd_opt.base.arrays import Floats, Integers, Opened, to_numpy
from mdsd_opt.base.checked import Rng, check_truth, checked_integer, drawn_seed
from mdsd_opt.base.logits import Logits, LogitsKeywords, of_logits
from mdsd_opt.batch.acceptance import Batch, LogitRows, RowWork, check_device, paired_rows
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, checked_scheme
from mdsd_opt.errors import InvalidInput, UnsupportedScheme
from mdsd_opt.gpu import Randomness, uniforms_of
from mdsd_opt.problem import TransportProblem
from mdsd_opt.verifiers import BatchVerdict, RelaxedProblems, Uniforms, Verifier, draw, first_places

_MISSING = -1

Column = Integers | Floats


@of_logits(seed="rng")
def verify_batch(
    target_logits: Any,
    draft_logits: Any,
    drafts: Any,
    *,
    scheme: str = "with_replacement",
    verifier: str | Verifier = "optimal",
    rng: Rng = 0,
    step: int = 0,
    uniforms: Any = None,
    with_rates: bool = False,
    num_threads: int | None = None,
    device: str | None = None,
    relax: Mapping[str, float] | None = None,
    **options: Unpack[LogitsKeywords],
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
        Leading axes broadcast. A device reads float32, float16 and bfloat16. Or a pair of them,
        `mdsd_opt.Logits`, as the first argument.
    drafts : array_like of int, shape (..., K)
        Token ids in draw order. With replacement, -1 marks a draft that is missing for a reason
        that has nothing to do with the tokens: a row with fewer drafts is verified as such, and
        without any the output is drawn from the target. In other schemes -1 is padding where the
        law drafts fewer.
    scheme : {"with_replacement", "without_replacement", "greedy", "top_k"}
        Scheme by which the drafts come from q.
    verifier : str or Verifier
        A name of `mdsd_opt.verifiers.names`, ``"module:attribute"``, or a verifier.
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator that draws one.
    step : int
        Random numbers are Philox4x32-10 with the row's number and `step` as counter: give another
        step for every decision. The four numbers of a row are separate streams.
    uniforms : array_like of float, shape (..., 4), optional
        Random numbers of [0, 1) instead, in the order of `mdsd_opt.verifiers.Uniforms`.
    with_rates : bool
        Tell for every row the rule's acceptance rate, and by how much the optimum may exceed it.
    num_threads : int, optional
        As for `acceptance_rates`; the result does not depend on it.
    device : {None, "cpu", "gpu", "cuda"}
        None goes by the logits, see `acceptance_rates`. "gpu" sends NumPy arrays of any size to
        the device in chunks, which does not change the result, and raises where None would turn to
        the CPU.
    relax : mapping, optional
        A budget for each row, as ``{"kl": 0.01}`` (or "tv", "chi2", "acceptance_rate", see
        `mdsd_opt.relax`): outputs follow the relaxed targets, the rates are theirs, and the verdict
        tells the distances of each row and of all together. On the CPU.
    **options
        How laws are read from the logits, unless a pair tells, see `mdsd_opt.Logits`. The output
        follows the masked law of the target, lifted where weights are given. With `mask_draft` the
        drafts have to come from the draft's law with the same mask and weights; without, from its
        own.

    Returns
    -------
    BatchVerdict
        Verdicts in the library of the target's logits. The optimum is between a rate and that rate
        with its gap, up to the error of `acceptance_rates`, or 1e-6 on a device. On the CPU the
        optimal verifier's gap is zero. On a device the rare residual draws that hit a draft come on
        top of the rate, at most `gap` of them.

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
    check_truth(with_rates=with_rates)
    checked_scheme(scheme)
    verifiers.get(verifier)  # an error of names comes before one of arrays
    randomness = randomness_of(rng, step)
    pair = Logits.of(target_logits, draft_logits, options)
    ids = Opened.of(drafts, "drafts")
    batch = Batch(RowWork(scheme, verifier, ids.shape[-1:], num_threads), pair, device)
    _check_drafts(ids, pair.index_shape)
    numbers = None if uniforms is None else _checked_uniforms(uniforms, pair.index_shape)
    return _decided(batch, ids, numbers, randomness, with_rates, relax)


def randomness_of(rng: Rng, step: int) -> Randomness:
    """Random numbers by a seed of 64 bits and a step of 32; `InvalidInput` for larger ones."""
    if checked_integer(step, "step", 0) >= 1 << 32:
        raise InvalidInput(f"step is {step}: give 32 bits at most")
    return Randomness(drawn_seed(rng, bits=64), step)


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


def _checked_uniforms(uniforms: Any, index_shape: tuple[int, ...]) -> Floats:
    """Random numbers as checked rows, shape (num_rows, 4)."""
    values = to_numpy(uniforms, "uniforms").astype(np.float64)
    width = len(Uniforms._fields)
    if values.shape != (*index_shape, width):
        raise InvalidInput(f"uniforms have shape {values.shape}: give {(*index_shape, width)}")
    if (wrong := values[~((values >= 0) & (values < 1))]).size:
        raise InvalidInput(f"uniforms have a {wrong[0]}: give numbers of [0, 1)")
    return np.ascontiguousarray(values.reshape(-1, width))


def _decided(
    batch: Batch,
    drafts: Opened,
    uniforms: Floats | None,
    randomness: Randomness,
    with_rates: bool,
    relax: Mapping[str, float] | None = None,
) -> BatchVerdict:
    """Output tokens, see `verify_batch`; `uniforms` as rows, in place of `randomness`."""
    pair = batch.logits
    if relax is not None and batch.device not in (None, "cpu"):
        raise UnsupportedScheme('there is no kernel for relaxed targets: give device="cpu"')
    if relax is None and batch.may_use_a_device:
        from mdsd_opt.batch.device import RatesRequest, VerificationRequest, verify_on_device

        work = batch.work
        rates = RatesRequest(work.scheme, work.verifier, work.num_drafts, pair.reading)
        request = VerificationRequest(rates, randomness, with_rates)
        verdict = verify_on_device(pair.target, pair.draft, drafts, uniforms, request, batch.device)
        if verdict is not None:
            return verdict
    rows = paired_rows(*pair.sides)
    decisions = _Decisions(batch.work, *rows, drafts, relax)
    shape = rows[0].index_shape
    return BatchVerdict(**{
        name: pair.reference.like(column.reshape(shape))
        for name, column in decisions.columns(uniforms, randomness, with_rates).items()
    })  # fmt: skip


class _Decisions:
    """Rows of a batch and their drafts, and the budget by which targets are relaxed, if any."""

    def __init__(
        self,
        work: RowWork,
        target: LogitRows,
        draft: LogitRows,
        drafts: Opened,
        relax: Mapping[str, float] | None = None,
    ) -> None:
        self._work = work
        self._target = target
        self._draft = draft
        tokens = drafts.numpy()
        self._drafts = tokens.astype(np.int64).reshape(-1, tokens.shape[-1])
        # K of every row. Only with replacement are rows verified with fewer drafts than others.
        self._may_miss = SINGLE_MODEL_SCHEMES[work.scheme].draws_independently()
        self._counts = np.full(len(self._drafts), tokens.shape[-1])
        if self._may_miss:
            self._counts = (self._drafts != _MISSING).sum(axis=1)
        self._with_drafts = np.flatnonzero(self._counts > 0)
        self._relaxed = relax is not None
        self._problems = RelaxedProblems(self._problem, len(self._with_drafts), relax)

    def columns(
        self, uniforms: Floats | None, randomness: Randomness, with_rates: bool
    ) -> dict[str, Column]:
        """Fields of a `BatchVerdict` for every row."""
        if uniforms is None:
            uniforms = uniforms_of(randomness, np.arange(len(self._drafts)))
        tokens = self._tokens(uniforms)
        columns: dict[str, Column] = {
            "tokens": tokens, "draft_index": first_places(self._drafts, tokens),
        }  # fmt: skip
        if with_rates:
            columns |= zip(("acceptance_rate", "gap"), self._rates(), strict=True)
        columns |= {name: self._spread(values) for name, values in self._problems.distances.items()}
        return columns

    def _there(self, n: int) -> Integers:
        """Drafts of a row that has some."""
        drafts = self._drafts[self._with_drafts[n]]
        return drafts[drafts != _MISSING] if self._may_miss else drafts

    def _problem(self, n: int) -> TransportProblem:
        """The problem of a row that has drafts."""
        row = int(self._with_drafts[n])
        q = self._draft.probabilities(row)
        scheme = SINGLE_MODEL_SCHEMES[self._work.scheme](q, self._there(n).size)
        return TransportProblem(self._target.probabilities(row), scheme)

    def _spread(self, values: Floats) -> Floats:
        """Values over all rows; those without drafts follow the target, and accept nothing."""
        spread = np.zeros(len(self._drafts))
        spread[self._with_drafts] = values
        return spread

    def _tokens(self, uniforms: Floats) -> Integers:
        with_drafts = self._with_drafts
        tokens = np.empty(len(self._drafts), np.int64)
        tokens[with_drafts] = verifiers.get(self._work.verifier).verify_rows(
            self._problems,
            [self._there(n) for n in range(with_drafts.size)],
            uniforms[with_drafts],
            self._work.threads,
            lambda n: self._target.name_of(int(with_drafts[n])),
        )
        for row in np.flatnonzero(self._counts == 0).tolist():
            self._draft.probabilities(row)  # a bad row is an error without drafts, too
            p, own = self._target.probabilities(row), Uniforms(*uniforms[row].tolist())
            tokens[row] = draw(p, own.residual)
        return tokens

    def _rates(self) -> tuple[Column, Column]:
        """Acceptance rates of the rows and their gaps; both are zero without drafts.

        Those under relaxed targets come from the problems that have been decided.
        """
        rule, optimal = verifiers.get(self._work.verifier), verifiers.get("optimal")
        if self._relaxed:
            count = self._with_drafts.size
            best = own = self._spread(self._problems.rates)
            if rule is not optimal:
                rates = (float(rule.acceptance_rate(self._problems(n))) for n in range(count))
                own = self._spread(np.fromiter(rates, np.float64, count))
        else:
            own = self._rates_of(self._work.verifier)
            best = own if rule is optimal else self._rates_of(optimal)
        return own, np.maximum(best - own, 0.0)

    def _rates_of(self, verifier: str | verifiers.Verifier) -> Floats:
        rates = np.zeros(len(self._drafts))
        there = np.flatnonzero(self._counts > 0)
        if there.size == 0:
            return rates
        numbers, places = np.unique(self._counts[there], return_inverse=True)
        work = replace(self._work, verifier=verifier, num_drafts=tuple(numbers.tolist()))
        table = work.rates(self._target, self._draft).reshape(len(rates), -1)
        rates[there] = table[there, places]
        return rates
