"""mdsd-opt audit --text: functions that draft by themselves, from the shell."""

from __future__ import annotations

import json

import pytest

SESSIONS = """
import numpy as np

def law(model):
    weights = np.exp(model([])[0])
    return weights / weights.sum()

def right(target, draft):
    draft([])
    return [int(np.random.choice(law(target).size, p=law(target)))]

def wrong(target, draft):
    return [int(np.random.choice(law(draft).size, p=law(draft)))]

def fails(target, draft):
    raise NameError("name 'x' is not defined")
"""


@pytest.mark.parametrize(
    ("name", "code", "kind"), [("right", 0, "no deviation"), ("wrong", 1, "lossy"),
                               ("fails", 3, "not judged")]
)  # fmt: skip
def test_the_exit_code_is_that_of_the_class(run_cli, tmp_path, monkeypatch, name, code, kind):
    (tmp_path / "my_sessions.py").write_text(SESSIONS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = ["--trials", "300", "--method", "sampling", "--detect", "1", "--json"]
    result = run_cli("audit", "--text", f"my_sessions:{name}", *options)
    assert result.returncode == code, result.stderr
    assert json.loads(result.stdout)["verdict_class"] == kind
