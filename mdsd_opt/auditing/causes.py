"""Shapes of wrong laws: a name is given only to a shape that was measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.auditing.output_checks import by_rank, by_ratio, merged_cells
from mdsd_opt.base.array_types import Vector
from mdsd_opt.drafts import DraftScheme

#: Share of the distance that moving mass across one place of an order has to explain, and the
#: share that the other order may explain at most beside it.
_EXPLAINS, _ALSO_EXPLAINS = 0.95, 0.85

#: Distances below this multiple of their noise are too small to show a shape.
_LEAST_SIGNAL = 5.0

#: Expected outcomes beyond a rank that, if none of them came, make a cut.
_LEAST_MISSED = 30.0


def cause(
    output: Vector, target: Vector, drafts: DraftScheme, num_trials: int | None = None
) -> str:
    r"""Name the shape of a deviation of the output law from the target, if it has a known one.

    A cut gives nothing to tokens beyond a rank of p. Mass that is moved across one place of an
    order (of p/q, or of p) shows in that order alone: :math:`\max_t |\sum_{i \le t} d_i|` is the
    whole distance then, where :math:`d` is the difference of the laws.

    Parameters
    ----------
    output, target : ndarray, shape (V,)
        Observed frequencies, or a law that was found exactly; p.
    drafts : DraftScheme
    num_trials : int, optional
        Number of trials behind the frequencies.

    Returns
    -------
    str
        Empty where no shape fits.
    """
    rank = by_rank(target)
    reached = np.flatnonzero(output[rank] > 0)
    support = int(reached[-1]) + 1 if reached.size else 0
    missed = float(target[rank[support:]].sum())
    if missed * (num_trials or np.inf) > _LEAST_MISSED:
        return f"only the {support:,} likeliest tokens of the target come out"
    by_order = {
        "between tokens drafted too often and too rarely": by_ratio(target, drafts),
        "between likely tokens and the tail": rank,
    }
    shares = {
        name: _explained(output, target, order, num_trials) for name, order in by_order.items()
    }
    (name, most), (_, other) = sorted(shares.items(), key=lambda item: -item[1])
    return f"mass moved {name}" if most >= _EXPLAINS and other <= _ALSO_EXPLAINS else ""


def _explained(
    output: Vector, target: Vector, order: NDArray[np.int64], num_trials: int | None
) -> float:
    """Share of the distance between cells in an order that one crossing explains; 0 for noise."""
    cells = merged_cells(target, order, num_trials or 1 << 40)
    inside = cells.of_token >= 0
    masses = np.bincount(
        cells.of_token[inside], weights=output[inside], minlength=cells.probabilities.size
    )
    difference = masses - cells.probabilities
    distance = 0.5 * float(np.abs(difference).sum())
    rest = np.maximum(1 - cells.probabilities, 0.0)  # their sum may round to more than one
    variance = cells.probabilities * rest / (num_trials or np.inf)
    if distance <= _LEAST_SIGNAL * float(np.sqrt(variance).sum()) / np.sqrt(2 * np.pi):
        return 0.0
    return float(np.abs(np.cumsum(difference)).max()) / distance
