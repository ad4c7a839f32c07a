"""Costs by batch, rows and context: as tables, and as files."""

from __future__ import annotations

import json

import pytest

import mdsd_opt as mo
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.planning import StepCosts, read_costs
from mdsd_opt.planning.costs import MeasuredCosts, Pass
from mdsd_opt.trees import chain


def test_costs_by_batch_lie_on_lines():
    costs = StepCosts({1: 20.0, 9: 28.0}, {1: 2.0, 9: 4.0})
    assert costs.plain() == 20.0
    assert costs.draft_pass() == 2.0
    five = StepCosts({1: 20.0, 9: 28.0}, {1: 2.0, 9: 4.0}, batch_size=5)
    assert (five.plain(), five.draft_pass()) == (24.0, 3.0)
    # rows that are not known are those of plain decoding at such a batch
    assert StepCosts({1: 20.0, 9: 28.0}, 1.0).step(chain(4)) == 24.0 + 4.0
    assert StepCosts({1: 20.0}, lambda batch: 0.5 * batch, {8: 27.0}, batch_size=2).step(
        chain(3)
    ) == pytest.approx(27.0 + 3.0)
    assert StepCosts({4: 20.0}, 1.0).plain() == 20.0  # no line goes on below what was measured


def test_means_of_lengths_lie_between_them():
    costs = StepCosts(20.0, 2.0, {1: 20.0, 2: 21.0, 3: 24.0})
    assert costs.drafted(1.5) == (costs.drafted(1) + costs.drafted(2)) / 2


def test_what_is_taken_for_granted_is_known():
    assert StepCosts(20.0, 2.0).conditions == ("rows are free",)
    assert StepCosts({1: 20.0, 64: 30.0}, 2.0).conditions == ()
    told = StepCosts({1: 20.0, 64: 30.0}, 2.0, batch_size=8).conditions
    assert told == ("a draft pass for 8 texts takes 2 ms as well",)
    assert StepCosts({1: 20.0, 64: 30.0}, {8: 2.0}, batch_size=8).conditions == ()
    assert StepCosts({1: 20.0, 64: 30.0}, {1: 2.0}, batch_size=8).conditions == told
    assert StepCosts({1: 20.0, 64: 30.0}, 0.0, batch_size=8).conditions == ()


def some_costs():
    target = [
        *(Pass(b, r, c, 10.0 + 0.1 * b * r + 0.01 * c) for b in (1, 8) for r in (1, 4)
          for c in (100, 500)),
    ]  # fmt: skip
    draft = [Pass(b, 1, c, 1.0 + 0.1 * b) for b in (1, 8) for c in (100, 500)]
    return MeasuredCosts(tuple(target), tuple(draft), {"machine": "a test"})


def test_a_file_of_costs_comes_back(tmp_path):
    path = tmp_path / "costs.json"
    some_costs().save(path)
    found = read_costs(path)
    assert found == some_costs()
    here = found.at(batch=8, context=300)
    assert here.plain() == pytest.approx(10.0 + 0.8 + 3.0)
    assert here.target_pass(32) == pytest.approx(10.0 + 3.2 + 3.0)
    assert here.draft_pass() == pytest.approx(1.8)
    assert here.conditions == ()
    alone = MeasuredCosts(found.of_target, (), {}).at(context=100)
    assert alone.draft_pass() == 0.0
    assert alone.draft_passes == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "else"}, "is no file of costs"),
        ({"target": []}, "no passes of the target"),
        ({"target": 5}, "is no list of passes"),
        ({"draft": [5]}, "pass 1 of .*draft is 5"),
        ({"draft": [{"batch": 0, "ms": 1}]}, "batch, rows and context must be integers"),
        ({"draft": [{"batch": 1, "ms": -1}]}, "ms is -1, not milliseconds"),
        ({"draft": [{"batch": 1}]}, "ms is None"),
    ],
)
def test_files_that_are_no_costs(tmp_path, change, told):
    path = tmp_path / "costs.json"
    some_costs().save(path)
    document = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps(document))
    with pytest.raises(UnreadableFile, match=told):
        read_costs(path)


def test_costs_of_a_busy_machine_are_refused():
    busy = (Pass(1, 1, 64, 143.7), Pass(1, 4, 64, 2623.8), Pass(1, 8, 64, 241.5))
    with pytest.raises(InvalidInput, match=r"8 rows of 1 texts takes 241.5 ms.*busy"):
        MeasuredCosts(busy, (), {}).at()
    kernels = (Pass(1, 3, 64, 2.55), Pass(1, 4, 64, 1.91), Pass(1, 1, 64, 1.14))
    assert MeasuredCosts(kernels, (), {}).at().target_pass(4) == 1.91


def test_contexts_are_named():
    with pytest.raises(InvalidInput, match="of contexts 100, 500: say which"):
        some_costs().at()
    with pytest.raises(InvalidInput, match="measured from 100 to 500"):
        some_costs().at(context=501)


def test_measured_costs_give_advice(tmp_path):
    costs = some_costs().at(batch=1, context=100)
    advice = mo.advise_from_counts(
        by_position=([720, 500, 340], 1000),
        target_ms=costs.target_ms,
        draft_ms=costs.draft_ms,
        rows_ms=costs.rows_ms,
    )
    assert advice.worth_it is True
