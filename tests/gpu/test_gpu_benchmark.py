"""What the device programs compute, here with NumPy in CuPy's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_rates
import gpu_smoke
import numpy as np
import pytest

import mdsd_opt as mo


@pytest.mark.parametrize("rival", ["by_argsort", "by_packed_sort"])
def test_rivals_compute_the_optimum(rival: str) -> None:
    rng = np.random.default_rng(0)
    draft = 2.5 * rng.standard_normal((5, 3000), dtype=np.float32)
    target = draft + rng.standard_normal(draft.shape, dtype=np.float32)
    found = getattr(gpu_rates, rival)(np, target, draft, 3)
    np.testing.assert_allclose(found, mo.acceptance_rates(target, draft, 3), atol=2e-6)


@pytest.mark.parametrize("scheme", gpu_rates.SCHEMES)
def test_the_reference_is_the_optimum(scheme: str) -> None:
    target, draft = np.random.default_rng(1).normal(size=(2, 3, 500))
    found = gpu_rates.exact_rates(target, draft, 3, scheme)
    np.testing.assert_allclose(found, mo.acceptance_rates(target, draft, 3, scheme), atol=1e-10)


def test_a_table_is_made_of_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "vocab_size": 32_768,
        "num_rows": 8,
        "dtype": "float32",
        "num_drafts": 3,
        "route": "one",
        "median_ms": 2.0,
        "bytes": 4_000_000,
        "share_of_copy_bandwidth": 0.25,
        "max_error": 3e-7,
    }
    document = {"circumstances": "A device.", "versions": {"numpy": "2"}, "rows": [row]}
    source, page = tmp_path / "found.json", tmp_path / "page.md"
    source.write_text(json.dumps(document))
    monkeypatch.setattr(sys, "argv", ["", "--read", str(source), "--markdown", str(page)])
    gpu_rates.main()
    text = page.read_text()
    assert "| 32,768 | 8 | float32 | 3 | one | 2.000 | 4 | 2 | 0.25 | 3e-07 |" in text
    assert "A device." in text


def test_decisions_of_both_schemes_are_measured() -> None:
    launched: list[Any] = []

    def milliseconds(launch: Any) -> float:
        launched.append(launch())
        return 2.0

    clock: Any = SimpleNamespace(cupy=np, milliseconds=milliseconds)
    arguments: Any = SimpleNamespace(sizes=[50], dtypes=["float32"], rows=4, num_drafts=3, seed=0)
    rows = gpu_rates.measure_verification(clock, 1e12, arguments)
    assert [row["route"].partition(", ")[2] for row in rows] == [
        "with replacement",
        "without replacement",
    ]
    for row, verdict in zip(rows, launched, strict=True):
        assert verdict.tokens.shape == (4,)
        assert row["bytes"] == 2 * 4 * 50 * 4
        assert row["median_ms"] == 2.0


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
