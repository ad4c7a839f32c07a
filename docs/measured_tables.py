"""Tables of the pages made from the records in `benchmarks/measured`, whenever the site is built.

A page asks for them by a block, with the titles of some tables, or with none for all of them:

    ```{measured} tree_rules
    With replacement, all drafts and temperatures
    ```
"""

from __future__ import annotations

import importlib
import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

from mdsd_opt.bench import load_report
from mdsd_opt.cli.verbs.bench import bench_view
from mdsd_opt.cli.view import as_text

DOCS = Path(__file__).parent
MEASURED = DOCS / "benchmarks" / "measured"

#: The scripts in `benchmarks` that read their own records; `mdsd-opt bench` reads the others.
SCRIPTS = {
    "tree_rules": "tree_rules",
    "tree_bounds": "tree_rules",
    "sglang_trees": "sglang_trees",
    "gpu_rates": "gpu_rates",
    "gpu_calls": "gpu_calls",
}

BLOCK = re.compile(r"^```\{measured\} (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def everything(name: str) -> str:
    """All that the records of a name give, as Markdown."""
    if name not in SCRIPTS:
        return as_text(bench_view(load_report(MEASURED / f"{name}.json")), ".md")
    sys.path.insert(0, str(DOCS.parent / "benchmarks"))
    try:
        script = importlib.import_module(SCRIPTS[name])
    finally:
        del sys.path[0]
    told = io.StringIO()
    with redirect_stdout(told):
        script.report(next(MEASURED.glob(f"{name}.json*")))
    return told.getvalue()


def tables(name: str, titles: list[str]) -> str:
    """The tables of these titles, or everything where there are none."""
    text = everything(name)
    if not titles:
        return text
    parts = dict(
        re.findall(
            r"^## ([^\n]+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
    )
    return "\n".join(f"**{title}**\n\n{parts[title].strip()}\n" for title in titles)


def with_tables(page: str) -> str:
    """A page with the tables in the place of the blocks that ask for them."""
    return BLOCK.sub(lambda block: tables(block[1], block[2].splitlines()), page)
