"""Report of an audit of a server, or of texts that one wrote."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mdsd_opt.evidence import CERTAIN_LAWS, LOSSY, NO_DEVIATION, NOT_JUDGED, Interval, Report

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
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
    seconds: float = 0.0
    requests: int = 0

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
    def verdict(self) -> str:
        """Verdict in one sentence."""
        evidence = self.later.said
        if self.finding == LAW_MISREAD and self.cause:
            return f"LAW MISREAD, nothing is said of drafts: {self._most} ({evidence})."
        if self.finding == LAW_MISREAD:
            without = max(self.first, self.control, key=lambda side: side.log10_e)
            return (
                f"LAW MISREAD, nothing is said of drafts: tokens without speculation deviate from "
                f"these laws as well ({evidence}; without: {without.said})."
            )
        if self.verdict_class == LOSSY:
            if self.finding == ANOTHER_LAW:
                return (
                    f"LOSSY: the law is not that of the plain server, {self.law_distance:.3g} away "
                    f"at {self.num_laws} texts."
                )
            return (
                f"LOSSY: {evidence}, total variation {self._distance}; "
                f"{self._most}. Without speculation: {self.control.said}."
            )
        if self.verdict_class == NOT_JUDGED:
            return f"NOT JUDGED, {self._why_not}"
        if self.points_to:
            return (
                f"NOT SETTLED: {evidence}, which points to {self.points_to}: ask for more tokens."
            )
        if self._too_few:
            return "no deviation found, but there are too few tokens to see one."
        return f"no deviation found in {self.tokens:,} tokens ({evidence}); {self._found(self)}."

    @property
    def _why_not(self) -> str:
        clean = f"the tokens show no deviation ({self.later.said})."
        if self.finding == NOTHING_DRAFTED:
            return f"nothing was drafted: {clean}"
        if self.finding == DRAFTS_UNSEEN:
            return (
                "drafts not seen: no counter says that anything was drafted. If the server's log "
                f"does, say how much (drafted). As far as that goes, {clean}"
            )
        if self.finding == ENDED_EARLY:
            return f"ended early, see the note: {clean}"
        if self.finding == NO_CHOICE:
            return f"no choice: {CERTAIN_LAWS}."
        if self.finding == NO_LAW:
            return "no law: the server says of no token how likely it was."
        if self.finding == NO_CONTROL:
            return (
                f"no control: tokens deviate from these laws ({self.later.said}, {self._most}); "
                "only with as many tokens that were made without drafts can anybody say whether "
                "these are at fault, or the laws."
            )
        if self.finding == TOO_MUCH_ACCEPTED:
            return (
                f"acceptance above the optimum: {self.known_acceptance:.3f} of "
                f"{self.known_drafts:,} drafts, where {self.optimal_acceptance:.3f} is the most "
                f"for drafts of this law (e = {power_of_ten(self.acceptance_log10_e)}); {clean}"
            )
        return "there are no tokens."

    @property
    def _distance(self) -> str:
        return f"{self.total_variation:.2g}, at least {self.later.at_least:.2g}"

    @property
    def _most(self) -> str:
        name = self.later.bets[0][0] if self.later.bets else ""
        if self.cause not in ("", name):
            return f"{self.cause}: moved by one, they fit"
        return f"best seen by the bet on {name}" if name else "no bet"

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of everything worth a line in a table."""
        noise = self.law_noise
        twice = "" if noise is None else f" (the same text twice: {noise:.2g} at most)"
        rows = [("verdict", self.verdict), ("class", self.verdict_class)]
        if self.finding:
            rows.append(("finding", self.finding))
        rows += [
            ("later tokens", self.later.said),
            ("first tokens", self.first.said),
            ("without speculation", self.control.said if self.control.tokens else "not asked"),
            ("total variation", self._distance),
            ("tolerance", f"{self.tolerance:.3g}{twice}"),
        ]
        if self.verdict_class == NO_DEVIATION:
            rows += self._bias_rows()
        if self.later.impossible:
            rows.append(("impossible tokens", f"{self.later.impossible:,}"))
        rows += [("bet", f"{name}: {power_of_ten(won)}") for name, won in self.later.bets]
        rows.append(
            ("temperature", f"{_told(self.temperature, self.temperature_interval)} times stated")
        )
        excess = _told(self.top_excess, self.top_excess_interval)
        rows.append(("likeliest token, beyond stated", excess))
        rows += self._draft_rows()
        if self.law_distance is not None:
            distance = f"{self.law_distance:.3g} on average at {self.num_laws:,} texts"
            rows.append(("law against the plain server's", distance))
        rows += self._note_rows()
        return [*rows, ("requests", f"{self.requests:,} in {self.seconds:.0f} s")]

    def _draft_rows(self) -> list[tuple[str, str]]:
        if self.drafted is None:
            return [("drafts", "not counted by the server")]
        share = f" ({self.accepted / self.drafted:.1%})" if self.drafted and self.accepted else ""
        accepted = "" if self.accepted is None else f", accepted {self.accepted:,}{share}"
        rows = [("drafts", f"{self.drafted:,}{accepted}")]
        if self.accepted_by_position:
            shares = ", ".join(f"{share:.1%}" for share in self.accepted_by_position)
            rows.append(("accepted by position", shares))
        if self.known_acceptance is not None and self.optimal_acceptance is not None:
            gap = self.left_on_the_table or 0.0
            text = (
                f"{self.known_acceptance:.3f} of {self.known_drafts:,}, optimum "
                f"{self.optimal_acceptance:.3f}: {gap:+.1%} speed left on the table"
            )
            rows.append(("acceptance after known texts", text))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All fields as types that JSON knows (an infinite number becomes None)."""
        own = {
            "tokens": self.tokens,
            "log10_e": self.log10_e,
            "left_on_the_table": self.left_on_the_table,
        }
        # the two-argument form: a class with slots is made anew
        return {**super(ServerReport, self).to_dict(), **own}


def _told(value: float, interval: Interval) -> str:
    return f"{value:.3g} in [{interval.low:.3g}, {interval.high:.3g}]"


def power_of_ten(exponent: float) -> str:
    """Text of a number, given its common logarithm."""
    return f"{10**exponent:.2g}" if -3 < exponent < 3 else f"10^{exponent:.1f}"
