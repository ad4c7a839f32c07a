"""Report of an audit of a function that writes texts.

Deviation of a text's law from the target's, token by token, given those before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.laws import Texts
from mdsd_opt.auditing.texts.session import ACCEPTED, EXTRA, REFUSED, UNKNOWN
from mdsd_opt.base.arrays import Vector
from mdsd_opt.evidence import TEXTS, Check, Report, listed, statistics

#: Name of the event before the first token.
START = "the start"


class After(NamedTuple):
    """Observed law after one kind of token: a description, no test.

    Attributes
    ----------
    event : str
        "accepted", "refused", "extra" or "unknown" for the token before; "the start" of the text.
    share : float
        Share of the texts.
    total_variation : float
        Distance of the next token's law given the text before, among these texts; noise included.
    """

    event: str
    share: float
    total_variation: float


def variations(texts: Texts, law: Vector) -> list[float]:
    r"""Total variation of each token's law given those before, :math:`\sum_x \Pr(x) TV_x`."""
    distances = []
    for observed, right in _steps(texts, law):
        difference = observed - observed.sum(axis=1, keepdims=True) * right
        distances.append(0.5 * float(np.abs(difference[right.any(axis=1)]).sum()))
    return distances


def _steps(texts: Texts, law: Vector) -> Iterator[tuple[Vector, Vector]]:
    """Mass of each beginning and next token, (V**n, V), and the target's law after it."""
    size = texts.vocab_size
    for n in range(texts.length):
        shape = (size**n, size, -1)
        observed, wanted = (x.reshape(shape).sum(axis=2) for x in (law, texts.law))
        mass = wanted.sum(axis=1, keepdims=True)
        yield observed, np.divide(wanted, mass, out=np.zeros_like(wanted), where=mass > 0)


def position_checks(
    texts: Texts, numbers: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Check, ...]:
    """Checks, one for each token, that it follows the target given those before it."""
    counts = np.bincount(numbers, minlength=texts.law.size).astype(np.float64)
    checks = []
    for n, (observed, right) in enumerate(_steps(texts, counts)):
        scores = []
        for row in np.flatnonzero(observed.any(axis=1)):
            possible = right[row] > 0
            hits = observed[row, possible].astype(np.int64)
            scores.append(statistics.split_scores(hits, right[row, possible], rng)[0])
        p_value = statistics.chi_square(np.concatenate([np.empty(0), *scores]))
        checks.append(Check(f"token {n + 1}", "its law given those before it", p_value))
    return tuple(checks)


def split_by_event(
    texts: Texts, numbers: NDArray[np.int64], events: Sequence[Sequence[str]], position: int
) -> tuple[After, ...]:
    """Total variation of the token at a position, by the kind of the token before it."""
    before = np.array([START if not position else kinds[position - 1] for kinds in events])
    parts = []
    for event in np.unique(before).tolist():
        chosen = numbers[before == event]
        law = np.bincount(chosen, minlength=texts.law.size) / chosen.size
        parts.append(After(event, chosen.size / numbers.size, variations(texts, law)[position]))
    return tuple(parts)


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
