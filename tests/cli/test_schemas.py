"""Published schemas hold for what verbs print, and for problems."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from support.documents import DOCS, json_schemas, validator

import mdsd_opt as mo
from mdsd_opt.drafts import all_schemes

PLAIN = {
    "target": ["1/2", "0.3", 0.2],
    "drafts": {"scheme": "with_replacement", "q": [0.2, 0.3, 0.5], "num_drafts": 2},
}
COUNTS = "advise .72,.5,.34 --depth 3 --target-ms 20 --draft-ms 2"

#: Commands by the schema of what they print.
COMMANDS = [
    ("rates", "rates -k 1 --schemes all --verifiers optimal"),
    ("rates", "rates -k 1 --schemes greedy --best-filter --verifiers optimal,rrs"),
    ("advise", "advise --target-ms 20 --draft-ms 2 --rows-ms 1:20,8:21,64:40"),
    ("advise-counts", COUNTS),
    ("advise-counts", f"{COUNTS} --batch 1,16"),
    ("solve", "solve {problem} --plan --dual --subset --exact"),
    ("solve", "solve {problem} --method dual_lp"),
    ("plan", "plan --nodes 4 -k 2 --cost 1:20,16:22"),
    ("relax", "relax -k 2"),
    ("check", "check thresholds_raised --vocab-size 3 -k 2"),
    ("check", "check acceptance_one --vocab-size 3 -k 2 --facets"),
    ("check-claims", "check"),
    ("condition", 'condition "p0 >= 1/27" --vocab-size 3 -k 2'),
    ("search", 'search "greedy(2) >= without_replacement(2)" --vocab-size 3'),
    ("search", 'search "p0 >= 0" --given "q0 >= 2" --vocab-size 2 --trials 5'),
    ("prove", 'prove "p0 >= q0**3" -V 2 --given "q0 >= 1/2"'),
    ("prove", 'prove "with_replacement(2) >= with_replacement(1)" -V 2'),
    ("audit-verifier", "audit verifier rrs --vocab-size 6 --seconds 5"),
    ("audit-laws", "audit verifier naive_target --seconds 5"),
    ("bench", "bench solvers --quick --rounds 1 --methods full_lp -V 6"),
    ("reproduce", "reproduce spechub"),
]


@pytest.mark.parametrize("name", json_schemas.DOCUMENTS)
def test_all_fields_are_declared(name: str) -> None:
    assert not validator(name).is_valid({"nothing": 1})
    assert not validator(name).is_valid([])
    assert validator(name).schema["required"]


def spoiled(part: Any, schema: Any) -> Iterator[tuple[str, Any]]:
    """A document without a field, with one more, and of another type; of lists the first alone."""
    for kind in schema.get("anyOf", ()):
        if Draft202012Validator(kind).is_valid(part):
            yield from spoiled(part, kind)
            return
    if isinstance(part, dict) and "properties" in schema:
        for name in schema["required"]:
            yield f"without {name}", {x: part[x] for x in part if x != name}
        if schema["additionalProperties"] is False:
            yield "with one more", {**part, "one more": 1}
        for name, inner in schema["properties"].items():
            if name in part:
                if inner:
                    other = "words" if isinstance(part[name], dict) else {"another": [1]}
                    yield f"{name} of another type", {**part, name: other}
                for what, value in spoiled(part[name], inner):
                    yield f"{name}: {what}", {**part, name: value}
    elif isinstance(part, list) and part and "items" in schema:
        for what, value in spoiled(part[0], schema["items"]):
            yield what, [value, *part[1:]]


@pytest.mark.parametrize(
    ("name", "command"), COMMANDS, ids=[f"{n}-{name}" for n, (name, _) in enumerate(COMMANDS)]
)
def test_a_document_is_valid_as_it_is_and_in_no_other_way(
    name: str, command: str, tmp_path: Path, run_cli: Any
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PLAIN))
    words = shlex.split(command.format(problem=tmp_path / "p.json"))
    document = json.loads(run_cli(*words, "--json").stdout)
    validator(name).validate(document)
    changes = [*spoiled(document, validator(name).schema)]
    assert len(changes) > len(document)
    for what, changed in changes:
        assert not validator(name).is_valid(changed), what


Q = (Fraction(1, 5), Fraction(3, 10), Fraction(1, 2))
SCHEMES = [
    mo.WithReplacement(Q, 2), mo.WithoutReplacement([0.2, 0.3, 0.5], 2),
    mo.IndependentDrafts([[0.2, 0.3, 0.5], Q]),
]  # fmt: skip


PROBLEMS = Draft202012Validator(json.loads((DOCS / "schemas/problem.schema.json").read_text()))


@pytest.mark.parametrize("drafts", SCHEMES)
def test_problems_that_are_written(drafts: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    mo.save_problem(mo.TransportProblem(np.array([0.5, 0.3, 0.2]), drafts), path)
    PROBLEMS.validate(json.loads(path.read_text()))


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
    assert PROBLEMS.is_valid(document) == is_valid
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    if is_valid:
        mo.load_problem(path)
    else:
        with pytest.raises(mo.MdsdError):
            mo.load_problem(path)


def test_every_scheme_has_its_entries() -> None:
    (choices,) = [PROBLEMS.schema["$defs"]["scheme"]["oneOf"]]
    found = {}
    for choice in choices:
        entries = {**choice["properties"]}
        names = entries.pop("scheme")
        for name in names.get("enum", [names.get("const")]):
            found[name] = tuple(entries)
    assert found == {name: tuple(scheme.entries) for name, scheme in all_schemes().items()}
