"""What relaxed targets accept and what they cost: as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mdsd_opt.frontier.survey import FrontierPoint, RulePoint

if TYPE_CHECKING:
    from rich.table import Table


def frontier_table(points: Sequence[FrontierPoint], title: str) -> Table:
    """A section for each number of drafts, a line for each price of acceptance."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption_justify="left")
    table.caption = (
        "the closest laws; a line spends its mean KL best:\n"
        "acceptance has one price at every position.\n"
        "This is one step: over a text, KL adds up."
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

    title = "rules in use, one draft"
    table = Table(title=title, title_justify="left", caption_justify="left")
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
