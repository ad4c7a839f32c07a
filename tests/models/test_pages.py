"""What the pages do with a real model runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PAGES = sorted(
    str(page.relative_to(ROOT / "docs"))
    for page in (ROOT / "docs").rglob("*.md")
    if FENCE.search(page.read_text())
)


@pytest.mark.parametrize("page", PAGES)
def test_examples_with_a_model_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    namespace: dict[str, Any] = {"__name__": page}
    for code in FENCE.findall((ROOT / "docs" / page).read_text()):
        exec(compile(code, page, "exec"), namespace)
    if page == "decoding.md":
        assert len(namespace["output"].tokens) == 8
        assert namespace["text"].shape[1] == len(namespace["ids"]) + 8
        assert namespace["verdicts"].accepted.shape == (5,)


def test_there_is_a_page() -> None:
    assert "decoding.md" in PAGES
