"""One object for temperature and filters: every function that has the keywords takes it as well."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.base.logits import Reading
from mdsd_opt.batch import verify_batch
from mdsd_opt.batch.device import RatesRequest
from mdsd_opt.decoding import generate
from mdsd_opt.errors import InvalidInput

RNG = np.random.default_rng(7)
TARGET, DRAFT = RNG.normal(size=(2, 3, 20)) * 3
DRAFTS = np.argmax(DRAFT, axis=1)[:, None].repeat(2, axis=1)
TOKENS = np.argmax(TARGET, axis=1)
PROMISE = {"temperature": 2.0, "top_k": 12, "top_p": 0.9, "min_p": 0.01, "joint": True}


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
    "verify_batch": lambda **given: [
        verify_batch(TARGET, DRAFT, DRAFTS, rng=seed, **given).tokens for seed in range(3)
    ],
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
def test_one_object_is_the_same_as_the_keywords(name: str) -> None:
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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_takes_the_order_of_the_filters(name: str) -> None:
    def found(joint: bool) -> Any:  # of about four tokens, or of one
        return FUNCTIONS[name](sampling=mo.Sampling(9.0, top_k=4, top_p=0.2, joint=joint))

    assert str(found(True)) != str(found(False)) == str(found(False))


def filtered(weights: list[int], top_k: int, top_p: Fraction, joint: bool) -> list[Fraction]:
    """Law that top-k and top-p leave, from their definitions: what is above a token decides."""
    p = [Fraction(w, sum(weights)) for w in weights]
    few = [x if sum(y > x for y in p) < top_k else Fraction(0) for x in p]
    first = [x / sum(few) for x in few]
    seen = p if joint else first
    kept = [
        x if sum(y for y in seen if y > s) < top_p else Fraction(0)
        for x, s in zip(first, seen, strict=True)
    ]
    return [x / sum(kept) for x in kept]


ROWS = {
    "all alike": [1] * 8,
    "ties at both limits": [4, 4, 2, 2, 2, 1, 1, 0],
    "zeros": [0, 8, 0, 4, 2, 1, 1, 0],
    "one possible": [0, 0, 16, 0, 0, 0, 0, 0],
    "one token": [16],
    "falling": [64, 32, 16, 8, 4, 2, 1, 1],
}


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("row", ROWS)
def test_the_order_of_filters_is_that_of_the_definition(row: str, dtype: Any, joint: bool) -> None:
    weights = ROWS[row]
    with np.errstate(divide="ignore"):
        logits = np.log(np.array(weights, dtype=dtype))
    for top_k in (1, 2, 3, 5, 8):
        # no sum of a row is near these shares: which tokens stay is no matter of rounding
        for top_p in (Fraction(17, 100), Fraction(56, 100), Fraction(81, 100), Fraction(97, 100)):
            wanted = filtered(weights, top_k, top_p, joint)
            sampling = mo.Sampling(top_k=top_k, top_p=float(top_p), joint=joint)
            found = mo.softmax(logits, sampling=sampling)
            np.testing.assert_array_equal(found > 0, np.array(wanted) > 0)
            np.testing.assert_allclose(found, np.array(wanted, float), atol=1e-6)


def test_joint_filters_keep_what_the_others_keep_and_more() -> None:
    logits = RNG.normal(size=(200, 30))
    both = [mo.Sampling(top_k=9, top_p=0.6, min_p=0.02, joint=joint) for joint in (False, True)]
    one_by_one, joint = (mo.softmax(logits, sampling=sampling) > 0 for sampling in both)
    assert joint[one_by_one].all()
    assert (joint.sum(axis=1) > one_by_one.sum(axis=1)).any()


@pytest.mark.parametrize("option", [{"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}, {}])
def test_the_order_matters_to_several_filters_only(option: dict[str, Any]) -> None:
    found = [mo.softmax(TARGET, joint=joint, **option) for joint in (True, False)]
    np.testing.assert_array_equal(*found)


def test_another_word_than_true_or_false_is_refused() -> None:
    with pytest.raises(InvalidInput, match="give True or False"):
        mo.Sampling(joint="top_k_first")  # type: ignore[arg-type]


def test_kernels_of_a_device_leave_joint_filters_to_the_cpu() -> None:
    def obstacle(joint: bool) -> str:
        sides = [mo.Sampling(top_k=5, top_p=0.5, joint=joint)] * 2
        request = RatesRequest("with_replacement", "optimal", (2,), Reading(*sides))
        return request.obstacle(512, TARGET.shape, DRAFT.shape)

    assert obstacle(False) == ""
    assert "joint=False" in obstacle(True)
