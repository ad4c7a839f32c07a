"""Examples in the documentation that need PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.pages import DOCS, FENCE, PAGES, reader_at, run_page

IMPORT = re.compile(r"^(>>> |\.\.\. )? *(import|from) torch\b", re.MULTILINE)


def needs_torch(page: str) -> bool:
    blocks = "".join(code for _, code in FENCE.findall((DOCS / page).read_text()))
    return IMPORT.search(blocks) is not None


OF_TORCH = [page for page in PAGES if needs_torch(page)]


def from_the_import(page: str) -> str:
    """The page from the section on that imports PyTorch first; what is before runs without it."""
    text = (DOCS / page).read_text()
    first = IMPORT.search(text)
    assert first is not None
    return text[max(text.rfind("\n## ", 0, first.start()), 0) :]


@pytest.mark.parametrize("page", OF_TORCH)
def test_examples_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    with reader_at(tmp_path):
        failures, missing = run_page(from_the_import(page), page)
    assert not failures, "\n".join(failures)
    assert not missing


def test_some_pages_do() -> None:
    assert {"serving.md", "audits.md"} <= {*OF_TORCH}
    assert "audit_portfolio" not in from_the_import("audits.md")
