"""What an audit of whole texts found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mdsd_opt.auditing.report import (
    Check,
    Violation,
    edges_text,
    p_text,
    p_value_text,
    plain,
)
from mdsd_opt.auditing.trees.blind_spots import BlindSpots


@dataclass(frozen=True, slots=True, eq=False)
class TreeAuditReport:
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
        Of the law of the text from the target's; by sampling of the observed frequencies, which
        is never below the true distance on average.
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
    blind_spots: BlindSpots

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.lossless:
            return f"NOT LOSSLESS: {self._reason()}."
        blind = f" Not seen: {'; '.join(self.blind_spots)}." if self.blind_spots else ""
        if self.method == "driven":
            return (
                f"lossless, exact up to {self.num_checks:,} random checks: the law of "
                f"{self.length} tokens is the target's.{blind}"
            )
        if self.detectable_bias is None or not math.isfinite(self.detectable_bias):
            return "no deviation found, but there are too few trials to see one."
        return (
            f"no deviation found in {self.num_trials:,} steps; a bias of "
            f"{self.detectable_bias:.2g} would have been found with probability {self.power:g}."
            f"{blind}"
        )

    def _reason(self) -> str:
        if self.method == "driven" and self.total_variation > (self.tolerance or 0.0):
            first = (
                "which its first token does not show"
                if self.first_token_variation <= (self.tolerance or 0.0)
                else f"{self.first_token_variation:.3g} of it in the first token"
            )
            failing = f"; {self.violations[0].message}" if self.violations else ""
            return (
                f"the law of {self.length} tokens is {self.total_variation:.3g} away from the "
                f"target's, {first}{failing}"
            )
        if self.violations:
            return f"{self.num_violations:,} impossible outcomes, e.g. {self.violations[0].message}"
        if self.edge_violations:
            return f"at the edge of its draws, {self.edge_violations[0].message}"
        assert self.p_value is not None  # nothing else is left
        worst = min(self.checks, key=lambda check: check.p_value / check.weight)
        return f"{p_text(self.p_value, 2)}, from the check of {worst.name} ({worst.looks_for})"

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of everything worth a line in a table."""
        how = f"sampled, {self.num_trials:,} steps"
        if self.method == "driven":
            how = f"{self.num_trees:,} trees, exact up to {self.num_checks:,} random checks"
        rows = [
            ("verdict", self.verdict),
            ("method", f"{self.method} ({how})"),
            ("total variation", f"{self.total_variation:.6g} (texts of {self.length} tokens)"),
            ("total variation of the first token", f"{self.first_token_variation:.6g}"),
            ("tokens a step", f"{self.accept_length:.6f}"),
        ]
        if self.optimal_accept_length is not None:
            rows.append(("tokens a step at the optimum", f"{self.optimal_accept_length:.6f}"))
        if self.p_value is not None:
            shown = p_value_text(self.p_value)
            rows.append(("p-value", f"{shown} (false alarm below {self.false_alarm:g})"))
        rows += [(f"check: {check.name}", p_text(check.p_value)) for check in self.checks]
        if self.num_edge_probes is not None:
            rows.append(("edges of the draws", edges_text(self)))
        rows += [("not seen", spot) for spot in self.blind_spots]
        rows += [(v.kind, v.message) for v in (*self.violations, *self.edge_violations)]
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON knows (an infinite number becomes None)."""
        result = {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}
        return result | {"verdict": self.verdict}

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows())
        return "\n".join(f"{label:<{width}}  {value}" for label, value in self.rows())
