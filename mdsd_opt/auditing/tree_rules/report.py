"""Report of an audit of whole texts."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd_opt.evidence import Report


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TreeAuditReport(Report):
    """Verdict of `audit_tree`.

    Attributes
    ----------
    length : int
        Tokens of the texts that were compared: the most that one step gives.
    num_trees : int
        Trees of drafts that were enumerated; 0 by sampling.
    blind_spots : tuple of str
        Faults that no audit on these laws and this tree can see.
    laws : str
        Name of the laws on which this was found; empty if they are the given ones.
    """

    length: int
    num_trees: int = 0
    blind_spots: tuple[str, ...] = ()
    laws: str = ""

    @property
    def coverage_unmet(self) -> bool:
        """Whether some situation never occurred, so that nothing is known of it."""
        return self.coverage is not None and bool(self.coverage.unmet)

    @property
    def verdict(self) -> str:
        on = f" ({self.laws})" if self.laws else ""
        if said := self._class_verdict():
            return said + on
        if not self.clean:
            return f"NOT LOSSLESS: {self._reason()}{self._caused}.{on}"
        if self.method == "driven":
            exact = self._exact(self.detectable_bias)
            sentence = f"lossless, {exact}: the law of {self.length} tokens is the target's."
        else:
            sentence = self._none_found("steps")
            if self._too_few:
                return sentence
        seen = f" Not seen: {'; '.join(self.blind_spots)}." if self.blind_spots else ""
        return sentence + self._longest + seen + self._unmet

    def _reason(self) -> str:
        tolerance = self.tolerance or 0.0
        if self.method == "driven" and self.total_variation > tolerance:
            first = (
                "which its first token does not show"
                if (self.first_token_variation or 0.0) <= tolerance
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

    def rows(self) -> list[tuple[str, str]]:
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
        rows += [*self._bias_rows(), *self._coverage_rows()]
        rows += [("not seen", spot) for spot in self.blind_spots]
        rows += self._note_rows()
        return rows + self._violation_rows()


def blind_spots(vocab_size: int, depth: int) -> tuple[str, ...]:
    """Faults that no audit can see on problems so small, in words."""
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
