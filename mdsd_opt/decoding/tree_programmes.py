"""The linear programmes between which the optimum of a tree is caught.

Both are of m, the probability that the output begins with a text, for all texts but the root.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.decoding.text_tree import Integers, TextTree, Vector

#: Rounds that a row or column is kept without being used.
_PATIENCE = 12


class _Programme:
    """Columns or rows with the number of rounds since each was used."""

    def __init__(self, texts: TextTree) -> None:
        from scipy.sparse import coo_array

        size = texts.size - 1
        below_first = np.flatnonzero(texts.parent[1:] > 0)
        every = np.arange(size)
        self._size = size
        self._flow: Any = coo_array(  # m(wy) - p(y|w) m(w) <= 0
            (
                np.concatenate([np.ones(size), -texts.p[1:][below_first]]),
                (
                    np.concatenate([every, below_first]),
                    np.concatenate([every, texts.parent[1:][below_first] - 1]),
                ),
            ),
            shape=(size, size),
        ).tocsr()
        self._flow_bounds = np.where(texts.parent[1:] > 0, 0.0, texts.p[1:])
        self._idle: list[int] = []

    def _kept(self, used: Vector) -> list[bool]:
        """Which of them go on."""
        idle = [0 if use > 1e-12 else n + 1 for n, use in zip(self._idle, used, strict=True)]
        kept = [n <= _PATIENCE for n in idle]
        self._idle = [n for n in idle if n <= _PATIENCE]
        return kept


class FromAbove(_Programme):
    """With the antichains found so far: every solution prices the texts."""

    def __init__(self, texts: TextTree) -> None:
        super().__init__(texts)
        self._rows: dict[tuple[int, ...], float] = {}

    def add(self, antichain: Integers, chance: float) -> None:
        """That a tree meets it."""
        key = tuple(antichain.tolist())
        if key not in self._rows:
            self._rows[key] = chance
            self._idle.append(0)

    def solve(self) -> Vector | None:
        """Prices, shape (N,); None if the programme was not solved."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack

        lengths = [len(row) for row in self._rows]
        columns = np.array([text - 1 for row in self._rows for text in row], np.int64)
        matrix = csr_array(
            (np.ones(columns.size), columns, np.cumsum([0, *lengths])),
            shape=(len(lengths), self._size),
        )
        found = linprog(
            -np.ones(self._size),
            A_ub=vstack([self._flow, matrix]).tocsr(),
            b_ub=np.concatenate([self._flow_bounds, list(self._rows.values())]),
            method="highs",
        )
        if found.status != 0:
            return None
        duals = -found.ineqlin.marginals[self._size :]
        prices = np.concatenate([[0.0], duals @ matrix])
        kept = self._kept(duals)
        rows = zip(self._rows.items(), kept, strict=True)
        self._rows = dict(row for row, keep in rows if keep)
        return prices


class FromBelow(_Programme):
    """With the ways to stop found so far, mixed: m is at most what the mixture reaches."""

    def __init__(self, texts: TextTree) -> None:
        super().__init__(texts)
        self._columns: list[Vector] = []

    def add(self, reach: Vector) -> None:
        """Probability that a way to stop stops at a text or below, shape (N,)."""
        self._columns.append(reach)
        self._idle.append(0)

    def solve(self) -> tuple[Vector, Vector] | None:
        """What the best mixture reaches, and prices, each of shape (N,)."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, eye_array, hstack, vstack

        size, count = self._size, len(self._columns)
        reach = np.array(self._columns)
        mixture = csr_array(-reach[:, 1:].T)
        found = linprog(
            np.concatenate([-np.ones(size), np.zeros(count)]),
            A_ub=vstack(
                [
                    hstack([self._flow, csr_array((size, count))]),
                    hstack([eye_array(size), mixture]),
                ]
            ).tocsr(),
            b_ub=np.concatenate([self._flow_bounds, np.zeros(size)]),
            A_eq=csr_array(np.concatenate([np.zeros(size), np.ones(count)])[None]),
            b_eq=[1.0],
            method="highs",
        )
        if found.status != 0:
            return None
        shares = np.maximum(found.x[size:], 0.0)
        prices = np.concatenate([[0.0], -found.ineqlin.marginals[size:]])
        kept = self._kept(shares)
        self._columns = [c for c, keep in zip(self._columns, kept, strict=True) if keep]
        return shares @ reach / shares.sum(), prices
