"""Interface of every verification algorithm, the way it decides, and the algorithms by name.

A file here, or a folder, whose source has a line that begins with ``VERIFIER =`` is a verifier of
the file's name. It is imported when it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats, Integers, Numbers, to_numpy
from mdsd_opt.base.checked import check_counts, checked_generator
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.long_runs import available_threads, map_rows
from mdsd_opt.base.registry import Registry, files_that_declare
from mdsd_opt.drafts import (
    SINGLE_MODEL_SCHEMES,
    DraftScheme,
    SingleModelDrafts,
    batch_maker,
    readable,
    tokens_at,
)
from mdsd_opt.errors import InvalidInput, MdsdError, ProblemTooLarge, UnsupportedScheme
from mdsd_opt.prefix_search import BatchRates as BatchRates
from mdsd_opt.problem import TransportProblem, checked_problem
from mdsd_opt.solvers import relaxed_by
from mdsd_opt.verifiers.verdicts import (
    BatchVerdict,
    Decision,
    Estimate,
    RelaxedProblems,
    RelaxedVerdict,
    Uniforms,
    Verdict,
    first_places,
    verdict,
)

#: Most draft tuples that an enumeration may visit.
MAX_TUPLES = 2_000_000

#: Most tuples that are enumerated for an acceptance rate to save an estimate or a bound.
MAX_RATED_TUPLES = 3000

#: Size of a batch, in probabilities of one side, from which threads are started.
_TOKENS_WORTH_THREADS = 100_000


Made = TypeVar("Made")


class Remembered(Generic[Made]):
    """Cache of a function of a problem, kept as long as the problem.

    A copy, and what another process receives, remembers nothing: `make` is to be importable.
    """

    def __init__(self, make: Callable[[TransportProblem], Made]) -> None:
        self._make = make
        self._known: WeakKeyDictionary[TransportProblem, Made] = WeakKeyDictionary()

    def __call__(self, problem: TransportProblem) -> Made:
        if problem not in self._known:
            self._known[problem] = self._make(problem)
        return self._known[problem]

    def __reduce__(self) -> tuple[Any, ...]:
        return Remembered, (self._make,)


class Verifier(ABC):
    """A verification algorithm.

    Attributes
    ----------
    name : str
    schemes : tuple of type
        Draft schemes for which the output follows the target exactly.
    only_num_drafts : int or None
        The only number of drafts that it takes; None for any.
    rational : bool
        Whether the rule is rational in p and q, so that ``exact=True`` works in Fractions.
    rates_any_batch : bool
        Whether batches for which there are no `batch_rates` are rated position by position.
    """

    name: ClassVar[str]
    schemes: ClassVar[tuple[type[DraftScheme], ...]]
    only_num_drafts: ClassVar[int | None] = None
    rational: ClassVar[bool] = True
    rates_any_batch: ClassVar[bool] = True

    @property
    def batch_rates(self) -> Mapping[str, BatchRates]:
        """Kernels or formulas of its rates in batches, by draft scheme; others go by position."""
        return {}

    def batch_rates_for(self, scheme: str) -> BatchRates | None:
        """Declared kernel or formula for drafts of a scheme; None if there is none for them.

        A verifier that is lossless for them and declares nothing is asked position by position.
        """
        declared = self.batch_rates.get(scheme)
        if declared is not None or not self.rates_any_batch:
            return declared
        kind = SINGLE_MODEL_SCHEMES[scheme]
        if not self.takes_kind(kind):
            return None
        return BatchRates(partial(self._rates_of_position, kind), is_slow=True)

    def has_batch_rates(self, scheme: str, num_drafts: int) -> bool:
        """Whether there are rates in batches for drafts of a scheme and this K."""
        takes = self.only_num_drafts in (None, num_drafts)
        return takes and self.batch_rates_for(scheme) is not None

    @property
    def bounds_batches(self) -> bool:
        """Whether its rates in batches are lower bounds."""
        return any(rates.is_bound for rates in self.batch_rates.values())

    def _rates_of_position(
        self, kind: type[SingleModelDrafts], p: Floats, q: Floats, counts: list[int], seed: int
    ) -> list[float]:
        """Acceptance rates of one position, a problem for each K, as a `RowFormula` gives them."""
        rates = []
        for k in counts:
            problem = TransportProblem(p, kind(q, k))
            self.check(problem)
            try:
                rate = float(self.acceptance_rate(problem))
            except MdsdError:
                raise
            except Exception as error:  # the verifier is not ours: anything may come
                raise InvalidInput(
                    f"verifier {self.name!r} cannot tell its acceptance rate at K = {k}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            if not 0.0 <= rate <= 1.0 + 1e-9:
                raise InvalidInput(
                    f"verifier {self.name!r} gives the acceptance rate {rate!r} at K = {k}: it "
                    "must be a number from 0 to 1"
                )
            rates.append(rate)
        return rates

    def configured(self, **options: Any) -> Verifier:
        """Same algorithm with other options than its usual ones."""
        return type(self)(**options)

    def supports(self, drafts: DraftScheme) -> bool:
        """Whether this algorithm is lossless for the scheme."""
        takes = self.only_num_drafts in (None, drafts.num_drafts)
        return self.takes_kind(type(drafts)) and takes

    def takes_kind(self, kind: type[DraftScheme]) -> bool:
        """Whether this algorithm is lossless for drafts of a class, up to their number."""
        return issubclass(kind, self.schemes)  # what a verifier declares

    def check_num_drafts(self, num_drafts: int) -> None:
        """Raise `UnsupportedScheme` unless the algorithm takes so many drafts."""
        if self.only_num_drafts not in (None, num_drafts):
            raise UnsupportedScheme(
                f"verifier {self.name!r} is for K = {self.only_num_drafts}, not K = {num_drafts}"
            )

    def check(self, problem: TransportProblem) -> None:
        """Raise `UnsupportedScheme` unless the algorithm is lossless for the problem's drafts."""
        if self.takes_kind(type(checked_problem(problem).drafts)):
            self.check_num_drafts(problem.drafts.num_drafts)
        if not self.supports(problem.drafts):
            valid = ", ".join(kind.scheme for kind in self.schemes)
            raise UnsupportedScheme(
                f"verifier {self.name!r} is not lossless for {problem.drafts.scheme!r} drafts: its "
                f"output would not follow the target. It is lossless for: {valid}."
            )

    @abstractmethod
    def decide(self, problem: TransportProblem, drafts: Integers, exact: bool = False) -> Decision:
        """Acceptance probabilities and residual law given these drafts (already checked)."""

    @abstractmethod
    def acceptance_rate(self, problem: TransportProblem) -> float:
        """Probability that the output is in the draft set, residual hits included."""

    def _decision(
        self, problem: TransportProblem, tokens: Integers, exact: bool = False
    ) -> Decision:
        """What is decided; `InvalidInput` unless a rule that is not ours returns a law."""
        decision: Any = self.decide(problem, tokens, exact)
        if type(self).__module__.startswith("mdsd_opt.") or (
            isinstance(decision, Decision) and decision.is_law(tokens.size, problem.vocab_size)
        ):
            return decision
        raise InvalidInput(
            f"verifier {self.name!r} decides {' '.join(repr(decision).split())[:200]} with drafts "
            f"{tokens.tolist()}: return a Decision, with the probabilities of the K drafts and, "
            "where their sum is below one, a law of the V tokens, as NumPy arrays"
        )

    def conditional_law(
        self, problem: TransportProblem, drafts: Any, exact: bool = False
    ) -> Numbers:
        """Law of the output token given these drafts.

        Parameters
        ----------
        problem : TransportProblem
        drafts : array_like of int, shape (K,)
            Draft tokens in draw order, padded with -1.
        exact : bool
            Compute in Fractions; possible where the rule is rational.

        Returns
        -------
        ndarray, shape (V,)
        """
        self.check(problem)
        self._check_exact(exact)
        tokens = checked_drafts(problem, drafts)
        return self._decision(problem, tokens, exact).law(tokens, problem.vocab_size)

    def output_law(self, problem: TransportProblem, exact: bool = False) -> Numbers:
        """Law of the output token, by enumeration of all draft tuples, shape (V,).

        It equals the target if and only if the algorithm is lossless.

        Raises
        ------
        ProblemTooLarge
            More than two million draft tuples.
        """
        total: Numbers | None = None
        for weight, tokens in self._enumerated(problem, exact):
            law = weight * self._decision(problem, tokens, exact).law(tokens, problem.vocab_size)
            total = law if total is None else total + law
        assert total is not None
        return total

    def enumerated_acceptance_rate(self, problem: TransportProblem, exact: bool = False) -> Any:
        """Acceptance rate by enumeration of all draft tuples."""
        total: Any = Fraction(0) if exact else 0.0
        for weight, tokens in self._enumerated(problem, exact):
            law = self._decision(problem, tokens, exact).law(tokens, problem.vocab_size)
            total += weight * law[np.unique(tokens[tokens >= 0])].sum()
        return total

    def rate_with_residual_hits(
        self, problem: TransportProblem, bound: float, num_samples: int, seed: int
    ) -> float:
        """Acceptance rate, given its bound without residual hits: enumerated or an `Estimate`.

        An estimate averages the exact probability of a hit over `num_samples` draft tuples.
        """
        if problem.drafts.count_tuples() <= MAX_RATED_TUPLES:
            return min(float(self.enumerated_acceptance_rate(problem)), 1.0)
        hit = np.zeros(num_samples)
        for n, drafts in enumerate(problem.drafts.sample(np.random.default_rng(seed), num_samples)):
            decision = self._decision(problem, drafts)
            if decision.residual is not None:
                rejected = max(1.0 - float(decision.accept.sum()), 0.0)
                hit[n] = rejected * decision.residual[np.unique(drafts)].sum()
        error = float(hit.std(ddof=1) / np.sqrt(num_samples))
        return Estimate(min(bound + float(hit.mean()), 1.0), error)

    @overload
    def verify(
        self, problem: TransportProblem, drafts: Any, rng: np.random.Generator | Uniforms
    ) -> Verdict: ...

    @overload
    def verify(
        self,
        problem: TransportProblem,
        drafts: Any,
        rng: np.random.Generator | Uniforms,
        relax: Mapping[str, float],
    ) -> RelaxedVerdict: ...

    def verify(
        self,
        problem: TransportProblem,
        drafts: Any,
        rng: np.random.Generator | Uniforms,
        relax: Mapping[str, float] | None = None,
    ) -> Verdict | RelaxedVerdict:
        """Draw the output token given the drafts.

        Parameters
        ----------
        problem : TransportProblem
        drafts : array_like of int, shape (K,)
            Draft tokens in draw order, padded with -1.
        rng : numpy.random.Generator or Uniforms
            A generator gives four uniforms to each call, used or not.
        relax : mapping, optional
            A budget of `mdsd_opt.relax`, as ``{"kl": 0.01}``: the output follows the relaxed target
            instead, and the verdict says how far from the target that is.
        """
        self.check(problem)
        tokens = checked_drafts(problem, drafts)
        if relax is None:
            return self._verify(problem, tokens, Uniforms.of(rng))
        relaxation = relaxed_by(problem, relax)
        verdict = self._verify(relaxation.problem, tokens, Uniforms.of(rng))
        return RelaxedVerdict(*verdict, relaxation)

    def _verify(self, problem: TransportProblem, tokens: Integers, uniforms: Uniforms) -> Verdict:
        decision = self._decision(problem, tokens)
        reached = np.cumsum(decision.accept)
        k = int(np.searchsorted(reached, uniforms.acceptance, side="right"))
        if k < tokens.size and decision.accept[k] > 0:
            return verdict(int(tokens[k]), tokens)
        if decision.residual is None:  # rounding: some draft is always accepted
            return verdict(possible_token(problem.target, tokens), tokens)
        return verdict(draw(decision.residual, uniforms.residual), tokens)

    def verify_batch(
        self,
        target: Any,
        draft: Any,
        drafts: Any,
        rng: np.random.Generator | Floats,
        scheme: str = "with_replacement",
        num_threads: int | None = None,
        relax: Mapping[str, float] | None = None,
    ) -> BatchVerdict:
        """Verify many positions; the same decisions as `verify` for the same uniforms.

        Parameters
        ----------
        target, draft : array_like, shape (N, V)
            Probabilities. For drafts from different models, draft has shape (N, K, V).
        drafts : array_like of int, shape (N, K)
            Draft tokens in draw order, padded with -1.
        rng : numpy.random.Generator or ndarray, shape (N, 4)
            A generator, or the uniforms of each row in the order of `Uniforms`.
        scheme : str
            Scheme by which the drafts were sampled: "with_replacement", "without_replacement",
            "greedy" or "top_k"; or "independent", each from a model of its own.
        num_threads : int, optional
            All processors, unless the batch is small; it does not change the result.
        relax : mapping, optional
            A budget for each row, as ``{"kl": 0.01}``, see `verify`.
        """
        p, q, tokens = checked_batch(target, draft, drafts, scheme)
        uniforms = (
            rng if isinstance(rng, np.ndarray) else checked_generator(rng).random((len(tokens), 4))
        )
        if uniforms.shape != (len(tokens), 4):
            raise InvalidInput(
                f"the uniforms have shape {uniforms.shape}: give four for each of the "
                f"{len(tokens)} rows"
            )
        if num_threads is None:
            num_threads = available_threads() if p.size >= _TOKENS_WORTH_THREADS else 1
        make, _ = batch_maker(scheme)

        def problem_of(n: int) -> TransportProblem:
            return TransportProblem(p[n], make(q[n], tokens.shape[1]))

        relaxed = RelaxedProblems(problem_of, len(tokens), relax)
        check_counts(num_threads=num_threads)
        outputs = self.verify_rows(relaxed, list(tokens), uniforms, num_threads, str)
        return BatchVerdict(outputs, first_places(tokens, outputs), **relaxed.distances)

    @foreign("the verifier")
    def verify_rows(
        self,
        problem_of: Callable[[int], TransportProblem],
        drafts: Sequence[Integers],
        uniforms: Floats,
        num_threads: int,
        name_of: Callable[[int], str],
    ) -> Integers:
        """Output tokens of rows that need not have equally many drafts.

        Parameters
        ----------
        problem_of : callable
            Makes the problem of a row, given its place.
        drafts : sequence of ndarray of int64
        uniforms : ndarray, shape (N, 4)
        num_threads : int
        name_of : callable
            Function that names the row at a place in messages.
        """

        def token_of(n: int) -> int:
            try:
                return self.verify(problem_of(n), drafts[n], Uniforms(*uniforms[n].tolist())).token
            except MdsdError as error:
                raise type(error)(f"row {name_of(n)}: {error}") from None

        tokens = map_rows(token_of, len(drafts), num_threads, f"verify_{self.name}")
        return np.array(tokens, dtype=np.int64)

    def _check_exact(self, exact: bool) -> None:
        if exact and not self.rational:
            raise InvalidInput(
                f"verifier {self.name!r} is not rational in p and q: use exact=False"
            )

    def _enumerated(self, problem: TransportProblem, exact: bool) -> Iterator[tuple[Any, Integers]]:
        self.check(problem)
        self._check_exact(exact)
        count = problem.drafts.count_tuples()
        if count > MAX_TUPLES:
            raise ProblemTooLarge(
                f"enumerating {readable(count)} draft tuples (V={problem.vocab_size}, "
                f"K={problem.num_drafts}) is over the limit of {MAX_TUPLES:,}: use audit, which "
                "samples, or a smaller vocabulary"
            )
        tuples, weights = problem.law(exact).drafts.tuple_law()
        for row in np.flatnonzero(weights > 0).tolist():
            yield weights[row], tuples[row].astype(np.int64)


def possible_token(p: Floats, tokens: Integers) -> int:
    """Likeliest draft, or token if all drafts are impossible.

    For the case that a rule selects a token of probability zero and no residual is left, which
    takes rounding or a uniform at the very end of its range.
    """
    drafts = tokens[tokens >= 0]
    best = int(drafts[p[drafts].argmax()])
    return best if p[best] > 0 else int(p.argmax())


def draw(law: Numbers, uniform: float) -> int:
    """Token drawn by inverse CDF; never one whose probability is zero, or negative by rounding."""
    masses = law.astype(np.float64, copy=False)
    return int(tokens_at(np.maximum(masses, 0.0) if masses.min() < 0 else masses, uniform))


def impossible_drafts(drafts: DraftScheme, tokens: Integers) -> InvalidInput:
    """Error for draft tokens that have probability zero under the scheme."""
    return InvalidInput(
        f"the draft tokens {tokens.tolist()} cannot be drawn under {drafts!r}: were they sampled "
        "from it, after the same temperature and filters?"
    )


def checked_drafts(problem: TransportProblem, drafts: Any) -> Integers:
    """Validate one draft tuple: shape (K,), token ids or -1, possible under the scheme."""
    tokens = to_numpy(drafts, "drafts")
    if tokens.shape != (problem.num_drafts,) or tokens.dtype.kind not in "iu":
        raise InvalidInput(
            f"drafts has shape {tokens.shape} and dtype {tokens.dtype}: give "
            f"{problem.num_drafts} token ids in draw order, padded with -1"
        )
    ids = tokens.tolist()
    if max(ids) >= problem.vocab_size or min(ids) < -1:
        raise InvalidInput(f"drafts {ids} names a token outside 0..{problem.vocab_size - 1}")
    tokens = tokens.astype(np.int64)
    if not problem.drafts.is_possible(tokens):
        raise impossible_drafts(problem.drafts, tokens)
    return tokens


def checked_batch(
    target: Any, draft: Any, drafts: Any, scheme: str
) -> tuple[NDArray[Any], NDArray[Any], Integers]:
    """Validate the shapes of a batch; the rows are validated one by one."""
    _, many_models = batch_maker(scheme)
    p, q = to_numpy(target, "target"), to_numpy(draft, "draft")
    tokens = to_numpy(drafts, "drafts")
    of_one = q[:, 0] if many_models and q.ndim == 3 and q.shape[1] else q
    if p.ndim != 2 or p.shape != of_one.shape or (many_models and q.ndim != 3):
        wanted = "target as (N, V) and draft as (N, K, V)" if many_models else "both as (N, V)"
        raise InvalidInput(
            f"target has shape {p.shape} and draft has shape {q.shape}: give {wanted}"
        )
    if tokens.ndim != 2 or len(tokens) != len(p) or tokens.dtype.kind not in "iu":
        raise InvalidInput(
            f"drafts has shape {tokens.shape} and dtype {tokens.dtype}: give token ids of shape "
            f"({len(p)}, K)"
        )
    return p, q, tokens.astype(np.int64)


def target_of(problem: TransportProblem, exact: bool) -> Numbers:
    """Target p as float64, or as an object array of Fractions."""
    return problem.law(exact).target


def positive_part(values: Numbers) -> Numbers:
    """Elementwise max(values, 0), for floats and Fractions."""
    return np.where(values > 0, values, values * 0)


def normalised(values: Numbers) -> Numbers | None:
    """Quotient values / sum, or None if the sum is zero."""
    total = values.sum()
    return values / total if total > 0 else None


def optimal_rates(kinds: Iterable[type[SingleModelDrafts]]) -> dict[str, BatchRates]:
    """Rates of the optimum by scheme, for those that declare kernels for it."""
    return {kind.scheme: kind.optimal_kernels for kind in kinds if kind.optimal_kernels is not None}


_PACKAGE = "mdsd_opt.verifiers"

#: Names that come first in lists, in this order; the others follow by name.
_FIRST = (
    "optimal", "naive_target", "single_draft", "rrs", "kseq", "spechub", "greedy",
    "importance_sampling", "ratio_hull", "gumbel", "race", "lp",
)  # fmt: skip


def _checked(found: Any, given: str) -> Verifier:
    if not isinstance(found, Verifier):
        kind, of = (
            ("the class", found) if isinstance(found, type) else ("an object of", type(found))
        )
        raise InvalidInput(
            f"{given} is {kind} {of.__name__}: give an object of a class that is derived from "
            "mdsd_opt.verifiers.Verifier"
        )
    VERIFIERS.valid_name(getattr(found, "name", None), given)
    schemes = getattr(found, "schemes", None)
    if not (isinstance(schemes, tuple) and schemes):
        raise InvalidInput(
            f"{given} does not say for which drafts it is lossless: give it a tuple of draft "
            "schemes in `schemes`"
        )
    return found


VERIFIERS: Registry[Verifier] = Registry(
    "verifier", _PACKAGE, partial(files_that_declare, "VERIFIER", _PACKAGE, _FIRST), _checked
)


def names() -> tuple[str, ...]:
    """Names of all verification algorithms: the package's, then those registered or installed."""
    return VERIFIERS.names()


def batch_verifiers(scheme: str | None = None) -> list[str]:
    """Names of the verifiers that have rates in batches, for these drafts or for any scheme."""
    schemes = SINGLE_MODEL_SCHEMES if scheme is None else (scheme,)
    return [name for name in names() if any(get(name).batch_rates_for(x) for x in schemes)]


def get(verifier: str | Verifier, **options: Any) -> Verifier:
    """Verification algorithm of a name.

    Parameters
    ----------
    verifier : str or Verifier
        A name, ``"module:attribute"``, or a verifier, which is returned as it is.
    **options
        Options of the algorithm, such as ``binned=True`` for ``"optimal"`` or ``size=8`` for
        ``"importance_sampling"``.

    Raises
    ------
    UnknownName
        No such algorithm; the message lists those that exist.
    InvalidInput
        The algorithm has no such option, or what ``"module:attribute"`` names is no verifier.
    """
    found = verifier if isinstance(verifier, Verifier) else VERIFIERS.get(verifier)
    if not options:
        return found
    try:
        return found.configured(**options)
    except TypeError as error:
        raise InvalidInput(
            f"verifier {found.name!r} does not take {sorted(options)}: {error}"
        ) from None


def register(verifier: Verifier) -> None:
    """Register a verifier by its name, which is then known wherever one is taken.

    Parameters
    ----------
    verifier : Verifier
        An object with a `name` that no other verifier has. Of its methods it needs `decide` and
        `acceptance_rate`. Batches go through it position by position, unless it declares
        `batch_rates`.

    Raises
    ------
    InvalidInput
        No verifier, without a name, or of a name that is taken.
    """
    VERIFIERS.register(verifier)
