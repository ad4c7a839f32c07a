"""Pictures fit a column, and draw what is known: bands, points, and no curve through bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.collections import PolyCollection
from matplotlib.text import Text

import mdsd_opt as mo
from mdsd_opt.corpora import RateRow
from mdsd_opt.decoding import place_rates, plan_tree
from mdsd_opt.evidence import MeanInterval
from mdsd_opt.plots import advice_figure, audit_figure, rates_figure, tree_figure
from mdsd_opt.trees import chances, forecasts

COLUMN = 3.4


def rows(counts: Sequence[int], *verifiers: str) -> list[RateRow]:
    return [
        RateRow(
            "with_replacement", k, name, MeanInterval(1 - 0.5**k, 0.5 - 0.5**k, 1.5 - 0.5**k, 9),
            bound=name == "gumbel",
        )
        for name in verifiers
        for k in counts
    ]  # fmt: skip


def drawn_lines(axes) -> list:
    return [line for line in axes.lines if line.get_linestyle() not in ("None", "")]


def test_few_counts_are_points_without_lines() -> None:
    (axes,) = rates_figure(rows([1, 2, 4], "optimal", "rrs")).axes
    assert not drawn_lines(axes)
    places = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 3]
    assert not np.array_equal(places[0], places[-1])  # side by side
    assert len(axes.containers) == 2


def test_many_counts_are_lines_with_bands_at_their_places() -> None:
    (axes,) = rates_figure(rows(range(1, 9), "optimal", "rrs")).axes
    assert [line.get_xdata().tolist() for line in drawn_lines(axes)] == [[*range(1, 9)]] * 2
    bands = [x for x in axes.collections if isinstance(x, PolyCollection)]
    assert len(bands) == 2
    low, high = bands[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == pytest.approx((0.0, 1.5 - 0.5**8), abs=1e-12)
    assert not axes.containers


def test_a_lower_bound_is_no_curve() -> None:
    figure = rates_figure(rows(range(1, 9), "optimal", "gumbel"))
    assert len(drawn_lines(figure.axes[0])) == 1
    assert "^" in {line.get_marker() for line in figure.axes[0].lines}
    labels = [text.get_text() for text in figure.legends[0].texts]
    assert "gumbel (lower bound)" in labels


def test_curves_have_their_names_at_their_ends_and_top_k_is_apart() -> None:
    counts = range(1, 9)
    drawn = [replace(row, scheme=s) for s in ("greedy", "top_k") for row in rows(counts, "a", "b")]
    figure = rates_figure(drawn)
    assert not figure.legends
    figure.draw_without_rendering()
    for axes, scheme in zip(figure.axes, ("greedy", "top-K"), strict=True):
        assert {text.get_text() for text in axes.texts} == {f"{scheme}, a", f"{scheme}, b"}
        first, second = (Text.get_window_extent(text) for text in axes.texts)  # of equal curves
        assert not first.overlaps(second)


def test_a_plan_names_the_root_and_numbers_its_nodes() -> None:
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((6, 20))
    table = place_rates(target, target + rng.standard_normal(target.shape), 4)
    plan = plan_tree(table, 8)
    rows = [(row.topology.name, row.expected_accepted) for row in forecasts(plan, table)]
    figure = tree_figure(plan.topology, chances(plan.topology, table), rows)
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written[0].startswith("root")
    assert len(written) == 1 + plan.topology.num_nodes
    assert f"{table[plan.topology.num_drafts[()], 0]:.2f}".lstrip("0") in written
    assert figure.get_figwidth() == COLUMN


def test_every_picture_is_one_column_wide_and_nothing_leaves_it() -> None:
    rng = np.random.default_rng(0)
    target = 2 * rng.standard_normal((4, 5, 20))
    draft = target + rng.standard_normal(target.shape)
    asked = mo.advise(target, draft, rows_ms={1: 20, 64: 30}, max_drafts=5)
    problem = mo.TransportProblem([0.5, 0.3, 0.2], mo.WithReplacement([0.2, 0.3, 0.5], 2))
    wrong = mo.audit(lambda p, q, drafts, rng: int(drafts[0]), problem, rng=0, num_trials=2_000)
    figures = [
        rates_figure(rows(range(1, 9), "optimal", "rrs", "gumbel")),
        rates_figure(rows(range(1, 9), "optimal", "importance_sampling")),
        rates_figure(rows([2], *(f"v{n}" for n in range(9)))),
        advice_figure(asked),
        audit_figure(wrong),
    ]
    for figure in figures:
        assert figure.get_figwidth() == COLUMN
        figure.draw_without_rendering()
        whole = figure.bbox
        for axes in figure.axes:
            box = axes.get_tightbbox()
            assert box.x0 >= whole.x0 - 1
            assert box.x1 <= whole.x1 + 1
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert box.x0 >= whole.x0 - 1
            assert box.x1 <= whole.x1 + 1
