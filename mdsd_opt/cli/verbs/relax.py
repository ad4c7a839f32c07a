"""mdsd-opt relax: what does more acceptance cost?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from mdsd_opt import plots, solvers
from mdsd_opt.base.frames import Result
from mdsd_opt.cli import options
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import Drawing, Form, View, present
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem

if TYPE_CHECKING:
    from mdsd_opt.solvers import Survey

#: Nats that the last unit of acceptance costs (0 is lossless), one for each line of the table.
_SLOPES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
#: Slopes between them, and to the end, so that the curves of the picture are smooth.
_MORE_SLOPES = (*(0.002 * 1.25**n for n in range(45)), math.inf)

#: What the picture shows.
_SHOWS = (
    "Lines: the closest laws, K drafts. Points: rules in use, one draft, and above them the best "
    "that spend their KL."
)


@dataclass(frozen=True)
class Relaxed(Result):
    """What is told of the frontier, and of rules beside it."""

    source: str
    scheme: str
    temperature: float
    positions: list[int]
    survey: Survey

    columns: ClassVar = ("source", "scheme", "temperature", "positions", "*survey")


def relax(
    logits: options.LogitFiles = None,
    *,
    kind: Given = options.KIND,
    num_drafts: options.NumDrafts = "1,2,4",
    drawn: Given = given("planning:compare_drafts", "scheme"),
    positions: Annotated[int, "Positions taken, evenly spread, at most; 0 for all."] = 16,
    sampling: Given = options.SAMPLING,
    form: Form,
) -> None:
    """Acceptance beyond lossless: the closest laws, their distance, and rules in use beside them.

    The laws are the closest to the target there are, in every f-divergence at once. All numbers are
    about one step; none of them says what a relaxed target does to the quality of a text.
    """
    import numpy as np

    counts, scheme = options.parse_counts(num_drafts), drawn["scheme"]
    if positions < 0:
        raise InvalidInput(f"--positions is {positions}: give a number, or 0 for all")
    sample = options.given_sample(logits, **kind)
    target = sample.target.reshape(-1, sample.target.shape[-1])
    draft = sample.draft.reshape(-1, sample.draft.shape[-1])
    if not len(target):
        raise InvalidInput(f"{sample.source} has no positions")
    taken = min(positions or len(target), len(target))
    rows = np.linspace(0, len(target) - 1, taken).round().astype(int).tolist()

    def problems(k: int, drafted: str) -> list[TransportProblem]:
        return [
            TransportProblem.from_logits(
                target[row], draft[row], k, drafted, kind="logits", **sampling
            )
            for row in rows
        ]

    slopes = sorted(_SLOPES + _MORE_SLOPES) if form.drawn else _SLOPES
    points = [p for k in counts for p in solvers.survey_frontier(problems(k, scheme), slopes)]
    single = problems(1, "with_replacement")
    laws = [x.drafts.q for x in single]  # type: ignore[attr-defined]  # one draft model
    rules = solvers.survey_rules(single, laws, solvers.NAMED_RULES)
    temperature = sampling["temperature"]
    title = (
        f"{sample.source if logits else Path(sample.source).name}\n"
        f"{taken} of {len(target)} positions, V = {target.shape[-1]:,}\n"
        f"{scheme.replace('_', ' ')}, temperature {temperature:g}"
    )
    listed = solvers.Survey([point for point in points if point.slope in _SLOPES], rules)
    survey = solvers.Survey(points, rules)
    document = Relaxed(sample.source, scheme, temperature, rows, survey)
    frontier, beside = listed.tables()
    tables = [frontier.about(title), beside]
    drawing = Drawing(
        partial(plots.frontier_figure, points, rules),
        _SHOWS,
        "What acceptance beyond lossless costs",
    )
    present(View(title, tables, [listed.conclusion], document, drawing), form)
