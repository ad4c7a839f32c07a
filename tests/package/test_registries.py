"""What a new file needs elsewhere; a failure says in which file to add what."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
from support import commands, solver_table, strategies, verifier_table

import mdsd_opt as mo
from mdsd_opt import cddlib_checks, decoding, drafts, formats, trees, verifiers
from mdsd_opt.cli.verbs import audit
from mdsd_opt.solvers import NAMED_RULES
from mdsd_opt.trees import rules

ROOT = Path(__file__).parents[2]

#: Verbs whose documents need models; `condition` has the document of `check`.
NEED_MODELS = {"capture", "decode", "condition"}

#: Where verifiers stand in a table.
PAGE = Path("docs/solvers-and-verifiers.md")


def rows_of_page(heading: str) -> set[str]:
    """Names in the first column of the table under a heading."""
    text = (ROOT / PAGE).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in first for name in re.findall(r"`(\w+)`", cell)}


def files_that_define(folder: str, name: str) -> set[str]:
    files = (ROOT / "mdsd_opt" / folder).glob("*.py")
    return {file.stem for file in files if re.search(rf"^{name}", file.read_text(), re.MULTILINE)}


def test_every_verifier_has_a_line_on_the_page() -> None:
    listed, known = rows_of_page("Verification algorithms"), set(verifiers.names())
    missing, gone = sorted(known - listed), sorted(listed - known)
    assert not missing, f"add {missing} to 'Verification algorithms' in {PAGE}"
    assert not gone, f"take {gone} out of 'Verification algorithms' in {PAGE}"


def test_every_verifier_has_a_section_with_an_example() -> None:
    sections = (ROOT / PAGE).read_text()
    for name in verifiers.names():
        assert f"\n## `{name}`\n" in sections, f"write a section `{name}` in {PAGE}"
        section = sections.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
        code = "".join(re.findall(r"^```(?:pycon|python)\n(.*?)^```$", section, re.M | re.S))
        asked = f'verifiers.get("{name}")'
        assert asked in code, f"let the example of `{name}` in {PAGE} call {asked}"


def test_every_solver_is_known_and_tested() -> None:
    here, known = files_that_define("solvers", "METHOD = "), set(mo.methods())
    assert here == known, f"{sorted(here ^ known)} are files of mdsd_opt/solvers or methods alone"
    tested = {entry.method for entry in solver_table.TABLE.values()} - {"auto"}
    missing = sorted(known ^ tested)
    assert not missing, f"put an Entry of {missing} into TABLE in tests/support/solver_table.py"


def test_every_solver_says_what_it_is_for_and_has_a_line_in_the_reference() -> None:
    """The table of the page is made of what METHOD says."""
    assert "```{made} solvers\n" in (ROOT / "docs" / "solvers.md").read_text()
    reference = (ROOT / "docs" / "api" / "problems.md").read_text()
    for name, method in mo.methods().items():
        where = f"in METHOD of mdsd_opt/solvers/{name}.py"
        for field in ("purpose", "cost", "needs"):
            assert getattr(method, field), f"give `{field}` {where}"
        entry = f"mdsd_opt.solvers.{name}.solve"
        assert entry in reference, f"add {entry} to docs/api/problems.md"


def test_every_draft_scheme_is_exported_and_tested() -> None:
    def concrete(scheme: type) -> set[type]:
        found = {scheme} if not inspect.isabstract(scheme) else set()
        return found.union(*(concrete(child) for child in scheme.__subclasses__()))

    public = {
        scheme
        for scheme in concrete(drafts.DraftScheme)
        if scheme.__module__.startswith("mdsd_opt.drafts")
        and not scheme.__name__.startswith("_")
        and hasattr(scheme, "scheme")  # a base of schemes has no name
    }
    tested = [type(example) for example in verifier_table.EXAMPLES.values()]
    for scheme in public:
        name = scheme.__name__
        if name.startswith("Sorted"):  # what a public scheme becomes where prefixes are best
            continue
        is_known = name in drafts.__all__ or scheme.scheme in drafts.SINGLE_MODEL_SCHEMES
        assert is_known, f"export {name} in mdsd_opt/drafts/__init__.py"
        assert any(issubclass(other, scheme) for other in tested), (
            f"put an example of {name} into EXAMPLES in tests/support/verifier_table.py"
        )
    missing = sorted(set(verifier_table.EXAMPLES) ^ set(strategies.SCHEMES))
    assert not missing, f"keep {missing} in step with _BUILDERS in tests/support/strategies.py"


def test_every_claim_is_stated_in_a_way_that_can_be_listed() -> None:
    for name, claim in cddlib_checks.conjectures().items():
        where = "in mdsd_opt/cddlib_checks/claims.py"
        assert claim.status in ("theorem", "conjecture", "false"), f"status of {name} {where}"
        assert claim.statement, f"give {name} a docstring that states it {where}"
        assert claim.source, f"say where {name} is from {where}"


def test_the_published_rules_are_those_that_exist() -> None:
    """The table of the package and the names that exist agree."""
    where = "in mdsd_opt/trees/rules/published.csv"
    rules = decoding.published_rules()
    known = {
        *decoding.rule_names(),
        *(type(x).__name__ for x in NAMED_RULES.values()),
    }
    named = {rule.here for rule in rules} - {""}
    assert named <= known, f"{sorted(named - known)} {where} do not exist"
    missing = sorted(set(decoding.rule_names()) - named)
    assert not missing, f"add {missing} {where}"
    for rule in rules:
        assert rule.here or rule.note, f"say why {rule.name!r} is not here {where}"
    page = (ROOT / "docs" / "published-rules.md").read_text()
    assert "```{made} published_rules\n" in page  # made of the table


def declared(module: Path) -> dict[str, ast.FunctionDef]:
    """Public functions of a file, by name."""
    body = ast.parse(module.read_text(encoding="utf-8")).body
    return {x.name: x for x in body if isinstance(x, ast.FunctionDef) and x.name[0] != "_"}


def test_every_rule_for_trees_is_known() -> None:
    folder = Path(rules.__file__).parent
    for module in folder.glob("*.py"):
        importlib.import_module(f"{rules.__name__}.{module.stem}")
    for kind in trees.TreeRule.__subclasses__():
        if kind.__module__.startswith(rules.__name__) and hasattr(kind, "name"):
            known = [type(rule) for rule in rules.MULTI_STEP.values()]
            assert kind in (*known, rules.Race, rules.TopDown), (
                f"put {kind.__name__}() into MULTI_STEP in mdsd_opt/trees/rules/__init__.py"
            )


def test_every_format_has_a_line_on_the_page() -> None:
    page = (ROOT / "docs" / "engine-formats.md").read_text().lower()
    for known in formats.formats():
        name = known.name.partition("'s")[0]
        assert name.lower() in page, f"add a line of {known.name} to docs/engine-formats.md"


def test_every_verb_is_known_and_has_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    schemas = importlib.import_module("json_schemas").DOCUMENTS
    known = commands.verbs()
    for module in (ROOT / "mdsd_opt" / "cli" / "verbs").glob("[!_]*.py"):
        where = f"of mdsd_opt/cli/verbs/{module.name} in mdsd_opt/cli/verbs/__init__.py"
        assert {module.stem, *declared(module)} & {*known}, f"name the verb {where}"
    for name in {*known} - NEED_MODELS:
        assert any(schema.partition("-")[0] == name for schema in schemas), (
            f"add the document of {name} to DOCUMENTS in docs/json_schemas.py"
        )


def test_every_subject_of_audits_is_a_kind() -> None:
    """A function that gives what is audited, and is named nowhere, would never be reached."""
    module = ROOT / "mdsd_opt" / "cli" / "verbs" / "audit.py"
    subjects = {
        name
        for name, x in declared(module).items()
        if x.returns and ast.unparse(x.returns) == "Audited"
    }
    assert subjects == {*audit.KINDS}, (
        f"name {sorted(subjects ^ {*audit.KINDS})} in KINDS of {module.name}"
    )


def test_checklists_name_models_and_kinds_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    models = re.findall(r"- Model: (?:`(\w+)` in )?`(mdsd_opt/[\w/]+\.py)`", page)
    for function, path in models:
        assert not function or function in declared(ROOT / path), f"{function} is not in {path}"
    source = (ROOT / "scripts" / "check-new").read_text()
    kinds = re.findall(r'^    "(\w+)": Kind\(', source, re.M)
    assert kinds == re.findall(r"- Check: `make check-new KIND=(\w+)`", page)
    assert len(models) == len(kinds) == 8
    for path in re.findall(r'"((?:mdsd_opt|tests)/[\w/.]+)"', source):
        assert (ROOT / path).exists(), f"scripts/check-new asks for {path}"
