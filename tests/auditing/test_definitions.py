"""Functions out of files that cannot be imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mdsd_opt.auditing import load_definitions
from mdsd_opt.errors import InvalidInput

SOURCE = """
from __future__ import annotations
import math
from dataclasses import dataclass
import numpy as np
import no_such_package
from no_such_package.deep import thing, helper as other
try:
    from another_missing import Config
except ImportError:
    Config = None

@dataclass
class Result:
    tokens: thing

raise_if_run = no_such_package.boom()
SCALE: float = 2.0
_TABLE = [SCALE, 3.0]

def _inner(x):
    return math.sqrt(x) * _TABLE[0]

def verify(p: thing, q: Config) -> Config:
    return _inner(p) + np.float64(q)

class Sampler(other):
    def draw(self):
        return helper_of(self)

def uses_missing(x):
    return thing(x)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "engine.py"
    path.write_text(SOURCE)
    return path


def test_a_function_comes_with_what_it_needs_and_nothing_else(file: Path) -> None:
    module = load_definitions(file, "verify")
    assert module.verify(4.0, 1.0) == 5.0
    assert not hasattr(module, "raise_if_run")
    assert not hasattr(module, "Sampler")
    assert (
        module.verify.__code__.co_firstlineno
        == SOURCE[: SOURCE.index("def verify")].count("\n") + 1
    )
    assert module.verify.__code__.co_filename == str(file)


def test_what_python_warns_of_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "escapes.py"
    path.write_text("def verify(p):\n    '\\in'\n    return p\n")
    assert load_definitions(path, "verify").verify(2) == 2


def test_dataclasses_and_no_trace_in_the_modules(file: Path) -> None:
    before = set(sys.modules)
    result = load_definitions(file, "Result").Result([1])
    assert result.tokens == [1]
    assert result.__module__ not in sys.modules
    assert set(sys.modules) == before


def test_what_other_packages_hold_has_to_be_given(file: Path) -> None:
    with pytest.raises(InvalidInput, match="need thing from other packages"):
        load_definitions(file, "uses_missing")
    assert load_definitions(file, "uses_missing", thing=abs).uses_missing(-3) == 3
    assert load_definitions(file, "Sampler", other=object).Sampler()


def test_what_cannot_be_found_or_read_is_said(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="defines no verifier, sample at its top level"):
        load_definitions(file, "verify", "verifier", "sample")
    with pytest.raises(InvalidInput, match="cannot be read as Python"):
        load_definitions(tmp_path / "none.py", "verify")
    (tmp_path / "broken.py").write_text("def verify(:\n")
    with pytest.raises(InvalidInput, match="cannot be read as Python"):
        load_definitions(tmp_path / "broken.py", "verify")
    with pytest.raises(InvalidInput, match="is not installed: pip install --no-deps no-such-thing"):
        load_definitions("a.py", "verify", package="no-such-thing")


def test_files_of_installed_packages() -> None:
    module = load_definitions("typer/colors.py", "RED", package="typer")
    assert isinstance(module.RED, str)
