"""What the kernels decide by: the plan of every row, read from memory, and the exact law it gives.

The kernels choose a marginal with one ratio to q in every group of tokens. Whatever it is, the law
of the output follows from it, from the drafts' law and from the rule on groups, both of which come
from elsewhere here: all draft tuples are enumerated, and the rule is that of the CPU's verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.ptx.runtime import PtxRuntime

from mdsd_opt.drafts import WithoutReplacement, WithReplacement
from mdsd_opt.gpu.sources import DRAFT_SELECTION, Kernel
from mdsd_opt.verifiers import Uniforms, acceptance_probabilities, output_token
from mdsd_opt.verifiers.optimal.acceptance_rule import TokenPlan

Vector = NDArray[np.float64]
Tokens = NDArray[np.int64]

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
        ("lowest", np.float32, _GROUPS),
        ("highest", np.float32, _GROUPS),
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


class PlanningRuntime(PtxRuntime):
    """Keeps the plans of what was decided last."""

    plans: NDArray[Any]

    def launch(
        self, kernel: Kernel, types: tuple[str, str], num_rows: int, arguments: Sequence[Any]
    ) -> None:
        super().launch(kernel, types, num_rows, arguments)
        if kernel is DRAFT_SELECTION:
            self.plans = np.frombuffer(arguments[0].tobytes(), _PLAN, num_rows)


class RowPlan(TokenPlan):
    """One row's plan, and its tokens in it.

    Parameters
    ----------
    plan : record of `PlanningRuntime.plans`
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
        self.target, self.q = p, q
        self.selects = plan["kind"] == 0
        self.is_race = bool(plan["is_race"])
        used = np.flatnonzero(plan["q"][: plan["num_groups"]] > 0)
        self.w = plan["q"][used] / plan["q"][used].sum()
        self.ends = np.append(0.0, plan["contained"][used + 1])
        self.gains = np.diff(self.ends)
        ratios = plan["ratio"].sum(axis=1, dtype=np.float64) * (plan["p_unit"] / plan["q_unit"])
        self.x = ratios[used] * self.w
        self.above = np.append(np.cumsum(self.w[::-1])[::-1], 0.0)
        self.split, self.raised, self.capped = 0, 0, used.size  # nothing is taken for granted
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
        self._places = np.maximum(np.searchsorted(used, groups, side="right") - 1, 0)

    @property
    def left(self) -> Vector:
        """(p - p_I)+."""
        return np.maximum(self.target - self.ratio * self.q, 0.0) if self.selects else self.target

    @property
    def rate(self) -> float:
        return 1.0 - float(self.left.sum())

    def places(self, tokens: Tokens) -> Tokens:
        return self._places[tokens]

    def selected(self, token: int) -> float:
        return float(self.ratio[token] * self.q[token])

    def residual_token(self, uniform: float) -> int:
        ends = np.cumsum(self.left)
        return int(np.searchsorted(ends, uniform * ends[-1], side="right"))

    def block(self, tokens: Tokens, level: float) -> tuple[int, int]:
        """By the levels of all boundaries, where the verifier pools what is asked for alone."""
        alive = np.flatnonzero(self.death_levels > level)
        ends = np.unique([0, *alive, self.death_levels.size - 1])
        place = int(np.searchsorted(ends, self.places(tokens).max(), side="right"))
        return int(ends[place - 1]), int(ends[place])

    def token(self, drafts: Sequence[int], uniforms: Vector) -> int:
        """What one decision comes to."""
        draws = Uniforms(*uniforms.tolist())
        if not self.selects:
            return self.residual_token(draws.residual)
        self._draw(len(drafts))
        return output_token(self, np.array(drafts), draws)

    def output_law(self, num_drafts: int) -> Vector:
        """Exact law of the output, all draft tuples enumerated."""
        law = np.zeros_like(self.target)
        if self.selects:
            self._draw(num_drafts)
            for drafts, probability in zip(*self.drafts.tuple_law(), strict=True):
                tokens = drafts[drafts >= 0].astype(np.int64)
                np.add.at(law, tokens, probability * acceptance_probabilities(self, tokens))
        left = self.left
        if left.sum() > 0:
            law += (1.0 - law.sum()) * left / left.sum()
        return law

    def _draw(self, num_drafts: int) -> None:
        self.is_replaced = not self.is_race
        self.drafts = (WithReplacement if self.is_replaced else WithoutReplacement)(
            self.q, num_drafts
        )
