"""What the device programs compute, here with NumPy in CuPy's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_calls
import gpu_rates
import gpu_smoke
import numpy as np
import pytest
from support.waiting_cupy import WaitingCupy

import mdsd_opt as mo


@pytest.mark.parametrize(("rule", "num_drafts"), sorted(set(gpu_rates.CHECKED.values())))
def test_the_reference_is_the_optimum(rule: str, num_drafts: int) -> None:
    logits = np.random.default_rng(1).normal(size=(2, 3, 500))
    found = gpu_rates.exact_rates(list(logits), rule, num_drafts)
    expected = mo.acceptance_rates(*logits, num_drafts, rule)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_tables_are_made_of_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {
            "vocab_size": size, "num_rows": num_rows, "dtype": dtype, "operation": "one",
            "median_us": size * num_rows / 1e4, "error": None,
        }
        for size in (1000, 20_000)
        for num_rows in (1, 1024)
        for dtype in ("float32", "bfloat16")
    ]  # fmt: skip
    document = {"circumstances": "A device.", "versions": {"numpy": "2"}, "rows": rows}
    source, page = tmp_path / "found.json", tmp_path / "page.md"
    source.write_text(json.dumps(document))
    monkeypatch.setattr(sys, "argv", ["", "--read", str(source), "--markdown", str(page)])
    gpu_rates.main()
    text = page.read_text()
    for part in (
        "## One row, us a call", "| one | 0.1 / 0.1 | 2.0 / 2.0 |",
        "## 1,024 rows, us a row", "| one | 0.100 / 0.100 | 2.000 / 2.000 |",
        "| float32 / bfloat16 | 1,000 | 20,000 |", "A device. numpy 2.",
    ):  # fmt: skip
        assert part in text
    other = {"rows": [row | {"median_us": 2 * row["median_us"]} for row in rows[:1]]}
    assert "| one | 0.1 / 0.1 (0.50) | 2.0 / 2.0 |" in gpu_rates.markdown(document, other)


def test_every_case_has_a_plan(cupy: WaitingCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """On rows of CuPy, in place of PyTorch's."""
    rng = np.random.default_rng(2)
    pair = [cupy.asarray(rng.normal(size=(2, 300)).astype(np.float32)) for _ in range(2)]
    drawn = cupy.asarray(np.tile(np.arange(4), (2, 1)))
    torch = SimpleNamespace(
        multinomial=lambda law, count: SimpleNamespace(repeat=lambda rows, once: drawn),
        softmax=lambda logits, axis: logits,
    )
    monkeypatch.setattr(type(pair[1]), "float", lambda x: x, raising=False)
    for name, launch in gpu_rates.operations(torch, pair, "float32"):
        values = launch().get()
        if name in gpu_rates.CHECKED:
            sides = [x.get() for x in pair]
            expected = gpu_rates.exact_rates(sides, *gpu_rates.CHECKED[name])
            np.testing.assert_allclose(values, expected, atol=2e-6)
        assert values.shape[0] == 2


def test_calls_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps({"rates, plan": [12.3, 45.6]}))
    gpu_calls.report(path)
    assert "| rates, plan | 12 | 46 |" in capsys.readouterr().out


class _Event:
    def record(self) -> None: ...
    def synchronize(self) -> None: ...


CUPY: Any = SimpleNamespace(
    asarray=np.asarray,
    asnumpy=np.asarray,
    cuda=SimpleNamespace(Event=_Event, get_elapsed_time=lambda start, stop: 1.0),
)


@pytest.mark.parametrize("size", [1, 700])
def test_first_contact_launches_everything(size: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_smoke.run(CUPY, 2, size)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0].split()[-1] for line in lines] == [
        *gpu_smoke.RATES,
        *gpu_smoke.DECISIONS,
    ]


def test_first_contact_goes_on_after_a_failure_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gpu_smoke.RATES, "with_replacement", {"temperature": 1.5})  # wrong rates
    monkeypatch.setitem(gpu_smoke.RATES, "kseq", {"verifier": "none"})
    assert not gpu_smoke.run(CUPY, 2, 700)
    lines = capsys.readouterr().out.splitlines()
    assert "error" in lines[0]
    assert lines[3].endswith("kseq: FAILED")
    assert len(lines) == len(gpu_smoke.RATES) + len(gpu_smoke.DECISIONS)
    monkeypatch.undo()
    monkeypatch.setitem(gpu_smoke.RATES, "with_replacement", {"temperature": 1.5})
    assert not gpu_smoke.run(CUPY, 2, 700)
