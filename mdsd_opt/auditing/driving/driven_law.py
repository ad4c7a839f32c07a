"""The law of one output token of a callable, given the drafts, by driving it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.driving.draw_tree import Undrivable, driven_tree
from mdsd_opt.auditing.driving.tape import Tape
from mdsd_opt.auditing.enumerated import EnumeratedLaw
from mdsd_opt.auditing.subject import Failure, Subject, Tokens, ViolationLog, judged, outcome_of

Vector = NDArray[np.float64]


class Found(NamedTuple):
    """Something that must not happen, and does.

    Attributes
    ----------
    token : int or None
        A token of probability zero; None where the call gave no token.
    mass : float
        Probability, given the drafts.
    """

    drafts: tuple[int, ...]
    kind: str
    message: str
    token: int | None
    mass: float


class DrivenLaw:
    """Law of a callable's output given a draft tuple: call it with the tuple.

    Parameters
    ----------
    subject : Subject
    checks : int
        Random runs for each draft tuple, which the law must foretell.

    Attributes
    ----------
    found : list of Found
    num_checks : int
        Runs foretold, of all draft tuples.
    coarse : bool
        See `DrawTree`.

    Raises
    ------
    InvalidInput
        The callable draws raw bits (integers, exponentials) or too many uniforms, or compares them
        with each other: audit it with ``method="sampling"``.
    """

    def __init__(self, subject: Subject, checks: int) -> None:
        self._subject, self._checks = subject, checks
        self.found: list[Found] = []
        self.num_checks = 0
        self.coarse = False

    def __call__(self, drafts: Tokens) -> Vector:
        """Probabilities of the tokens; they sum to less than one where the callable fails."""
        target = self._subject.problem.target

        def answer(tape: Tape) -> int | Failure:
            given = self._subject.call(drafts, tape.bit_generator.generator)
            kind, token, message = judged(given, target.size)
            return Failure(kind, message, f"gave {message}") if kind else token

        tree = driven_tree(lambda tape: outcome_of(lambda: answer(tape)), self._checks, target.size)
        self.num_checks += tree.num_checks
        self.coarse |= tree.coarse
        law = np.zeros(target.size)
        for leaf in tree.outcomes():
            outcome = leaf.outcome
            at = tuple(drafts.tolist())
            where = f", with {leaf.where}" if leaf.where else ""
            if isinstance(outcome, Failure):
                text = f"drafts {list(at)}{where}, {outcome.message}"
                self.found.append(Found(at, outcome.kind, text, None, leaf.mass))
                continue
            assert isinstance(outcome, int)
            law[outcome] += leaf.mass
            if target[outcome] <= 0 and leaf.mass > 0:
                text = f"with drafts {list(at)}{where.replace(', with', ' and')}"
                self.found.append(Found(at, "impossible token", text, outcome, leaf.mass))
        return law

    def log_violations(self, law: EnumeratedLaw, log: ViolationLog) -> None:
        """Write down what must not happen, with its probability.

        Raises
        ------
        InvalidInput
            No call ever gave a token: then the callable is wrong for this use, not the engine.
        """
        if self.found and law.output.sum() < 1e-9:
            raise Undrivable(self.found[0].message)
        for found in sorted(self.found, key=lambda found: -found.mass):
            if found.token is None:
                chance = f"probability {found.mass:.3g} given these drafts"
                log.add(found.kind, found.drafts, f"{found.message}: {chance}")
            else:
                chance = f"probability {law.output[found.token]:.3g} in all"
                log.add(
                    found.kind,
                    found.drafts,
                    f"token {found.token} has probability zero, yet comes out {found.message}: "
                    f"{chance}",
                )
