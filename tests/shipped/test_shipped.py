"""What the page on shipped functions says of each, measured on the installed packages."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch
from shipped_functions import SECONDS, SHIPPED, Shipped, on_tables
from support.chain_verifiers import hierarchical

import mdsd_opt as mo
from mdsd_opt.auditing import load_definitions
from mdsd_opt.auditing.chains import of_chains
from mdsd_opt.auditing.trees import TableModel

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "shipped.md"

#: Every function, by package and name.
FUNCTIONS = {f"{one.package} {one.name}": one for one in SHIPPED}


class Row(NamedTuple):
    """A line of the table."""

    version: str
    place: str
    verdict: str
    size: str


def stated() -> dict[str, Row]:
    """What the page says, by package and function."""
    found = re.findall(
        r"^\| (\S+) `(\S+)` \| (\S+) \| `(\S+)` \| .* \| (no deviation|\S+) \| (\S*) ?\|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    return {
        f"{package} {name}": Row(version, place, verdict, size)
        for package, name, version, place, verdict, size in found
    }


def defined_at(one: Shipped) -> int:
    """The line of its file on which the function stands."""
    file = metadata.distribution(one.package).locate_file(one.path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its strings
        scope: Any = ast.parse(Path(str(file)).read_text())
    for name in one.name.split("."):
        (scope,) = (node for node in scope.body if getattr(node, "name", "") == name)
    return int(scope.lineno)


def size_of(report: Any) -> float:
    """The distance on random laws of few tokens; the mass of what may not come, of an edge."""
    if report.verdict_class == "edge":
        return float(report.edge_mass)
    few = report.tried[0].report if hasattr(report, "tried") else report
    assert few.method == "driven"
    return float(few.total_variation)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_page_has_every_function_and_no_other() -> None:
    assert set(stated()) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_version_and_line(name: str) -> None:
    one, row = FUNCTIONS[name], stated()[name]
    assert f"{one.package}=={row.version}" in (FOLDER / "requirements.txt").read_text().split()
    assert metadata.version(one.package) == row.version
    assert f"{one.path}:{defined_at(one)}" == row.place


@pytest.mark.parametrize("name", FUNCTIONS)
def test_verdict_and_distance(name: str) -> None:
    row = stated()[name]
    report = FUNCTIONS[name].report()
    assert report.verdict_class == row.verdict, report.verdict
    if report.clean:
        assert report.lossless  # no bias of .05 could have stayed hidden
        assert size_of(report) < 1e-6
        assert not row.size
    else:
        assert f"{size_of(report):.2g}" == row.size


def test_ten_tokens_are_not_cut() -> None:
    """What is lost by `evaluate_posterior` is lost beyond the ten likeliest."""
    one = FUNCTIONS["transformers-mblt evaluate_posterior"]
    report = on_tables(10, 1)(one.adapter(one.load))
    assert report.verdict_class == "lossless", report.verdict


def test_the_rule_of_a_paper() -> None:
    """As its authors' code has it, it accepts more than any lossless rule can."""
    target, draft = (TableModel(3, seed) for seed in (6, 7))
    for capped, verdict in ((False, "lossy"), (True, "lossless")):
        rule = of_chains("hierarchical", partial(hierarchical, whole_capped=capped))
        report = mo.audit_tree(
            lambda root, rng, rule=rule: rule(root), target, draft, "chain2", 0, method="driven",
            driven_checks=20, seconds=SECONDS,
        )  # fmt: skip
        assert report.verdict_class == verdict, report.verdict
        if capped:
            assert report.accept_length == pytest.approx(report.optimal_accept_length, abs=1e-9)
        else:
            found = (report.total_variation, report.accept_length, report.optimal_accept_length)
            said = "{:.3f} away, and it gives {:.4f} tokens a step, where {:.4f} are the most"
            assert said.format(*found) in " ".join(PAGE.read_text().split())


#: By line of the file: what stands there, and what would mend it.
CAPPED_MENDED = {
    210: ("gamma - 1", "gamma"),
    223: ("tau,", "tau + 1,"),
    245: ("tau,", "tau + 1,"),
    248: ("range(tau)", "range(tau + 1)"),
}


def test_one_token_more_mends_capped_ratios(tmp_path: Path) -> None:
    one = FUNCTIONS["sequential-speculative-decoding capped_hsd_step"]
    file = Path(str(metadata.distribution(one.package).locate_file(one.path)))
    lines = file.read_text().splitlines()
    for line, (wrong, right) in CAPPED_MENDED.items():
        assert lines[line - 1].count(wrong) == 1
        lines[line - 1] = lines[line - 1].replace(wrong, right)
    copy = tmp_path / file.name
    copy.write_text("\n".join(lines))

    def load(**given: Any) -> Any:
        return load_definitions(copy, one.name, **given).capped_hsd_step

    report = on_tables(3, 2)(one.adapter(load))
    assert report.verdict_class == "lossless", report.verdict
    assert report.accept_length == pytest.approx(report.optimal_accept_length, abs=1e-5)
