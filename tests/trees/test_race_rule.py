"""The race rule: exact law on enumerated trees, and one text with any drafter or none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.tables import Table, output_law, pair, target_law

from mdsd_opt import decoding
from mdsd_opt.decoding import get_rule, k_ary
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import Race

LENGTH = 3


def logits_of(table: Any) -> Any:
    """A model of what follows the tokens after the prompt, which is one token."""
    return lambda ids: np.log(table(tuple(ids[1:])))


@pytest.fixture
def models() -> tuple[Table, Table]:
    return pair(3, 3, LENGTH + 3, near=True)


def test_the_law_of_trees_is_the_target_s_exactly(models: tuple[Table, Table]) -> None:
    law, _ = output_law(get_rule("race"), *models, k_ary(2, 2), "without_replacement")
    np.testing.assert_allclose(law, target_law(models[0], 3), rtol=0, atol=1e-10)


class SameNoise(Race):
    """A fault: the noise does not depend on the text."""

    def noise(self, text: Any, vocab_size: int) -> Any:
        return super().noise(text[:1], vocab_size)


def test_texts_that_end_in_zeros_have_noise_of_their_own() -> None:
    """NumPy seeds alike from [7], [7, 0] and [7, 0, 0]."""
    texts = [(), (0,), (0, 0), (0, 0, 0), (1,), (1, 0)]
    made = [tuple(Race(seed).noise(text, 2)) for seed in (7, 7 << 32) for text in texts]
    assert len({*made}) == len(made)


def of_many_seeds(rule: type[Race], target: Table, draft: Table) -> tuple[float, float]:
    """p-value of the law of two tokens, and mean accepted of the first step."""
    counts, accepted, number = Counter[tuple[int, ...]](), 0, 1_000
    race = rule()
    for seed in range(number):
        race.seed = seed
        root = race.grow(lambda texts: [draft(t) for t in texts], k_ary(2, 2), (0,))
        for node in root.walk():
            node.target = target(node.tokens)
        outcome = race.verify(root, np.random.default_rng(0))
        accepted += outcome.num_accepted
        text = (0, *outcome.tokens)
        while len(text) < 3:
            clocks = race.noise(text, 3) / target(text[1:])
            text = (*text, int(clocks.argmin()))
        counts[text[1:3]] += 1
    laws = {(i, j): target(())[i] * target((i,))[j] for i in range(3) for j in range(3)}
    expected = np.array([*laws.values()]) * number
    found = stats.chisquare([counts[text] for text in laws], expected)
    return float(found.pvalue), accepted / number


def test_drawn_by_seeds_it_follows_the_target_and_accepts_as_enumerated(
    models: tuple[Table, Table],
) -> None:
    _, mean = output_law(get_rule("race"), *models, k_ary(2, 2), "without_replacement")
    p_value, accepted = of_many_seeds(Race, *models)
    assert p_value > 1e-4
    assert abs(accepted - mean) < 4 / np.sqrt(1_000)  # the number lies in [0, 2]
    assert of_many_seeds(SameNoise, *models)[0] < 1e-6


def test_a_seed_gives_one_text_with_any_drafter_or_none(models: tuple[Table, Table]) -> None:
    target, draft = models
    asked = {"rule": "race", "rng": 11, "max_new_tokens": LENGTH}
    one = decoding.generate(logits_of(target), logits_of(draft), [0], tree="2x2", **asked)
    for other, tree in ((target, "chain2"), (lambda ids: np.zeros(3), "3x1")):
        model = logits_of(other) if isinstance(other, Table) else other
        again = decoding.generate(logits_of(target), model, [0], tree=tree, **asked)
        assert again.tokens == one.tokens
    plain, race = [0], Race(int(np.random.default_rng(11).integers(2**62)))
    while len(plain) <= LENGTH:
        plain.append(int((race.noise(plain, 3) / target(tuple(plain[1:]))).argmin()))
    assert list(one.tokens) == plain[1:]
    asked.pop("rng")
    made = [
        decoding.generate(logits_of(target), logits_of(draft), [0], tree="2x1", rng=seed, **asked)
        for seed in range(8)
    ]
    texts = {tuple(one.tokens) for one in made}
    assert len(texts) > 1


def test_a_draft_that_is_the_target_is_accepted_whole(models: tuple[Table, Table]) -> None:
    target, _ = models
    model = logits_of(target)
    made = decoding.generate(model, model, [0], tree="chain2", rule="race", rng=0, max_new_tokens=3)
    assert made.metrics.num_steps == 1


def test_what_a_race_cannot_draw_is_refused(models: tuple[Table, Table]) -> None:
    target, draft = map(logits_of, models)
    for wrong in (
        {"tree": "planned4"},
        {"tree": "2x1", "scheme": "greedy"},
        {"tree": "2x1", "relax": {"kl": 0.01}},
    ):
        with pytest.raises(InvalidInput, match="rule 'race'"):
            decoding.generate(target, draft, [0], rule="race", max_new_tokens=2, **wrong)
