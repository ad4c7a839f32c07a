"""Views of relaxed targets, their acceptance and cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.output import make_table
from mdsd_opt.cli.view import Drawing, Section, View
from mdsd_opt.plots import frontier_figure
from mdsd_opt.solvers import FrontierPoint, RulePoint

if TYPE_CHECKING:
    from rich.table import Table


#: Slope, in nats per unit of acceptance, of the line that a conclusion is about.
_FAIR_PRICE = 0.1


def frontier_view(
    points: Sequence[FrontierPoint],
    listed: Sequence[FrontierPoint],
    rules: Sequence[RulePoint],
    title: str,
    **known: Any,
) -> View:
    """View of the frontier with rules in use; `known` is the document's entries on the source.

    All points are drawn, those that are listed stand in the table.
    """
    tables = [Section(table=_frontier_table(listed, title)), Section(table=_rules_table(rules))]
    document = {
        **known,
        "frontier": [point.to_dict() for point in points],
        "rules": [rule.to_dict() for rule in rules],
    }
    drawing = Drawing(partial(frontier_figure, points, rules), title=f"{_PICTURE_TITLE}\n{title}")
    return View(title, tables, [_conclusion(listed, rules)], document, drawing)


def _frontier_table(points: Sequence[FrontierPoint], title: str) -> Table:
    """Table with a section for each number of drafts, a line for each price of acceptance."""
    rows = (
        (
            str(point.num_drafts),
            f"{point.slope:g}" if point.slope else "lossless",
            f"{point.acceptance_rate:.4f}",
            f"{point.tv:.4f}",
            _nats(point.kl),
        )
        for point in points
    )
    return make_table(
        f"what more acceptance than lossless costs in distance, at best\n{title}",
        ("K", "price, nats\na unit", "acceptance", "TV", "KL, nats"),
        rows,
        words=(),
        caption="Each line is the closest laws at one price of acceptance, the same at every "
        "position; TV and KL: lower is better. This is one step: over a text, KL adds up.",
        grouped=True,
    )


def _rules_table(rules: Sequence[RulePoint]) -> Table:
    rows = (
        (
            rule.name,
            f"{rule.acceptance_rate:.4f}",
            f"{rule.tv:.4f}",
            _nats(rule.kl),
            f"{rule.best_acceptance_rate:.4f}",
            _nats(rule.least_kl),
        )
        for rule in rules
    )
    return make_table(
        "rules in use, one draft, beside the best there is",
        ("rule", "acceptance", "TV", "KL", "best accept.\nat this KL", "least KL,\nthis acc."),
        rows,
        caption="Best and least: of all laws that at each position have the rule's KL or "
        "acceptance.",
    )


def _conclusion(points: Sequence[FrontierPoint], rules: Sequence[RulePoint]) -> str:
    """Sentences about a first step beyond lossless, and the rule nearest to the frontier."""
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


def _nats(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.5f}"


#: Title above the picture.
_PICTURE_TITLE = (
    "What acceptance costs. Lines: the closest laws, K drafts. "
    "Points: rules in use, one draft, and above them the best that spend their KL."
)
