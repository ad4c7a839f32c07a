"""A pair of logits says once how laws are read from it; all that take one give the same by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.decoding import place_rates
from mdsd_opt.errors import InvalidDistribution, InvalidInput

V, K = 8, 2
RNG = np.random.default_rng(4)
TARGET, DRAFT = RNG.standard_normal((2, 5, V))
DRAFTS = np.tile([6, 7], (5, 1))  # allowed by the mask, and kept by the filters
MASK = np.arange(V) > 1
TARGET[:, 6:], DRAFT[:, 6:] = 3.0, 3.0

#: What takes a pair, as numbers.
TAKING: dict[str, Callable[..., Any]] = {
    "acceptance_rates": lambda *pair, **o: mo.acceptance_rates(*pair, (1, K), "greedy", **o),
    "relaxed_rates": lambda *pair, **o: mo.relaxed_rates(*pair, K, kl=0.01, **o),
    "verify_batch": lambda *pair, **o: verify_batch(*pair, DRAFTS, rng=1, **o).tokens,
    "advise": lambda *pair, **o: mo.advise(*pair, 20.0, 2.0, max_drafts=3, **o).speedup,
    "compare_draft_schemes": lambda *pair, **o: [
        row.acceptance.mean
        for row in mo.compare_draft_schemes(*pair, K, schemes=["greedy"], **o).rates
    ],
    "place_rates": lambda *pair, **o: place_rates(*pair, K, **o),
    "best_draft_filter": lambda *pair, **o: (
        mo.best_draft_filter(*pair, K, filters=[], temperatures=[], **o).acceptance.mean
    ),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "temperature": {"temperature": 0.7},
    "filters": {"top_k": 4, "min_p": 0.01},
    "one object": {"sampling": mo.Sampling(0.8, top_p=0.99, joint=True)},
    "both sides": {"sampling": mo.Sampling(0.8), "draft_sampling": mo.Sampling(top_k=5)},
    "mask": {"mask": MASK},
    "mask of one": {"mask": MASK, "mask_draft": False},
    "lift": {"lift": np.linspace(0.1, 1.0, V), "mask_draft": False},
    "kind": {"kind": "logits"},
}

#: Options that say what a function is to find.
SOUGHT = {("best_draft_filter", "both sides")}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", TAKING)
def test_a_pair_is_the_same_as_its_parts(name: str, options: str) -> None:
    take, given = TAKING[name], OPTIONS[options]
    pair = mo.Logits(TARGET, DRAFT, **given)
    if (name, options) in SOUGHT:
        with pytest.raises(InvalidInput, match="leave draft_temperature"):
            take(pair)
        return
    np.testing.assert_array_equal(take(pair), take(TARGET, DRAFT, **given))


@pytest.mark.parametrize("name", TAKING)
def test_options_of_a_pair_are_given_once(name: str) -> None:
    pair = mo.Logits(TARGET, DRAFT, temperature=0.7)
    with pytest.raises(InvalidInput, match=r"its own temperature: give mdsd_opt\.Logits that"):
        TAKING[name](pair, temperature=0.7)
    with pytest.raises(InvalidInput, match="part of the pair"):
        TAKING[name](pair, draft_logits=DRAFT)


def test_one_position() -> None:
    pair = mo.Logits(TARGET[0], DRAFT[0], top_k=3)
    problem = mo.TransportProblem.from_logits(pair, K)
    flat = mo.TransportProblem.from_logits(TARGET[0], DRAFT[0], K, top_k=3)
    np.testing.assert_array_equal(problem.target, flat.target)
    best = mo.best_draft_temperature(mo.Logits(TARGET[0], DRAFT[0], temperature=0.5), K)
    assert best == mo.best_draft_temperature(TARGET[0], DRAFT[0], K, temperature=0.5)


def test_a_mask_holds_wherever_a_pair_is_taken() -> None:
    """What is masked has the law of logits of -inf, which every function takes."""
    hidden = [np.where(MASK, side, -np.inf) for side in (TARGET, DRAFT)]
    pair = mo.Logits(TARGET, DRAFT, mask=MASK)
    for name, take in TAKING.items():
        np.testing.assert_array_equal(take(pair), take(*hidden), err_msg=name)


def test_a_lift_holds_wherever_a_pair_is_taken() -> None:
    weights = np.linspace(0.1, 1.0, V)
    lifted = np.log(mo.softmax(TARGET, 0.7) * weights)
    options: dict[str, Any] = {"mask_draft": False, "temperature": 0.7}
    pair = mo.Logits(TARGET, DRAFT, lift=weights, **options)
    sides = {"sampling": mo.Sampling(), "draft_sampling": mo.Sampling(0.7)}
    for name, take in TAKING.items():
        if name == "best_draft_filter":
            continue
        np.testing.assert_allclose(
            take(pair), take(lifted, DRAFT, **sides), atol=1e-12, err_msg=name
        )


def test_narrower_vocabularies_are_padded_everywhere() -> None:
    wide = np.concatenate([DRAFT[:, :5], np.full((5, V - 5), -np.inf)], axis=1)
    pair = mo.Logits(TARGET, DRAFT[:, :5], pad=True)
    for name in ("acceptance_rates", "advise", "compare_draft_schemes", "best_draft_filter"):
        np.testing.assert_allclose(TAKING[name](pair), TAKING[name](TARGET, wide), atol=1e-12)


@pytest.mark.parametrize(
    ("sides", "options", "error", "message"),
    [
        ((TARGET, DRAFT[:, :5]), {}, InvalidInput, "8 tokens and draft_logits has 5"),
        ((TARGET, DRAFT[:3]), {}, InvalidInput, "must fit to each other"),
        ((TARGET, 1.0), {}, InvalidInput, r"draft_logits has shape \(\)"),
        ((TARGET[:, :0], DRAFT[:, :0]), {}, InvalidInput, "must hold the tokens"),
        ((TARGET, DRAFT), {"kind": "odds"}, InvalidInput, "kind is 'odds'"),
        ((TARGET, DRAFT), {"kind": "probs"}, InvalidDistribution, "target_logits"),
        ((mo.softmax(TARGET), DRAFT), {}, InvalidInput, "'probs'"),
        ((TARGET, DRAFT), {"temperature": -1.0}, InvalidInput, "temperature is -1"),
        ((TARGET, DRAFT), {"sampling": 0.7}, InvalidInput, "mdsd_opt.Sampling"),
        ((TARGET, DRAFT), {"mask": MASK[:3]}, InvalidInput, "mask has shape"),
        ((TARGET, DRAFT[:, :5]), {"mask": MASK}, InvalidInput, "mask_draft=False"),
        ((TARGET, DRAFT), {"lift": -np.ones(V)}, InvalidInput, "negative"),
        ((TARGET, DRAFT), {"draft_token_ids": [0, 1]}, InvalidInput, "draft_token_ids has shape"),
    ],
)
def test_what_does_not_fit_is_an_error_where_the_pair_is_made(
    sides: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mo.Logits(*sides, **options)


def test_arguments_by_place_are_as_they_were() -> None:
    rates = mo.acceptance_rates(TARGET, DRAFT, K, "greedy", "optimal", 0.7, 0.9, 5, 0.95, 0.01)
    named = mo.acceptance_rates(
        TARGET, DRAFT, K, drafts="greedy", temperature=0.7, draft_temperature=0.9, top_k=5,
        top_p=0.95, min_p=0.01,
    )  # fmt: skip
    np.testing.assert_array_equal(rates, named)
    with pytest.raises(TypeError):
        mo.acceptance_rates(TARGET, DRAFT, K, "greedy", "optimal", 0.7, temperature=0.7)
    with pytest.raises(TypeError):
        mo.relaxed_rates(TARGET, DRAFT, K, "greedy", 0.7, kl=0.01)


def test_a_pair_tells_what_it_is() -> None:
    shown = repr(mo.Logits(TARGET, DRAFT, top_k=3))
    assert "(5, 8)" in shown
    assert "top_k=3" in shown
