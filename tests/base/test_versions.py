"""The list of what is installed."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest

import mdsd_opt
from mdsd_opt.base.installed import show_versions, versions


def test_every_dependency_is_named() -> None:
    known = versions()
    assert known["numpy"] == np.__version__
    assert known["mdsd_opt"] == mdsd_opt.__version__
    assert known["python"] == sys.version.split()[0]
    for name in ("scipy", "numba", "highspy", "cvxpy", "ml_dtypes", "pycddlib", "torch", "cupy"):
        assert known[name]


def test_what_is_missing_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert versions()["scipy"] == "not installed"


def test_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    show_versions()
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == list(versions())
    file = io.StringIO()
    show_versions(file)
    assert file.getvalue().splitlines() == printed
    assert capsys.readouterr().out == ""


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, mdsd_opt; mdsd_opt.show_versions()\n"
        "assert not {'numpy', 'scipy', 'numba', 'cvxpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
