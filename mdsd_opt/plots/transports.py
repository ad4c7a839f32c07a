"""Pictures of a transport problem: the acceptance region of three tokens, a plan as a heat map."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd_opt.base.arrays import Floats
from mdsd_opt.base.checked import of_kind
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import InvalidInput
from mdsd_opt.plots.drawing import COLUMN, SMALL, add_scale, axes_of
from mdsd_opt.problem import Solution, TransportPlan, TransportProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Most draft sets, and most tokens, that a heat map shows.
_MOST_SETS, _MOST_TOKENS = 40, 40

#: Share of the largest mass below which a mass is none, up to rounding.
_LEAST_SHARE = 1e-9

_HEIGHT = np.sqrt(3) / 2

#: Steps along an edge of the triangle.
_STEPS = 120


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
    if isinstance(result, TransportProblem):
        if result.vocab_size != 3:
            raise InvalidInput(
                f"an acceptance region has three tokens, not {result.vocab_size}: give a plan, as "
                "of mo.solve(problem, 'full_lp')"
            )
        axes: Axes = axes_of(ax, 2.6)
        _draw_region(axes, result.drafts, result.target)
        return axes
    own_plan = result.plan if isinstance(result, Solution) else result
    if own_plan is None and result is not None:
        raise InvalidInput("the solution has no plan: those of method='full_lp' and 'max_flow' do")
    own_plan = of_kind(own_plan, TransportPlan, "result", "a plan, a solution or a problem")
    height = 1.0 + 0.14 * min(own_plan.offsets.size, _MOST_SETS)
    axes = axes_of(ax, height, 2 * COLUMN)
    _draw_plan(axes, own_plan)
    return axes


def _draw_region(axes: Any, drafts: DraftScheme, target: Floats) -> None:
    """Draw alpha* of every target of three tokens, and where it is one, inside a red line.

    The law of the first draft is a circle, the target a cross.
    """
    steps = [(i, j, _STEPS - i - j) for i in range(_STEPS + 1) for j in range(_STEPS + 1 - i)]
    p = np.array(steps) / _STEPS
    x, y = _corner_coordinates(p)
    subsets = [np.array(s) for s in product([False, True], repeat=3)]
    alpha = np.min([1 + p[:, s].sum(axis=1) - drafts.containment(s) for s in subsets], axis=0)
    bands = np.linspace(0.0, 1.0, 11)
    shades = axes.tricontourf(x, y, np.clip(alpha, 0, 1 - 1e-9), levels=bands, cmap="viridis")
    if alpha.max() > 1 - 1e-6 > alpha.min():
        axes.tricontourf(x, y, alpha, levels=[1 - 1e-6, 2], colors="white", alpha=0.6)
        axes.tricontour(x, y, alpha, levels=[1 - 1e-6], colors="red", linewidths=1.5)
        axes.plot([], [], color="red", linewidth=1.5, label="inside: always accepted")
    q: Any = getattr(drafts, "q", None)
    if q is not None and np.ndim(q) == 1:
        axes.plot(
            *_corner_coordinates(np.asarray(q)), "o", color="black", mfc="white", label="draft q"
        )
    axes.plot(*_corner_coordinates(target), "x", color="black", mew=2, label="target p")
    corners = ((0, 0, "center", -2), (1, 0, "center", -2), (0.5, _HEIGHT, "center", 2))
    for token, (cx, cy, across, away) in enumerate(corners):
        axes.annotate(
            f"token {token}", (cx, cy), (0, 4 * away), textcoords="offset points", ha=across,
            va="center", fontsize=SMALL,
        )  # fmt: skip
    axes.set_aspect("equal")
    axes.axis("off")
    axes.legend(
        fontsize=SMALL, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False,
        columnspacing=1.0, handlelength=1.2,
    )  # fmt: skip
    add_scale(axes, shades, "optimal acceptance rate", shrink=0.8)


def _corner_coordinates(p: Floats) -> tuple[Any, Any]:
    """Place of p, shape (..., 3), in a triangle with token 0 left, 1 right, 2 on top."""
    return p[..., 1] + p[..., 2] / 2, p[..., 2] * _HEIGHT


def _draw_plan(axes: Any, plan: TransportPlan) -> None:
    """Draw the masses of a plan, draft sets by tokens; the largest where there are many.

    Colours are of logarithms, as masses differ by powers of ten; a token of the set that is not
    accepted there is light grey.
    """
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    size = int(plan.tokens.max(initial=0)) + 1
    by_set, by_token = plan.support_mass(), plan.token_mass(size)
    sets = np.sort(np.argsort(-by_set, kind="stable")[:_MOST_SETS])
    tokens = np.sort(np.argsort(-by_token, kind="stable")[:_MOST_TOKENS])
    row = np.full(by_set.size, -1)
    row[sets] = np.arange(sets.size)
    column = np.full(size, -1)
    column[tokens] = np.arange(tokens.size)
    at = row[plan.arc_support], column[plan.tokens]
    inside = (at[0] >= 0) & (at[1] >= 0)
    masses = np.full((sets.size, tokens.size), np.nan)  # white: the token is not in the set
    masses[at[0][inside], at[1][inside]] = plan.mass[inside]
    largest = float(plan.mass.max(initial=_LEAST_SHARE))
    seen = plan.mass[plan.mass > _LEAST_SHARE * largest]
    image = axes.imshow(
        np.maximum(masses, 1e-3 * _LEAST_SHARE * largest), aspect="auto",
        cmap=colormaps["viridis_r"].with_extremes(under="0.9"),  # light grey: nothing is accepted
        norm=LogNorm(float(seen.min(initial=largest)), largest),
    )  # fmt: skip
    labels = plan.sets()
    axes.set_xticks(range(tokens.size), tokens.tolist(), fontsize=SMALL - 1, rotation=90)
    axes.set_yticks(
        range(sets.size),
        ["{" + ", ".join(map(str, labels[s])) + "}" for s in sets.tolist()],
        fontsize=SMALL - 1,
    )
    axes.set_xlabel("accepted token", fontsize=SMALL)
    rest = "" if by_set.size <= _MOST_SETS else f", {_MOST_SETS} largest of {by_set.size:,}"
    axes.set_ylabel(f"draft set{rest}", fontsize=SMALL)
    add_scale(axes, image, "mass", extend="min")
