"""Drafts that repeat the text: which tokens, and that rules stay lossless with them."""

from __future__ import annotations

import numpy as np
import pytest
from support.chi_square import p_value

from mdsd_opt import softmax
from mdsd_opt.decoding import PromptLookup, generate
from mdsd_opt.errors import InvalidInput


def proposed(text, continuation=(), **options):
    (row,) = PromptLookup(10, **options).tree_logits(text, [continuation])
    (token,) = np.flatnonzero(np.isfinite(row))
    assert row[token] == 0.0
    return int(token)


def test_it_proposes_what_followed_the_longest_match_last():
    assert proposed([1, 2, 3, 1, 2, 4, 1, 2]) == 4
    assert proposed([5, 1, 2, 3, 6, 1, 2, 4, 5, 1, 2]) == 3  # three tokens before two
    assert proposed([5, 1, 2, 3, 6, 1, 2, 4, 5, 1, 2], max_ngram=2) == 4
    assert proposed([1, 2, 3], (1,)) == 2
    assert proposed([7, 7, 7]) == 7
    assert proposed([1, 2, 3]) == 3  # nothing to look up
    assert proposed([4]) == 4


def test_a_text_that_repeats_itself_is_accepted_whole():
    def cycle(ids):
        return np.where(np.arange(10) == (ids[-1] + 1) % 5, 0.0, -np.inf)

    output = generate(
        cycle, PromptLookup(10), [0, 1, 2, 3, 4, 0], tree="chain4", max_new_tokens=20, rng=0
    )
    assert output.tokens == tuple((n + 1) % 5 for n in range(20))
    assert output.metrics.num_steps == 4


def test_the_output_follows_the_target():
    """Chi-square of the second of two tokens after a common first one; false alarm 1e-6."""
    table = np.random.default_rng(0).standard_normal((4, 4))
    found = [
        generate(
            lambda ids: table[ids[-1]], PromptLookup(4), [1, 2, 0, 1], tree="chain2",
            max_new_tokens=2, rng=seed, rule="level_sequential",
        ).tokens
        for seed in range(600)
    ]  # fmt: skip
    after_two = [tokens[1] for tokens in found if tokens[0] == 2]
    assert len(after_two) > 60
    assert p_value(after_two, dict(enumerate(softmax(table[2])))) > 1e-6
    assert p_value([tokens[0] for tokens in found], dict(enumerate(softmax(table[1])))) > 1e-6


@pytest.mark.parametrize("sizes", [(0, 3), (5, 0)])
def test_sizes_that_are_none(sizes):
    with pytest.raises(InvalidInput, match="at least 1"):
        PromptLookup(*sizes)
