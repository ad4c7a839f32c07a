"""Tolerances, gaps, budgets and limits: a NaN, a negative number or none at all is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from inspect import signature
from typing import Any

import numpy as np
import pytest
from support.faces import public_functions

import mdsd_opt as mo
from mdsd_opt import batch, cddlib_checks, decoding
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.base.checked import checked_amount, checked_tolerance
from mdsd_opt.decoding import get_rule, k_ary, tree_bound

ONE = mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.25, 0.75], 2))
TWO = mo.TransportProblem([0.5, 0.5], mo.IndependentDrafts([[0.25, 0.75], [0.5, 0.5]]))
LOGITS = np.zeros(2), np.arange(2.0)


def tables() -> tuple[TableModel, TableModel]:
    return TableModel(3, 0), TableModel(3, 1)


def bound(**given: Any) -> Any:
    return tree_bound(*tables(), k_ary(1, 1), **given)


def by(method: str) -> Callable[..., Any]:
    return lambda **given: mo.solve(TWO, method, **given)


def audited(**given: Any) -> Any:
    return mo.audit("optimal", ONE, 0, 10, **given)


def audited_tree(**given: Any) -> Any:
    return mo.audit_tree(get_rule("traversal").verify, *tables(), "1x1", 0, 10, **given)


def audited_text(**given: Any) -> Any:
    return mo.audit_text(lambda target, draft: [0], 0, **given)


def temperature(**given: Any) -> Any:
    return mo.best_draft_temperature(*LOGITS, kind="logits", **given)


def rates(**given: Any) -> Any:
    return mo.relaxed_rates(*LOGITS, **given)


#: Up to an infinite one of these, everything would be as claimed.
TOLERANCES: dict[str, tuple[Callable[..., Any], str]] = {
    "certify": (lambda **given: mo.certify(ONE, mo.solve(ONE), **given), "tolerance"),
    "assert_optimal": (lambda **given: mo.assert_optimal(ONE, mo.solve(ONE), **given), "tolerance"),
    **{
        name: (by(name), "tolerance")
        for name, method in mo.methods().items()
        if "tolerance" in method.options
    },
    "solve": (by("auto"), "tolerance"),
    "tree_bound": (bound, "tolerance"),
    "audit": (audited, "tolerance"),
    "audit_tree": (audited_tree, "tolerance"),
    "audit_text": (audited_text, "tolerance"),
    "audit_tokens": (lambda **given: mo.audit_tokens([[0.5, 0.5]], [0], **given), "tolerance"),
    "audit_server": (lambda **given: mo.audit_server("http://127.0.0.1:9", **given), "tolerance"),
    "best_draft_temperature": (temperature, "tolerance"),
    "optimal": (lambda **given: mo.verifiers.get("optimal", **given), "gap"),
}

LIMITS = "time_limit", "max_variables", "max_bytes", "max_tiles"

#: Infinite ones are no limit.
AMOUNTS: dict[str, tuple[Callable[..., Any], str]] = {
    **{f"{name}, {limit}": (by(name), limit)
       for name, method in mo.methods().items() for limit in LIMITS if limit in method.options},
    "solve": (by("auto"), "time_limit"),
    "tree_bound": (bound, "time_limit"),
    "audit_tree": (audited_tree, "seconds"),
    "audit_text": (audited_text, "seconds"),
    "audit_chain": (lambda **given: mo.audit_chain(lambda p, q, drafts: [0], **given), "seconds"),
    "audit_portfolio": (lambda **given: mo.audit_portfolio("optimal", **given), "seconds"),
    **{f"relax, {name}": (lambda **given: mo.relax(ONE, **given), name)
       for name in ("tv", "kl", "chi2")},
    **{f"relaxed_rates, {name}": (rates, name) for name in ("tv", "kl", "chi2")},
}  # fmt: skip

LAWS, TABLE = [[0.5, 0.5], [0.25, 0.75]], decoding.initial_rates(2)
ZEROS = np.zeros((1, 2))


def sampled(size: Any) -> Any:
    return ONE.drafts.sample(np.random.default_rng(0), size)


def decided(**given: Any) -> Any:
    return batch.verify_batch(ZEROS, ZEROS, [[0, 1]], **given)


def decided_by_verifier(**given: Any) -> Any:
    optimal = mo.verifiers.get("optimal")
    return optimal.verify_batch(LAWS, LAWS, [[0], [1]], np.random.default_rng(0), **given)


def interval(**given: Any) -> Any:
    return mo.acceptance_interval({0: -0.1}, {0: -0.2}, **{"num_drafts": 2, **given})


def claimed(**given: Any) -> Any:
    sizes = {"vocab_size": 2, "num_drafts": 1}
    return cddlib_checks.search("prefix_optimality", **{**sizes, "trials": 1, **given})


def refuted(**given: Any) -> Any:
    return cddlib_checks.search_laws(lambda p, q: Fraction(0), **{"vocab_size": 1, **given})


def planned(**given: Any) -> Any:
    return decoding.plan_tree(TABLE, **{"num_nodes": 2, **given})


def made(**given: Any) -> Any:
    return decoding.generate(*(lambda ids: np.zeros(2),) * 2, [0], tree="1x1", **given)


#: How many of something: no halves of it, and not whether.
COUNTS: dict[str, tuple[Callable[..., Any], str]] = {
    **{scheme.__name__: (lambda num_drafts, scheme=scheme: scheme([0.5, 0.5], num_drafts),
                         "num_drafts")
       for scheme in (mo.WithReplacement, mo.GreedyDrafts, mo.drafts.SequentialDrafts)},
    "DraftSetLaw": (lambda vocab_size: mo.DraftSetLaw(vocab_size, {(0,): 1.0}), "vocab_size"),
    "sample": (sampled, "size"),
    "FixedPlusDrafts": (lambda token: mo.FixedPlusDrafts([token], ONE.drafts), "token"),
    "acceptance_rates": (lambda **given: mo.acceptance_rates(*LOGITS, **given), "num_drafts"),
    "acceptance_rates, threads": (lambda **x: mo.acceptance_rates(*LOGITS, **x), "num_threads"),
    "acceptance_rates, top_k": (lambda **x: mo.acceptance_rates(*LOGITS, **x), "top_k"),
    "relaxed_rates": (lambda **given: rates(kl=0.1, **given), "num_drafts"),
    "relaxed_rates, threads": (lambda **given: rates(kl=0.1, **given), "num_threads"),
    "verify_batch": (decided, "num_threads"),
    "verify_batch, step": (decided, "step"),
    "Verifier.verify_batch": (decided_by_verifier, "num_threads"),
    "acceptance_interval": (interval, "num_drafts"),
    "acceptance_interval, V": (interval, "vocab_size"),
    "advise": (lambda **given: mo.advise(*LOGITS, **given), "max_drafts"),
    "compare_draft_schemes": (lambda **x: mo.compare_draft_schemes(ZEROS, ZEROS, **x),
                              "num_drafts"),
    "worst_case": (lambda num_drafts: mo.worst_case("rrs", num_drafts), "num_drafts"),
    "truncated_lp": (by("truncated_lp"), "size"),
    "importance_sampling": (lambda size: mo.verifiers.get("importance_sampling", size=size),
                            "size"),
    "audit": (audited, "max_tuples"),
    **{f"search, {name}": (claimed, name)
       for name in ("vocab_size", "num_drafts", "trials", "start", "workers")},
    **{f"search_laws, {name}": (refuted, name) for name in ("vocab_size", "num_laws", "trials")},
    "balanced": (lambda num_nodes: decoding.balanced(2, num_nodes), "num_nodes"),
    "k_ary": (lambda depth: k_ary(2, depth), "depth"),
    "sparse": (decoding.sparse, "num_nodes"),
    "whole_paths": (lambda num_paths: decoding.whole_paths(num_paths, 2), "num_paths"),
    "PlannedTree": (decoding.PlannedTree, "num_nodes"),
    "plan_tree": (planned, "num_nodes"),
    "plan_tree, depth": (planned, "max_depth"),
    "initial_rates": (decoding.initial_rates, "max_drafts"),
    "place_rates": (lambda max_drafts: decoding.place_rates(ZEROS, ZEROS, max_drafts),
                    "max_drafts"),
    "generate": (made, "max_new_tokens"),
}  # fmt: skip

NO_COUNTS = (-2, 2.5, math.nan, math.inf, "two", True, [1.5], object())

NO_NUMBERS = (math.nan, -1e-9, "1", 1j, np.array([1e-9, -1.0]), -(10**400))


def refuses(function: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises(mo.errors.InvalidInput, match=name):
        function(**{name: value})


@pytest.mark.parametrize("name", TOLERANCES)
def test_tolerances(name: str) -> None:
    for value in (*NO_NUMBERS, math.inf, 10**400, np.float64("inf")):
        refuses(*TOLERANCES[name], value)


@pytest.mark.parametrize("name", AMOUNTS)
def test_amounts(name: str) -> None:
    for value in (*NO_NUMBERS, 10**400):
        if not (isinstance(value, int) and "max_" in name):  # these are large, or fit nothing
            refuses(*AMOUNTS[name], value)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    for value in NO_COUNTS:
        refuses(*COUNTS[name], value)


#: What draws goes on from call to call: a seed would give drafts and their decision one number.
DRAWING: dict[str, Callable[[Any], Any]] = {
    "sample": ONE.drafts.sample,
    "clocks": mo.WithoutReplacement([0.5, 0.5], 2).sample,
    "verify": lambda rng: mo.verifiers.get("optimal").verify(ONE, [0, 1], rng),
    "verify_batch": lambda rng: mo.verifiers.get("rrs").verify_batch(LAWS, LAWS, [[0], [1]], rng),
}


@pytest.mark.parametrize("name", DRAWING)
def test_generators(name: str) -> None:
    DRAWING[name](np.random.default_rng(0))
    for value in (0, None, True, "0", [0], random.Random(0), np.random.PCG64(0)):
        with pytest.raises(mo.errors.InvalidInput, match=r"give a generator, numpy\.random"):
            DRAWING[name](value)


@pytest.mark.parametrize("wrong", [math.nan, 1.0, -1e-9, math.inf])
def test_uniforms(wrong: float) -> None:
    optimal = mo.verifiers.get("optimal")
    for place in range(4):
        numbers = [0.5] * 4
        numbers[place] = wrong
        with pytest.raises(mo.errors.InvalidInput, match="give numbers of"):
            optimal.verify(ONE, [0, 1], mo.verifiers.Uniforms(*numbers))
        with pytest.raises(mo.errors.InvalidInput, match=r"row 1: .* give numbers of"):
            optimal.verify_batch(LAWS, LAWS, [[0], [1]], np.array([[0.5] * 4, numbers]))


#: What takes a problem.
OF_PROBLEMS: dict[str, Callable[[Any], Any]] = {
    **{name: lambda x, name=name: mo.solve(x, name) for name in ("auto", "full_lp", "submodular")},
    "certify": lambda x: mo.certify(x, mo.solve(ONE)),
    "exact_optimum": mo.solvers.exact_optimum,
    "inclusion_bound": mo.inclusion_bound,
    "relax": lambda x: mo.relax(x, kl=0.1),
    "save_problem": lambda x: mo.save_problem(x, "never.json"),
    "optimum": cddlib_checks.optimum,
    "audit": lambda x: mo.audit("optimal", x),
    "verify": lambda x: mo.verifiers.get("lp").verify(x, [0, 1], np.random.default_rng(0)),
    **{f"{name}, rate": lambda x, name=name: mo.verifiers.get(name).acceptance_rate(x)
       for name in ("optimal", "naive_target", "rrs")},
}  # fmt: skip


@pytest.mark.parametrize("name", OF_PROBLEMS)
def test_problems(name: str) -> None:
    for value in (None, "problem.json", [0.5, 0.5], ONE.drafts, ONE.target):
        with pytest.raises(mo.errors.InvalidInput, match=r"problem is a .*TransportProblem\("):
            OF_PROBLEMS[name](value)


def test_draft_schemes() -> None:
    for wrong in (None, [0.5, 0.5], ONE):
        for function in (
            lambda x: mo.TransportProblem([0.5, 0.5], x),
            lambda x: mo.FixedPlusDrafts([0], x),
            lambda x: mo.MixtureDrafts([(1.0, x)]),
            lambda x: mo.audit_drafts(ONE.drafts.sample, x),
        ):
            with pytest.raises(mo.errors.InvalidInput, match="give a draft scheme such as"):
                function(wrong)
    for wrong in ([], {0.5: ONE.drafts}, [ONE.drafts], [(1.0, ONE.drafts, 2)], 3):
        with pytest.raises(mo.errors.InvalidInput, match=r"give \[\(probability, scheme\)"):
            mo.MixtureDrafts(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("relax", [{"kl": math.nan}, {"tv": -1.0}, {"chi2": "1"}, 0.1])
def test_budgets_of_verifiers(relax: Any) -> None:
    with pytest.raises(mo.errors.InvalidInput):
        mo.verifiers.get("optimal").verify(
            ONE, np.array([0, 1]), np.random.default_rng(0), relax=relax
        )


def test_what_is_fine() -> None:
    assert checked_tolerance("tolerance", Fraction(1, 8)) == 0.125
    assert checked_tolerance("tolerance", 0, or_zero=True) == 0.0
    assert checked_amount("kl", math.inf) == math.inf
    assert checked_amount("max_bytes", 10) == 10
    assert checked_amount("kl", np.float32(0.5)) == checked_tolerance("gap", np.float16(0.5)) == 0.5
    assert audited(seconds=np.float32(60.0)).verdict_class
    assert mo.softmax([1.0, 0.0], np.float32(2.0)).sum() == 1.0
    assert audited_tree(tolerance=0.0).tolerance == 0.0  # none is not zero


def test_none_is_forgotten() -> None:
    """Every public parameter of such a name stands in one of the tables."""
    tried = {
        (name.partition(",")[0], given)
        for table in (TOLERANCES, AMOUNTS)
        for name, (_, given) in table.items()
    }
    found = {(name, x) for name, f in public_functions().items() for x in signature(f).parameters}
    names = ("tolerance", "gap", "time_limit", "tv", "kl", "chi2")
    missing = {pair for pair in found if pair[1] in names} - tried
    assert not missing, f"put {sorted(missing)} into a table of tests/base/test_checked.py"
    assert {("certify", "tolerance"), ("relax", "kl"), ("solve", "time_limit")} <= found
