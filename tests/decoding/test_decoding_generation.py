"""Decoding step after step: the output follows the target, and the metrics add up."""

from __future__ import annotations

import numpy as np
import pytest
from support.chi_square import p_value
from support.tables import Table, target_law

from mdsd_opt.decoding import (
    Accepted,
    DynamicTree,
    Metrics,
    TreeRule,
    compared_rules,
    generate,
    generate_batch,
    get_rule,
    grow_by_acceptance,
    rule_names,
    tree_logits,
    warm_up,
)
from mdsd_opt.errors import InvalidInput, UnknownName

#: Texts that are enough to tell the draft's law from the target's.
TEXTS = 1000
RULES = ("traversal", "traversal_hull", "level_sequential", "optimal", "rrs")


def logits_of(table):
    """The table as a model: its law depends on the last three tokens after the first."""
    return lambda ids: np.log(table(ids[1:][-3:]))


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    draft = Table(rng, 3, 3)
    return Table(rng, 3, 3, near=draft), draft


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("tree", "scheme"),
    [
        ("2x2", "with_replacement"),
        ("2x2", "without_replacement"),
        (DynamicTree(6, 2, 3), "with_replacement"),
    ],
    ids=["with_replacement", "without_replacement", "dynamic"],
)
def test_the_output_follows_the_target(pair, rule, tree, scheme):
    target, draft = pair
    rng = np.random.default_rng(1)
    options = {"tree": tree, "scheme": scheme, "rule": rule, "max_new_tokens": 3, "rng": rng}
    outputs = [
        generate(logits_of(target), logits_of(draft), [0], **options).tokens for _ in range(TEXTS)
    ]
    law = dict(np.ndenumerate(target_law(target, 3)))
    assert p_value(outputs, law) > 1e-6


def test_the_test_of_the_output_rejects_another_target(pair):
    target, draft = pair
    rng = np.random.default_rng(1)
    outputs = [
        generate(logits_of(draft), logits_of(draft), [0], tree="2x2", max_new_tokens=3, rng=rng)
        for _ in range(TEXTS)
    ]
    law = dict(np.ndenumerate(target_law(target, 3)))
    assert p_value([output.tokens for output in outputs], law) < 1e-6


def test_metrics_add_up(pair):
    target, draft = pair
    told = []
    output = generate(
        logits_of(target), logits_of(draft), [0], tree="2x3", max_new_tokens=40, rng=2,
        on_step=lambda tokens, metrics: told.append((tokens, metrics)),
    )  # fmt: skip
    metrics = output.metrics
    assert len(output.tokens) == metrics.num_tokens == 40
    assert sum(len(tokens) for tokens, _ in told) == 40
    assert metrics.num_steps == len(told)
    assert metrics.accept_length == pytest.approx(40 / metrics.num_steps)
    assert 0.0 <= metrics.first_token_acceptance_rate <= 1.0
    assert 0.0 < metrics.verify_share < 1.0
    assert (metrics + metrics).num_tokens == 80
    assert metrics.to_dict()["num_steps"] == metrics.num_steps
    assert Metrics().to_dict()["accept_length"] is None


def test_a_draft_equal_to_the_target_is_always_accepted(pair):
    target, _ = pair
    for rule in ("traversal_hull", "level_sequential", "traversal", "optimal"):
        output = generate(
            logits_of(target), logits_of(target), [0], tree="chain3", rule=rule,
            max_new_tokens=24, rng=3,
        )  # fmt: skip
        assert output.metrics.accept_length == 4.0


def test_it_ends_at_stop_tokens_and_at_the_limit(pair):
    target, draft = pair
    output = generate(logits_of(target), logits_of(draft), [0], stop_tokens={2}, rng=4)
    assert output.tokens.index(2) == len(output.tokens) - 1
    assert generate(logits_of(target), logits_of(draft), [0], max_new_tokens=0).tokens == ()
    one = generate(logits_of(target), logits_of(draft), [0], max_new_tokens=1, rng=0)
    assert len(one.tokens) == 1


def test_a_batch_is_its_prompts_one_after_another(pair):
    target, draft = (logits_of(table) for table in pair)
    prompts, told = [[0], [0, 1], [0, 2, 1]], []
    options = {"tree": "2x2", "max_new_tokens": 12, "stop_tokens": {2}}
    outputs = list(generate_batch(
        target, draft, prompts, rng=5, on_step=lambda n, tokens, _: told.append((n, tokens)),
        **options,
    ))  # fmt: skip
    for n, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        assert output.tokens == generate(target, draft, prompt, rng=5 + n, **options).tokens
        assert output.tokens == tuple(t for at, tokens in told if at == n for t in tokens)
        assert output.ended_by == ("stop" if 2 in output.tokens else "length")
    assert {output.ended_by for output in outputs} == {"stop"}
    (long,) = generate_batch(target, draft, [[0]], tree="2x2", max_new_tokens=3, rng=0)
    assert (len(long.tokens), long.ended_by) == (3, "length")
    with pytest.raises(InvalidInput, match="prompt 2 of 3 is empty"):
        generate_batch(target, draft, [[0], [], [1]])  # before the first is continued


def test_greedy_decoding_is_the_argmax_of_the_target(pair):
    target, draft = pair
    output = generate(
        logits_of(target), logits_of(draft), [0], temperature=0.0, max_new_tokens=6, rng=0
    )
    text = [0]
    for _ in range(6):
        text.append(int(np.argmax(logits_of(target)(text))))
    assert list(output.tokens) == text[1:]


def test_trees_grown_by_acceptance_keep_to_their_budget(pair):
    target, draft = pair
    rng = np.random.default_rng(5)
    for budget in (1, 4, 9, 20):
        root = grow_by_acceptance(
            lambda texts: np.stack([draft(t) for t in texts]),
            DynamicTree(budget, 2, 3), "with_replacement", rng,
        )  # fmt: skip
        drawn = sum(node.draws.size for node in root.walk())
        assert 2 <= drawn <= max(budget, 2)
        assert max(node.depth for node in root.walk()) <= 3
        for node in root.walk():
            node.target = target(node.tokens)
        assert get_rule("level_sequential").expected_accepted(root) >= 0.0
    with pytest.raises(InvalidInput, match="num_nodes is 0"):
        DynamicTree(0, 2, 3)


class Paths:
    """A model that gives the logits of several prefixes at once, and counts its passes."""

    def __init__(self, table):
        self.table, self.passes = table, 0

    def logits(self, ids, rows):
        self.passes += 1
        return np.stack([logits_of(self.table)(ids[: row + 1]) for row in rows])


def test_models_are_asked_once_for_each_path(pair):
    target, _ = pair
    model = Paths(target)
    texts = [(), (1,), (2,), (1, 0), (1, 2), (2, 2)]
    found = tree_logits(model)([0], texts)
    assert model.passes == 3
    np.testing.assert_allclose(found, tree_logits(logits_of(target))([0], texts))
    with pytest.raises(InvalidInput, match="empty"):
        tree_logits(model)([], texts)
    with pytest.raises(InvalidInput, match="no model"):
        tree_logits(3)


def test_bad_input(pair):
    target, draft = (logits_of(table) for table in pair)
    with pytest.raises(InvalidInput, match="prompt is empty"):
        generate(target, draft, [])
    with pytest.raises(InvalidInput, match="max_new_tokens"):
        generate(target, draft, [0], max_new_tokens=-1)
    with pytest.raises(InvalidInput, match="unknown tree"):
        generate(target, draft, [0], tree="big")
    with pytest.raises(InvalidInput, match="tree is 3: give a name"):
        generate(target, draft, [0], tree=3)
    with pytest.raises(InvalidInput, match="rule is 3: give the name"):
        generate(target, draft, [0], rule=3)
    with pytest.raises(UnknownName, match="rule"):
        generate(target, draft, [0], rule="best")
    with pytest.raises(UnknownName, match="scheme"):
        generate(target, draft, [0], scheme="none")


@pytest.mark.parametrize("tree", ["2x2", "chain2", "dynamic6"])
@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy", "top_k"])
def test_the_rules_that_are_compared_fit_the_drafts(pair, tree, scheme):
    target, draft = pair
    rows = compared_rules(
        [*rule_names()], lambda rule: warm_up(rule, 3, tree, scheme), by_default=True
    )
    rules = [row.rule for row in rows]
    assert {"level_sequential", "optimal", "naive_target"} <= set(rules)
    for rule in rules:
        output = generate(
            logits_of(target), logits_of(draft), [0], tree=tree, scheme=scheme, rule=rule,
            max_new_tokens=4, rng=0,
        )  # fmt: skip
        assert len(output.tokens) == 4


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda ids: np.array([0.5, 0.3, 0.2]), "as probabilities do"),
        (lambda ids: np.zeros((1, 3)), r"shapes \[\(1, 3\)\]"),
        (lambda ids: np.zeros(2 + len(ids)), r"shapes \[\(3,\), \(4,\)"),
        (lambda ids: np.zeros(2), "draft has 3 tokens, the target 2"),
    ],
)
def test_what_a_function_answers_is_looked_at(pair, answer, told):
    with pytest.raises(InvalidInput, match=told):
        generate(answer, logits_of(pair[1]), [0], tree="2x2")
    assert generate(lambda ids: np.array([1.5, 1.3, 1.2]), logits_of(pair[1]), [0]).tokens


@pytest.mark.parametrize("prompt", [[0.5], ["a"], [-1], [True], [[0]], "ab"])
def test_a_prompt_is_of_token_ids(pair, prompt):
    with pytest.raises(InvalidInput, match="a token of the prompt is"):
        generate(*map(logits_of, pair), prompt)


@pytest.mark.parametrize(
    "given",
    [None, [0], ((0,), 0), Accepted((), 0), Accepted((3,), 0), Accepted((-1,), 0),
     Accepted((0.5,), 0), Accepted("ab", 1)],
)  # fmt: skip
def test_what_a_rule_of_others_returns_is_looked_at(pair, given):
    class Rule(TreeRule):
        name = "own"

        def stops(self, root):
            return []

        def verify(self, root, rng):
            return given

    with pytest.raises(InvalidInput, match="give an Accepted of tokens"):
        generate(*map(logits_of, pair), [0], tree="2x2", rule=Rule())
