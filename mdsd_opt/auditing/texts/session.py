"""Wrapper of a function that writes texts with the models it is given."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property, partial
from typing import Any

from mdsd_opt.auditing.chain_calls import parameters_of, torch_needed
from mdsd_opt.auditing.model_texts import ModelLaws, PlaceLaws, Texts, under
from mdsd_opt.auditing.subject import Failure, ViolationLog, outcome_of, tokens_of
from mdsd_opt.auditing.texts.rounds import DRAFT, TARGET
from mdsd_opt.auditing.texts.toys import AnyTables, Toy
from mdsd_opt.auditing.trial_laws import WideLaws
from mdsd_opt.base.array_types import Model, Text
from mdsd_opt.base.foreign import ran
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.evidence import Promise, Promises, TextSoFar

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


def log_failure(outcome: Hashable, wrong: ViolationLog, failed: ViolationLog) -> None:
    """Log a call that gave no text: a token that does not exist is wrong in any case."""
    assert isinstance(outcome, Failure)
    log = wrong if outcome.kind == "out of vocabulary" else failed
    log.add(outcome.kind, (), f"a call {outcome.message}")


def log_impossible(text: Text, tables: AnyTables, where: str, wrong: ViolationLog) -> None:
    """Log a text of probability zero."""
    message = f"text {text} has probability zero, yet comes out at V = {tables.vocab_size}{where}"
    wrong.add("impossible text", (), message)
