"""Whole texts have the target's law, and no more could be accepted: by the audit of trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.served_trees import verifier_of

import mdsd_opt as mo
from mdsd_opt import verifiers
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import Topology
from mdsd_opt.serving import verify_tree
from mdsd_opt.serving.arguments import TreeArguments


def always(*weights: float) -> Callable[[Any], Any]:
    """A model with one law after all texts."""
    law = np.array(weights) / sum(weights)
    return lambda text: law


def audit(
    operation: Any, scheme: str, tree: str | Topology, target: Any, draft: Any, num_drawn: int = 1
) -> Any:
    return mo.audit_tree(
        verifier_of(operation, num_drawn), target, draft, tree, 0, scheme=scheme, method="driven",
        driven_checks=2, num_trials=300, seconds=600,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "target", "draft"),
    [
        ("greedy", TableModel(3, 1), TableModel(3, 101)),
        ("greedy", always(1, 0, 3), always(0, 1, 1)),
        ("greedy", always(1, 2, 3), always(1, 0, 0)),
        ("top_k", TableModel(3, 1), TableModel(3, 101)),
    ],
)
def test_one_level_is_lossless_and_accepts_all_that_can_be(
    scheme: str, target: Any, draft: Any
) -> None:
    report = audit(verify_tree, scheme, "2x1", target, draft)
    assert report.verdict_class == "lossless", report.verdict
    assert report.total_variation < 1e-6
    assert report.accept_length == pytest.approx(report.optimal_accept_length, abs=1e-6)


def test_certain_and_drawn_children_may_be_mixed() -> None:
    tree = Topology({(): 2, (0,): 1}, "mixed")
    report = audit(verify_tree, "greedy", tree, TableModel(3, 1), TableModel(3, 101))
    assert report.verdict_class == "lossless", report.verdict
    assert report.total_variation < 1e-6


def test_draws_without_replacement_may_count_as_certain_but_for_the_last() -> None:
    models = TableModel(3, 1), TableModel(3, 101)
    report = audit(verify_tree, "without_replacement", "2x1", *models)
    assert report.verdict_class == "lossless", report.verdict
    assert report.total_variation < 1e-6


def test_draws_without_replacement_may_be_tried_in_turn() -> None:
    models = TableModel(3, 1), TableModel(3, 101)
    report = audit(verify_tree, "without_replacement", "2x1", *models, num_drawn=2)
    assert report.verdict_class == "lossless", report.verdict
    assert report.total_variation < 1e-6
    p, q = (model(()) for model in models)
    rrs = verifiers.get("rrs").acceptance_rate(mo.TransportProblem(p, mo.WithoutReplacement(q, 2)))
    assert report.accept_length == pytest.approx(1 + float(rrs), abs=1e-6)


def test_the_kernel_is_lossless(monkeypatch: pytest.MonkeyPatch) -> None:
    triton_walk = pytest.importorskip("mdsd_opt.serving.triton_walk", reason="needs triton")
    # Two tokens leave something unmet; on wider laws an interpreted kernel would take minutes.
    monkeypatch.setattr("mdsd_opt.auditing.trees._beside", lambda report, *_: report)

    def by_kernel(*tensors: Any) -> None:
        triton_walk.walk(TreeArguments(*tensors).checked())

    report = audit(by_kernel, "with_replacement", "chain1", TableModel(2, 1), TableModel(2, 101))
    assert report.verdict_class == "lossless", report.verdict
    assert report.total_variation < 1e-6
    assert report.accept_length == pytest.approx(report.optimal_accept_length, abs=1e-6)


def test_a_wrong_residual_is_caught() -> None:
    def halved(*tensors: Any) -> None:
        verify_tree(*tensors[:-1], 0.5 * tensors[-1])

    report = audit(halved, "greedy", "2x1", TableModel(3, 1), TableModel(3, 101))
    assert report.verdict_class == "lossy", report.verdict
