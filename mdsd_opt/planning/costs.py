"""What a step of decoding costs: passes of the target by their rows, of the draft, a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, inf
from typing import Any

from mdsd_opt.base.checked import checked_amount
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees.topology import Topology

#: Milliseconds of a target pass by its rows: a table measured at some numbers, or a function.
RowsCost = Mapping[int, float] | Callable[[int], float]

#: Milliseconds of a pass: the same for any number of texts, or by how many are decoded together.
PassCost = float | RowsCost


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Milliseconds of a step that decodes so many texts at once.

    A tree of n drafts is n + 1 rows of a target pass for each text: the last token, after which
    nothing is known yet, and the drafts. Plain decoding is one row.

    Attributes
    ----------
    target_ms : float, mapping of int to float, or callable
        A target pass of plain decoding: over one row, and over any number of them without
        `rows_ms`; or by the texts that are decoded together, which are its rows.
    draft_ms : float, mapping of int to float, or callable
        A pass of the draft, whatever the batch or by it.
    rows_ms : mapping of int to float, or callable, optional
        Target passes by rows. Between entries of a table, and beyond them, on straight lines.
    verify_ms : float
        The decision of a step.
    batch_size : int
        Texts that are decoded together.
    draft_passes : int, optional
        Of a step, whatever the tree: 1 for drafts that come in parallel, 0 for those that are
        looked up. By default one for each level.
    """

    target_ms: PassCost = 20.0
    draft_ms: PassCost = 2.0
    rows_ms: RowsCost | None = None
    verify_ms: float = 0.0
    batch_size: int = 1
    draft_passes: int | None = None

    def __post_init__(self) -> None:
        for name in ("target_ms", "draft_ms", "verify_ms"):
            given = getattr(self, name)
            if isinstance(given, Mapping):
                _check_table(name, given, "texts")
            elif not callable(given) and checked_amount(name, given) == inf:
                raise InvalidInput(f"{name} is infinite: give milliseconds")
        if self.batch_size < 1:
            raise InvalidInput(f"batch_size is {self.batch_size}: give at least 1")
        if self.draft_passes is not None and self.draft_passes < 0:
            raise InvalidInput(f"draft_passes is {self.draft_passes}: give at least 0")
        if isinstance(self.rows_ms, Mapping):
            _check_table("rows_ms", self.rows_ms, "rows")
        self.target_pass(self.batch_size)
        self.draft_pass()

    def target_pass(self, rows: int) -> float:
        """Milliseconds of a target pass over so many rows."""
        plain = self.target_ms
        if callable(self.rows_ms):
            took = float(self.rows_ms(rows))
        elif self.rows_ms is None:
            took = _at(plain, rows)
        else:
            known = plain if isinstance(plain, Mapping) else {1: _at(plain, 1)}
            took = _at({**known, **self.rows_ms}, rows)
        if not 0 < took < inf:
            raise InvalidInput(
                f"a target pass over {rows} rows takes {took} ms: give milliseconds above 0"
            )
        return took

    def draft_pass(self) -> float:
        """Milliseconds of a pass of the draft for all texts."""
        took = _at(self.draft_ms, self.batch_size)
        if not 0 <= took < inf:
            raise InvalidInput(
                f"a draft pass for {self.batch_size} texts takes {took} ms: give at least 0"
            )
        return took

    def plain(self) -> float:
        """Milliseconds of a step of plain decoding."""
        if callable(self.target_ms) or isinstance(self.target_ms, Mapping):
            return _at(self.target_ms, self.batch_size)
        return self.target_pass(self.batch_size)

    def step(self, tree: Topology | None) -> float:
        """Milliseconds of a step with a tree of drafts, or of plain decoding."""
        return self.plain() if tree is None else self.drafted(tree.num_nodes, tree.depth)

    def drafted(self, num_drafts: float, depth: float | None = None) -> float:
        """The same by the drafts of each text and their levels, for a chain one for each draft.

        Means of steps of several lengths lie on a line between whole numbers.
        """
        depth = num_drafts if depth is None else depth
        passes = depth if self.draft_passes is None else min(self.draft_passes, ceil(depth))
        below = self.batch_size * (1 + floor(num_drafts))
        took = self.target_pass(below)
        if num_drafts % 1:
            above = self.target_pass(below + self.batch_size)
            took += (num_drafts % 1) * (above - took)
        return took + passes * self.draft_pass() + self.verify_ms

    @property
    def knows_rows(self) -> bool:
        """Whether passes over several rows for each text are known, or taken for free."""
        if self.rows_ms is not None or callable(self.target_ms):
            return True
        return isinstance(self.target_ms, Mapping) and len(self.target_ms) > 1

    @property
    def knows_batch(self) -> bool:
        """Whether the draft's cost is known at this batch; one number is that of a single text."""
        if isinstance(self.draft_ms, Mapping):
            return len(self.draft_ms) > 1 or self.batch_size in self.draft_ms
        return self.batch_size == 1 or callable(self.draft_ms) or self.draft_ms == 0

    @property
    def conditions(self) -> tuple[str, ...]:
        """What is taken for granted in favour of drafts, as no cost was given for it."""
        found = [] if self.knows_rows else ["rows are free"]
        if not self.knows_batch:
            took = f"{self.draft_pass():g} ms"
            found.append(f"a draft pass for {self.batch_size} texts takes {took} as well")
        return tuple(found)

    @property
    def most_rows(self) -> int | None:
        """Rows up to which a table was measured; None without a table."""
        rows = self.target_ms if self.rows_ms is None else self.rows_ms
        return max(rows) if isinstance(rows, Mapping) else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; of a function of the rows, that there is one."""
        return {
            "target_ms": _shown(self.target_ms),
            "draft_ms": _shown(self.draft_ms),
            "rows_ms": _shown(self.rows_ms),
            "verify_ms": self.verify_ms,
            "batch_size": self.batch_size,
            "draft_passes": self.draft_passes,
        }


def _check_table(name: str, table: Mapping[int, float], of: str) -> None:
    if not table or min(table) < 1:
        raise InvalidInput(f"{name} is a table of {of} from 1 on: {{1: 20, 8: 21}}, say")
    for count, took in table.items():
        if not 0 < checked_amount(f"{name}[{count}]", took) < inf:
            raise InvalidInput(f"{name}[{count}] is {took}: give milliseconds above 0")


def _at(cost: PassCost, count: int) -> float:
    if callable(cost):
        return float(cost(count))
    return _on_lines(cost, count) if isinstance(cost, Mapping) else float(cost)


def _shown(cost: PassCost | None) -> Any:
    if isinstance(cost, Mapping):
        return {str(count): took for count, took in sorted(cost.items())}
    return "function" if callable(cost) else cost


def _on_lines(table: Mapping[int, float], rows: int) -> float:
    """The table between its entries; beyond them the last line, where it rises, goes on."""
    known = sorted(table.items())
    if rows <= known[0][0]:
        return known[0][1]
    for (low, least), (high, most) in pairwise(known):
        if rows <= high:
            return least + (most - least) * (rows - low) / (high - low)
    last, took = known[-1]
    if len(known) == 1:
        return took
    before, earlier = known[-2]
    return took + max(took - earlier, 0.0) / (last - before) * (rows - last)
