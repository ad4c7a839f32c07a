"""What an audit of whole texts found."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd_opt.auditing.report import LOSSLESS, Check, Coverage, Interval, Report, Violation, carried


@dataclass(frozen=True, slots=True, eq=False)
class TreeAuditReport(Report):
    """Verdict of `audit_tree`.

    Attributes
    ----------
    lossless : bool
        Whether no deviation of the law of the text was found.
    method : str
        "driven" (exact up to `num_checks`) or "sampling".
    length : int
        Tokens of the texts that were compared: the most that one step gives.
    total_variation : float
        Of the law of the text from the target's; by sampling an estimate from an event chosen on
        one half of the steps and measured on the other, which on average does not exceed it.
    total_variation_interval : Interval or None
        By sampling, from events chosen on one half of the trials; None where the law was driven.
    first_token_variation : float
        Of the first token alone: what an audit of single tokens sees.
    accept_length : float
        Tokens of a step: the accepted drafts and one more.
    optimal_accept_length : float or None
        The most of any lossless rule (an upper bound, where the search for the optimum did not
        end); None if it is too large a problem.
    num_trees : int
        Trees of drafts that were enumerated; 0 by sampling.
    num_trials : int
        Steps that were sampled; 0 where the law was driven.
    num_checks : int or None
        Random calls that the driven laws have foretold; None by sampling.
    tolerance : float or None
        Total variation put down to rounding; None by sampling.
    p_value : float or None
        Of all checks together (Bonferroni, by their weights); None where the law was driven.
    false_alarm, power : float
    detectable_bias : float or None
        By sampling: every change of the law of groups of texts by at least this total variation is
        found with probability `power`.
    checks : tuple of Check
    violations : tuple of Violation
        The first few of `num_violations`: outcomes that can never be right.
    edge_violations : tuple of Violation
        By sampling: wrong outcomes with a draw at an end of what its type can hold, the first few.
    num_edge_probes : int or None
        Calls in which such a draw was made: 0 means that the edges were not probed. None where the
        law was driven, which has them in it.
    blind_spots : tuple of str
        What no audit on these laws and this tree can see.
    verdict_class : str
        "lossless"; "edge", where impossible values alone are wrong; "lossy"; or "not judged", where
        calls failed, so that the law is not known.
    edge_mass : float or None
        Probability, at most, of texts that the target rules out; None if none was met.
    coverage : Coverage
        How often drafts were accepted and refused at each level.
    laws : str
        Which laws this was found on, where these are not those given; empty if they are.
    """

    lossless: bool
    method: str
    length: int
    total_variation: float
    first_token_variation: float
    accept_length: float
    optimal_accept_length: float | None
    num_trees: int
    num_trials: int
    num_checks: int | None
    tolerance: float | None
    p_value: float | None
    false_alarm: float
    power: float
    detectable_bias: float | None
    checks: tuple[Check, ...]
    violations: tuple[Violation, ...]
    num_violations: int
    edge_violations: tuple[Violation, ...]
    num_edge_probes: int | None
    blind_spots: tuple[str, ...]
    total_variation_interval: Interval | None
    coverage: Coverage
    verdict_class: str = LOSSLESS
    edge_mass: float | None = None
    laws: str = ""

    @property
    def verdict(self) -> str:
        """One sentence."""
        on = f" ({self.laws})" if self.laws else ""
        if said := self._class_verdict():
            return said + on
        if not self.lossless:
            return f"NOT LOSSLESS: {self._reason()}.{on}"
        if self.method == "driven":
            found = f"lossless, {self._up_to}: the law of {self.length} tokens is the target's."
        else:
            found = self._none_found("steps")
            if self._too_few:
                return found
        seen = f" Not seen: {'; '.join(self.blind_spots)}." if self.blind_spots else ""
        return found + seen + self._unmet

    def _reason(self) -> str:
        tolerance = self.tolerance or 0.0
        if self.method == "driven" and self.total_variation > tolerance:
            first = (
                "which its first token does not show"
                if self.first_token_variation <= tolerance
                else f"{self.first_token_variation:.3g} of it in the first token"
            )
            failing = f"; {self.violations[0].message}" if self.violations else ""
            return (
                f"the law of {self.length} tokens is {self.total_variation:.3g} away from the "
                f"target's, {first}{failing}"
            )
        if outcomes := self._outcomes_wrong(self.violations):
            return outcomes
        assert self.p_value is not None  # nothing else is left
        return (
            f"total variation {self._distance_text}, {self.first_token_variation:.3g} of it in the "
            f"first token; {self._check_wrong(self.p_value)}"
        )

    @property
    def _distance_text(self) -> str:
        return carried(self.total_variation, self.total_variation_interval)

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of everything worth a line in a table."""
        how = f"sampled, {self.num_trials:,} steps"
        if self.method == "driven":
            how = f"{self.num_trees:,} trees, {self._up_to}"
        rows = [
            ("verdict", self.verdict),
            ("method", f"{self.method} ({how})"),
            ("total variation", f"{self._distance_text} (texts of {self.length} tokens)"),
            ("total variation of the first token", f"{self.first_token_variation:.6g}"),
            ("tokens a step", f"{self.accept_length:.6f}"),
        ]
        if self.optimal_accept_length is not None:
            rows.append(("tokens a step at the optimum", f"{self.optimal_accept_length:.6f}"))
        rows += [*self._p_value_rows(), *self._check_rows(), *self._edge_rows()]
        rows += self.coverage.rows()
        rows += [("not seen", spot) for spot in self.blind_spots]
        return rows + self._violation_rows()


def blind_spots(vocab_size: int, depth: int) -> tuple[str, ...]:
    """What no audit can see on problems so small, in words."""
    spots = []
    if vocab_size < 3:
        spots.append(
            f"a residual of the wrong scale (with V = {vocab_size} it is one token: take V >= 3)"
        )
    if depth < 2:
        spots.append("what is wrong from the second draft on (take two levels or more)")
    elif depth < 3:
        spots.append("what is wrong in the middle of a block only (take three levels or more)")
    return tuple(spots)
