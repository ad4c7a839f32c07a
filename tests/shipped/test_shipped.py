"""What the page on shipped functions says of each, measured on the installed packages."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from shipped_functions import SHIPPED
from support.chain_verifiers import hierarchical
from support.moved_clock import moved_clock  # noqa: F401

import mdsd_opt as mo
from mdsd_opt.auditing.engines import Adapter
from mdsd_opt.auditing.subject import DraftChain
from mdsd_opt.auditing.trees import TableModel

torch.set_num_threads(1)

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "shipped.md"

#: Every function, by package and name.
FUNCTIONS = {f"{one.package} {one.function}": one for one in SHIPPED}

#: Time at most; no audit comes near it on a machine that does nothing else.
SECONDS = 3600.0


def report_of(one: Adapter) -> Any:
    """The audit that the page tells of: on laws of all kinds, unless it says otherwise."""
    if one.function == "naive_hsd_step":
        return of_texts(one.made(one))
    if one.drafted is not None or one.function == "evaluate_posterior":
        return on_tables(one, 3 if one.drafted else 16)
    handed = {n: getattr(one, n) for n in ("takes", "library", "batch", "num_drafts")}
    return mo.audit_chain(
        one.made(one), 0, num_trials=12_000, driven_checks=5, seconds=SECONDS, **handed
    )


def on_tables(one: Adapter, size: int) -> Any:
    """Its own tree on random laws alone, exactly."""
    engine, tables = one.engine(one.function), (TableModel(size, seed) for seed in (6, 7))
    return mo.audit_tree(
        engine.verify, *tables, engine.drafted.tree, 0, method="driven", driven_checks=5,
        seconds=SECONDS,
    )  # fmt: skip


def of_texts(step: Any, size: int = 3, length: int = 3) -> Any:
    """A step that drafts by itself: its texts, as numbers, are tokens of one law.

    What a step leaves open is drawn from the target.
    """
    target, draft = TableModel(size, 6), TableModel(size, 7)
    law = np.ones(1)
    for n in range(length):
        law = (law[:, None] * [target(text) for text in np.ndindex(*(size,) * n)]).ravel()

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        text = step(target, draft)
        while len(text) < length:
            text.append(int(np.random.choice(size, p=target(tuple(text)))))  # noqa: NPY002
        return int(np.ravel_multi_index(text, (size,) * length))

    problem = mo.TransportProblem(law, mo.TopKDrafts(law, 1))
    return mo.audit(verify, problem, 0, 1_000, method="driven", driven_checks=100, seconds=SECONDS)


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


def defined_at(one: Adapter) -> int:
    """The line of its file on which the function stands."""
    file = metadata.distribution(one.package).locate_file(one.path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its strings
        scope: Any = ast.parse(Path(str(file)).read_text())
    for name in one.function.split("."):
        (scope,) = (node for node in scope.body if getattr(node, "name", "") == name)
    return int(scope.lineno)


def size_of(report: Any) -> float:
    """The distance on random laws of few tokens; the mass of what may not come, of an edge."""
    if report.verdict_class == "edge":
        return float(report.edge_mass)
    few = report.tried[0].report if hasattr(report, "tried") else report
    assert few.method == "driven"
    return float(few.total_variation)


def test_the_page_has_every_function_and_no_other() -> None:
    assert set(stated()) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_version_and_line(name: str) -> None:
    one, row = FUNCTIONS[name], stated()[name]
    assert f"{one.package}=={row.version}" in (FOLDER / "requirements.txt").read_text().split()
    assert one.version() == row.version
    assert one.tested == (row.version,)
    assert f"{one.path}:{defined_at(one)}" == row.place


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.usefixtures("clock")  # which stands: other work on the machine cuts no audit short
def test_verdict_and_distance(name: str) -> None:
    row = stated()[name]
    report = report_of(FUNCTIONS[name])
    assert report.verdict_class == row.verdict, report.verdict
    if report.clean:
        assert report.detectable_bias < 0.07  # in any direction, by so few calls
        assert size_of(report) < 1e-6
        assert not row.size
    else:
        assert f"{size_of(report):.2g}" == row.size


def test_ten_tokens_are_not_cut() -> None:
    """What is lost by `evaluate_posterior` is lost beyond the ten likeliest."""
    report = on_tables(FUNCTIONS["transformers-mblt evaluate_posterior"], 10)
    assert report.verdict_class == "lossless", report.verdict


def test_the_rule_of_a_paper() -> None:
    """As its authors' code has it, it accepts more than any lossless rule can."""
    target, draft = (TableModel(3, seed) for seed in (6, 7))
    for capped, verdict in ((False, "lossy"), (True, "lossless")):
        rule = partial(hierarchical, whole_capped=capped)

        def of_chain(root: Any, rng: Any, rule: Any = rule) -> Any:
            chain = DraftChain.of("hierarchical", root)
            return rule(chain.p, chain.q, chain.drawn)

        report = mo.audit_tree(
            of_chain, target, draft, "chain2", 0, method="driven",
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
    report = on_tables(replace(one, path=str(copy)), 3)
    assert report.verdict_class == "lossless", report.verdict
    assert report.accept_length == pytest.approx(report.optimal_accept_length, abs=1e-5)
