"""Whole texts: what rules that accept several drafts at once make of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from support.moved_clock import Clock, moved_clock  # noqa: F401
from support.tables import Table, target_law
from support.tables import trees as oracle_trees
from support.text_sessions import by_alias
from support.tree_rules import accepts_all, block, chain, drawn

import mdsd_opt as mo
from mdsd_opt.auditing import trees
from mdsd_opt.auditing.laws import ModelLaws, Texts, drawn_trees
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import Node, get_rule, parse_topology
from mdsd_opt.drafts import scheme_maker
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName


def tables(vocab_size: int, seed: int = 0) -> tuple[TableModel, TableModel]:
    return TableModel(vocab_size, 2 * seed), TableModel(vocab_size, 2 * seed + 1)


def exact(verify: Any, vocab_size: int, tree: str, seed: int = 0, **options: Any) -> Any:
    """A driven audit; of what it samples beside, on wider laws, little is enough."""
    options = {"num_trials": 1_000} | options
    return mo.audit_tree(verify, *tables(vocab_size, seed), tree, 0, method="driven", **options)


LOSSLESS = {
    "chain": chain(),
    "block": block(),
    "block_verification": get_rule("block_verification").verify,
}


@cache
def of_lossless(name: str, vocab_size: int, tree: str) -> Any:
    return exact(LOSSLESS[name], vocab_size, tree, driven_checks=30)


@pytest.mark.parametrize(("vocab_size", "tree"), [(3, "chain2"), (2, "chain3"), (3, "chain1")])
@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_rules_pass(name: str, vocab_size: int, tree: str) -> None:
    report = of_lossless(name, vocab_size, tree)
    assert report.clean, report.verdict
    assert report.method == "driven"
    assert report.total_variation < 1e-12
    assert report.accept_length <= report.optimal_accept_length + 1e-9
    assert report.num_trees == vocab_size ** int(tree[5:])
    assert report.num_checks >= 30 * report.num_trees
    assert f"exact up to {report.num_checks:,} random checks" in report.verdict


def test_block_verification_is_the_optimum_of_a_chain() -> None:
    block_report, token_report = (of_lossless(name, 3, "chain2") for name in ("block", "chain"))
    assert block_report.accept_length == pytest.approx(block_report.optimal_accept_length, abs=1e-6)
    assert token_report.accept_length < block_report.accept_length - 1e-3


@pytest.mark.parametrize(
    ("rule", "tree"), [("traversal", "2x2"), ("level_sequential", "2x1"), ("rrs", "2x1")]
)
def test_rules_for_trees_pass(rule: str, tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_WIDER_CALLS", 1_000)  # driving V = 5 as well takes all it may
    report = exact(get_rule(rule).verify, 2, tree, driven_checks=5)
    assert report.clean, report.verdict
    assert report.total_variation < 1e-12


#: Tables whose residuals after an accepted draft hold several tokens; else their scale is hidden.
TELLING = 3

BLIND = {
    "token residual": block(residual="token"),
    "ratio not capped": block(capped=False),
    "wrong row": chain(wrong_row=True),
}
SEEN = {
    "p and q swapped": chain(swapped=True),
    "target resampled": chain(left=lambda p, q: p),
    "ratio for h": block(accept="r"),
}


@pytest.mark.parametrize("name", BLIND)
def test_what_the_first_token_does_not_show_is_caught(name: str) -> None:
    report = exact(BLIND[name], 3, "chain2", TELLING)
    assert not report.clean
    assert report.first_token_variation < 1e-9
    assert report.total_variation > 1e-3
    assert "which its first token does not show" in report.verdict


@pytest.mark.parametrize("name", SEEN)
def test_what_the_first_token_shows_is_caught(name: str) -> None:
    report = exact(SEEN[name], 3, "chain2", TELLING)
    assert not report.clean
    assert report.first_token_variation > 1e-3


def test_two_tokens_hide_a_wrong_scale_and_wider_laws_show_it() -> None:
    report = exact(BLIND["token residual"], 2, "chain2", driven_checks=5)
    assert report.verdict_class == "lossy"
    assert "on random laws with V = 5, tried beside those given" in report.verdict
    blameless = exact(chain(), 2, "chain2", driven_checks=5)
    assert blameless.clean
    assert "take V >= 3" in blameless.verdict
    assert "Never met: a choice after a refusal" in blameless.verdict
    assert "two levels" in of_lossless("chain", 3, "chain1").verdict
    assert exact(chain(), 3, "chain3", driven_checks=5).blind_spots == ()


def test_drafts_from_another_law_than_is_passed_on() -> None:
    """Drawn from the two likeliest tokens, verified with all of q."""
    target, draft = tables(3)

    def filtered(text: Any) -> Any:
        q = draft(text).copy()
        q[np.argmin(q)] = 0
        return q / q.sum()

    def verify(root: Node, rng: np.random.Generator) -> Any:
        for node in root.walk():
            if node.drafts is not None:
                node.drafts = mo.WithReplacement(draft(node.tokens), 1)
        return chain()(root, rng)

    wrong = mo.audit_tree(verify, target, filtered, "chain2", 0)
    right = mo.audit_tree(chain(), target, filtered, "chain2", 0)
    assert right.clean
    assert not wrong.clean
    assert wrong.total_variation > 0.01


def test_accepting_at_zero_is_mass() -> None:
    def target(text: Any) -> Any:
        return np.array([0.6, 0.4, 0.0])

    def draft(text: Any) -> Any:
        return np.array([0.2, 0.3, 0.5])

    report = mo.audit_tree(chain(at_most=True), target, draft, "chain2", 0)
    assert not report.clean
    assert report.total_variation < 1e-12
    shown = " ".join(violation.message for violation in report.violations)
    assert "draw 0 (uniform) equal to 0, once in 2**53 draws gave (2," in shown
    assert "probability" in report.verdict
    assert mo.audit_tree(chain(), target, draft, "chain2", 0).clean


def test_sampling_probes_the_edges() -> None:
    """An accepted impossible draft, which no sample shows, with how often it comes."""

    def target(text: Any) -> Any:
        return np.array([0.6, 0.4, 0.0] if len(text) == 1 else [0.6, 0.2, 0.2])

    def draft(text: Any) -> Any:
        return np.array([0.2, 0.3, 0.5])

    wrong, right, unprobed = (
        mo.audit_tree(
            chain(at_most=at_most), target, draft, "chain2", 0, 400,
            method="sampling", edge_probes=edge_probes,
        )
        for at_most, edge_probes in ((True, 512), (False, 512), (True, 0))
    )  # fmt: skip
    assert not wrong.clean
    assert wrong.num_violations == 0
    assert wrong.p_value > 1e-6
    assert "draw 1 (uniform) equal to 0, once in 2**53 draws, gave (" in wrong.verdict
    assert "which has probability zero" in wrong.verdict
    assert right.clean
    assert 0 < right.num_edge_probes <= 512
    assert "none wrong" in str(right)
    assert unprobed.clean
    assert unprobed.num_edge_probes == 0
    assert "not probed" in str(unprobed)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((), "gave no token"),
        (7, "no sequence"),
        ((0, 0, 0, 0), "no path of its drafts"),
        ((0.5,), "no integer"),
        ((3,), "outside 0..2"),
    ],
)
def test_wrong_answers_are_outcomes_with_their_mass(answer: Any, message: str) -> None:
    def verify(root: Node, rng: np.random.Generator) -> Any:
        return answer if rng.random() < 0.25 else chain()(root, rng)

    for method in ("driven", "sampling"):
        target, draft = tables(3)
        report = mo.audit_tree(verify, target, draft, "chain2", 0, 500, method=method)
        assert not report.clean
        assert message in report.violations[0].message
        if method == "driven":
            assert report.total_variation == pytest.approx(0.25, abs=1e-9)
            assert "probability 0.25 given these drafts" in report.violations[0].message
    with pytest.raises(InvalidInput, match=message):
        exact(lambda root, rng: answer, 3, "chain2")
    with pytest.raises(InvalidInput, match=f"fails on every call: it gave .*{message}|{message}"):
        mo.audit_tree(lambda root, rng: answer, *tables(3), "chain2", 0, method="sampling")


@pytest.mark.parametrize("verify", [chain(), block()])
def test_sampling_passes_what_is_lossless(verify: Any) -> None:
    """False alarm: below 1e-6."""
    report = mo.audit_tree(verify, *tables(4), "chain3", 0, 3_000, method="sampling")
    assert report.clean, report.verdict
    assert report.num_trials == 3_000
    assert report.p_value > 1e-6
    assert 0 < report.detectable_bias < 1
    assert "3,000 steps" in report.verdict


def test_sampling_finds_what_is_large_enough() -> None:
    wrong = chain(wrong_row=True)
    exactly = exact(wrong, 3, "chain2")
    report = mo.audit_tree(wrong, *tables(3), "chain2", 1, 20_000, method="sampling")
    assert exactly.total_variation > report.detectable_bias
    assert not report.clean
    assert report.total_variation == pytest.approx(exactly.total_variation, abs=0.02)


def test_false_alarms_of_sampling_come_as_rarely_as_stated() -> None:
    alarms = sum(
        not mo.audit_tree(
            chain(), *tables(3), "chain2", seed, 100,
            method="sampling", false_alarm=0.05, edge_probes=0,
        ).clean
        for seed in range(50)
    )  # fmt: skip
    assert alarms <= 10  # Pr(more | 5.5 %) < 1e-4


def test_more_accepted_than_the_optimum_is_a_check_of_its_own() -> None:
    report = mo.audit_tree(accepts_all, *tables(3), "chain2", 0, 2_000, method="sampling")
    assert not report.clean
    checks = {check.name: check.p_value for check in report.checks}
    assert checks["accept length"] < 1e-6
    assert report.accept_length == 3.0


def test_many_trees_are_sampled(clock: Clock) -> None:
    verify = get_rule("traversal").verify
    for method in ("auto", "driven"):
        report = mo.audit_tree(verify, *tables(3), "2x2", 0, 300, method=method)
        assert report.method == "sampling"
        assert report.verdict_class == "no deviation"
        assert report.notes == ("not driven: there are more than 100 trees of drafts (max_trees)",)
        assert report.num_trials == 300
        assert report.num_checks is None
        assert not report.lossless
    slow = clock.slow(verify, 0.1)
    stopped = mo.audit_tree(slow, *tables(3), "2x2", 0, 10**6, seconds=30)
    assert 299 <= stopped.num_trials <= 301


def test_what_cannot_be_driven_is_sampled() -> None:
    def verify(root: Node, rng: np.random.Generator) -> Any:
        p = root.target
        return [int(rng.choice(p.size, p=p)) if rng.integers(2) else drawn(p, rng)]

    for method in ("auto", "driven"):
        report = mo.audit_tree(verify, *tables(3), "chain2", 0, 500, method=method)
        assert report.method == "sampling"
        assert report.verdict_class == "no deviation"
        assert "Never met: an accepted draft" in report.verdict
        assert len(report.notes) == 1
        assert report.notes[0].startswith("not driven, and sampled: ")
        assert "raw bits" in report.notes[0]
    sampled = mo.audit_tree(verify, *tables(3), "chain2", 0, 500, method="sampling")
    assert sampled.notes == ()  # it does what it was asked for


@pytest.mark.parametrize("tree", ["2x2", "chain3", "3x1"])
@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "top_k"])
def test_trees_are_those_of_the_oracle(tree: str, scheme: str) -> None:
    rng = np.random.default_rng(0)
    target, draft = Table(rng, 3, 4), Table(rng, 3, 4)
    topology = parse_topology(tree)

    def key(root: Node) -> Any:
        return tuple(
            (node.tokens, tuple(node.draws.tolist()), tuple(node.values.tolist()))
            for node in root.walk()
        )

    found = drawn_trees(
        ModelLaws(target, "target"), ModelLaws(draft, "draft"), topology, scheme_maker(scheme)
    )
    ours = {key(root): probability for root, probability in found}
    theirs: dict[Any, float] = {}
    for root, probability in oracle_trees(draft, topology, scheme):
        theirs[key(root)] = theirs.get(key(root), 0.0) + probability
    assert ours.keys() == theirs.keys()
    assert sum(ours.values()) == pytest.approx(1)
    for tree_key, probability in ours.items():
        assert probability == pytest.approx(theirs[tree_key])


def test_texts_follow_the_target() -> None:
    target = Table(np.random.default_rng(0), 3, 4)
    texts = Texts(ModelLaws(target, "target"), 3)
    np.testing.assert_allclose(texts.law, target_law(target, 3).ravel(), atol=1e-15)
    assert [texts.text(n) for n in range(texts.law.size)] == list(np.ndindex(3, 3, 3))
    assert texts.place((1, 2)) == slice(15, 18)
    rng = np.random.default_rng(1)
    counts = np.bincount([texts.completed((1,), rng) for _ in range(4_000)], minlength=27)
    np.testing.assert_allclose(counts[9:18] / 4_000, texts.rest((1,)), atol=0.04)
    assert counts[9:18].sum() == 4_000


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"verify": 3}, InvalidInput, "verify is 3"),
        ({"target": 3}, InvalidInput, "target is 3"),
        ({"target": lambda text: [0.5, 0.6]}, ValueError, "target after"),
        (
            {"draft": lambda text: np.full(3 + len(text), 1 / (3 + len(text)))},
            ValueError,
            "gives 4",
        ),
        ({"tree": "dynamic8"}, InvalidInput, "give a fixed one"),
        ({"tree": "chain40"}, ProblemTooLarge, "texts"),
        ({"method": "enumeration"}, UnknownName, "driven"),
        ({"scheme": "other"}, UnknownName, "draft scheme"),
    ],
)
def test_arguments_are_validated(arguments: dict[str, Any], error: Any, message: str) -> None:
    target, draft = tables(3)
    given: dict[str, Any] = {
        "verify": chain(), "target": target, "draft": draft, "tree": "chain2", "rng": 0,
    }  # fmt: skip
    with pytest.raises(error, match=message):
        mo.audit_tree(**given | arguments)


def likeliest_drafts(*, temperature: float, bonus_forgets: bool) -> Any:
    """Children that are certain, tried one after the other; a path accepted whole gets one more.

    So trees of the likeliest tokens are verified in several engines. `bonus_forgets`: that last
    token is drawn at temperature 1, whatever the temperature of the others is.
    """

    def verify(root: Node, rng: np.random.Generator) -> list[int]:
        node, tokens = root, []
        while node.children:
            p = node.target.copy()
            for x in node.draws.tolist():
                if rng.random() * p.sum() < p[x]:
                    break
                p[x] = 0.0
            else:
                return [*tokens, drawn(p, rng)]
            tokens.append(x)
            node = node.children[x]
        return [*tokens, drawn(node.target**temperature if bonus_forgets else node.target, rng)]

    return verify


def test_a_last_token_at_another_temperature_shows_in_the_text_alone() -> None:
    for forgets, expected in ((False, 0.0), (True, 0.05)):
        verify = likeliest_drafts(temperature=0.5, bonus_forgets=forgets)
        report = exact(verify, 3, "2x1", TELLING, scheme="top_k", driven_checks=20)
        assert report.verdict_class == ("lossy" if forgets else "lossless"), report.verdict
        assert report.total_variation >= expected
        assert report.first_token_variation < 1e-12
    # no rule accepts more of certain drafts
    assert report.accept_length == pytest.approx(report.optimal_accept_length, abs=1e-6)


def test_a_gap_of_the_driving_is_no_fault() -> None:
    """Some steps of Walker's table are narrower than the points at which a number is tried."""

    def from_table(root: Any, rng: np.random.Generator) -> list[int]:
        return [by_alias(root.target, rng.random())]

    models = TableModel(4, 0, 0.5), TableModel(4, 100)
    few: dict[str, Any] = {"driven_checks": 20, "num_trials": 2_000}
    report = mo.audit_tree(from_table, *models, "chain1", rng=0, **few)
    assert report.verdict_class == "lossless"
    assert report.num_checks > 400  # 20 for each of 16 trees would have missed the steps
    stopped = mo.audit_tree(from_table, *models, "chain1", rng=0, max_calls=2_000, **few)
    assert (stopped.verdict_class, stopped.answer()) == ("not settled", "NOT SETTLED")
    assert 1e-6 < stopped.total_variation < 0.05
    assert "may be a gap of the driving" in stopped.verdict


def test_a_fault_within_a_gap_of_the_driving_is_settled_by_more_checks() -> None:
    def seldom_zero(root: Any, rng: np.random.Generator) -> list[int]:
        return [0 if rng.random() < 0.004 else by_alias(root.target, rng.random())]

    models = TableModel(4, 0, 0.5), TableModel(4, 100)
    report = mo.audit_tree(seldom_zero, *models, "chain1", rng=0, driven_checks=20)
    assert (report.verdict_class, report.method) == ("lossy", "driven")
    assert report.total_variation == pytest.approx(0.004 * (1 - models[0](())[0]), rel=1e-3)
