"""Generators that a function makes for itself: answered without a seed, named with one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.reused_states import verifier

import mdsd_opt as mo
from mdsd_opt.auditing import served
from mdsd_opt.auditing.trees import TableModel

PROBLEM = mo.TransportProblem([0.4, 0.3, 0.2, 0.1], mo.WithReplacement([0.1, 0.2, 0.3, 0.4], 1))

MADE = {
    "default_rng": lambda *seed: np.random.default_rng(*seed).random(),
    "PCG64": lambda *seed: np.random.Generator(np.random.PCG64(*seed)).random(),
    "Philox": lambda *seed: np.random.Generator(np.random.Philox(*seed)).random(),
    "RandomState": lambda *seed: np.random.RandomState(*seed).random_sample(),
    "random.Random": lambda *seed: random.Random(*seed).random(),
}


def numbers(make: Any, *seed: int) -> tuple[list[float], tuple[str, ...]]:
    with served(3) as serving:
        given = []
        for _ in range(5):
            with serving.inside:
                given.append(make(*seed))
    return given, serving.restarting


@pytest.mark.parametrize("name", MADE)
def test_without_a_seed_the_audit_answers(name: str) -> None:
    first, restarting = numbers(MADE[name])
    assert first == numbers(MADE[name])[0]
    assert len(set(first)) == 5
    assert restarting == ()


@pytest.mark.parametrize("name", MADE)
def test_with_a_seed_the_numbers_are_those_of_the_seed(name: str) -> None:
    given, restarting = numbers(MADE[name], 7)
    assert given == [MADE[name](7)] * 5
    assert len(restarting) == 1
    assert name in restarting[0]
    assert "(7)" in restarting[0]


def test_classes_are_what_they_were() -> None:
    before = np.random.default_rng, np.random.RandomState, np.random.PCG64, random.Random
    state = np.random.RandomState(0)
    with served(0) as serving, serving.inside:
        assert isinstance(state, np.random.RandomState)

        class Own(random.Random):
            pass

        assert isinstance(Own(3), Own)
        assert Own(3).random() == before[3](3).random()
        assert np.random.default_rng(np.random.PCG64(1)).random() == before[0](1).random()
        assert 0 <= random.Random().choice([0, 1]) <= 1
    assert before == (np.random.default_rng, np.random.RandomState, np.random.PCG64, random.Random)


def test_new_seeds_are_not_taken_for_one() -> None:
    with served(0) as serving:
        for seed in range(50):
            with serving.inside:
                np.random.default_rng(seed)
    assert serving.restarting == ()


@pytest.mark.parametrize("seeded", [True, False])
def test_audits_say_which_generator_begins_anew(seeded: bool) -> None:
    verify = verifier(lambda _: np.random.default_rng(*([5] if seeded else [])).random(2))
    report = mo.audit(verify, PROBLEM, 0, 3_000)
    told = "numpy.random.default_rng(5) begins anew in every call"
    assert report.clean is not seeded
    assert (told in report.verdict) is seeded
    assert report.num_violations == 0

    def rule(root: Any, rng: Any) -> list[int]:
        return [verify(root.target, root.drafts.q, root.draws, None)]

    target, draft = (TableModel(3, seed) for seed in (1, 2))
    tree = mo.audit_tree(rule, target, draft, "chain1", 0, 3_000, method="sampling")
    assert tree.clean is not seeded
    assert (told in tree.verdict) is seeded
