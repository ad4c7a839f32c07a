"""Verdicts under relaxed targets: their law, their rate, and the distance they tell."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.fake_models import FakeModel
from support.tables import Table, output_law, pair, trees

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.data import sample_logits_path
from mdsd_opt.decoding import DynamicTree, check_tree, generate, get_rule, k_ary, parse_topology
from mdsd_opt.decoding.step_laws import Distance, distance_of, relax_targets
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, scheme_maker
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.trees import Topology, set_targets
from mdsd_opt.verifiers import Uniforms

P, Q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.1, 0.2, 0.3, 0.4])
BUDGETS = [{"kl": 0.02}, {"tv": 0.05}, {"chi2": 0.03}, {"acceptance_rate": 0.9}]


class TestOneStep:
    @pytest.mark.parametrize("budget", BUDGETS, ids=str)
    @pytest.mark.parametrize("scheme", SINGLE_MODEL_SCHEMES)
    def test_law_and_rate_are_those_of_the_relaxation(
        self, budget: dict[str, float], scheme: str
    ) -> None:
        """Of the conditional laws, over every draft tuple; and verdicts are drawn from these."""
        problem = mo.TransportProblem(P, SINGLE_MODEL_SCHEMES[scheme](Q, 2))
        relaxed = mo.relax(problem, **budget)
        optimal = mo.verifiers.get("optimal")
        np.testing.assert_allclose(
            optimal.output_law(relaxed.problem), relaxed.target, rtol=0, atol=1e-12
        )
        rate = optimal.enumerated_acceptance_rate(relaxed.problem)
        assert rate == pytest.approx(relaxed.acceptance_rate, abs=1e-12)
        rng = np.random.default_rng(0)
        for drafts in problem.drafts.sample(rng, 60):
            uniforms = Uniforms(*rng.random(4).tolist())
            found = optimal.verify(problem, drafts, uniforms, relax=budget)
            assert found[:3] == optimal.verify(relaxed.problem, drafts, uniforms)
            assert found.relaxation.acceptance_rate == relaxed.acceptance_rate
        assert relaxed.acceptance_rate > relaxed.lossless_acceptance_rate

    def test_distance_is_told(self) -> None:
        problem = mo.TransportProblem(P, mo.WithReplacement(Q, 2))
        found = mo.verifiers.get("rrs").verify(
            problem, [3, 1], np.random.default_rng(0), relax={"kl": 0.02}
        )
        assert found.relaxation.kl == pytest.approx(0.02, abs=1e-12)
        assert found.accepted == (found.token in (3, 1))


_PROBLEM = mo.TransportProblem(P, mo.WithReplacement(Q, 2))
_ROWS = np.log([P]), np.log([Q])

#: All that take a budget.
DOORS: dict[str, Callable[[dict[str, Any]], object]] = {
    "relaxed_rates, several": lambda budget: mo.relaxed_rates(
        *_ROWS, 2, spread="best", **{name: [0.1, amount] for name, amount in budget.items()}
    ),
    "verify": lambda budget: mo.verifiers.get("optimal").verify(
        _PROBLEM, [3, 1], np.random.default_rng(0), relax=budget
    ),
    "Verifier.verify_batch": lambda budget: mo.verifiers.get("optimal").verify_batch(
        [P], [Q], [[3, 1]], np.random.default_rng(0), relax=budget
    ),
    "verify_batch": lambda budget: verify_batch(*_ROWS, [[3, 1]], relax=budget),
    "generate": lambda budget: generate(
        FakeModel(4, 1), FakeModel(4, 2), [1], tree="2x1", max_new_tokens=2, rng=0, relax=budget
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("amount", [np.nan, -np.inf, -1e-300, -(10**400), "x", 1j, []])
@pytest.mark.parametrize("name", ["kl", "chi2"])
def test_no_door_takes_what_is_no_amount(door: str, amount: Any, name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        DOORS[door]({name: amount})


def test_other_distances_are_unknown() -> None:
    with pytest.raises(UnknownName, match="unknown budget 'js'"):
        DOORS["verify"]({"js": 1})


class TestBatches:
    rows = (3, 11, 30)

    def logits(self) -> tuple[Any, Any]:
        sample = np.load(sample_logits_path())
        rows = list(self.rows)
        return sample["target"][rows].astype(np.float32), sample["draft"][rows].astype(np.float32)

    def test_of_logits_are_the_decisions_of_relaxed_problems(self) -> None:
        target, draft = self.logits()
        problems = [
            mo.TransportProblem.from_logits(t, d, 2, "with_replacement")
            for t, d in zip(target, draft, strict=True)
        ]
        rng = np.random.default_rng(3)
        drafts = np.stack([problem.drafts.sample(rng) for problem in problems])
        uniforms = rng.random((3, 4))
        found = mo.batch.verify_batch(
            target, draft, drafts, uniforms=uniforms, with_rates=True, relax={"kl": 0.02}
        )
        relaxed = [mo.relax(problem, kl=0.02) for problem in problems]
        optimal = mo.verifiers.get("optimal")
        for n, one in enumerate(relaxed):
            verdict = optimal.verify(one.problem, drafts[n], Uniforms(*uniforms[n].tolist()))
            assert found.tokens[n] == verdict.token
            assert found.acceptance_rate[n] == pytest.approx(one.acceptance_rate, abs=1e-12)
            assert found.tv[n] == pytest.approx(one.tv, abs=1e-12)
        assert found.kl[0] == pytest.approx(0.02, abs=1e-9)
        np.testing.assert_allclose(found.kl, [one.kl for one in relaxed], atol=1e-12)
        assert found.gap.tolist() == [0.0, 0.0, 0.0]
        assert found.total_kl == pytest.approx(sum(one.kl for one in relaxed), abs=1e-12)
        assert found.total_tv == pytest.approx(sum(one.tv for one in relaxed), abs=1e-12)

    def test_rates_of_other_verifiers_are_under_the_relaxed_target(self) -> None:
        target, draft = np.log(P)[None], np.log(Q)[None]
        found = mo.batch.verify_batch(
            target, draft, [[3, 1]], verifier="rrs", with_rates=True, relax={"tv": 0.05}
        )
        relaxed = mo.relax(mo.TransportProblem(P, mo.WithReplacement(Q, 2)), tv=0.05)
        rate = float(mo.verifiers.get("rrs").acceptance_rate(relaxed.problem))
        assert found.acceptance_rate[0] == pytest.approx(rate, abs=1e-12)
        assert found.gap[0] == pytest.approx(relaxed.acceptance_rate - rate, abs=1e-12)

    def test_rows_without_drafts_follow_the_target(self) -> None:
        target, draft = np.log(np.stack([P, P])), np.log(np.stack([Q, Q]))
        found = mo.batch.verify_batch(
            target, draft, [[-1, -1], [3, -1]], with_rates=True, relax={"tv": 0.05}
        )
        np.testing.assert_allclose(found.tv, [0.0, 0.05], atol=1e-12)
        np.testing.assert_allclose(found.acceptance_rate, [0.0, 0.55], atol=1e-12)

    def test_of_probabilities(self) -> None:
        p, q, drafts = np.stack([P, P]), np.stack([Q, Q]), np.array([[3, 1], [0, 2]])
        uniforms = np.random.default_rng(5).random((2, 4))
        optimal = mo.verifiers.get("optimal")
        found = optimal.verify_batch(p, q, drafts, uniforms, relax={"chi2": 0.03})
        relaxed = mo.relax(mo.TransportProblem(P, mo.WithReplacement(Q, 2)), chi2=0.03)
        again = optimal.verify_batch(np.stack([relaxed.target] * 2), q, drafts, uniforms)
        assert found.tokens.tolist() == again.tokens.tolist()
        np.testing.assert_allclose(found.kl, relaxed.kl, atol=1e-12)
        assert again.kl is None
        assert again.total_kl == again.total_tv == 0.0


UNEVEN = Topology({(): 3, (0,): 2, (1,): 1}, "uneven")


class Relaxed:
    """A table whose laws are relaxed for the drafts of their level."""

    def __init__(self, target: Table, draft: Table, topology: Topology, scheme: str) -> None:
        self.vocab_size, self.depth = target.vocab_size, target.depth
        make = scheme_maker(scheme)
        self.laws = dict(target.laws)
        self.kl = dict.fromkeys(target.laws, 0.0)
        for text, law in target.laws.items():
            count = topology.drafts_at((0,) * len(text))
            if count:
                problem = mo.TransportProblem(law, make(draft(text), count))
                found = mo.relax(problem, kl=0.05)
                self.laws[text], self.kl[text] = found.target, found.kl

    __call__ = Table.__call__
    probability = Table.probability


@cache
def relaxed_trees(
    scheme: str, num_drafts: int, depth: int
) -> tuple[Table, Table, Relaxed, dict[int, Any]]:
    """Target, draft, the relaxed table, and by their ids all trees that can be drawn.

    Each tree stands beside its probability, its nodes with the laws that they are given, and their
    distances: these are the same for every rule.
    """
    target, draft = pair(0, 3, depth, 0.7)
    topology = k_ary(num_drafts, depth)
    found = {}
    for root, probability in trees(draft, topology, scheme):
        distances = relax_targets(set_targets(root, target), {"kl": 0.05})
        laws = [(node, node.target) for node in root.walk()]
        found[id(root)] = root, probability, laws, distances
    return target, draft, Relaxed(target, draft, topology, scheme), found


class TestTrees:
    @pytest.mark.parametrize("name", ["traversal", "traversal_hull", "level_sequential", "optimal"])
    @pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
    @pytest.mark.parametrize("shape", [(2, 2), (1, 2)], ids=str)
    def test_texts_follow_the_relaxed_laws(
        self, name: str, scheme: str, shape: tuple[int, int]
    ) -> None:
        """Enumerated over all trees; and the mean of what steps tell is the divergence."""
        topology = k_ary(*shape)
        target, draft, relaxed, found = relaxed_trees(scheme, *shape)
        stop_kl: dict[int, float] = {}

        class Told(type(get_rule(name))):  # type: ignore[misc]
            def stops(self, root: Any) -> Any:
                """Of the tree with the targets of the tables, relaxed for it."""
                laws, distances = found[id(root)][2:]
                for node, law in laws:
                    node.target = law
                ways = super().stops(root)
                stop_kl[id(root)] = sum(
                    way.probability * distance_of((*way.node.tokens, 0), distances).kl
                    for way in ways
                )
                return ways

        trees_found = [(root, weight) for root, weight, _, _ in found.values()]
        law, accepted = output_law(Told(), relaxed, draft, topology, scheme, trees_found)
        length = topology.depth + 1
        for text in np.ndindex(law.shape):
            assert law[text] == pytest.approx(relaxed.probability(text), abs=1e-9)
        told = sum(weight * stop_kl[id(root)] for root, weight in trees_found)
        # Of all tokens that a step may give, those that it does give: the others follow the target.
        lossless, fewer = output_law(get_rule(name), target, draft, topology, scheme, trees_found)
        assert accepted > fewer + 1e-3
        whole = float((law * np.log(law / lossless)).sum())
        expected = sum(
            np.prod([relaxed(text[:n])[text[n]] for n in range(len(text))]) * relaxed.kl[text]
            for text in relaxed.kl
            if len(text) < length
        )
        assert whole == pytest.approx(expected, abs=1e-9)
        assert 0.0 < told < whole

    def test_trees_that_cannot_be_relaxed(self) -> None:
        for tree in (UNEVEN, DynamicTree(6, 2, 3), parse_topology("planned16")):
            with pytest.raises(InvalidInput, match="same number of drafts at all nodes of a level"):
                check_tree(tree, get_rule("traversal_hull"))
            check_tree(tree, get_rule("optimal"))
        for name in ("4x3", "chain5", "1x1"):
            check_tree(parse_topology(name), get_rule("traversal_hull"))

    def test_uneven_trees_token_by_token(self) -> None:
        """The law of the first token; later ones depend on the place that a draft came to."""
        target, draft = pair(0, 3, 2, 0.7)
        law = np.zeros(3)
        for root, probability in trees(draft, UNEVEN, "with_replacement"):
            relax_targets(set_targets(root, target), {"tv": 0.05})
            for stop in get_rule("optimal").stops(root):
                if stop.node.tokens:
                    law[stop.node.tokens[0]] += probability * stop.probability
                else:
                    law += probability * stop.probability * stop.law
        problem = mo.TransportProblem(target(()), mo.WithReplacement(draft(()), 3))
        np.testing.assert_allclose(law, mo.relax(problem, tv=0.05).target, atol=1e-9)

    def test_distances_of_tokens_add_up(self) -> None:
        distances = {(): Distance(1.0, 0.1), (4,): Distance(2.0, 0.2), (5,): Distance(8.0, 0.8)}
        assert distance_of((4, 7), distances) == pytest.approx((3.0, 0.3))
        assert distance_of((4, 7, 9), distances) == pytest.approx((3.0, 0.3))
        assert distance_of((6,), distances) == (1.0, 0.1)


class TestDecoding:
    def pair(self) -> tuple[Any, Any]:
        return tuple((lambda ids, t=t: np.log(t(ids[1:][-3:]))) for t in pair(0, 3, 3))

    def test_metrics_tell_the_distance(self) -> None:
        target, draft = self.pair()
        options: dict[str, Any] = {"tree": "chain2", "max_new_tokens": 60, "rng": 3}
        lossless = generate(target, draft, [0], **options).metrics
        relaxed = generate(target, draft, [0], relax={"kl": 0.05}, **options).metrics
        assert lossless.kl == lossless.tv == lossless.kl_per_token == 0.0
        assert 0.0 < relaxed.kl_per_token < 0.05
        assert relaxed.kl == pytest.approx(60 * relaxed.kl_per_token)
        assert relaxed.tv > 0.0
        assert relaxed.to_dict()["tv_per_token"] == pytest.approx(relaxed.tv / 60)
        assert relaxed.accept_length > lossless.accept_length

    def test_everything_is_accepted_for_enough(self) -> None:
        target, draft = self.pair()
        found = generate(
            target, draft, [0], tree="chain3", max_new_tokens=24, rng=0,
            relax={"acceptance_rate": 1.0},
        )  # fmt: skip
        assert found.metrics.accept_length == 4.0

    def test_bad_input(self) -> None:
        target, draft = self.pair()
        with pytest.raises(InvalidInput, match="same number of drafts"):
            generate(target, draft, [0], tree="planned16", relax={"kl": 0.1})
