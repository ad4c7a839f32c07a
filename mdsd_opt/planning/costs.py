"""What a step of decoding costs: passes of the target by their rows, of the draft, a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

from mdsd_opt.base.checked import checked_amount
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees.topology import Topology

#: Milliseconds of a target pass by its rows: a table measured at some numbers, or a function.
RowsCost = Mapping[int, float] | Callable[[int], float]


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Milliseconds of a step that decodes so many texts at once.

    A tree of n drafts is n + 1 rows of a target pass for each text: the last token, after which
    nothing is known yet, and the drafts. Plain decoding is one row.

    Attributes
    ----------
    target_ms : float
        A target pass over one row, and over any number of them without `rows_ms`.
    draft_ms : float
        A pass of the draft.
    rows_ms : mapping of int to float, or callable, optional
        Target passes by rows. Between rows that a table has, and beyond them, on straight lines.
    verify_ms : float
        The decision of a step.
    batch_size : int
        Texts that are decoded together.
    draft_passes : int, optional
        Of a step, whatever the tree: 1 for drafts that come in parallel, 0 for those that are
        looked up. By default one for each level.
    """

    target_ms: float = 20.0
    draft_ms: float = 2.0
    rows_ms: RowsCost | None = None
    verify_ms: float = 0.0
    batch_size: int = 1
    draft_passes: int | None = None

    def __post_init__(self) -> None:
        for name in ("target_ms", "draft_ms", "verify_ms"):
            if checked_amount(name, getattr(self, name)) == inf:
                raise InvalidInput(f"{name} is infinite: give milliseconds")
        if self.batch_size < 1:
            raise InvalidInput(f"batch_size is {self.batch_size}: give at least 1")
        if self.draft_passes is not None and self.draft_passes < 0:
            raise InvalidInput(f"draft_passes is {self.draft_passes}: give at least 0")
        if isinstance(self.rows_ms, Mapping):
            if not self.rows_ms or min(self.rows_ms) < 1:
                raise InvalidInput("rows_ms is a table of rows from 1 on: {1: 20, 8: 21}, say")
            for rows, took in self.rows_ms.items():
                if not 0 < checked_amount(f"rows_ms[{rows}]", took) < inf:
                    raise InvalidInput(f"rows_ms[{rows}] is {took}: give milliseconds above 0")
        self.target_pass(self.batch_size)

    def target_pass(self, rows: int) -> float:
        """Milliseconds of a target pass over so many rows."""
        if self.rows_ms is None:
            took = self.target_ms
        elif isinstance(self.rows_ms, Mapping):
            took = _on_lines({1: self.target_ms, **self.rows_ms}, rows)
        else:
            took = float(self.rows_ms(rows))
        if not 0 < took < inf:
            raise InvalidInput(
                f"a target pass over {rows} rows takes {took} ms: give milliseconds above 0"
            )
        return took

    def step(self, tree: Topology | None) -> float:
        """Milliseconds of a step with a tree of drafts, or of plain decoding."""
        if tree is None:
            return self.target_pass(self.batch_size)
        passes = tree.depth if self.draft_passes is None else self.draft_passes
        rows = self.batch_size * (1 + tree.num_nodes)
        return self.target_pass(rows) + passes * self.draft_ms + self.verify_ms

    @property
    def most_rows(self) -> int | None:
        """Rows up to which a table was measured; None without a table."""
        return max(self.rows_ms) if isinstance(self.rows_ms, Mapping) else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; of a function of the rows, that there is one."""
        rows: Any = self.rows_ms
        if isinstance(rows, Mapping):
            rows = {str(n): took for n, took in sorted(rows.items())}
        elif rows is not None:
            rows = "function"
        return {
            "target_ms": self.target_ms,
            "draft_ms": self.draft_ms,
            "rows_ms": rows,
            "verify_ms": self.verify_ms,
            "batch_size": self.batch_size,
            "draft_passes": self.draft_passes,
        }


def _on_lines(table: Mapping[int, float], rows: int) -> float:
    """The table between its entries; beyond them the last line, where it rises, goes on."""
    known = sorted(table.items())
    for (low, least), (high, most) in pairwise(known):
        if rows <= high:
            return least + (most - least) * (rows - low) / (high - low)
    last, took = known[-1]
    if len(known) == 1:
        return took
    before, earlier = known[-2]
    return took + max(took - earlier, 0.0) / (last - before) * (rows - last)
