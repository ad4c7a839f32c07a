"""Drafts with a vocabulary of their own, and drafts that read what the target makes of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import mdsd_opt as mo
from mdsd_opt.decoding import Node, generate, step_laws
from mdsd_opt.decoding.language_models import spread
from mdsd_opt.errors import InvalidInput

BEGINNING = 0  # a prompt of one token, which is no part of the text


class Target:
    """A toy model that shows two numbers at every token it has read."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._read: list[tuple[int, ...]] = []
        self.layers: tuple[int, ...] = ()

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Any]) -> Any:
        texts = [(*ids[1:], *tokens) for tokens in continuations]
        self._read = [(*ids, *tokens) for tokens in continuations]
        return np.stack([self._model(list(text))[-1] for text in texts])

    def keep_hidden_states(self, layers: tuple[int, ...]) -> None:
        self.layers = layers

    def hidden_states(self, ids: Sequence[int], start: int) -> Any:
        """Of the tokens of the last tree that the text goes on with."""
        known = min(map(len, self._read))
        while known < len(ids) and tuple(ids[: known + 1]) in self._read:
            known += 1
        return np.array([[token + 1, n] for n, token in enumerate(ids[start:known], start)])


class Draft:
    """Reads the target's numbers, and drafts two of the tokens in an order that they tell."""

    features = (1, 2)

    def __init__(self, token_ids: Sequence[int]) -> None:
        self.token_ids = token_ids
        self.told: list[int] = []
        self.states: list[Any] = []
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1
        self.told, self.states = [], []

    def read(self, tokens: Sequence[int], features: Any) -> None:
        assert len(tokens) == len(features)
        self.told += tokens
        self.states += list(features)

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Any]) -> Any:
        assert self.told == list(ids[: len(self.told)])
        assert len(ids) - 1 == len(self.told)  # all but the last token, which nobody has read
        assert [state[0] - 1 for state in self.states] == self.told
        assert [state[1] for state in self.states] == list(range(len(self.told)))
        hint = float(sum(state[0] for state in self.states))
        weights = np.linspace(0.0, 1.0 + hint % 3, len(self.token_ids))
        return np.stack([np.roll(weights, len(tokens)) for tokens in continuations])


@pytest.mark.parametrize("swapped", [False, True])
def test_texts_keep_their_law(swapped: bool) -> None:
    """With a draft that knows two of the tokens and reads the target; and a control that must not.

    The control gives the target's rows of a tree in another order. Two tokens are never drafted.
    """
    table = 1.5 * np.random.default_rng(5).normal(size=(5, 4))  # after the last token, 0 at first

    class Mixed(Target):
        def tree_logits(self, ids: Sequence[int], continuations: Sequence[Any]) -> Any:
            rows = super().tree_logits(ids, continuations)
            return rows[::-1] if swapped else rows

    target = Mixed(lambda text: table[[0, *(1 + token for token in text)]])
    draft, rng = Draft((2, 0)), np.random.default_rng(0)
    counts = np.zeros((4, 4, 4))
    for _ in range(700):
        tokens = generate(
            target, draft, [BEGINNING], tree="2x2", scheme="without_replacement", rule="rrs",
            max_new_tokens=3, rng=rng,
        ).tokens  # fmt: skip
        counts[tokens] += 1
    law = mo.softmax(table)
    expected = law[0][:, None, None] * law[1:][:, :, None] * law[1:][None, :, :]
    p_value = chisquare(counts.ravel(), 700 * expected.ravel()).pvalue
    assert p_value < 1e-9 if swapped else p_value > 1e-3


def test_rows_of_a_draft_are_spread_over_the_target_s_tokens() -> None:
    ids, own = np.array([4, 0, 2]), np.array([[1.0, 2.0, 3.0]], np.float32)
    np.testing.assert_array_equal(spread(own, ids, 6), [[2, -np.inf, 3, -np.inf, 1, -np.inf]])
    assert spread(own, None, 6) is own
    for wrong in (own[:, :2], np.zeros((1, 4))):
        with pytest.raises(InvalidInput, match="must fit"):
            spread(wrong, ids, 6)
    with pytest.raises(InvalidInput, match="must fit"):
        spread(own, ids, 4)


def test_laws_of_nodes_that_no_rule_comes_to_are_not_made(monkeypatch: Any) -> None:
    """Eight leaves and the two nodes above them: a rule from the root down needs three at most."""
    rows, asked = np.random.default_rng(2).normal(size=(6, 6)), []
    softmax = step_laws.checked_softmax

    def counted(logits: Any, **options: Any) -> Any:
        asked.append(np.ndim(logits))
        return softmax(logits, **options)

    monkeypatch.setattr(step_laws, "checked_softmax", counted)

    def model(ids: Any) -> Any:
        return rows[ids[-1]]

    steps = generate(
        model, model, [0], tree="2x3", rule="optimal", max_new_tokens=60, rng=0
    ).metrics.num_steps
    assert asked.count(1) <= 4 * steps  # on the way down, and after it
    assert asked.count(2) == 3 * steps  # the draft's levels
    node = Node((), ())
    node.target_by(lambda: rows[0])
    assert node.target is node.target
    with pytest.raises(AttributeError, match="law"):
        _ = node.law


def test_a_prompt_is_read_by_the_target_first_and_the_draft_is_told() -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(5, 5))
    draft = Draft((4, 1, 2))
    target = Target(lambda text: table[[0, *text]])
    first = generate(target, draft, [BEGINNING, 3, 1], tree="2x2", max_new_tokens=8, rng=1)
    assert target.layers == (1, 2)
    assert draft.begun == 1
    assert draft.told[:3] == [BEGINNING, 3, 1]
    assert first.metrics.num_drafted < 6 * first.metrics.num_steps  # none in the first step
    generate(target, draft, [BEGINNING, 2], tree="2x2", max_new_tokens=4, rng=1)
    assert draft.begun == 2
    assert draft.told[:2] == [BEGINNING, 2]


def test_a_draft_of_part_of_the_vocabulary_never_drafts_the_rest() -> None:
    class Few:
        token_ids = np.array([7, 2])

        def tree_logits(self, ids: Any, continuations: Any) -> Any:
            return np.zeros((len(continuations), 2))

    class Certain:
        def tree_logits(self, ids: Any, continuations: Any) -> Any:
            logits = np.full((len(continuations), 9), -np.inf)
            logits[:, 7] = 0.0
            return logits

    found = generate(Certain(), Few(), [0], tree="2x1", scheme="top_k", max_new_tokens=20, rng=0)
    assert set(found.tokens) == {7}
    assert found.metrics.num_accepted == found.metrics.num_steps - 1
    assert found.metrics.num_drafted == 2 * (found.metrics.num_steps - 1)


@pytest.mark.parametrize(
    ("ids", "says"),
    [([1, 1], "repeat"), ([-1, 2], "negative"), ([[1]], "in a row"), ([1, 99], "must fit"),
     ([0.5], "in a row"), ([], "in a row"), ([1, 2, 3], "must fit")],
)  # fmt: skip
def test_token_ids_are_looked_at(ids: Any, says: str) -> None:
    class Odd:
        token_ids = ids

        def tree_logits(self, ids: Any, continuations: Any) -> Any:
            return np.zeros((len(continuations), 2))

    with pytest.raises(InvalidInput, match=says):
        generate(lambda ids: np.zeros(5), Odd(), [0], tree="1x1", max_new_tokens=3, rng=0)


def test_a_target_that_shows_nothing_is_named() -> None:
    with pytest.raises(InvalidInput, match="reads hidden states, and function shows none"):
        generate(lambda ids: np.zeros(5), Draft((0, 1)), [0], max_new_tokens=3, rng=0)
