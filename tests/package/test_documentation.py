"""Every example in the documentation runs, and prints what the page says."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from support import commands
from support.api_names import api_names, found
from support.pages import PAGES, run_docs, run_page

import mdsd_opt
from mdsd_opt.errors import MdsdError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES)
def test_examples_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    failures, missing = run_docs(page, tmp_path)
    assert not failures, "\n".join(failures)
    if missing:
        pytest.skip(missing)


def test_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    namespace: dict[str, object] = {"__name__": "README"}
    printed = 0
    for (language, code), (following, said) in pairwise([*blocks, ("", "")]):
        if language == "python":
            exec(compile(code, "README.md", "exec"), namespace)
            assert capsys.readouterr().out == (said if following == "text" else "")
            printed += following == "text"
    namespace["sample"].close()  # type: ignore[attr-defined]  # or it warns later
    assert printed == 3


def commands_of(text: str) -> list[tuple[str, str]]:
    """Verb and arguments of every mdsd-opt command of a page."""
    joined = re.sub(r"\\\n\s*", " ", text)
    fences = re.findall(r"^```.*?^```$", joined, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```$", "", joined, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}.*", rest, re.MULTILINE)
    spans = [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", rest)]
    code = re.sub(r"(^|\s)# .*", "", "\n".join([*fences, *indented, *spans]))
    return re.findall(r"(?<!\{)mdsd-opt ([a-z]+)\b(.*)", code)


def unknown_options(text: str) -> list[str]:
    """What the commands of a page ask for and the program does not have."""
    verbs = commands.verbs()
    unknown = []
    for verb, arguments in commands_of(text):
        if verb not in verbs:
            unknown.append(verb)
            continue
        parts = {x.split()[-1]: y for x, y in commands.kinds_of(verb, verbs[verb]).items()}
        named = [parts[word] for word in arguments.split()[:1] if word in parts]
        subjects = {f"--{x.params[0].name}" for x in parts.values() if len(parts) > 1}
        known = subjects.union(
            name
            for part in named or parts.values()
            for x in part.params
            for name in (*x.opts, *x.secondary_opts)
        )
        asked = re.findall(r"(?<!\S)--?[a-z][\w-]*", arguments)
        unknown += [f"{verb} {option}" for option in asked if option not in known]
    return unknown


@pytest.mark.parametrize(
    "page", ["README.md", *(str(x.relative_to(ROOT)) for x in (ROOT / "docs").rglob("*.md"))]
)
def test_commands_have_verbs_and_options_that_exist(page: str) -> None:
    assert not unknown_options((ROOT / page).read_text())


def test_a_wrong_command_is_noticed() -> None:
    text = "    mdsd-opt rates x \\\n  --nodes 4\n\n`mdsd-opt plan\n--nodes 4`, `mdsd-opt rate`\n"
    assert unknown_options(text) == ["rates --nodes", "rate"]


#: Rooms with public names, without those that are reached by commands and by other rooms.
ROOMS = ["", *(f".{x.name}" for x in pkgutil.iter_modules(mdsd_opt.__path__) if x.ispkg)]
ROOMS += [".corpora.capture", ".corpora.reproduce", ".solvers.frontier", ".auditing.trees"]
ROOMS = [
    x for x in [*ROOMS, ".engines"]
    if hasattr(importlib.import_module(f"mdsd_opt{x}"), "__all__") and x not in (".bench", ".gpu")
]  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_in_the_api_reference(room: str) -> None:
    listed = {name.rpartition(".")[2] for name in api_names()}
    public = importlib.import_module(f"mdsd_opt{room}").__all__
    missing = {name for name in public if name[0] != "_" and not name.isupper()} - listed
    assert not missing, f"add {sorted(missing)} to the page of their topic in docs/api"


def test_every_name_of_the_package_is_on_a_page_beside_the_api() -> None:
    pages = (x for x in (ROOT / "docs").rglob("*.md") if not {"_build", "api"} & {*x.parts})
    words = {word for page in pages for word in re.findall(r"\w+", page.read_text())}
    assert not set(mdsd_opt.__all__) - words


def test_no_name_is_in_the_api_reference_twice() -> None:
    names = api_names()
    documented = [id(found(name)) for name in names]
    twice = sorted(
        name for name, x in zip(names, documented, strict=True) if documented.count(x) > 1
    )
    assert not twice, f"keep one of each in docs/api: {twice}"


def test_every_page_of_the_api_is_in_its_contents() -> None:
    """The first page of the reference stands in the sidebar, the others below it."""
    listed = re.findall(r"^api/(\w+)$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    (first,) = listed
    below = (ROOT / "docs" / "api" / f"{first}.md").read_text().partition("{toctree}")[2]
    listed += re.findall(r"^(\w+)$", below.partition("```")[0], re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in (ROOT / "docs" / "api").glob("*.md"))


def test_a_wrong_number_is_noticed() -> None:
    failures, missing = run_page("```pycon\n>>> 1 + 1\n3\n\n```\n", "page")
    assert failures
    assert not missing
    text = "```python\nx = 1\n```\n```pycon\n>>> x + 1\n2\n\n```\n"
    assert run_page(text, "page") == ([], "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import ray", "needs ray, which the extra cluster brings"),
        ("from ray.data import Dataset", "needs ray, which the extra cluster brings"),
        ("from mdsd_opt.errors import MissingExtra as M; raise M('a sentence')", "a sentence"),
    ],
)
def test_a_page_ends_where_its_extra_is_missing(
    monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    """What came before is looked at, what comes after is not."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "ray", None)
    for block in (f"```pycon\n>>> {line}\n>>> 1 + 1\n3\n\n```\n", f"```python\n{line}\n```\n"):
        rest = f"{block}```pycon\n>>> 1 + 1\n3\n\n```\n"
        assert run_page(rest, "page") == ([], said)
        failures, missing = run_page(f"```pycon\n>>> 2 + 2\n5\n\n```\n{rest}", "page")
        assert (len(failures), missing) == (1, said)


def test_a_module_that_no_extra_brings_is_a_fault_of_the_page() -> None:
    for line in ("import no_such_module", "from mdsd_opt import no_such_name"):
        with pytest.raises(ImportError, match="no_such"):
            run_page(f"```pycon\n>>> {line}\n\n```\n", "page")


def test_the_commands_of_open_questions_exist() -> None:
    """Claims are registered under these names, and the scripts and tests are there."""
    from mdsd_opt.cddlib_checks import conjectures

    page = (ROOT / "docs" / "open-questions.md").read_text()
    claims = re.findall(r"`mdsd-opt check (\w+) --vocab-size \d -k \d`", page)
    assert len(claims) == page.count("`mdsd-opt check ") > 2
    assert set(claims) <= set(conjectures())
    scripts = re.findall(r"`python (?:-m pytest )?(\S+\.py)", page)
    assert scripts
    for script in scripts:
        assert (ROOT / script).exists(), f"{script} is not there"


def test_every_measured_file_tells_its_version_or_why_it_is_older() -> None:
    folder = ROOT / "docs" / "benchmarks"
    told = (folder / "speed-honestly.md").read_text().partition("\n## Versions\n")[2]
    pattern = r"^\| `(\w+)` \| ([\d.]+) \| \d{4}-\d\d-\d\d \|(.*)\|$"
    listed = {
        name: (version, why.strip()) for name, version, why in re.findall(pattern, told, re.M)
    }
    assert set(listed) == {path.stem for path in (folder / "measured").iterdir()}
    present = mdsd_opt.__version__.split(".")[:2]
    for name, (version, why) in listed.items():
        (records,) = (folder / "measured").glob(f"{name}.json*")
        told = re.findall(r'"mdsd_opt": "(\d+\.\d+\.\d+)"', records.read_text())
        assert set(told) <= {version}, name
        assert version.split(".")[:2] == present or why, name


@pytest.fixture
def page_tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that makes tables of pages."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("page_tables")


def test_tables_of_pages_are_made(page_tables: ModuleType) -> None:
    asked = set()
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text()
        blocks = re.findall(r"^```\{(measured|made)\}", text, re.MULTILINE)
        if blocks:
            asked |= {*blocks}
            made = page_tables.with_tables(text)
            assert not re.search(r"^```\{(measured|made)\}", made, re.MULTILINE)
            assert made.count("\n|") >= text.count("\n|") + 4 * len(blocks)
    assert asked == {"measured", "made"}


def test_a_table_of_nothing_is_noticed(page_tables: ModuleType) -> None:
    blocks = (
        "measured} tree_rules\nno such table", "measured} no_such_records", "made} no_such_kind"
    )  # fmt: skip
    for block in blocks:
        with pytest.raises((KeyError, MdsdError), match=r"no.such"):
            page_tables.with_tables(f"```{{{block}\n```\n")


#: Columns of a block of code that a page shows beside its button, 1,280 pixels wide.
COLUMNS = 88


def code_that_is_cut(text: str) -> list[str]:
    """Lines of code, and of tables that are printed, beyond the columns of a page.

    A sentence that is printed may be longer: `tables.css` wraps it between its words.
    """
    wide = []
    pattern = r"^```([^\n]*)\n(.*?)^```$|^((?: {4}[^\n]*\n)+)"
    for language, code, indented in re.findall(pattern, text, re.MULTILINE | re.DOTALL):
        if not language.startswith("{"):
            said = language in ("pycon", "text") or code.startswith("$ ")
            prompts = (">>>", "...", "$") if said else ("",)
            wide += [
                line for line in (code or re.sub(r"^ {4}", "", indented, flags=re.M)).splitlines()
                if len(line) > COLUMNS and (line.startswith(prompts) or "   " in line.strip())
            ]  # fmt: skip
    return wide


@pytest.mark.parametrize("page", [str(x.relative_to(ROOT)) for x in (ROOT / "docs").rglob("*.md")])
def test_no_code_is_wider_than_a_page(page: str) -> None:
    assert not code_that_is_cut((ROOT / page).read_text())


def test_code_that_is_too_wide_is_noticed() -> None:
    long, table = "x" * COLUMNS, f"{'x' * 40}{' ' * 40}{'x' * 40}"
    assert code_that_is_cut(f"```python\n{long}\n{long}y\n```\n\n    {long}z\n") == [
        f"{long}y", f"{long}z"
    ]  # fmt: skip
    page = f"```pycon\n>>> {long}\nsaid of {long}\n{table}\n\n```\n"
    assert code_that_is_cut(page) == [f">>> {long}", table]


def test_what_is_wide_is_wrapped_and_not_cut() -> None:
    css = (ROOT / "docs" / "_static" / "tables.css").read_text()
    assert re.search(r"div\.highlight pre \{[^}]*white-space: pre-wrap;", css)


def test_lines_of_prose_are_short() -> None:
    no_prose = re.compile(r"^```.*?^```|\$\$.*?\$\$", re.MULTILINE | re.DOTALL)
    too_long = []
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if {"_build", "measured"} & {*page.parts}:
            continue
        lines = no_prose.sub("", page.read_text()).splitlines()
        prose = (x for x in lines if not x.startswith(("|", "    ", "![")) and "](" not in x)
        too_long += [f"{page.name}: {line}" for line in prose if len(line) > 130]
    assert not too_long, "\n".join(too_long)


def test_links_of_the_readme_lead_somewhere() -> None:
    found = re.findall(r"\]\(((?!http)[^)#]+)", (ROOT / "README.md").read_text())
    assert found
    assert [link for link in found if not (ROOT / link).exists()] == []


def test_the_sidebar_is_short_and_no_page_is_lost() -> None:
    """At most 25 entries on the first page, one of them "Solvers"; the others stand below one."""

    def entries(page: Path) -> list[str]:
        lists = re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), re.M | re.S)
        lines = [line for x in lists for line in x.splitlines() if line and line[0] != ":"]
        return [re.sub(r".*<(.*)>", r"\1", line) for line in lines]

    docs = ROOT / "docs"
    first = entries(docs / "index.md")
    assert len(first) <= 25
    assert "\nSolvers <" in (docs / "index.md").read_text()
    reached, waiting = {docs / "index.md"}, [docs / "index.md"]
    while waiting:
        page = waiting.pop()
        below = {(page.parent / f"{name}.md").resolve() for name in entries(page)} - reached
        reached |= below
        waiting += below
    pages = {x for x in docs.rglob("*.md") if not {"_build", "measured"} & {*x.parts}}
    assert pages == reached
    titles = {page: page.read_text().partition("\n")[0] for page in pages}
    assert not [page for page, title in titles.items() if len(title.split()) > 5]  # with its mark
