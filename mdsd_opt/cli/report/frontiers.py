"""What relaxed targets accept and what they cost: as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mdsd_opt.solvers.frontier.rules import FrontierPoint, RulePoint

#: Nats a unit of acceptance, of the line that a conclusion is about.
_FAIR_PRICE = 0.1

if TYPE_CHECKING:
    from rich.table import Table


def frontier_table(points: Sequence[FrontierPoint], title: str) -> Table:
    """A section for each number of drafts, a line for each price of acceptance."""
    from rich.table import Table

    table = Table(
        title=f"what more acceptance than lossless costs in distance, at best\n{title}",
        caption="Each line is the closest laws at one price of acceptance, the same at every "
        "position; TV and KL: lower is better. This is one step: over a text, KL adds up.",
    )
    for name in ("K", "price, nats\na unit", "acceptance", "TV", "KL, nats"):
        table.add_column(name, justify="right")
    previous = None
    for point in points:
        if previous not in (None, point.num_drafts):
            table.add_section()
        table.add_row(
            str(point.num_drafts) if point.num_drafts != previous else "",
            f"{point.slope:g}" if point.slope else "lossless",
            f"{point.acceptance_rate:.4f}",
            f"{point.tv:.4f}",
            _nats(point.kl),
        )
        previous = point.num_drafts
    return table


def rules_table(points: Sequence[RulePoint]) -> Table:
    """Rules in use beside the best there is."""
    from rich.table import Table

    table = Table(title="rules in use, one draft, beside the best there is")
    table.caption = (
        "Best and least: of all laws that at each position have the rule's KL or acceptance."
    )
    table.add_column("rule")
    names = ("acceptance", "TV", "KL", "best accept.\nat this KL", "least KL,\nthis acc.")
    for name in names:
        table.add_column(name, justify="right")
    for point in points:
        table.add_row(
            point.name,
            f"{point.acceptance_rate:.4f}",
            f"{point.tv:.4f}",
            _nats(point.kl),
            f"{point.best_acceptance_rate:.4f}",
            _nats(point.least_kl),
        )
    return table


def conclusion(points: Sequence[FrontierPoint], rules: Sequence[RulePoint]) -> str:
    """What a first step beyond lossless buys, and which rule is nearest to the frontier."""
    most = max(point.num_drafts for point in points)
    line = [point for point in points if point.num_drafts == most]
    lossless, bought = line[0], next((p for p in line if p.slope >= _FAIR_PRICE), line[-1])
    nearest = min(rules, key=lambda rule: rule.best_acceptance_rate - rule.acceptance_rate)
    gained = bought.acceptance_rate - lossless.acceptance_rate
    below = nearest.best_acceptance_rate - nearest.acceptance_rate
    return (
        f"at K = {most}: lossless {lossless.acceptance_rate:.3f}; a mean KL of {bought.kl:.2g} "
        f"nats buys {gained:.3f}. Of the rules, {nearest.name} is nearest to the frontier, "
        f"{below:.3f} below it"
    )


def frontier_document(
    points: Sequence[FrontierPoint], rules: Sequence[RulePoint]
) -> dict[str, Any]:
    """The same for JSON; None is infinite."""
    return {
        "frontier": [point.to_dict() for point in points],
        "rules": [point.to_dict() for point in rules],
    }


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.5f}"
