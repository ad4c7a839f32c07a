r"""What a draft is worth by its place in the tree: itself, and what is accepted below it.

With :math:`a_{Kk}` the chance that the k-th most valuable of K drafts is passed, the best first,

.. math:: v(\text{place}) = 1 + W(\text{place}), \qquad W = \sum_k a_{Kk}\, v_{(k)}

over the drafts that are drawn after the place. Known before anything is drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.decoding.topology import Place, RateTable, Topology
from mdsd_opt.errors import InvalidInput


def initial_rates(max_drafts: int, first: float = 0.75) -> RateTable:
    r"""A table before anything is measured: :math:`\alpha_k = 1 - (1 - a_1)^k`.

    Parameters
    ----------
    max_drafts : int
    first : float
        :math:`a_1`, the chance that one draft is passed.

    Returns
    -------
    ndarray, shape (max_drafts + 1, max_drafts)
        :math:`\alpha_{j+1} - \alpha_j` at [k, j], j < k; zero elsewhere.
    """
    return rates_from_alphas(-np.expm1(np.arange(1.0, max_drafts + 1) * np.log1p(-first)))


def rates_from_alphas(alphas: NDArray[np.float64]) -> RateTable:
    """The table whose places are passed in draw order, from the rates of 1, 2, ... drafts."""
    passed = np.maximum(np.diff(alphas, prepend=0.0), 0.0)  # rounding may leave less than nothing
    return np.tril(np.tile(passed, (alphas.size + 1, 1)), -1)


def place_values(topology: Topology, table: RateTable | None = None) -> dict[Place, RateTable]:
    """Values of the drafts after every node that has some.

    Parameters
    ----------
    topology : Topology
    table : ndarray, shape (K + 1, K), optional
        Of `place_rates`; by default `initial_rates`.

    Returns
    -------
    dict of tuple to ndarray, shape (K,)
        By the place of the node, in draw order; 1 for a leaf.

    Raises
    ------
    InvalidInput
        The table is for fewer drafts than a node has.
    """
    widest = max(topology.num_drafts.values())
    table = initial_rates(widest) if table is None else table
    if len(table) <= widest:
        raise InvalidInput(
            f"the table is for up to {len(table) - 1} drafts, but a node of {topology.name} has "
            f"{widest}: measure one for {widest}"
        )
    values = {place: np.ones(count) for place, count in topology.num_drafts.items()}
    for place in sorted(values, key=len, reverse=True):
        if place:
            values[place[:-1]][place[-1]] += _expected(values[place], table)
    return values


def in_draw_order(topology: Topology, table: RateTable | None = None) -> Topology:
    """The same tree with the most valuable drafts of every node drawn first.

    Draws may coincide, and the first then has the place: it is to be the best one.
    """
    values = place_values(topology, table)
    if all((np.diff(at) <= 0.0).all() for at in values.values()):
        return topology
    num_drafts: dict[Place, int] = {}
    renamed: list[tuple[Place, Place]] = [((), ())]
    for old, new in renamed:
        if old in values:
            num_drafts[new] = values[old].size
            order = np.argsort(-values[old], kind="stable").tolist()
            renamed += [((*old, rank), (*new, n)) for n, rank in enumerate(order)]
    return Topology(num_drafts, topology.name)


def expected_accepted(topology: Topology, table: RateTable | None = None) -> float:
    """Forecast of the drafts that a step accepts: W of the root. Arguments as `place_values`."""
    values = place_values(topology, table)[()]
    return _expected(values, initial_rates(values.size) if table is None else table)


def _expected(values: RateTable, table: RateTable) -> float:
    """W of a node: the most valuable place is the likeliest to be passed."""
    return float(np.sort(values) @ np.sort(table[values.size, : values.size]))
