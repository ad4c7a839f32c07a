"""Rounds of drafts of a session and their ends, as far as the models can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mdsd_opt.base.array_types import Text

TARGET, DRAFT = "target", "draft"

#: Kinds of tokens of a text, as named in a report.
ACCEPTED, REFUSED, EXTRA, UNKNOWN = "accepted", "refused", "extra", "unknown"


@dataclass(slots=True)
class Round:
    """Questions to the models, starting with one about the draft's next token.

    `start` random numbers were drawn before it. What was `asked`: model, text, and random numbers
    drawn in this round before the question.
    """

    start: int = 0
    asked: list[tuple[str, Text, int]] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether the draft was asked for each token before the last of what the target weighed.

        Else its questions are about other texts, as those of a context that is too short are, and
        nothing tells which tokens were drafted.
        """
        drafted = {text for who, text, _ in self.asked if who == DRAFT}
        begin = len(self.asked[0][1])
        weighed = [text[:-1] for who, text, _ in self.asked if who == TARGET and len(text) > begin]
        return all(any(own[: len(text)] == text for own in drafted) for text in weighed)

    def longest(self, model: str) -> int:
        return max((len(text) for who, text, _ in self.asked if who == model), default=0)


class Rounds:
    """The rounds of one call.

    A round ends where the draft is asked about a new text after the target was asked, unless the
    target was asked about that text, too: that is how drafts are verified. What the questions do
    not show, such as a draft length that depends on the rounds before, is no part of a round.
    """

    def __init__(self) -> None:
        self.all = [Round()]
        self._drafted: set[Text] = set()

    def hear(self, model: str, text: Text, drawn: int = 0) -> None:
        if model == DRAFT and text not in self._drafted:
            self._drafted.add(text)
            weighed = [asked for who, asked, _ in self.all[-1].asked if who == TARGET]
            if weighed and not any(asked[: len(text)] == text for asked in weighed):
                self.all.append(Round(drawn))
        this = self.all[-1]
        this.asked.append((model, text, drawn - this.start))

    def events(self, text: Text) -> list[str]:
        """Kind of each token of the text: an accepted draft, in place of a refused one, extra."""
        kinds = [UNKNOWN] * len(text)
        rounds = [one for one in self.all if any(who == DRAFT for who, _, _ in one.asked)]
        for n, one in enumerate(rounds):
            begin = len(one.asked[0][1])
            end = len(rounds[n + 1].asked[0][1]) if n + 1 < len(rounds) else len(text)
            if not one.fits:
                continue
            for place in range(begin, min(end, len(text))):
                kinds[place] = _event(one, text[: place + 1])
                if kinds[place] != ACCEPTED:
                    break
        return kinds


def _event(one: Round, text: Text) -> str:
    """Kind of the last token of a text, if those before it in the round were accepted."""
    if any(asked[: len(text)] == text for _, asked, _ in one.asked):
        return ACCEPTED
    drafted = one.longest(TARGET)
    if sum(who == TARGET for who, _, _ in one.asked) > 1:  # asked after each accepted draft
        drafted = max(drafted, one.longest(DRAFT) + 1)
    return EXTRA if len(text) > drafted else REFUSED


def counted(events: Sequence[Sequence[str]]) -> dict[str, int]:
    """Number of tokens of each kind."""
    every = [event for one in events for event in one]
    return {kind: every.count(kind) for kind in (ACCEPTED, REFUSED, EXTRA, UNKNOWN)}
