"""Wrapper of a function that writes texts with the models it is given.

Toy language models: random tables of laws that answer as models do, and report each question.

A table gives the law of the next token after every text of fewer tokens than are compared, and
token 0 for sure after longer ones, so that a session which goes on draws nothing more of interest.

Rounds of drafts of a session and their ends, as far as the models can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from mdsd_opt.auditing.chain_calls import parameters_of, torch_needed
from mdsd_opt.auditing.laws import ModelLaws, PlaceLaws, Texts, Toy, WideLaws, fixed_laws, under
from mdsd_opt.auditing.randomness.sources import default_rng
from mdsd_opt.auditing.subject import Failure, ViolationLog, outcome_of, tokens_of
from mdsd_opt.base.arrays import Model, Text, Vector
from mdsd_opt.base.foreign import ran
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.evidence import Promise, Promises, TextSoFar

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


#: Least weight of a possible token, beside exponential ones of mean 1.
_LEAST = 0.05


@dataclass(frozen=True, slots=True)
class Tables:
    """A pair of random tables, and the texts to compare on them.

    The laws are random ones, each pair with a seed of its own, or those of `fixed_laws` with these
    numbers, in turn.
    """

    vocab_size: int
    length: int
    seed: int
    memory: int | None = None  # tokens at the end of a text that the laws depend on; None for all
    zeros: bool = False  # whether one token in each law is impossible
    fixed: tuple[int, ...] = ()
    begin: Text = ()  # tokens before those that are compared, which the laws are not asked about

    def target(self, text: Text) -> Vector:
        return self._law(text, 0)

    def draft(self, text: Text) -> Vector:
        return self._law(text, 1)

    def _law(self, text: Text, model: int) -> Vector:
        size = self.vocab_size
        if len(text) >= self.length:
            return np.eye(size)[0]
        if self.fixed:
            turn = self.fixed[(1 + sum(text) + len(text)) % len(self.fixed)]
            laws = fixed_laws(size)[turn]
            return (laws.target, laws.draft)[model](text)
        last = text if self.memory is None else text[len(text) - min(self.memory, len(text)) :]
        rng = default_rng([self.seed, model, size, len(last), *last])
        weights = rng.exponential(size=size) + _LEAST
        if self.zeros:
            weights[rng.integers(size)] = 0.0
        law: Vector = weights / weights.sum()
        return law

    def __str__(self) -> str:
        if self.fixed:
            names = ", ".join(fixed_laws(self.vocab_size)[n].name for n in self.fixed)
            return f"V = {self.vocab_size}, {self.length} tokens, {names} laws"
        after = "the whole text" if self.memory is None else "the last token"
        zeros = ", one token impossible" if self.zeros else ""
        begun = f" behind {len(self.begin)} given ones" if self.begin else ""
        return f"V = {self.vocab_size}, {self.length} tokens{begun}, laws after {after}{zeros}"


AnyTables = Tables | WideLaws


#: Maps (target, draft) to the first tokens of a text.
Generate = Callable[[Any, Any], Any]


class Session:
    """Calls of a function with the toy models of a pair of tables.

    Texts are to follow the target's law under its promise; the models show their own laws, or
    those under the promises on the sides that are `applied`. Texts stand behind the beginning of
    the tables, which the function is handed as its argument `text`, if it has one.
    """

    def __init__(
        self,
        generate: Generate,
        tables: AnyTables,
        library: str,
        promises: Promises = (None, None),
        applied: tuple[bool, bool] = (False, False),
    ) -> None:
        self._generate, self.tables, self._begin = generate, tables, tables.begin
        self._more = {"text": list(self._begin)} if "text" in parameters_of(generate) else {}
        promises = _behind(self._begin, promises[0]), _behind(self._begin, promises[1])
        self._promise = promises[0]
        sides = zip((tables.target, tables.draft), promises, applied, strict=True)
        shown = [
            under(promise, law) if promise is not None and is_applied else law
            for law, promise, is_applied in sides
        ]
        by_place = isinstance(tables, WideLaws)
        self._models = [
            _model(
                Toy(self._own(law), tables.vocab_size, partial(self._heard, name), by_place),
                library,
            )
            for name, law in zip((TARGET, DRAFT), shown, strict=True)
        ]

    @cached_property
    def target(self) -> ModelLaws | PlaceLaws:
        if isinstance(self.tables, WideLaws):
            return PlaceLaws(self.tables.target, self.tables.length, self._promise)
        return ModelLaws(self.tables.target, "the target", self._promise)

    @property
    def texts(self) -> Texts:
        assert isinstance(self.target, ModelLaws)
        return Texts(self.target, self.tables.length)

    def outcome(self, listener: Callable[[str, Text], None]) -> Hashable:
        """First tokens of a text, or a `Failure`; the listener hears which model was asked what."""
        self._listener = listener
        call = partial(self._generate, *self._models, **self._more)
        return outcome_of(lambda: self._tokens(ran(call())))

    def _own(self, law: Model) -> Model:
        """Law of what stands behind the beginning."""
        return lambda text: law(text[len(self._begin) :])

    def _heard(self, model: str, text: Text) -> None:
        self._listener(model, text[len(self._begin) :])

    def _tokens(self, answer: Any) -> Text | Failure:
        items = answer.reshape(-1).tolist() if hasattr(answer, "reshape") else answer
        least = "it is to give at least one"
        return tokens_of(items, self.tables.vocab_size, least, self.tables.length)


def _behind(begin: Text, promise: Promise | None) -> Promise | None:
    """The promise for texts behind a beginning."""
    if not begin or promise is None or isinstance(promise, Sampling):
        return promise
    return lambda text, logits: promise(TextSoFar((*begin, *text)), logits)


def _model(toy: Toy, library: str) -> Any:
    if library == "numpy":
        return toy
    torch_needed()
    from mdsd_opt.auditing.texts.torch_toys import TorchToy

    return TorchToy(toy)


def log_failure(outcome: Any, log: ViolationLog) -> None:
    """Log a call that gave no text."""
    log.add(outcome.kind, (), f"a call {outcome.message}")


def log_impossible(text: Text, tables: AnyTables, where: str, log: ViolationLog) -> None:
    """Log a text of probability zero."""
    message = f"text {text} has probability zero, yet comes out at V = {tables.vocab_size}{where}"
    log.add("impossible text", (), message)
