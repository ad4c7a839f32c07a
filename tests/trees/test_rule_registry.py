"""A rule for trees of one's own: registered, by its place, or installed; every door takes it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import generate, get_rule, rule_names
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.trees import Stop, TreeRule, rules

#: As a user writes one: what another rule does, under a name of its own.
SOURCE = """
import mdsd_opt as mo
from mdsd_opt.trees import TreeRule, get_rule


class Mine(TreeRule):
    name = "mine"

    def stops(self, root):
        return get_rule("traversal").stops(root)


RULE = Mine()
VERIFIER = mo.verifiers.get("kseq")
"""


class Mine(TreeRule):
    name = "mine"

    def stops(self, root: Any) -> list[Stop]:
        return get_rule("traversal").stops(root)


class Called(Mine):
    def __init__(self, name: Any) -> None:
        self.name = name  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules.RULES, "registered", {})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "rules_of_a_test.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rules_of_a_test", raising=False)
    return "rules_of_a_test"


def test_every_way_to_name_a_rule_reaches_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mdsd_opt.base.registry.plugged_in",
        lambda group: {"installed": f"{module}:RULE"} if group == "mdsd_opt.tree_rules" else {},
    )
    mo.trees.register(Mine())
    assert rule_names()[-2:] == ("mine", "installed")
    tables = TableModel(3, 6), TableModel(3, 7)
    models = [lambda ids, table=table: np.log(table(ids)) for table in tables]
    tokens = {
        name: generate(*models, [0], tree="2x2", rule=name, max_new_tokens=6, rng=0).tokens
        for name in ("traversal", "mine", "installed", f"{module}:RULE")
    }
    assert len({*map(tuple, tokens.values())}) == 1
    assert get_rule("installed").name == "mine"
    assert get_rule(f"{module}:VERIFIER").name == "top_down"


def test_the_command_line_takes_it(module: str, run_cli: Any) -> None:
    asked = ("audit", "tree", f"{module}:RULE", "--detect", "1", "--trials", "500")
    assert run_cli.document(*asked)["verdict_class"] in ("lossless", "no deviation")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "derived from mdsd_opt.trees.TreeRule"),
        (Mine, "derived from mdsd_opt.trees.TreeRule"),
        (Called("my rule"), "the name 'my rule': give it one of letters"),
        (Called("all"), "other than 'all'"),
        (Called("traversal"), "'traversal' already: give this one another name"),
        (Called("kseq"), "'kseq' already"),
        (Called(None), "the name None"),
    ],
)
def test_what_is_no_rule_is_refused(given: Any, told: str) -> None:
    before = rule_names()
    with pytest.raises(InvalidInput, match=told):
        mo.trees.register(given)
    assert rule_names() == before


def test_a_name_that_is_none_is_told(module: str) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'traversal'"):
        get_rule("traversel")
    with pytest.raises(InvalidInput, match=r"mdsd_opt\.trees\.TreeRule, or a verifier"):
        get_rule(f"{module}:mo")
    with pytest.raises(InvalidInput, match="cannot load"):
        get_rule("no_such_module:RULE")
