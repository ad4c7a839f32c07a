"""Samples that were cut or changed: one clear error, or what the rest of them says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.changed_files import CHANGES, NAMES, SAMPLES, outcome, try_change, try_cut


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_sample_is_refused_or_can_be(name: str, tmp_path: Path) -> None:
    for seed in range(2):
        try_cut(tmp_path, name, seed)
    for kind in CHANGES:
        try_change(tmp_path, name, kind, 0)


def test_the_checks_see_what_is_wrong(tmp_path: Path) -> None:
    """Each count of an answer, changed alone, contradicts another."""
    path, whole = tmp_path / "x.txt", (SAMPLES / "vllm-stream-04.txt").read_bytes()
    for old, new in (
        (b": 141", b": 142"), (b": 80,", b": 81,"), (b": 240", b": 340"),
        (b"2.7625", b"3.7625"), (b"0.5875", b"0.6875"), (b"[12,", b"[13,"),
    ):  # fmt: skip
        assert outcome(path, whole.replace(old, new)) is None, new
    assert outcome(path, whole) is not None
