"""Report of an audit of a function that writes texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mdsd_opt.auditing.texts.rounds import ACCEPTED, EXTRA, REFUSED, UNKNOWN
from mdsd_opt.auditing.texts.text_law import After
from mdsd_opt.evidence import TEXTS, Report, listed

#: What tokens of a kind show, in words.
_MEETINGS = {
    ACCEPTED: "a draft that was accepted",
    REFUSED: "a draft that was refused",
    EXTRA: "a token after drafts that were all accepted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One pair of toy models that the function was tried on.

    Attributes
    ----------
    models : str
        V, the tokens compared, and what the laws depend on.
    vocab_size, length : int
    method : str
        "driven" or "sampling".
    total_variation : float
        Distance of the law of the text from the target's.
    num_checks, num_trials : int
        Random calls that a driven law has foretold; texts that were sampled.
    seconds : float
    """

    models: str
    vocab_size: int
    length: int
    method: str
    total_variation: float
    num_checks: int = 0
    num_trials: int = 0
    seconds: float = field(compare=False)

    @classmethod
    def of(cls, part: Any) -> Trial:
        """Trial that a sample is, or a driven law."""
        tables = part.tables
        return cls(
            models=str(tables),
            vocab_size=tables.vocab_size,
            length=tables.length,
            method=part.method,
            total_variation=part.distance,
            num_checks=part.num_checks,
            num_trials=part.num_calls,
            seconds=part.seconds,
        )

    @property
    def how(self) -> str:
        exact = f"driven, {self.num_checks:,} checks"
        return exact if self.method == "driven" else f"sampled, {self.num_trials:,} texts"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAuditReport(Report):
    """Verdict of `audit_text`.

    Attributes
    ----------
    vocab_size, length : int
        Sizes of the laws on which the deviation was found, or of the longest texts without one.
    position : int or None
        The first token, counted from 0, whose law given those before it is not the target's; None
        where there is none, or where the sample does not tell which.
    after : tuple of After
        Parts of the deviation after each kind of token, as observed; a description.
    causes : tuple of str
        Possible causes of a fault: generators that begin anew in call after call.
    tried : tuple of Trial
    met : mapping
        Numbers of tokens of the sampled texts that were accepted drafts, came for a refused one, or
        after drafts that were all accepted, as far as the questions to the models show ("unknown":
        not).
    seconds : float
    """

    vocab_size: int
    length: int
    position: int | None = None
    after: tuple[After, ...] = ()
    causes: tuple[str, ...] = ()
    tried: tuple[Trial, ...] = ()
    met: Mapping[str, int]
    seconds: float = field(compare=False)

    kind: ClassVar = TEXTS

    @property
    def unseen(self) -> str:
        """Sentence about kinds of tokens that were not met, or are not known; or ""."""
        unknown = "Not known, by the questions to the models"
        missing = [text for kind, text in _MEETINGS.items() if not self.met.get(kind)]
        return listed(unknown if self.met.get(UNKNOWN) else "Not seen", missing)
