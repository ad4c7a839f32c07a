"""Report of an audit of a function that writes texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mdsd_opt.auditing.texts.rounds import ACCEPTED, EXTRA, REFUSED, UNKNOWN
from mdsd_opt.auditing.texts.text_law import After
from mdsd_opt.evidence import Report

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
    seconds: float

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
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
    seconds: float

    @property
    def verdict(self) -> str:
        """Verdict in one sentence, and what was not seen."""
        if said := self._class_verdict():
            return said
        if not self.clean:
            because = f"; {'; '.join(self.causes)}" if self.causes else ""
            return f"NOT LOSSLESS: {self._reason()}{because}."
        sentence = self._none_found("texts") if self.num_trials else ""
        if self.num_checks:
            driven = [trial for trial in self.tried if trial.method == "driven"]
            sizes = sorted({trial.vocab_size for trial in driven})
            most = max(trial.length for trial in driven)
            law = f"the law of up to {most} tokens is the target's at V = {_listed(sizes)}"
            exact = f"{law}, {self._up_to if sentence else self._exact(self.detectable_bias)}"
            sentence = f"no deviation: {exact}; {sentence}" if sentence else f"lossless: {exact}."
        missing = [text for kind, text in _MEETINGS.items() if not self.met.get(kind)]
        sentence += self._longest
        return sentence + (f" {self._unmet_as}: {'; '.join(missing)}." if missing else "")

    @property
    def _unmet_as(self) -> str:
        """Whether kinds that were not met did not come, or the questions do not tell."""
        return "Not known, by the questions to the models" if self.met.get(UNKNOWN) else "Not seen"

    def _reason(self) -> str:
        if self.method == "sampling" and (outcomes := self._outcomes_wrong(self.violations)):
            return outcomes
        where = "" if self.position is None else f", from token {self.position + 1} on"
        how = self._up_to if self.method == "driven" else f"in {self.num_trials:,} sampled texts"
        return (
            f"{how}, the law of {self.length} tokens is {self._distance_text} away from the "
            f"target's at V = {self.vocab_size}{where}"
        )

    def rows(self) -> list[tuple[str, str]]:
        sizes = f"V = {self.vocab_size}, {self.length} tokens"
        rows = [
            ("verdict", self.verdict),
            ("class", self.verdict_class),
            ("method", self.method),
            ("total variation", f"{self._distance_text} ({sizes})"),
            ("total variation of the first token", f"{self.first_token_variation:.6g}"),
        ]
        if self.position is not None:
            rows.append(("parts at", f"token {self.position + 1}, given those before it"))
        rows += [
            (f"after {part.event}", f"{part.total_variation:.3g} in {part.share:.0%} of texts")
            for part in self.after
        ]
        rows += [("cause", cause) for cause in self.causes]
        rows += [
            (f"tried: {trial.models}", f"{trial.total_variation:.3g} ({trial.how})")
            for trial in self.tried
        ]
        tokens = ", ".join(f"{count:,} {kind}" for kind, count in self.met.items() if count)
        rows.append(("tokens met", tokens or "none"))
        rows += [*self._p_value_rows(), *self._bias_rows(), *self._note_rows()]
        rows += [("seconds", f"{self.seconds:.1f}"), *self._check_rows()]
        return rows + self._violation_rows()


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return " and ".join([", ".join(first), last] if first else [last])
