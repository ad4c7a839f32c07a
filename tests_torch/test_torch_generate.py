"""examples/torch_generate.py writes texts of the target's own law."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch_generate import generate

VOCAB_SIZE, RUNS = 4, 500


def table_model(seed: int) -> Any:
    """The next token depends on the last two."""
    table = torch.from_numpy(np.random.default_rng(seed).standard_normal((4, 4, VOCAB_SIZE)))

    def model(ids: torch.Tensor) -> SimpleNamespace:
        before = torch.cat([torch.zeros_like(ids[:, :1]), ids[:, :-1]], 1)
        return SimpleNamespace(logits=table[before, ids])

    return model


def law_of_two_tokens(model: Any, start: int) -> np.ndarray:
    law = []
    for first, second in product(range(VOCAB_SIZE), repeat=2):
        p = torch.softmax(model(torch.tensor([[start, first]])).logits, -1)[0]
        law.append(float(p[0, first] * p[1, second]))
    return np.array(law)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("num_drafts", [1, 3])
def test_texts_have_the_law_of_the_target(replacement: bool, num_drafts: int) -> None:
    target, draft = table_model(0), table_model(1)
    generator = torch.Generator().manual_seed(0)
    counts = np.zeros(VOCAB_SIZE**2)
    accepted = 0
    for _ in range(RUNS):
        found = generate(
            target, draft, torch.tensor([[2]]), num_drafts, 2, replacement=replacement,
            generator=generator,
        )  # fmt: skip
        first, second = found.ids[0, 1:].tolist()
        counts[VOCAB_SIZE * first + second] += 1
        accepted += found.accepted
    assert accepted > 0
    assert chisquare(counts, RUNS * law_of_two_tokens(target, 2)).pvalue > 1e-4
    # the draft's own texts, and those of a model with the same first token, are told apart
    assert chisquare(counts, RUNS * law_of_two_tokens(draft, 2)).pvalue < 1e-9
    second_ignored = np.repeat(law_of_two_tokens(target, 2).reshape(4, 4).sum(1) / 4, 4)
    assert chisquare(counts, RUNS * second_ignored).pvalue < 1e-9


def test_it_ends_where_it_should() -> None:
    model = table_model(0)
    ids = torch.tensor([[1, 2, 3]])
    for length in (0, 1, 2, 7):
        found = generate(model, model, ids, 2, length)
        assert found.ids.shape == (1, 3 + length)
        assert found.ids[0, :3].tolist() == [1, 2, 3]
        assert found.steps == found.accepted == -(-length // 2)  # p = q: two tokens a pass
    found = generate(model, model, ids, 2, 50, end=3, generator=torch.Generator().manual_seed(1))
    new = found.ids[0, 3:].tolist()
    assert 3 in new
    assert 3 not in new[:-1]


def test_a_temperature_near_zero_is_greedy() -> None:
    target, draft = table_model(0), table_model(1)
    found = generate(target, draft, torch.tensor([[0]]), 3, 12, temperature=1e-4, replacement=True)
    text = [0]
    for _ in range(12):
        text.append(int(target(torch.tensor([text])).logits[0, -1].argmax()))
    assert found.ids[0].tolist() == text
