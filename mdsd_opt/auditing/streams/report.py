"""Report of an audit of streams of random numbers."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd_opt.evidence import NOT_JUDGED, Interval, Report, p_text

#: Name of the check of what is made of the draws.
OVER_SEEDS = "output over seeds"

#: Most pairs of draws that a report lists.
_LISTED = 8


@dataclass(frozen=True, slots=True)
class SharedDraws:
    """Two draws that depend on each other, and must not.

    Attributes
    ----------
    first, second : str
        Request, position and role of each.
    total_variation : float
        Distance of their joint law, as observed, from independent draws.
    how : str
        What of (seed, position, role) is missing from what the draws are made of, in words.
    """

    first: str
    second: str
    total_variation: float
    how: str

    @property
    def said(self) -> str:
        """The pair in one line."""
        return f"{self.first} and {self.second} (total variation {self.total_variation:.2g})"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StreamReport(Report):
    """Verdict of `audit_streams`.

    `total_variation` is that of two tokens which the audit made of the sampler's draws by rejection
    sampling, over seeds, from the target's; of seeds that do not repeat nothing is said by it.

    Attributes
    ----------
    shared : tuple of SharedDraws
        Pairs of draws that depend on each other, the most dependent first.
    tail_expected, tail_observed : float, Interval, or None
        Probability of the unlikely tokens of a wide law, and an interval of it from the draws; None
        where none was drawn.
    not_seen : tuple of str
        What this audit says nothing about.
    seconds : float
    """

    shared: tuple[SharedDraws, ...] = ()
    tail_expected: float | None = None
    tail_observed: Interval | None = None
    not_seen: tuple[str, ...] = ()
    seconds: float

    @property
    def verdict(self) -> str:
        """Verdict in one sentence, and what was not seen."""
        if self.verdict_class == NOT_JUDGED or not (self.clean or self._reasons):
            return self._class_verdict() or "NOT JUDGED."
        if self._reasons:
            known = self.p_value is not None and self.p_value < self.false_alarm
            wrong = "NOT LOSSLESS" if known or not self._repeats else "NOT REPEATABLE"
            return f"{wrong}: {'; '.join(self._reasons)}."
        return f"{self._none_found('requests')} Not seen: {'; '.join(self.not_seen)}."

    @property
    def _repeats(self) -> list[str]:
        return [v.message for v in self.violations if v.kind == "not repeated"]

    @property
    def _reasons(self) -> list[str]:
        """What is wrong, each in a clause; empty where nothing is known to be."""
        examples: dict[str, SharedDraws] = {}
        for pair in self.shared:
            examples.setdefault(pair.how, pair)
        found = [f"{how}, as {pair.said}" for how, pair in examples.items()]
        level = self.false_alarm / max(len(self.checks), 1)
        odd = [check for check in self.checks if check.p_value < level]
        if not self.shared:
            # of a law that is off, all pairs of its draws are
            laws = [x for x in self.checks if x.name.startswith("laws") and x.p_value < 1e-4]
            telling = laws if odd and laws else odd
            found += [f"{c.looks_for} ({p_text(c.p_value, 2)})" for c in telling]
        if any(check.name == OVER_SEEDS for check in odd):
            away = f"over seeds two tokens are {self._distance_text} away from the target's law"
            found.append(away)
        found += self._repeats[:1]
        found += [v.message for v in self.violations if v.kind == "impossible token"]
        return found

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of everything worth a line in a table."""
        rows = [("verdict", self.verdict), ("requests", f"{self.num_trials:,}")]
        if any(check.name == OVER_SEEDS for check in self.checks):
            rows.append(("total variation over seeds", self._distance_text))
        rows += [(f"shared: {pair.how}", pair.said) for pair in self.shared[:_LISTED]]
        if self.tail_expected is not None and self.tail_observed is not None:
            low, high = self.tail_observed
            told = f"probability {self.tail_expected:.3g}, by the draws in [{low:.3g}, {high:.3g}]"
            rows.append(("unlikely tokens of a wide law", told))
        rows += [*self._p_value_rows(), *self._bias_rows(), *self._note_rows()]
        rows += [("not seen", spot) for spot in self.not_seen]
        return [*rows, *self._check_rows(), *self._violation_rows()]
