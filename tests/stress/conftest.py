"""How much is tried, which part of it, and the table at the end."""

from __future__ import annotations

from collections import defaultdict


def pytest_addoption(parser):
    group = parser.getgroup("stress")
    group.addoption("--scale", type=float, default=1.0, help="share of all instances to try")
    group.addoption("--only", help="AREA:SEED, one seed of one area")


def pytest_terminal_summary(terminalreporter):
    """How many instances of each kind were tried, and how many were wrong, of all processes."""
    counts = defaultdict(lambda: [0, 0])
    for results in terminalreporter.stats.values():
        for result in (x for x in results if getattr(x, "when", None) == "call"):
            for name, found in result.user_properties:
                for area, kind, tried, wrong in found if name == "stress" else ():
                    counts[f"{area}, {kind}"][0] += tried
                    counts[f"{area}, {kind}"][1] += wrong
    if counts:
        terminalreporter.section("instances against exact rationals")
        counts["all"] = [sum(x) for x in zip(*counts.values(), strict=True)]
        for name, (tried, wrong) in sorted(counts.items()):
            terminalreporter.write_line(f"{tried:9,} {wrong:6,} wrong  {name}")
