"""How much is tried, which part of it, and the table at the end."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from stress import report


def pytest_addoption(parser):
    group = parser.getgroup("stress")
    group.addoption("--scale", type=float, default=1.0, help="share of all instances to try")
    group.addoption("--only", help="AREA:SEED, one seed of one area")
    group.addoption("--out", type=Path, help="counts by area as Markdown, or all of them as .json")


def pytest_terminal_summary(terminalreporter, config):
    counts = _counts(terminalreporter)
    if not counts:
        return
    terminalreporter.section("instances against exact rationals")
    terminalreporter.write_line(report.by_kind(counts))
    out = config.getoption("out")
    if out is not None:
        text = report.as_json(counts) if out.suffix == ".json" else report.by_area(counts)
        out.write_text(text + "\n", encoding="utf-8")


def _counts(terminalreporter):
    """Sums over all chunks, whichever process ran them."""
    counts = defaultdict(lambda: [0, 0])
    for results in terminalreporter.stats.values():
        for result in results:
            if getattr(result, "when", None) != "call":
                continue
            for name, found in result.user_properties:
                if name == "stress":
                    for area, kind, tried, wrong in found:
                        counts[area, kind][0] += tried
                        counts[area, kind][1] += wrong
    return counts
