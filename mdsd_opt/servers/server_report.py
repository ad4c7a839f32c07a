"""Report of an audit of a server, or of texts that one wrote."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from mdsd_opt.evidence import TOKENS, Interval, Report, power_of_ten

#: Findings that a report can have, beside its class.
DEVIATES, ANOTHER_LAW = "tokens deviate", "another law"
LAW_MISREAD, NO_CONTROL = "law misread", "no control"
NOTHING_DRAFTED, NO_LAW = "nothing drafted", "no law"
DRAFTS_UNSEEN, ENDED_EARLY = "drafts not seen", "ended early"
TOO_MUCH_ACCEPTED, NO_CHOICE = "acceptance above the optimum", "no choice"

#: Causes by which the laws, moved by a position, fit tokens that deviate from them as stated.
MOVED = {
    1: "the probabilities stated are those of the position before",
    -1: (
        "the probabilities stated are those of the position after, or tokens are drawn from the "
        "law of the position before"
    ),
}

#: Direction of the bias that is found: that of any other one cannot be known.
BETS = "towards one of the laws bet on"

#: Intervals of quantities about which nothing is known.
_ANY_FACTOR, _ANY_EXCESS = Interval(0.0, math.inf), Interval(-1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BetsOutcome:
    """Tokens of one kind, and what the bets on them won.

    Attributes
    ----------
    tokens : int
    log10_e : float
        Common logarithm of the e-value at the report's tolerance.
    at_least : float
        Lower bound of the total variation, with the report's confidence.
    impossible : int
        Tokens that the law stated for them rules out.
    bets : tuple of (str, float)
        Bets that won most, with the common logarithm of their wealth.
    """

    tokens: int = 0
    log10_e: float = 0.0
    at_least: float = 0.0
    impossible: int = 0
    bets: tuple[tuple[str, float], ...] = ()

    @property
    def said(self) -> str:
        """Summary in one line."""
        return f"e = {power_of_ten(self.log10_e)} in {self.tokens:,} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport(Report):
    """Verdict of `audit_server` or `audit_tokens`.

    The class is "lossy" only if the later tokens are accused while first tokens and a control
    without speculation are clean, or if the law is not that of the server without speculation; "not
    judged", with a `finding` that says why, where the control is accused too, and wherever nothing
    can be said.

    Attributes
    ----------
    finding : str
        Why a report is lossy or not judged: "tokens deviate", "another law", "law misread" (the
        control deviates as well, or the tokens fit the laws moved by a position: what was read is
        not the law, or sampling itself is wrong), "no control", "nothing drafted", "no law", "no
        choice" (every law is certain), "drafts not seen" (nobody counts them, so that there may be
        none), "ended early" (by an error), "acceptance above the optimum"; else empty.
    later, first, control : BetsOutcome
        Tokens that may come from drafts; first tokens after a prompt; tokens without speculation.
    temperature : float
        Estimate, as a multiple of the temperature asked for.
    temperature_interval, top_excess_interval : Interval
    top_excess : float
        Frequency of the likeliest token minus the stated one.
    drafted, accepted : int or None
        Draft tokens as the server counts them; None where it does not.
    accepted_by_position : tuple of float
        Share of the drafts at each position that was accepted, where the server counts that.
    known_drafts : int
        Single drafts after texts whose laws are known.
    known_acceptance : float or None
        Share of these that was accepted.
    optimal_acceptance : float or None
        Mean of sum min(p, q) at these texts, the most that any lossless rule accepts.
    acceptance_log10_e : float
        Evidence that more is accepted than that.
    law_noise : float or None
        Largest total variation between two answers on the law after one text.
    law_distance : float or None
        Mean total variation between the law in an answer and that of the plain server.
    num_laws : int
        Laws that were compared for it.
    seconds : float
    requests : int
    """

    finding: str = ""
    later: BetsOutcome
    first: BetsOutcome
    control: BetsOutcome
    temperature: float = 1.0
    temperature_interval: Interval = _ANY_FACTOR
    top_excess: float = 0.0
    top_excess_interval: Interval = _ANY_EXCESS
    drafted: int | None = None
    accepted: int | None = None
    accepted_by_position: tuple[float, ...] = ()
    known_drafts: int = 0
    known_acceptance: float | None = None
    optimal_acceptance: float | None = None
    acceptance_log10_e: float = 0.0
    law_noise: float | None = None
    law_distance: float | None = None
    num_laws: int = 0
    seconds: float = field(default=0.0, compare=False)
    requests: int = 0

    kind: ClassVar = TOKENS
    derived: ClassVar = (*Report.derived, "tokens", "log10_e", "left_on_the_table")

    @property
    def tokens(self) -> int:
        """Number of later tokens, those that may come from drafts."""
        return self.later.tokens

    @property
    def log10_e(self) -> float:
        """Common logarithm of the e-value of the later tokens."""
        return self.later.log10_e

    @property
    def left_on_the_table(self) -> float | None:
        """Relative gain in tokens of a step with one draft at the optimum: (1 + a*)/(1 + a) - 1.

        None where it is not known.
        """
        if self.known_acceptance is None or self.optimal_acceptance is None:
            return None
        return (1.0 + self.optimal_acceptance) / (1.0 + self.known_acceptance) - 1.0

    @property
    def situation(self) -> str:
        return self.finding or str(self.verdict_class)
