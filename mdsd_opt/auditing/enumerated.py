"""Law of the output given the drafts, stated or found by driving, and its consequences."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.auditing.driven_laws import Driver, TokenSpace, law_of
from mdsd_opt.auditing.driving import Budget, Leaf, Undrivable
from mdsd_opt.auditing.subject import Failure, Subject, ViolationLog, draft_argument, outcome_of
from mdsd_opt.base.arrays import Tokens, Vector, to_numpy
from mdsd_opt.base.long_runs import progress_bar
from mdsd_opt.drafts import readable
from mdsd_opt.errors import InvalidInput, ProblemTooLarge
from mdsd_opt.evidence import COARSE, Coverage, Level, Options

ConditionalLaw = Callable[[Tokens], Vector]

#: Most numbers that the laws of all draft tuples may take up together.
_MAX_STORED = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class EnumeratedLaw:
    """Laws (V,) of the output given each draft tuple, and what follows from them."""

    given_drafts: dict[tuple[int, ...], Vector]
    output: Vector
    acceptance_rate: float
    coverage: Coverage

    def transformed(
        self, drafts: Tokens, tokens: Tokens, rng: np.random.Generator
    ) -> tuple[Vector, int]:
        """Randomised integral transform of tokens under the law given their drafts.

        Independent and uniform if the tokens follow these laws. Tokens that are not drafts come
        first, so that a wrong acceptance rate shifts everything one way. The number of tokens of
        probability zero, which are left out, comes with them.
        """
        points = np.full(len(tokens), np.nan)
        noise = rng.random(len(tokens))
        _, group = np.unique(drafts, axis=0, return_inverse=True)
        order = np.argsort(group, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            row = drafts[rows[0]]
            law = self.given_drafts[tuple(row.tolist())]
            is_draft = np.zeros(law.size, dtype=np.bool_)
            is_draft[row[row >= 0]] = True
            places = np.argsort(is_draft, kind="stable")
            below = np.empty(law.size)
            below[places] = np.cumsum(law[places]) - law[places]
            total = law.sum()  # less than 1 where some calls fail
            if 0 < total < 1:
                law, below = law / total, below / total
            drawn = tokens[rows]
            points[rows] = np.where(law[drawn] > 0, below[drawn] + noise[rows] * law[drawn], np.nan)
        possible = ~np.isnan(points)
        return points[possible], int((~possible).sum())


def exposed_law(subject: Subject, verify: Any) -> ConditionalLaw | None:
    """Conditional law that a verifier states about itself, or None."""
    problem = subject.problem
    if subject.verifier is not None:
        verifier = subject.verifier
        return lambda row: np.asarray(verifier.conditional_law(problem, row), dtype=np.float64)
    stated = getattr(verify, "conditional_law", None)
    if stated is None:
        return None
    draft = draft_argument(problem.drafts)
    return lambda row: _checked(stated(problem.target, draft, row), row, problem.vocab_size)


def fits(subject: Subject, max_tuples: int) -> bool:
    """Whether all draft tuples can be enumerated."""
    count = subject.problem.drafts.count_tuples()
    return count <= max_tuples and count * subject.problem.vocab_size <= _MAX_STORED


def enumerate_law(subject: Subject, law: ConditionalLaw, options: Options) -> EnumeratedLaw:
    """Output law and acceptance rate, by enumeration of all draft tuples."""
    problem, max_tuples = subject.problem, options.max_tuples
    if not fits(subject, max_tuples):
        raise ProblemTooLarge(
            f"{readable(problem.drafts.count_tuples())} draft tuples over {problem.vocab_size:,} "
            f"tokens are too many to enumerate (max_tuples={max_tuples:,}): use method='sampling'"
        )
    laws: dict[tuple[int, ...], Vector] = {}
    output = np.zeros(problem.vocab_size)
    refused = np.zeros(problem.vocab_size)
    tuples, weights = problem.drafts.tuple_law()
    possible = np.flatnonzero(weights > 0).tolist()
    if isinstance(law, DrivenLaw):
        law.share_checks(tuples[possible].astype(np.int64), weights[possible])
    with progress_bar("draft tuples", len(possible), options.progress) as advance:
        for n in possible:
            row = tuples[n].astype(np.int64)
            conditional = law(row)
            laws[tuple(row.tolist())] = conditional
            output += weights[n] * conditional
            outside = conditional.copy()
            outside[row[row >= 0]] = 0.0
            refused += weights[n] * outside
            advance(1)
    accepted = min(max(float(output.sum() - refused.sum()), 0.0), 1.0)
    level = Level(accepted, float(refused.sum()), bool((refused > 0).sum() > 1))
    return EnumeratedLaw(laws, output, accepted, Coverage((level,)))


def _checked(law: Any, row: Tokens, vocab_size: int) -> Vector:
    values = to_numpy(law, "the conditional law").astype(np.float64)
    if values.shape != (vocab_size,):
        raise InvalidInput(
            f"conditional_law returned shape {values.shape} for drafts {row.tolist()}: give the "
            f"law of the output, shape ({vocab_size},)"
        )
    if not np.isfinite(values).all() or values.min() < 0 or abs(values.sum() - 1) > 1e-6:
        raise InvalidInput(
            f"conditional_law returned no distribution for drafts {row.tolist()}: its smallest "
            f"entry is {values.min():.3g} and its sum {values.sum():.9g}"
        )
    return values


class Impossible(NamedTuple):
    """Outcome that must not happen, and does, with its probability given the drafts.

    The token is one of probability zero; None where the call gave none.
    """

    drafts: tuple[int, ...]
    kind: str
    message: str
    token: int | None
    mass: float


class DrivenLaw:
    """Law of a callable's output given a draft tuple, found when it is called with the tuple.

    Random runs, the options' for each tuple on average, have to be foretold: the `driver` counts
    them all. What is `impossible` must not happen. Driving ends with `Undrivable` where the budget
    does not suffice, and where the callable draws raw bits (integers, exponentials) or too many
    uniforms, or compares them with each other.
    """

    driver: Driver

    def __init__(
        self,
        subject: Subject,
        options: Options,
        budget: Budget,
        rng: np.random.Generator,
    ) -> None:
        self._subject, self.options, self.budget, self._rng = subject, options, budget, rng
        self.impossible: list[Impossible] = []

    def anew(self, options: Options) -> DrivenLaw:
        """The law, with these options."""
        return DrivenLaw(self._subject, options, self.budget.renewed(), self._rng)

    def share_checks(self, tuples: Tokens, shares: Vector) -> None:
        problem = self._subject.problem
        how = self.options, self.budget, self._rng, problem.vocab_size
        self.driver = Driver(shares, *how)
        for model in problem.drafts.models:
            self.driver.expect(problem.target, model.values, problem.num_drafts)
        self._place = {row: n for n, row in enumerate(map(tuple, tuples.tolist()))}

    def __call__(self, drafts: Tokens) -> Vector:
        """Probabilities of the tokens; they sum to less than one where the callable fails."""
        at: tuple[int, ...] = tuple(drafts.tolist())

        def call(rng: np.random.Generator) -> Hashable:
            return outcome_of(partial(self._subject.token, drafts, rng))

        def failed(outcome: Failure, leaf: Leaf) -> None:
            where = f", with {leaf.where}" if leaf.where else ""
            text = f"drafts {list(at)}{where}, {outcome.message}"
            self.impossible.append(Impossible(at, outcome.kind, text, None, leaf.mass))

        def impossible(token: int, leaf: Leaf) -> None:
            where = f" and {leaf.where}" if leaf.where else ""
            text = f"token {token} has probability zero, yet comes out with drafts {list(at)}"
            kind = "impossible token"
            self.impossible.append(Impossible(at, kind, text + where, token, leaf.mass))

        leaves = self.driver.leaves(self._place[at], call)
        return law_of(leaves, TokenSpace(self._subject.problem.target), failed, impossible)

    def log_violations(self, law: EnumeratedLaw, log: ViolationLog) -> None:
        """Log the outcomes that must not happen, with their probabilities.

        If no call ever gave a token, the callable is wrong for this use, not the engine:
        `Undrivable`.
        """
        log.restarting = self.driver.restarting
        if self.impossible and law.output.sum() < 1e-9:
            first, *_ = self.impossible
            self.impossible.clear()  # sampling tells what it is
            raise Undrivable(first.message)
        for one in self._by_mass():
            _add(one, log, None if one.token is None else law.output[one.token])

    def log_found(self, log: ViolationLog, edges: ViolationLog) -> None:
        """Log what was found before driving ended, of a law that is not known as a whole.

        What comes too rarely for any sample belongs to the edges.
        """
        log.restarting = self.driver.restarting
        for one in self._by_mass():
            _add(one, log if one.mass > COARSE else edges)

    def _by_mass(self) -> list[Impossible]:
        return sorted(self.impossible, key=lambda one: -one.mass)


def _add(one: Impossible, log: ViolationLog, in_all: float | None = None) -> None:
    """Log an outcome, with its probability in all where that is known."""
    if in_all is None:
        message = f"{one.message}: probability {one.mass:.3g} given these drafts"
        log.add(one.kind, one.drafts, message, one.mass)
    else:
        log.add(one.kind, one.drafts, f"{one.message}: probability {in_all:.3g} in all")
