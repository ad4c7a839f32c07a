"""Counts as tables; ``python -m stress.report RUN.json ...`` prints that of the documentation."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

#: (area, kind) -> instances, wrong ones.
Counts = Mapping[tuple[str, str], list[int]]

#: What the areas are; that of the solvers has three parts.
TITLES = {
    "schemes": "draft schemes: Q of all subsets, laws of sets and tuples, samples",
    "solve": "solvers, every method",
    "certify": "certificates, in floats and exactly",
    "forge": "forged solutions",
    "evidence": "forged evidence: plans, bases, covers, orders, selections, subsets, claims",
    "many": "many drafts and tokens: optimum, Q, decisions, batches",
    "batches": "batches of logits, every column",
    "verifiers": "verifiers: output law, rate, verdicts",
    "trees": "tree rules: law of the whole output",
    "budgets": "relaxed targets: budgets, rates, laws, in floats and exactly",
}


def read(paths: Iterable[Path]) -> Counts:
    """Sums over the runs."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for path in paths:
        for area, kind, tried, wrong in json.loads(path.read_text(encoding="utf-8")):
            counts[area, kind][0] += tried
            counts[area, kind][1] += wrong
    return counts


def as_json(counts: Counts) -> str:
    return json.dumps([[*key, *count] for key, count in sorted(counts.items())], indent=1)


def by_kind(counts: Counts) -> str:
    return _table({f"{area}, {kind}": count for (area, kind), count in sorted(counts.items())})


def by_area(counts: Counts) -> str:
    rows = {title: [0, 0] for title in TITLES.values()}
    for (area, kind), (tried, wrong) in counts.items():
        title = TITLES[area if area in TITLES else kind.partition(":")[0]]
        rows[title][0] += tried
        rows[title][1] += wrong
    return _table({title: count for title, count in rows.items() if count[0]})


def _table(rows: Mapping[str, list[int]]) -> str:
    tried, wrong = (sum(count[n] for count in rows.values()) for n in (0, 1))
    lines = ["| what | instances | wrong |", "|---|---:|---:|"]
    lines += [f"| {name} | {count[0]:,} | {count[1]:,} |" for name, count in rows.items()]
    return "\n".join([*lines, f"| all | {tried:,} | {wrong:,} |"])


if __name__ == "__main__":
    print(by_area(read(map(Path, sys.argv[1:]))))
