"""Examples in the documentation that need PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.pages import DOCS, FENCE, PAGES, run_docs


def needs_torch(page: str) -> bool:
    blocks = "".join(code for _, code in FENCE.findall((DOCS / page).read_text()))
    return re.search(r"^(>>> |\.\.\. )? *(import|from) torch\b", blocks, re.MULTILINE) is not None


OF_TORCH = [page for page in PAGES if needs_torch(page)]


@pytest.mark.parametrize("page", OF_TORCH)
def test_examples_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    failures, missing = run_docs(page, tmp_path)
    assert not failures, "\n".join(failures)
    assert not missing


def test_some_pages_do() -> None:
    assert {"serving.md", "tutorials/audit-pytorch.md"} <= {*OF_TORCH}
