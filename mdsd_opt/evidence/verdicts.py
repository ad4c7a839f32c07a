"""What audits conclude: a verdict class, and the answer whether that is enough to pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mdsd_opt.base.checked import real
from mdsd_opt.errors import InvalidInput

#: Answers of `Report.verdict_class`.
LOSSLESS, NO_DEVIATION, EDGE = "lossless", "no deviation", "edge"
LOSSY, NOT_JUDGED, NOT_SETTLED = "lossy", "not judged", "not settled"

#: All verdict classes, from best to worst.
CLASSES = (LOSSLESS, NO_DEVIATION, EDGE, NOT_JUDGED, NOT_SETTLED, LOSSY)

#: Classes in which nothing was found wrong.
CLEAN = (LOSSLESS, NO_DEVIATION)

#: Beginning of a note about a limit of time that was reached before the work was done.
TIME_UP = "the time was up"

#: A report is `lossless` only where no larger bias could have stayed hidden.
HIDDEN_AT_MOST = 0.05

#: Answers to the question whether an audit is passed, from best to worst, with their exit codes.
ANSWERS = {"PASS": 0, "EDGE": 0, "TOO WEAK": 3, "NOT JUDGED": 3, "NOT SETTLED": 3, "FAIL": 1}


@dataclass(frozen=True, slots=True)
class Bar:
    """What a report of an audit has to reach to pass.

    Attributes
    ----------
    detect : float
        Total variation that may stay hidden, in (0, 1].
    tolerate_edge : float
        Probability of values that must not come, up to which an edge passes.
    """

    detect: float = HIDDEN_AT_MOST
    tolerate_edge: float = 1e-12

    def __post_init__(self) -> None:
        if not 0 < real(self.detect) <= 1:
            raise InvalidInput(
                f"detect is {self.detect!r}: give a total variation above 0, up to 1"
            )
        if not 0 <= real(self.tolerate_edge) <= 1:
            raise InvalidInput(f"tolerate_edge is {self.tolerate_edge!r}: give a probability")

    def answer(self, report: Any) -> str:
        """One of `ANSWERS`, for a report, or the audit of an engine."""
        if report.verdict_class in (NOT_JUDGED, NOT_SETTLED):
            return str(report.verdict_class).upper()
        is_edge = report.verdict_class == EDGE and (report.edge_mass or 0.0) <= self.tolerate_edge
        wrong_drafts = getattr(report, "drafts_follow_law", None) is False
        if not (report.faultless or (is_edge and not wrong_drafts)):
            return "FAIL"
        if report.verdict_class != LOSSY and report.detectable_bias > self.detect:
            return "TOO WEAK"
        return "PASS" if report.faultless else "EDGE"

    def told(self, report: Any) -> str:
        """The answer, and the verdict in a sentence."""
        answer, verdict = self.answer(report), str(report.verdict)
        if answer == "TOO WEAK":
            hidden = f"a bias of {report.detectable_bias:.2g} could have stayed hidden"
            # it falls with the root of the number of calls or tokens
            more = (report.detectable_bias / self.detect) ** 2
            takes = f": it takes {more:,.1f} times as long" if report.detectable_bias < 1 else ""
            takes = next((f": {note}" for note in report.notes if note.startswith(TIME_UP)), takes)
            return (
                f"{answer}: {hidden}, where {self.detect:g} is allowed (detect){takes}; {verdict}"
            )
        return verdict if verdict.startswith(answer) else f"{answer}: {verdict}"


def worst_class(classes: Iterable[str]) -> str:
    """Worst of some classes of verdicts."""
    return max(classes, key=CLASSES.index)
