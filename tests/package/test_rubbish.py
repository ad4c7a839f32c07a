"""Rubbish at every public callable: a result or one clear error, and nothing that does not end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import rubbish

import mdsd_opt as mo
from mdsd_opt import batch, corpora, formats
from mdsd_opt.errors import MdsdError
from mdsd_opt.trees import balanced

#: Those that are asked with every run of the tests; all, with the slow ones.
QUICK = ("decoding.parse_topology", "decoding.chain", "decoding.sparse", "decoding.balanced",
         "mo.load_problem", "mo.load_trace",
         "corpora.open_corpus", "solvers.get",
         "verifiers.get")  # fmt: skip


def faults(doors: tuple[str, ...]) -> list[Any]:
    """What a process of its own tells of some doors."""
    tests = Path(rubbish.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, rubbish.__file__, *doors], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])},
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told[-1:] == [["ends", ""]], (done.stderr[-2000:], told[-2:])
    assert [x[1] for x in told if x[0] == "tried"] == [*doors]
    return [x for x in told if x[0] == "fault"]


def test_rubbish_is_refused() -> None:
    assert faults(QUICK) == []


@pytest.mark.slow
@pytest.mark.parametrize("share", range(6))
def test_rubbish_is_refused_everywhere(share: int) -> None:
    assert faults(tuple(sorted(rubbish.doors())[share::6])) == []


def test_the_tester_sees_foreign_errors_and_what_does_not_end() -> None:
    def endless(x: Any) -> None:
        while True:
            abs(0)

    assert rubbish.fault(lambda x: x + 1, {"x": None}).startswith("TypeError")
    assert rubbish.fault(endless, {"x": None}) == "does not end"
    assert rubbish.fault(lambda x: x, {"x": None}) == ""


@pytest.mark.parametrize(
    ("told", "named"),
    [("what was given is wrong", False), ("x_y is wrong", True), ("this is 'rubbish'", True),
     ("a str is wrong", True)],
)  # fmt: skip
def test_the_tester_sees_messages_that_name_nothing(told: str, named: bool) -> None:
    def refuse(x_y: Any) -> None:
        raise MdsdError(told)

    assert (rubbish.fault(refuse, {"x_y": rubbish.RUBBISH["a word"]}) == "") is named


ROWS = np.zeros((2, 3))

#: What was taken, or is rubbish for one reason alone, and what each message has to name.
REFUSED: dict[str, tuple[Any, str]] = {
    "confidence above one": (
        lambda: mo.accepted_rates([0, 1, 1], 3, confidence=1.5), "confidence is 1.5"),
    "confidence of none": (
        lambda: mo.accepted_rates([0, 1, 1], 3, confidence=0), "confidence is 0"),
    "confidence in words": (
        lambda: mo.accepted_rates([0, 1, 1], 3, confidence="x"), "confidence is 'x'"),
    "detect in words": (lambda: mo.AuditOptions(detect="x"), "detect is 'x'"),
    "a long chain": (lambda: balanced(1, 10**5), "num_nodes is"),
    "rules in a list": (lambda: mo.worst_case(["rrs"], 2), "rule is a list"),
    "no drafts to compare": (lambda: mo.compare_drafts(ROWS, None, 2), "drafts is a None"),
    "a list of drafts": (lambda: mo.compare_drafts(ROWS, [ROWS] * 2, 2), "drafts is a list"),
    "numbers for names": (lambda: mo.compare_drafts(ROWS, {1: ROWS, 2: ROWS}, 2), "drafts is"),
    "unknown costs": (
        lambda: mo.compare_drafts(ROWS, {"a": ROWS, "b": ROWS}, 2, costs={"x": 1}), "costs has"),
    "no schemes to relax": (
        lambda: mo.relaxed_rates(ROWS, ROWS, 2, None, kl=0.1), "drafts is None"),
    "no schemes": (lambda: mo.advise(ROWS, ROWS, schemes=None), "schemes is None"),
    "no prompts": (lambda: corpora.read_prompts(None), "path is None"),
    "no log": (lambda: formats.summary(None), "path is None"),
    "drafted in words": (lambda: mo.advise_from_counts(1, "x", depth=3), "drafted is 'x'"),
    "sequence beside totals": (
        lambda: mo.advise_from_counts(10, 30, depth=3, sequence="rubbish"), "sequence goes with"),
    "truth in words": (
        lambda: mo.acceptance_rates(ROWS, ROWS, 2, mask_draft="False"), "mask_draft is 'False'"),
    "progress in words": (
        lambda: mo.acceptance_rates(ROWS, ROWS, 2, progress="no"), "progress is 'no'"),
    "a uniform of one": (
        lambda: batch.verify_batch(ROWS, ROWS, [[0], [1]], uniforms=np.ones((2, 4))), "a 1.0"),
    "a uniform of nan": (
        lambda: batch.verify_batch(ROWS, ROWS, [[0], [1]], uniforms=np.full((2, 4), np.nan)),
        "a nan"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_known_rubbish_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(MdsdError, match=message):
        call()
