"""Tables of the pages that are made whenever the site is built, of records and of what is declared.

A page asks for those of `benchmarks/measured` by a block, with the titles of some tables, or with
none for all of them, and by another for one that is made here, of records or of what the package
knows by name:

    ```{measured} tree_rules
    With replacement, all drafts and temperatures
    ```

    ```{made} solvers
    ```
"""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

import mdsd_opt as mo
from mdsd_opt.base.frames import markdown_table
from mdsd_opt.bench import load_report
from mdsd_opt.cli.verbs.bench import bench_view
from mdsd_opt.cli.view import as_text
from mdsd_opt.evidence import mean_interval

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

BLOCK = re.compile(
    r"^```\{(measured|made)\} (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


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


def solvers() -> str:
    rows = [
        (f"`{x.name}`", x.purpose, x.cost, x.needs) for x in mo.methods().values()
    ]
    return markdown_table(("method", "what for", "cost", "takes"), rows)


def published_rules() -> str:
    rows = [
        (
            x.name,
            x.year,
            x.source,
            x.lossless_for,
            f"`{x.here}`" if x.here else "no",
            x.note,
        )
        for x in mo.decoding.published_rules()
    ]
    return markdown_table(
        ("rule", "year", "paper", "lossless for", "here", ""), rows
    )


def decisions() -> str:
    """Medians of one decision, milliseconds: a row for each problem, a column for each route."""
    routes = (
        "optimal",
        "optimal, collapsed",
        "rrs",
        "packed sort route",
        "argsort route",
    )
    medians: dict[tuple[str, str], dict[str, str]] = {}
    for r in load_report(MEASURED / "decisions.json").records:
        problem = r.problem.replace("_", " ")
        medians.setdefault((problem, str(r.num_drafts)), {})[r.route] = (
            f"{r.median_ms:.3g}"
        )
    rows = [
        (*key, *(row[route] for route in routes)) for key, row in medians.items()
    ]
    return markdown_table(("problem", "K", *routes), rows)


def generation_speed() -> str:
    """Speed of whole generations over plain decoding's: a row for each way, a column for each T."""
    lines = (MEASURED / "generation_speed.jsonl").read_text().splitlines()
    took: dict[str, dict[float, dict[int, float]]] = {}
    for x in map(json.loads, lines):
        by_prompt = took.setdefault(x["way"], {}).setdefault(x["temperature"], {})
        by_prompt[x["prompt"]] = x["seconds"] / x["tokens"]

    def gain(way: str, temperature: float) -> str:
        own, plain = took[way][temperature], took["plain"][temperature]
        gains = np.array([plain[prompt] / own[prompt] for prompt in own])
        mean = mean_interval(gains, np.arange(gains.size))
        return f"{mean.mean:.2f} ± {mean.half_width:.2f}"

    columns = [*took["plain"]]
    rows = [
        (way, *(gain(way, t) for t in columns)) for way in took if way != "plain"
    ]
    return markdown_table(("way", *(f"T = {t:g}" for t in columns)), rows)


MADE = {
    "solvers": solvers,
    "published_rules": published_rules,
    "decisions": decisions,
    "generation_speed": generation_speed,
}


def with_tables(page: str) -> str:
    """A page with the tables in the place of the blocks that ask for them."""

    def made(block: re.Match[str]) -> str:
        kind, name, titles = block.groups()
        if kind == "made":
            return MADE[name]()
        return tables(name, titles.splitlines())

    return BLOCK.sub(made, page)
