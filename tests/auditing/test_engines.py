"""Adapters to engines: found by name and version, refused kindly, called in one form."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from importlib import metadata
from operator import ge, gt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import engines
from mdsd_opt.auditing.engines import Adapter, Engine, engine
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.errors import InvalidInput, MissingExtra, UnknownName


def rejection(p: Any, q: Any, drafts: tuple[int, ...], refuses: Any = ge) -> tuple[int, ...]:
    """A chain of drafts, as shipped functions take it; it draws from numpy.random."""
    draw: Any = np.random
    for n, x in enumerate(drafts):
        if refuses(draw.rand() * q[n, x], p[n, x]):
            left = np.maximum(p[n] - q[n], 0)
            return (*drafts[:n], int(draw.choice(left.size, p=left / left.sum())))
    return (*drafts, int(draw.choice(p.shape[1], p=p[-1])))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Two engines, and what is installed of them."""
    versions = {"fake-engine": "1.0"}
    right = Adapter(
        package="fake-engine",
        tested=("0.9", "1.0"),
        path="fake.py",
        function="verify",
        made=lambda shipped: rejection,
        rebound="its name",
    )
    adapters = {
        "fake": right,
        "zero": replace(right, made=lambda shipped: partial(rejection, refuses=gt)),
        "absent": replace(right, package="absent", tested=("2.0",)),
        "slow": replace(right, takes_long=True),
    }

    def version(package: str) -> str:
        if package not in versions:
            raise metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(engines, "ADAPTERS", adapters)
    monkeypatch.setattr(engine.metadata, "version", version)
    return versions


def test_engines_have_names() -> None:
    assert set(engines.names()) == {
        "transformers",
        "lmdeploy",
        "eagle",
        "vllm",
        "vllm_v2",
        "vllm_v2_block",
        "sglang",
        "sglang_block",
        "sglang_dspark",
        "sglang_dspark_kernel",
    }
    with pytest.raises(UnknownName, match="sglang_block"):
        engines.get("sglang-block")


def test_an_engine_is_a_callable_for_audits(fakes: dict[str, str]) -> None:
    engine = engines.get("fake")
    assert isinstance(engine, Engine)
    assert (engine.package, engine.version) == ("fake-engine", "1.0")
    problem = mo.TransportProblem([0.4, 0.3, 0.3], mo.WithReplacement([0.2, 0.3, 0.5], 1))
    assert mo.audit(engine, problem, 0, 500).clean
    report = mo.audit_tree(engine.verify, TableModel(3, 6), TableModel(3, 7), "chain2", 0)
    assert report.clean
    assert report.total_variation < 1e-12
    two = mo.TransportProblem([0.4, 0.3, 0.3], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    with pytest.raises(InvalidInput, match="one draft"):
        mo.audit(engine, two, 0, 500)
    with pytest.raises(InvalidInput, match="chain2"):
        mo.audit_tree(engine.verify, TableModel(3, 6), TableModel(3, 7), "2x1", 0)


def test_other_versions_are_refused(fakes: dict[str, str]) -> None:
    with pytest.raises(MissingExtra, match=r"pip install --no-deps absent==2\.0"):
        engines.get("absent")
    fakes["fake-engine"] = "1.1"
    with pytest.raises(InvalidInput, match=r"1\.1 is installed.*tested with 0\.9, 1\.0"):
        engines.get("fake")
    with pytest.warns(UserWarning, match="the adapter's"):
        assert engines.get("fake", any_version=True).version == "1.1"
    fakes["fake-engine"] = "1.0+cpu"
    assert engines.get("fake").version == "1.0+cpu"


def test_the_standard_audit_finds_what_an_accepted_zero_is_worth(fakes: dict[str, str]) -> None:
    right, wrong = (engines.audit_engine(engines.get(name)) for name in ("fake", "zero"))
    assert right.clean
    assert right.zeros.impossible_mass == 0
    assert wrong.texts.clean
    assert not wrong.clean
    assert wrong.zeros.impossible_mass == pytest.approx(0.7 * 2.0**-53)
    assert wrong.to_dict()["impossible_mass"] == wrong.zeros.impossible_mass
    assert "once in 2**53 draws" in wrong.finding


def test_the_command_line_audits_one_or_all(
    fakes: dict[str, str], run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # put back afterwards

    def run(*arguments: str) -> tuple[int, str, str]:
        done = run_cli("audit", *arguments)
        return done.returncode, done.stdout, done.stderr

    code, out, _ = run("--engine", "fake")
    assert code == 0
    assert "fake.verify (fake-engine 1.0)" in out
    code, out, err = run("--engine", "all", "--json", "--tolerate-edge", "0")
    assert code == 1
    rows = json.loads(out)["engines"]
    assert [row["engine"] for row in rows] == ["fake", "zero"]
    assert [row["verdict_class"] for row in rows] == ["lossless", "edge"]
    assert 0.0 < rows[0]["detectable_bias"] < 0.02
    assert rows[1]["edge_mass"] == pytest.approx(0.7 * 2.0**-53)
    assert "left out absent" in err
    assert "left out slow: takes more than ten minutes" in err
    assert run("--engine", "zero", "--tolerate-edge", "1e-17")[0] == 1
    assert run("--engine", "zero")[0] == 0  # by default an edge of 1e-12 at most is tolerated
    assert run("--engine", "absent")[0] == 2
    code, _, err = run("--engine", "fake", "--verifier", "optimal")
    assert code == 2
    assert "give one of --chain, --text, --tree, --trace, --verifier, --engine" in err


RULE = """
from ..base import Base, law_of

def drawn(law): return int(numpy.random.choice(law.size, p=law_of(law)))

class Rule(Base):
    def verify(self, drafts, p): return 0, drawn(p[0])

import numpy
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that cannot be imported, and an adapter of its rule as a plug-in."""
    (tmp_path / "someengine").mkdir()
    (tmp_path / "someengine" / "rule.py").write_text(RULE)
    info = tmp_path / "someengine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someengine\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_adapters.py").write_text(
        "from mdsd_opt.engines import Adapter\n"
        "def made(shipped):\n"
        "    rule = shipped.load(Base=object, law_of=abs)()\n"
        "    return lambda p, q, drafts: rule.verify(drafts, p)\n"
        "RULE = Adapter(package='someengine', tested=('1.0',), path='someengine/rule.py',\n"
        "               function='Rule.verify', made=made)\n"
    )


def test_an_adapter_of_ones_own_is_named_by_its_module(installed: None, run_cli: Any) -> None:
    own = engines.get("my_adapters:RULE")
    assert own.function == "someengine.rule.Rule.verify"
    report = engines.audit_engine(own)
    assert report.texts.total_variation < 1e-12
    assert "Never met: an accepted draft" in report.verdict
    done = run_cli("audit", "--engine", "my_adapters:RULE", "--json")
    assert json.loads(done.stdout)["engines"][0]["engine"] == "my_adapters:RULE"
    with pytest.raises(InvalidInput, match=r"is a function: give an mdsd_opt\.engines\.Adapter"):
        engines.get("my_adapters:made")


def test_an_adapter_that_is_installed_has_a_name(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mdsd_opt.base.registry.plugged_in", lambda group: {"mine": "my_adapters:RULE"}
    )
    assert engines.names()[-1] == "mine"
    assert engines.get("mine").name == "mine"
    assert not engines.takes_long("mine")
