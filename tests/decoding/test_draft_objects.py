"""Drafts with a vocabulary of their own, and drafts that read what the target makes of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy.stats import chisquare

import mdsd_opt as mo
from mdsd_opt.decoding import Node, generate, step_laws
from mdsd_opt.decoding.draft_objects import OwnTokens
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, scheme_maker
from mdsd_opt.errors import InvalidDistribution, InvalidInput

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


def test_tokens_that_are_never_drafted_are_one_and_come_out_by_their_probabilities() -> None:
    own, law = OwnTokens(np.array([4, 0, 2])), np.array([0.1, 0.3, 0.15, 0.0, 0.05, 0.4])
    np.testing.assert_allclose(own.of_target(law), [0.05, 0.1, 0.15, 0.7], atol=1e-16)
    assert own.ids((2, 0, 1)) == (2, 4, 0)
    assert [own.has(token) for token in range(4)] == [True, True, True, False]
    ends = np.cumsum([0.3, 0.4]) / 0.7
    assert [own.other(law, u) for u in (0.0, ends[0] - 1e-9, ends[0] + 1e-9, 1.0)] == [1, 1, 5, 5]


def test_a_vocabulary_as_large_as_the_target_s_leaves_no_others() -> None:
    own, law = OwnTokens(np.array([1, 0])), np.array([0.25, 0.75])
    np.testing.assert_array_equal(own.of_target(law), [0.75, 0.25, 0.0])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_long_rows_are_read_as_softmax_reads_them(dtype: Any, temperature: float) -> None:
    rng = np.random.default_rng(5)
    size, own = 5003, 4099
    ids = rng.permutation(size)[:own]
    tokens = OwnTokens(ids)
    row = rng.normal(0.0, 4.0, size)
    row[rng.random(size) < 0.1] = -np.inf
    row = row.astype(dtype)
    expected = tokens.of_target(mo.softmax(row, temperature))
    found = tokens.target_law(row[::-1][::-1], temperature=temperature)  # a view
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0.0)
    logits = np.stack([row[ids], rng.permuted(row[ids])])
    drafted = tokens.draft_laws(logits, temperature=temperature, top_p=None)
    expected = tokens.of_draft(mo.softmax(logits, temperature))
    np.testing.assert_allclose(drafted, expected, rtol=1e-13, atol=0.0)
    # ties, and a token that is not the draft's
    for likeliest in (int(ids[0]), int(np.setdiff1d(np.arange(size), ids)[-1])):
        row[[likeliest, size - 1]] = 99.0
        wanted = tokens.of_target(mo.softmax(row, 0.0))
        np.testing.assert_array_equal(tokens.target_law(row, temperature=0.0, top_k=5), wanted)
    for options in ({"top_k": 7}, {"min_p": 0.01}):  # as ever
        wanted = tokens.of_target(mo.softmax(row, **options))
        np.testing.assert_array_equal(tokens.target_law(row, **options), wanted)


@pytest.mark.parametrize("ids", [np.arange(4200), np.random.default_rng(3).permutation(4200)])
def test_a_long_row_of_which_a_draft_has_all_tokens(ids: Any) -> None:
    row = np.random.default_rng(4).normal(0.0, 4.0, ids.size)
    expected = np.append(mo.softmax(row)[ids], 0.0)
    np.testing.assert_allclose(OwnTokens(ids).target_law(row), expected, rtol=1e-13, atol=0.0)


class OneRow:
    """A draft that gives the same logits after every text."""

    def __init__(self, row: Any) -> None:
        self.token_ids, self._row = np.arange(row.size), row

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Any]) -> Any:
        return np.tile(self._row, (len(continuations), 1))


@pytest.mark.parametrize("scheme", SINGLE_MODEL_SCHEMES)
@pytest.mark.parametrize("size", [5, 4200])
def test_laws_of_own_tokens_are_those_that_a_scheme_would_check(size: int, scheme: str) -> None:
    row = np.random.default_rng(6).normal(0.0, 1.0, size)
    row[:2] = -720.0, -670.0  # below 1e-300 and above
    sampling = mo.Sampling()
    draft = OneRow(row)
    laws = step_laws.HostLaws(draft, draft, scheme_maker(scheme), sampling, sampling)
    (law,) = laws.drafts([BEGINNING], [()])
    made, checked = laws.make(law, 2), scheme_maker(scheme)(law.copy(), 2)
    np.testing.assert_allclose(made.models[0].values, checked.models[0].values, rtol=1e-14)
    assert law[0] == 0.0 < law[1] < 1e-280
    assert not law[-1]  # the others

    def own(q: Any, num_drafts: int) -> Any:
        return type(q), num_drafts

    of_others = step_laws.HostLaws(draft, draft, own, sampling, sampling)
    assert of_others.make(law, 2) == (np.ndarray, 2)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_wrong_with_a_long_row_is_said(wrong: float) -> None:
    tokens, row = OwnTokens(np.arange(4100)), np.zeros(5000, np.float32)
    row[4321] = wrong
    with pytest.raises(InvalidDistribution, match="first at token 4321"):
        tokens.target_law(row)
    with pytest.raises(InvalidDistribution, match="row 1 is all -inf"):
        tokens.draft_laws(np.stack([row[:4100], np.full(4100, -np.inf)]))
    with pytest.raises(InvalidDistribution, match="first at token 4321"):
        tokens.target_law(row, temperature=0.0)
    with pytest.raises(InvalidInput, match="must fit"):
        tokens.draft_laws(np.zeros((1, 4200)))
    with pytest.raises(InvalidInput, match="must fit"):
        OwnTokens(np.arange(4100)).target_law(np.zeros(4099))


def test_ends_of_the_range_in_long_rows() -> None:
    tokens = OwnTokens(np.arange(3))
    far = np.append(1e308, np.full(4999, -1e308))
    np.testing.assert_array_equal(tokens.target_law(far), [1.0, 0.0, 0.0, 0.0])
    near = np.append(1.0, np.zeros(4999))
    for temperature in (1e-5, 1e-320):
        law = tokens.target_law(near, temperature=temperature)
        np.testing.assert_array_equal(law, [1.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("budget", [{"kl": 0.02}, {"tv": 0.05}, {"chi2": 0.03}])
def test_the_closest_law_does_not_tell_apart_what_is_never_drafted(budget: Any) -> None:
    p, q = np.random.default_rng(7).dirichlet(np.ones(9), 2)
    ids = np.array([3, 8, 0, 5])
    own = OwnTokens(ids)
    wide = np.zeros(9)
    wide[ids] = q[ids] / q[ids].sum()
    whole = mo.relax(mo.TransportProblem(p, mo.WithoutReplacement(wide, 2)), **budget)
    (drafted,) = own.of_draft(wide[None, ids])
    part = mo.relax(
        mo.TransportProblem(own.of_target(p), mo.WithoutReplacement(drafted, 2)), **budget
    )
    assert part.acceptance_rate == pytest.approx(whole.acceptance_rate, abs=1e-9)
    assert part.kl == pytest.approx(whole.kl, abs=1e-7)
    np.testing.assert_allclose(part.target, own.of_target(whole.target.copy()), atol=1e-5)


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
