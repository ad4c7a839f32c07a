"""How much is tried, which part of it, and the table at the end."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path


def pytest_addoption(parser):
    group = parser.getgroup("stress")
    group.addoption("--scale", type=float, default=1.0, help="share of all instances to try")
    group.addoption("--only", help="AREA:SEED, one seed of one area")
    group.addoption("--out", type=Path, help="write the counts here, as Markdown or .json")



def pytest_terminal_summary(terminalreporter, config):
    counts = _counts(terminalreporter)
    if not counts:
        return
    terminalreporter.section("instances against exact rationals")
    terminalreporter.write_line(_table(counts))
    out = config.getoption("out")
    if out is not None:
        rows = [[area, kind, *count] for (area, kind), count in sorted(counts.items())]
        text = json.dumps(rows, indent=1) if out.suffix == ".json" else _table(counts)
        out.write_text(text + "\n", encoding="utf-8")


def _counts(terminalreporter):
    """Sums over all chunks, whichever process ran them."""
    counts = defaultdict(lambda: [0, 0])
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "call":
                continue
            for name, found in report.user_properties:
                if name == "stress":
                    for area, kind, tried, wrong in found:
                        counts[area, kind][0] += tried
                        counts[area, kind][1] += wrong
    return counts


def _table(counts):
    lines = ["| area | kind | instances | wrong |", "|---|---|---:|---:|"]
    lines += [
        f"| {area} | {kind} | {tried:,} | {wrong:,} |"
        for (area, kind), (tried, wrong) in sorted(counts.items())
    ]
    tried, wrong = (sum(count[n] for count in counts.values()) for n in (0, 1))
    return "\n".join([*lines, f"| all | | {tried:,} | {wrong:,} |"])
