"""Published schemas hold for what verbs print, and for problems."""

from __future__ import annotations

import importlib.util
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import mdsd_opt as mo
from mdsd_opt.drafts import all_schemes

DOCS = Path(__file__).parents[2] / "docs"
_SPEC = importlib.util.spec_from_file_location("json_schemas", DOCS / "json_schemas.py")
assert _SPEC is not None
assert _SPEC.loader is not None
json_schemas = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(json_schemas)


def validator(name: str) -> Any:
    schema = json.loads((DOCS / "schemas" / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_there_is_one_for_every_kind_of_document() -> None:
    names = {path.name.removesuffix(".schema.json") for path in (DOCS / "schemas").iterdir()}
    assert names == {*json_schemas.COMMANDS, "problem"}
    assert {*json_schemas.TESTED} == {*json_schemas.COMMANDS}
    for name in names:
        assert not validator(name).is_valid({"nothing": 1})
        assert not validator(name).is_valid([])


@pytest.mark.parametrize("name", json_schemas.TESTED)
def test_other_commands_print_what_a_schema_says(name: str, tmp_path: Path) -> None:
    document = json_schemas.document_of(json_schemas.TESTED[name], tmp_path)
    validator(name).validate(document)
    for field in validator(name).schema["required"]:
        assert not validator(name).is_valid({k: v for k, v in document.items() if k != field})


Q = (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))
SCHEMES = [
    mo.WithReplacement(Q, 2), mo.WithoutReplacement([0.2, 0.3, 0.5], 2),
    mo.IndependentDrafts([[0.2, 0.3, 0.5], Q]),
]  # fmt: skip


@pytest.mark.parametrize("drafts", SCHEMES)
def test_problems_that_are_written(drafts: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    mo.save_problem(mo.TransportProblem(np.array([0.5, 0.3, 0.2]), drafts), path)
    validator("problem").validate(json.loads(path.read_text()))


PLAIN = json_schemas.PROBLEM
DOCUMENTS: list[tuple[Any, bool]] = [
    (PLAIN, True),
    (PLAIN | {"more": 1}, False),
    ({"target": PLAIN["target"]}, False),
    (PLAIN | {"target": ["half", 0.5]}, False),
    (PLAIN | {"drafts": PLAIN["drafts"] | {"num_drafts": 0}}, False),
    (PLAIN | {"drafts": PLAIN["drafts"] | {"num_draft": 2}}, False),
    (PLAIN | {"drafts": {"scheme": "independent", "q": [[0.2, 0.3, 0.5]] * 2}}, True),
    (PLAIN | {"drafts": {"scheme": "fixed_plus", "tokens": [1], "drafts": PLAIN["drafts"]}}, True),
    (PLAIN | {"drafts": {"scheme": "mixture", "masses": [0.5, "1/2"],
                         "components": [PLAIN["drafts"]] * 2}}, True),
    (PLAIN | {"drafts": {"scheme": "set_law", "vocab_size": 3, "sets": [[0], [1, 2]],
                         "masses": [0.5, 0.5]}}, True),
    (PLAIN | {"drafts": {"scheme": "none"}}, False),
]  # fmt: skip


@pytest.mark.parametrize(("document", "is_valid"), DOCUMENTS)
def test_a_problem_is_valid_where_it_is_read(document: Any, is_valid: bool, tmp_path: Path) -> None:
    assert validator("problem").is_valid(document) == is_valid
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    if is_valid:
        mo.load_problem(path)
    else:
        with pytest.raises(mo.MdsdError):
            mo.load_problem(path)


def test_every_scheme_has_its_entries() -> None:
    (choices,) = [validator("problem").schema["$defs"]["scheme"]["oneOf"]]
    found = {}
    for choice in choices:
        entries = {**choice["properties"]}
        names = entries.pop("scheme")
        for name in names.get("enum", [names.get("const")]):
            found[name] = tuple(entries)
    assert found == {name: tuple(scheme.entries) for name, scheme in all_schemes().items()}
