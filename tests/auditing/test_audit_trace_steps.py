"""Recorded steps that give several tokens, of chains and of trees."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.tree_rules import accepts_all, block, chain

import mdsd_opt as mo
from mdsd_opt.auditing import load_trace
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import get_rule, parse_topology
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.trees import Topology, set_targets, valued
from mdsd_opt.trees import drawn as drawn_tree

V, STEPS = 5, 800


class Laws:
    """Laws that differ from step to step, as the contexts of an engine do."""

    def __init__(self, step: int) -> None:
        self.target, self.draft = cache(TableModel(V, 2 * step)), cache(TableModel(V, 2 * step + 1))

    def drafted(self, texts: Any) -> Any:
        return np.stack([self.draft(tuple(text)) for text in texts])


def record(verify: Any, tree: str, steps: int, seed: int = 0) -> dict[str, Any]:
    """What an engine would have written down: a row for the root and for each draft."""
    topology = parse_topology(tree)
    assert isinstance(topology, Topology)
    shape, make = valued(topology), scheme_maker("with_replacement")
    rng = np.random.default_rng(seed)
    hung = [(*place, k) for place, count in topology.num_drafts.items() for k in range(count)]
    places = sorted(hung, key=lambda place: (len(place), place))
    parents = [0 if len(place) == 1 else 1 + places.index(place[:-1]) for place in places]
    target, draft = np.empty((2, steps, len(places) + 1, V))
    drafts = np.full((steps, len(places)), -1)
    tokens = np.full((steps, topology.depth + 1), -1)
    for n in range(steps):
        laws = Laws(1_000 * seed + n)
        root = drawn_tree(laws.drafted, shape, make, rng)
        set_targets(root, laws.target)
        texts: dict[tuple[int, ...], tuple[int, ...]] = {(): ()}
        by_text = {node.tokens: node for node in root.walk()}
        for i, place in enumerate(places):
            node = by_text[texts[place[:-1]]]
            if node.place == place[:-1]:  # not one that coincides with an earlier one
                drafts[n, i] = node.draws[place[-1]]
                texts[place] = (*node.tokens, int(drafts[n, i]))
            else:
                texts[place] = node.tokens
        for i, place in enumerate([(), *places]):
            target[n, i], draft[n, i] = laws.target(texts[place]), laws.draft(texts[place])
        answer = verify(root, rng)
        given = list(getattr(answer, "tokens", answer))
        tokens[n, : len(given)] = given
    return {
        "target": target, "draft_law": draft, "drafts": drafts, "tokens": tokens,
        "parents": parents,
    }  # fmt: skip


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    return record(block(), "chain3", STEPS)


def test_a_lossless_chain_passes_at_its_optimum(right: dict[str, Any]) -> None:
    report = mo.audit_trace(**right)
    assert report.faultless, report.verdict
    assert report.num_trials == STEPS
    assert report.accept_length is not None
    assert report.accept_length == pytest.approx((right["tokens"] >= 0).sum() / STEPS)
    assert report.accept_length == pytest.approx(report.optimal_accept_length, abs=0.12)
    assert 0 < report.detectable_bias < 0.3
    assert "tokens a step at the optimum" in str(report)
    json.dumps(report.to_dict(), allow_nan=False)
    without_parents = {k: v for k, v in right.items() if k != "parents"}
    assert mo.audit_trace(**without_parents).p_value == report.p_value


@pytest.mark.parametrize("tree", ["chain2", "chain3"])
def test_what_goes_wrong_after_the_first_token_is_found(tree: str) -> None:
    """The row of logits before the right one, which the first tokens do not show."""
    trace = record(chain(wrong_row=True), tree, 900)
    report = mo.audit_trace(**trace)
    assert not report.clean, report.verdict
    assert report.drafts_follow_law
    first = {k: v[:, 0] for k, v in trace.items() if k in ("target", "draft_law", "tokens")}
    assert mo.audit_trace(**first, drafts=trace["drafts"][:, :1]).clean


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
def test_one_token_a_step_is_a_tree_of_depth_one(scheme: str) -> None:
    """What is said of the first tokens of deeper trees is said of it."""
    trace = record(get_rule("rrs").verify, "3x1", 300)
    roots = {k: v[:, 0] for k, v in trace.items() if k in ("target", "draft_law", "tokens")}
    first = mo.audit_trace(**roots, drafts=trace["drafts"], scheme=scheme)
    whole = mo.audit_trace(**trace, scheme=scheme)
    assert {check.name for check in first.checks} == {check.name for check in whole.checks}
    for what in ("tokens", "acceptance_rate", "optimal_acceptance_rate", "violations"):
        assert getattr(first, what) == getattr(whole, what), what
    assert first.accept_length is None
    assert whole.accept_length > 1


def test_more_than_the_optimum_is_found() -> None:
    report = mo.audit_trace(**record(accepts_all, "chain3", 400))
    checks = {check.name: check.p_value for check in report.checks}
    assert checks["accept length"] < 1e-12
    assert not report.clean
    assert report.accept_length == 4.0


def test_trees_pass_and_their_mistakes_are_found() -> None:
    trace = record(get_rule("traversal").verify, "2x2", 500)
    report = mo.audit_trace(**trace)
    assert report.faultless, report.verdict
    assert report.optimal_accept_length is None
    last = trace["tokens"].copy()
    rows = np.flatnonzero(last[:, 2] >= 0)
    last[rows, 2] = trace["drafts"][rows, 0]
    assert not mo.audit_trace(**trace | {"tokens": last}).clean
    report = mo.audit_trace(**trace | {"draft_law": trace["target"]})
    assert report.clean
    assert not report.drafts_follow_law


def test_without_drafts_the_tokens_are_still_tested(right: dict[str, Any]) -> None:
    size = len(right["tokens"])
    bare = {"draft_law": None, "drafts": np.empty((size, 0), int)}
    trace = {k: v for k, v in right.items() if k != "parents"} | bare
    report = mo.audit_trace(**trace)
    assert report.clean
    assert report.drafts_follow_law is None
    assert report.optimal_accept_length is None
    assert not mo.audit_trace(**trace | {"target": right["draft_law"]}).clean


def test_drafts_below_the_root_are_tested(right: dict[str, Any]) -> None:
    law = right["draft_law"].copy()
    law[:, 2] = law[:, 0]
    report = mo.audit_trace(**right | {"draft_law": law})
    assert report.clean
    assert not report.drafts_follow_law


def test_impossible_tokens_and_paths_are_enough(right: dict[str, Any]) -> None:
    n = int(np.flatnonzero(right["tokens"][:, 1] >= 0)[0])
    target = right["target"].copy()
    token = right["tokens"][n, 1]
    target[n, 1, token] = 0
    target[n, 1] /= target[n, 1].sum()
    report = mo.audit_trace(**right | {"target": target})
    assert report.p_value == 0.0
    assert f"step {n}: token {token} came out in place 1" in report.verdict
    tokens = right["tokens"].copy()
    tokens[n, 0] = (tokens[n, 0] + 1) % V
    report = mo.audit_trace(**right | {"tokens": tokens})
    assert "no path of its drafts" in report.verdict


def test_false_alarms_come_as_rarely_as_stated() -> None:
    alarms = 0
    for seed in range(1, 51):
        trace = record(block() if seed % 2 else chain(), "chain2", 30, seed)
        alarms += not mo.audit_trace(**trace, false_alarm=0.05, rng=seed).faultless
    assert alarms <= 10  # Pr(more | 5 %) < 1e-4


def test_the_optimum_is_what_block_verification_accepts() -> None:
    """Of many chains under one law; .022 less than the overlap of the laws of the tokens."""
    target, draft = cache(TableModel(3, 6)), cache(TableModel(3, 7))
    exact = mo.audit_tree(block(), target, draft, "chain2", 0, driven_checks=1)
    rng = np.random.default_rng(0)
    rows, laws, drafts = [], [], []
    for _ in range(3_000):
        x = int(rng.choice(3, p=draft(())))
        y = int(rng.choice(3, p=draft((x,))))
        drafts.append((x, y))
        rows.append([target(text) for text in ((), (x,), (x, y))])
        laws.append([draft(text) for text in ((), (x,), (x, y))])
    tokens = [[token, -1, -1] for token in rng.choice(3, 3_000, p=target(())).tolist()]
    report = mo.audit_trace(np.array(rows), np.array(laws), drafts, tokens)
    assert report.optimal_accept_length == pytest.approx(exact.accept_length, abs=0.015)


def test_files_hold_several_tokens_a_step(right: dict[str, Any], tmp_path: Any) -> None:
    trace = {k: v[:50] for k, v in right.items() if k != "parents"}
    named = {"draft" if k == "draft_law" else k: v for k, v in trace.items()}
    file = tmp_path / "steps.npz"
    np.savez(file, parents=[0, 1, 2], **named)
    t = load_trace(file)
    read = mo.audit_trace(t.target, t.draft, t.drafts, t.tokens, **t.options)
    assert read.p_value == mo.audit_trace(**trace).p_value
    assert not t.holds_logits
    np.savez(file, parents=[[0, 1, 2]], **named)
    with pytest.raises(UnreadableFile, match="parents has shape"):
        load_trace(file)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"parents": [0, 0]}, "the node of each of the 3 drafts"),
        ({"parents": [0, 2, 1]}, "which comes first"),
        ({"drafts": np.zeros((4, 2), int)}, "target has 4 rows a step"),
        ({"draft_law": np.ones((4, 3, V)) / V}, "of the shape of the target"),
        ({"draft_law": [mo.TopKDrafts([0.5, 0.5], 1)] * 4}, "of the shape of the target"),
        ({"tokens": np.zeros(4, int)}, "the accepted drafts of each of the 4 steps"),
        ({"tokens": np.zeros((4, 5), int)}, "up to 4, padded"),
        ({"tokens": [[0, -1, 0, -1]] * 4}, "step 0: tokens .* have -1 before a token"),
        ({"tokens": [[-1, -1, -1, -1]] * 4}, "after one token at least"),
        ({"tokens": [[7, -1, -1, -1]] * 4}, "token 7 lies outside"),
        ({"target": np.ones((4, V)) / V}, "parents say where drafts hang"),
        ({"target": np.ones((4, 0, V))}, "nothing to audit"),
    ],
)
def test_arguments_are_validated(changed: dict[str, Any], message: str) -> None:
    law, drafts = np.full((4, 4, V), 1 / V), np.array([[0, 3, 1], [4, 2, 2], [1, 0, 4], [3, 1, 0]])
    given = {
        "target": law, "draft_law": law, "drafts": drafts,
        "tokens": np.hstack([drafts, [[2], [0], [3], [4]]]), "parents": [0, 1, 2],
    }  # fmt: skip
    assert mo.audit_trace(**given).clean
    with pytest.raises(InvalidInput, match=message):
        mo.audit_trace(**given | changed)
