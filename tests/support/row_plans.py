"""What the kernels decide by: the plan of every row, read from memory, and the exact law it gives.

The kernels choose a marginal with one ratio to q in every group of tokens. Whatever it is, the law
of the output follows from it, from the drafts' law and from the rule on groups, both of which come
from elsewhere here: all draft tuples are enumerated, and the hull is that of the CPU's verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.gpu.sources import DRAFT_SELECTION, Kernel
from mdsd_opt.verifiers.optimal.hull import blocks_around, death_levels
from support.host_engine import HostEngine

Vector = NDArray[np.float64]

_BINS = 2048
_HEAVY = 336
_GROUPS = _BINS + _HEAVY
_MASS_UNITS = 2.0**52

#: Of `RowPlan` in `kernels/row_plan.cuh`.
_PLAN = np.dtype(
    [
        ("kind", np.int32),
        ("num_groups", np.int32),
        ("num_heavy", np.int32),
        ("is_race", np.int32),
        ("needs_residual", np.int32),
        ("p_total", np.uint32),
        ("finer", np.float32),
        ("p_unit", np.float64),
        ("q_unit", np.float64),
        ("most_ratio", np.float64),
        ("rate", np.float64),
        ("most", np.float64),
        ("p", np.uint64, _GROUPS),
        ("q", np.float64, _GROUPS),
        ("q_sum", np.uint64, (_GROUPS + 1, 3)),
        ("lowest", np.float64, _GROUPS),
        ("highest", np.float64, _GROUPS),
        ("contained", np.float64, _GROUPS + 1),
        ("ratio", np.float32, (_GROUPS, 2)),
        (
            "heavy",
            np.dtype([("logits", np.float32, 3), ("group", np.int32), ("q", np.float64)]),
            _HEAVY,
        ),
        ("group_of_bin", np.uint16, _BINS),
    ],
    align=True,
)


class PlanningEngine(HostEngine):
    """Keeps the plans of what was decided last."""

    plans: NDArray[Any]

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        super().launch(kernel, types, num_rows, arguments)
        if kernel is DRAFT_SELECTION:
            self.plans = np.frombuffer(arguments[0].tobytes(), _PLAN, num_rows)


class RowPlan:
    """One row's plan, and its tokens in it.

    Parameters
    ----------
    plan : record of `PlanningEngine.plans`
    p, q : ndarray, shape (V,)
        Probabilities in float64.
    shape : float
        c of the bins, which are even in p / (p + c q).
    logits : (ndarray, ndarray)
        Of target and draft, as the kernels read them.
    """

    def __init__(
        self, plan: Any, p: Vector, q: Vector, shape: float, logits: tuple[Vector, Vector]
    ) -> None:
        self.p, self.q = p, q
        self.selects = plan["kind"] == 0
        self.is_race = bool(plan["is_race"])
        used = np.flatnonzero(plan["q"][: plan["num_groups"]] > 0)
        self.w = plan["q"][used] / plan["q"][used].sum()
        self.ends = np.append(0.0, plan["contained"][used + 1])
        ratios = plan["ratio"].sum(axis=1, dtype=np.float64) * (plan["p_unit"] / plan["q_unit"])
        self.x = ratios[used] * self.w
        weights = q / plan["q_unit"]
        shares = p / plan["p_unit"]
        with np.errstate(invalid="ignore"):
            places = np.nan_to_num(shares / (shares + shape * weights))
        # Where a place is between two bins, single precision decides: one of them has the mass.
        either = np.rint(np.add.outer([-1e-3, 1e-3], places * (_BINS - 1))).astype(int)
        below, above = plan["group_of_bin"][np.clip(either, 0, _BINS - 1)].astype(int)
        groups = np.where(plan["q"][below] > 0, below, above)
        listed = {
            (float(token["logits"][1]), float(token["logits"][2])): int(token["group"])
            for token in plan["heavy"][: plan["num_heavy"]]
        }
        for token in np.flatnonzero(weights > 1.0) if self.is_race else ():
            pair = (float(logits[0][token]), float(logits[1][token]))
            groups[token] = listed.get(pair, groups[token])
        self.ratio = ratios[groups]
        self.places = np.maximum(np.searchsorted(used, groups, side="right") - 1, 0)
        self.levels = death_levels(self.x, self.w, np.diff(self.ends))
        self.above = np.append(np.cumsum(self.w[::-1])[::-1], 0.0)

    @property
    def left(self) -> Vector:
        """(p - p_I)+."""
        return np.maximum(self.p - self.ratio * self.q, 0.0) if self.selects else self.p

    @property
    def rate(self) -> float:
        return 1.0 - float(self.left.sum())

    def accepts(self, token: int) -> float:
        selected = self.ratio[token] * self.q[token]
        return min(1.0, float(self.p[token] / selected)) if selected > 0 else 1.0

    def shares(self, drafts: Sequence[int], start: int, stop: int) -> list[float]:
        """How likely each draft of a block is to be returned."""
        inside = [start <= self.places[token] < stop for token in drafts]
        first = inside.index(True)
        shares = [0.0] * len(drafts)
        if self.is_race:
            left = self._left_after(drafts)
            own = self.q[drafts[first]]
            pivotal = self.above[stop] / (left[-1] + own)
            for rest in left[first:-1]:
                pivotal *= rest / (rest + own)
            for k in range(first + 1, len(drafts)):
                if inside[k]:
                    shares[k] = pivotal * self.q[drafts[k]] / self.w[start:stop].sum()
        shares[first] = 1.0 - sum(shares)
        return shares

    def token(self, drafts: Sequence[int], uniforms: Vector) -> int:
        """What one decision comes to."""
        level, within, test, residual = uniforms
        if self.selects:
            top = max(self.places[token] for token in drafts)
            alive = np.flatnonzero(self.levels > level)
            alive = np.unique([0, *alive, self.levels.size - 1])
            place = int(np.searchsorted(alive, top, side="right"))
            shares = self.shares(drafts, alive[place - 1], alive[place])
            chosen = drafts[int(np.searchsorted(np.cumsum(shares), within, side="right"))]
            if test * self.ratio[chosen] * self.q[chosen] < self.p[chosen]:
                return chosen
        ends = np.cumsum(self.left)
        return int(np.searchsorted(ends, residual * ends[-1], side="right"))

    def output_law(self, num_drafts: int) -> Vector:
        """Exact law of the output, all draft tuples enumerated."""
        law = np.zeros_like(self.p)
        for drafts, probability in self._draft_law(num_drafts):
            if not self.selects:
                break
            top = max(self.places[token] for token in drafts)
            for length, start, stop in blocks_around(int(top), self.levels):
                for token, share in zip(drafts, self.shares(drafts, start, stop), strict=True):
                    law[token] += probability * length * share * self.accepts(token)
        left = self.left
        if left.sum() > 0:
            law += (1.0 - law.sum()) * left / left.sum()
        return law

    def _draft_law(self, num_drafts: int) -> Any:
        tokens = np.flatnonzero(self.q > 0).tolist()
        if not self.is_race:
            for drafts in product(tokens, repeat=num_drafts):
                yield drafts, float(np.prod(self.q[list(drafts)]))
            return
        for drafts in permutations(tokens, min(num_drafts, len(tokens))):
            before = np.append(self.q.sum(), self._left_after(drafts)[:-1])
            yield drafts, float(np.prod(self.q[list(drafts)] / before))

    def _left_after(self, drafts: Sequence[int]) -> Vector:
        """What is left of q after each draft, in sums that lose nothing beside a large token."""
        others = self.q.copy()
        left = []
        for token in drafts:
            others[token] = 0.0
            left.append(others.sum())
        return np.array(left)
