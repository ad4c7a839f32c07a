"""What the page on shipped functions says of each, measured on the installed packages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch
from shipped_functions import SHIPPED, Shipped, of_one_draft

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "shipped.md"

#: Every function, by package and name.
FUNCTIONS = {f"{one.package} {one.name}": one for one in SHIPPED}


class Row(NamedTuple):
    """A line of the table."""

    version: str
    line: int
    verdict: str
    size: str


def stated() -> dict[str, Row]:
    """What the page says, by package and function."""
    found = re.findall(
        r"^\| (\S+) (\S+) \| `(\S+)` \| `\S+:(\d+)` \| .* \| (\S+) \| (\S*) \|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    return {
        f"{package} {name}": Row(version, int(line), verdict, size)
        for package, version, name, line, verdict, size in found
    }


def defined_at(one: Shipped) -> int:
    """The line of its file on which the function stands."""
    file = metadata.distribution(one.package).locate_file(one.path)
    scope: Any = ast.parse(Path(str(file)).read_text())
    for name in one.name.split("."):
        (scope,) = (node for node in scope.body if getattr(node, "name", "") == name)
    return int(scope.lineno)


def size_of(report: Any) -> float:
    """The largest distance of the laws that were driven; the mass of what may not come."""
    if report.verdict_class == "edge":
        return float(report.edge_mass)
    driven = [
        one.report.total_variation
        for one in getattr(report, "tried", ())
        if one.report is not None and one.report.method == "driven"
    ]
    return float(max(driven, default=report.total_variation))


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
    assert defined_at(one) == row.line


@pytest.mark.parametrize("name", FUNCTIONS)
def test_verdict_and_distance(name: str) -> None:
    row = stated()[name]
    report = FUNCTIONS[name].report()
    assert report.verdict_class == row.verdict, report.verdict
    if row.verdict == "lossless":
        assert size_of(report) < 1e-6
        assert not row.size
    else:
        assert f"{size_of(report):.2g}" == row.size


def test_ten_tokens_are_not_cut() -> None:
    """What is lost by `evaluate_posterior` is lost beyond the ten likeliest."""
    one = FUNCTIONS["transformers-mblt evaluate_posterior"]
    report = of_one_draft(one.adapter(one.load), 10)
    assert report.verdict_class == "lossless", report.verdict
