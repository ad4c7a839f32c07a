"""Pictures of results on matplotlib axes, as the command line draws them.

Each function draws on `ax`, or on a figure of its own, and returns the axes, so that titles, sizes
and whatever else a paper asks for can be changed. They need matplotlib (``mdsd-opt[plot]``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.view import COLUMN, new_figure
from mdsd_opt.errors import InvalidInput, UnreadableFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mdsd_opt.cli.bench import BenchReport
    from mdsd_opt.corpora.rates import RateRow
    from mdsd_opt.corpora.stability import TextStability
    from mdsd_opt.planning.advice import Advice
    from mdsd_opt.planning.draft_filter import BestFilter
    from mdsd_opt.problem import TransportProblem
    from mdsd_opt.problem.solution import Solution, TransportPlan

__all__ = ["advice", "bench", "draft_filters", "plan", "rates", "stability"]


def rates(
    result: Sequence[RateRow] | Mapping[str, Any] | str | os.PathLike[str], ax: Axes | None = None
) -> Axes:
    """Acceptance rates against the number of drafts, with their intervals.

    Parameters
    ----------
    result : sequence of RateRow, mapping or path
        Rows of `mdsd_opt.corpora.rates.rate_rows`, or what ``mdsd-opt rates --json`` has printed,
        as it is loaded or as the path of its file.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.

    Raises
    ------
    InvalidInput, UnreadableFile
        The result, or its file, holds no rates.
    MissingExtra
        There is no matplotlib.
    """
    from mdsd_opt.cli.report.rates import draw_rates
    from mdsd_opt.corpora.rates import RateRow

    document = _loaded(result) if isinstance(result, str | os.PathLike) else result
    if isinstance(document, Mapping):
        try:
            document = [RateRow.from_dict(row) for row in document["rows"]]
        except (KeyError, TypeError) as error:
            raise InvalidInput(
                f"the result has no rates (no {error}): give what mdsd-opt rates --json prints"
            ) from None
    rows = list(document)
    if not rows or not all(isinstance(row, RateRow) for row in rows):
        raise InvalidInput("the result has no rates: give rows of corpora.rates.rate_rows")
    axes = _axes(ax)
    draw_rates(axes, rows)
    return axes


def bench(
    result: BenchReport | str | os.PathLike[str],
    ax: Axes | None = None,
    *,
    benchmark: str | None = None,
) -> Axes:
    """Time of a call against V, both logarithmic, a line for each route.

    Parameters
    ----------
    result : BenchReport or path
        Report that ``mdsd-opt bench --out FILE.json`` has saved, or its path.
    ax : matplotlib.axes.Axes, optional
        New axes unless given.
    benchmark : str, optional
        Which of the benchmarks in it; the first unless given.

    Raises
    ------
    InvalidInput, UnreadableFile
        Nothing was measured, or the file is no report.
    MissingExtra
        There is no matplotlib.
    """
    from mdsd_opt.cli.bench import load_report
    from mdsd_opt.cli.report.bench import draw_times

    report = load_report(Path(result)) if isinstance(result, str | os.PathLike) else result
    done = [record for record in report.records if record.median_ms is not None]
    known = list(dict.fromkeys(record.benchmark for record in done))
    if not known or (benchmark or known[0]) not in known:
        raise InvalidInput(f"nothing of {benchmark or 'any benchmark'} was measured: {known}")
    axes = _axes(ax)
    draw_times(axes, [record for record in done if record.benchmark == (benchmark or known[0])])
    return axes


def advice(result: Advice, ax: Axes | None = None) -> Axes:
    """Speed-ups of the ways to draft over plain decoding, as bars; the advised one is coloured.

    Parameters
    ----------
    result : Advice
        Advice of `mdsd_opt.advise`.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.
    """
    from mdsd_opt.cli.report.advice import draw_options

    axes = _axes(ax, 0.6 + 0.27 * len(result.rows))
    draw_options(axes, result)
    return axes


def draft_filters(result: BestFilter, ax: Axes | None = None) -> Axes:
    """Acceptance against the temperature of the draft, a line for each of the best filters.

    Parameters
    ----------
    result : BestFilter
        Of `mdsd_opt.best_draft_filter`.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.
    """
    from mdsd_opt.cli.report.filters import draw_filters

    axes = _axes(ax)
    draw_filters(axes, result)
    return axes


def plan(result: TransportPlan | Solution | TransportProblem, ax: Axes | None = None) -> Axes:
    """Transport plan as a heat map, draft sets by accepted tokens; or an acceptance region.

    Parameters
    ----------
    result : TransportPlan, Solution or TransportProblem
        A solution has to have a plan. Of a problem of three tokens alpha* of every target is drawn,
        with those of alpha* = 1 inside a red line.
    ax : matplotlib.axes.Axes, optional
        New axes unless given.

    Raises
    ------
    InvalidInput
        The solution has no plan, or the problem not three tokens.
    MissingExtra
        There is no matplotlib.
    """
    from mdsd_opt.cli.report.transports import draw_plan, draw_region, plan_size
    from mdsd_opt.problem import TransportProblem
    from mdsd_opt.problem.solution import Solution

    if isinstance(result, TransportProblem):
        if result.vocab_size != 3:
            raise InvalidInput(
                f"an acceptance region has three tokens, not {result.vocab_size}: give a plan, as "
                "of mo.solve(problem, 'full_lp')"
            )
        axes = _axes(ax, 2.6)
        draw_region(axes, result.drafts, result.target)
        return axes
    found = result.plan if isinstance(result, Solution) else result
    if found is None:
        raise InvalidInput("the solution has no plan: those of method='full_lp' and 'max_flow' do")
    axes = _axes(ax, *reversed(plan_size(found)))
    draw_plan(axes, found)
    return axes


def stability(result: TextStability, ax: Axes | None = None) -> Axes:
    """Share of tokens that may change against how far logits move, greedy ones at every distance.

    Parameters
    ----------
    result : TextStability
        Of `mdsd_opt.text_stability`.
    ax : matplotlib.axes.Axes, optional
        New axes of one column's width unless given.
    """
    from mdsd_opt.cli.report.stability import draw_stability

    axes = _axes(ax)
    draw_stability(axes, result)
    return axes


def _axes(ax: Axes | None, height: float = 2.5, width: float = COLUMN) -> Any:
    return new_figure(figsize=(width, height)).add_subplot() if ax is None else ax


def _loaded(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path} is no result of mdsd-opt rates --json: {error}") from None
