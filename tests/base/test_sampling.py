"""One object for temperature and filters: every function that has the keywords takes it as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.decoding import generate
from mdsd_opt.errors import InvalidInput

RNG = np.random.default_rng(7)
TARGET, DRAFT = RNG.normal(size=(2, 3, 20)) * 3
DRAFTS = np.argmax(DRAFT, axis=1)[:, None].repeat(2, axis=1)
TOKENS = np.argmax(TARGET, axis=1)
PROMISE = {"temperature": 0.7, "top_k": 12, "top_p": 0.95, "min_p": 0.01}


def law_of(problem: mo.TransportProblem) -> Any:
    return np.stack([problem.target, problem.drafts.q])


def audited(**given: Any) -> Any:
    return mo.audit_trace(TARGET, DRAFT, DRAFTS, TOKENS, logits=True, **given).to_dict()


def continued(**given: Any) -> Any:
    def model(tokens: Any) -> Any:
        return TARGET[len(tokens) % 3]

    return generate(model, model, [1], tree="2x2", rng=3, max_new_tokens=12, **given).tokens


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax": lambda **given: mo.softmax(TARGET, **given),
    "acceptance_rates": lambda **given: mo.acceptance_rates(TARGET, DRAFT, **given),
    "relaxed_rates": lambda **given: mo.relaxed_rates(TARGET, DRAFT, tv=0.1, **given),
    "verify_batch": lambda **given: verify_batch(TARGET, DRAFT, DRAFTS, seed=1, **given).tokens,
    "from_logits": lambda **given: law_of(
        mo.TransportProblem.from_logits(TARGET[0], DRAFT[0], 2, **given)
    ),
    "audit_trace": audited,
    "generate": continued,
    "compare_draft_schemes": lambda **given: [
        row.acceptance.mean
        for row in mo.compare_draft_schemes(TARGET, DRAFT, 2, kind="logits", **given).rates
    ],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_object_is_the_same_as_four_keywords(name: str) -> None:
    function = FUNCTIONS[name]
    np.testing.assert_equal(function(sampling=mo.Sampling(**PROMISE)), function(**PROMISE))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_at_once_and_other_objects_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="not both"):
        FUNCTIONS[name](sampling=mo.Sampling(top_k=3), temperature=0.5)
    with pytest.raises(InvalidInput, match=r"mdsd_opt\.Sampling"):
        FUNCTIONS[name](sampling={"top_k": 3})


def test_it_changes_the_law() -> None:
    assert (FUNCTIONS["softmax"](sampling=mo.Sampling(top_k=3)) > 0).sum() == 9
