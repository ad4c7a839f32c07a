"""Tolerances, gaps, budgets and limits: a NaN, a negative number or none at all is refused."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.base.checked import checked_amount, checked_tolerance
from mdsd_opt.decoding import get_rule, k_ary, shared_law, tree_bound

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
    "submodular": (by("submodular"), "tolerance"),
    "tree_bound": (bound, "tolerance"),
    "audit": (audited, "tolerance"),
    "audit_tree": (audited_tree, "tolerance"),
    "audit_text": (audited_text, "tolerance"),
    "audit_tokens": (lambda **given: mo.audit_tokens([[0.5, 0.5]], [0], **given), "tolerance"),
    "audit_server": (lambda **given: mo.audit_server("http://127.0.0.1:9", **given), "tolerance"),
    "best_draft_temperature": (temperature, "tolerance"),
    "shared_law": (lambda **given: shared_law([[0.5, 0.5]], **given), "tolerance"),
    "optimal": (lambda **given: mo.verifiers.get("optimal", **given), "gap"),
}

#: Infinite ones are no limit.
AMOUNTS: dict[str, tuple[Callable[..., Any], str]] = {
    **{f"{name}, {limit}": (by(name), limit)
       for name in ("full_lp", "dual_lp", "max_flow", "submodular")
       for limit in ("time_limit", "max_variables", "max_bytes")},
    "auto": (lambda **given: mo.solve(TWO, **given), "time_limit"),
    "truncated_lp": (by("truncated_lp"), "time_limit"),
    "submodular, tiles": (by("submodular"), "max_tiles"),
    "tree_bound": (bound, "time_limit"),
    "audit_tree": (audited_tree, "seconds"),
    "audit_text": (audited_text, "seconds"),
    "audit_chain": (lambda **given: mo.audit_chain(lambda p, q, drafts: [0], **given), "seconds"),
    "audit_portfolio": (lambda **given: mo.audit_portfolio("optimal", **given), "seconds"),
    **{f"relax, {name}": (lambda **given: mo.relax(ONE, **given), name)
       for name in ("tv", "kl", "chi2")},
    **{f"relaxed_rates, {name}": (rates, name) for name in ("tv", "kl", "chi2")},
}  # fmt: skip

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


@pytest.mark.parametrize("relax", [{"kl": math.nan}, {"tv": -1.0}, {"chi2": "1"}, 0.1])
def test_budgets_of_verifiers(relax: Any) -> None:
    with pytest.raises(mo.errors.InvalidInput):
        mo.verifiers.get("optimal").verify(ONE, np.array([0, 1]), rng=0, relax=relax)


def test_what_is_fine() -> None:
    assert checked_tolerance("tolerance", Fraction(1, 8)) == 0.125
    assert checked_tolerance("tolerance", 0, or_zero=True) == 0.0
    assert checked_amount("kl", math.inf) == math.inf
    assert checked_amount("max_bytes", 10) == 10
    assert audited_tree(tolerance=0.0).tolerance == 0.0  # none is not zero


def test_none_is_forgotten() -> None:
    """Every public parameter of such a name stands in one of the tables."""
    tried = {
        (name.partition(",")[0], given)
        for table in (TOLERANCES, AMOUNTS)
        for name, (_, given) in table.items()
    }
    packages = [module.name for module in pkgutil.iter_modules(mo.__path__) if module.ispkg]
    found = set()
    for room in (mo, *(importlib.import_module(f"mdsd_opt.{name}") for name in packages)):
        for name in getattr(room, "__all__", ()):
            member = getattr(room, name)
            if inspect.isfunction(member):
                found |= {(name, given) for given in inspect.signature(member).parameters}
    found |= {(name, given) for name, method in mo.methods().items() for given in method.options}
    names = ("tolerance", "gap", "time_limit", "tv", "kl", "chi2")
    missing = {pair for pair in found if pair[1] in names} - tried
    assert not missing, f"put {sorted(missing)} into a table of tests/base/test_checked.py"
    assert {("certify", "tolerance"), ("relax", "kl"), ("full_lp", "time_limit")} <= found
