"""Costs of a step of decoding: passes of target and draft, and a decision; passes that are timed.

Passes are timed in two minutes or less, and kept in files. A first one of each kind, which loads
and compiles, is not counted.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import permutations, product
from math import ceil, floor, inf, log
from numbers import Real
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from mdsd_opt.base.checked import checked_amount, checked_integer
from mdsd_opt.base.files import read_json, write_json
from mdsd_opt.errors import InvalidInput, UnreadableFile

if TYPE_CHECKING:
    from mdsd_opt.trees import Topology

#: Milliseconds of a target pass by its rows: a table measured at some numbers, or a function.
RowsCost = Mapping[int, float] | Callable[[int], float]

#: Milliseconds of a pass: the same for any number of texts, or by how many are decoded together.
PassCost = float | RowsCost


class CostKeywords(TypedDict, total=False):
    """Parameters of `StepCosts`, as keywords."""

    target_ms: PassCost
    draft_ms: PassCost
    rows_ms: RowsCost | None
    verify_ms: float
    batch_size: int
    draft_passes: int | None


COST_NAMES = (*CostKeywords.__annotations__,)


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Milliseconds of a step that decodes several texts at once.

    A tree of n drafts is n + 1 rows of a target pass for each text: the last token, after which
    nothing is known yet, and the drafts. Plain decoding is one row.

    Attributes
    ----------
    target_ms : float, mapping of int to float, or callable
        Milliseconds of a target pass of plain decoding: over one row, and over any number of them
        without `rows_ms`; or by the texts that are decoded together, which are its rows.
    draft_ms : float, mapping of int to float, or callable
        Milliseconds of a pass of the draft, whatever the batch or by it.
    rows_ms : mapping of int to float, or callable, optional
        Milliseconds of target passes by rows. Costs between the entries of a table, and beyond
        them, lie on straight lines.
    verify_ms : float
        Milliseconds of the decision of a step.
    batch_size : int
        Number of texts that are decoded together.
    draft_passes : int, optional
        Draft passes of a step, whatever the tree: 1 for drafts that come in parallel, 0 for those
        that are looked up. By default there is one for each level.
    """

    target_ms: PassCost = 20.0
    draft_ms: PassCost = 2.0
    rows_ms: RowsCost | None = None
    verify_ms: float = 0.0
    batch_size: int = 1
    draft_passes: int | None = None

    def __post_init__(self) -> None:
        for name in ("target_ms", "draft_ms", "verify_ms"):
            cost = getattr(self, name)
            if isinstance(cost, Mapping) and name != "verify_ms":
                _check_table(name, cost, "texts")
            elif (name == "verify_ms" or not callable(cost)) and checked_amount(name, cost) == inf:
                raise InvalidInput(f"{name} is infinite: give milliseconds")
        checked_integer(self.batch_size, "batch_size")
        if self.draft_passes is not None:
            checked_integer(self.draft_passes, "draft_passes", 0)
        if isinstance(self.rows_ms, Mapping):
            _check_table("rows_ms", self.rows_ms, "rows")
        elif self.rows_ms is not None and not callable(self.rows_ms):
            raise InvalidInput(f"rows_ms is {self.rows_ms!r:.60}: give a table, {{1: 20, 8: 21}}")
        self.target_pass(self.batch_size)
        self.draft_pass()

    def target_pass(self, rows: int) -> float:
        """Milliseconds of a target pass over a number of rows."""
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
        """Milliseconds of a step by the drafts of each text and their levels; one each by default.

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
        """Assumptions in favour of drafts that are made for want of a cost."""
        assumptions = [] if self.knows_rows else ["rows are free"]
        if not self.knows_batch:
            took = f"{self.draft_pass():g} ms"
            assumptions.append(f"a draft pass for {self.batch_size} texts takes {took} as well")
        return tuple(assumptions)

    @property
    def most_rows(self) -> int | None:
        """Largest number of rows that a table was measured at; None without a table."""
        rows = self.target_ms if self.rows_ms is None else self.rows_ms
        return max(rows) if isinstance(rows, Mapping) else None

    @property
    def told(self) -> str:
        """Words such as "batch 8, target 20 ms, draft 2 ms"; passes by rows are a table."""
        plain, draft = f"{self.plain():.4g} ms", f"{self.draft_pass():.3g} ms"
        rows = ", by rows" if self.knows_rows else ""
        return f"batch {self.batch_size}, target {plain}{rows}, draft {draft}"


def _check_table(name: str, table: Mapping[int, float], of: str) -> None:
    if not table or not all(isinstance(x, Real) and x >= 1 for x in table):
        raise InvalidInput(f"{name} is a table of {of} from 1 on: {{1: 20, 8: 21}}, say")
    for count, took in table.items():
        if not 0 < checked_amount(f"{name}[{count}]", took) < inf:
            raise InvalidInput(f"{name}[{count}] is {took}: give milliseconds above 0")


def _at(cost: PassCost, count: int) -> float:
    if callable(cost):
        return float(cost(count))
    return _on_lines(cost, count) if isinstance(cost, Mapping) else float(cost)


def _on_lines(table: Mapping[int, float], rows: int) -> float:
    """Value of a table between its entries, and beyond them on its last line where that rises."""
    known = sorted(table)
    if rows <= known[-1] or len(known) == 1:
        return float(np.interp(rows, known, [table[n] for n in known]))
    before, last = known[-2:]
    rise = max(table[last] - table[before], 0.0) / (last - before)
    return table[last] + rise * (rows - last)


_KIND = "mdsd-opt costs"

#: Share of the time of fewer rows that a pass over more rows cannot be quicker than.
_FAR = 0.6

_FORM = (
    '{"kind": "mdsd-opt costs", "target": [{"batch": 1, "rows": 1, "context": 128, "ms": 20}], '
    '"draft": [...]}'
)


@dataclass(frozen=True, slots=True)
class Pass:
    """A timed pass: its texts, the new tokens of each, and the tokens read before."""

    batch: int
    rows: int
    context: int
    ms: float


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Timed passes of a target and a draft model.

    Attributes
    ----------
    of_target, of_draft : tuple of Pass
        Passes of each model; those of the draft are over one row of each text.
    settings : dict
        Machine, versions and method of the measurement.
    """

    of_target: tuple[Pass, ...]
    of_draft: tuple[Pass, ...]
    settings: dict[str, Any]

    def check(self) -> None:
        """Raise `InvalidInput` where more rows or texts take far less time than fewer."""
        for name, side in (("target", self.of_target), ("draft", self.of_draft)):
            for less, more in permutations(side, 2):
                grows = (
                    less.context == more.context
                    and less.batch <= more.batch
                    and less.rows <= more.rows
                )
                if grows and more.ms < _FAR * less.ms:
                    raise InvalidInput(
                        f"a {name} pass over {more.rows} rows of {more.batch} texts takes "
                        f"{more.ms:.4g} ms, and one over {less.rows} of {less.batch} "
                        f"{less.ms:.4g}: the machine was busy. Measure again when it is not"
                    )

    def at(
        self,
        batch: int = 1,
        context: int | None = None,
        *,
        verify_ms: float = 0.0,
        draft_passes: int | None = None,
    ) -> StepCosts:
        """Costs of steps at a batch and a context, which lie on straight lines between contexts.

        Passes over several rows are those of the nearest batch that has them.

        Raises `InvalidInput` where several contexts were measured and none is named, the one
        named is beyond them, or the costs contradict each other.
        """
        self.check()
        target = _at_context(self.of_target, context, "target")
        draft = _at_context(self.of_draft, context, "draft")
        plain = {batch: ms for (batch, rows), ms in target.items() if rows == 1}
        if not plain:
            raise InvalidInput("the costs have no target pass over one row of each text")
        by_rows: dict[int, float] = {}
        several = [key for key in target if key[1] > 1]
        for size, rows in sorted(several, key=lambda key: -abs(log(key[0] / batch))):
            by_rows[size * rows] = target[size, rows]
        of_draft = {size: ms for (size, rows), ms in draft.items() if rows == 1}
        passes = draft_passes if self.of_draft else 0
        return StepCosts(plain, of_draft or 0.0, by_rows or None, verify_ms, batch, passes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the passes as JSON."""
        document = {
            "kind": _KIND,
            **self.settings,
            "target": [asdict(x) for x in self.of_target],
            "draft": [asdict(x) for x in self.of_draft],
        }
        write_json(path, document)


def read_costs(path: str | os.PathLike[str]) -> MeasuredCosts:
    """Costs in a file that `mdsd-opt advise --measure` wrote, or in one of that form.

    Raises `UnreadableFile` if it is missing or something else.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise UnreadableFile(f"{path} is no file of costs: its form is {_FORM}")
    sides = [
        tuple(_passes(document.get(name, []), f"{path}: {name}")) for name in ("target", "draft")
    ]
    if not sides[0]:
        raise UnreadableFile(f"{path} has no passes of the target: its form is {_FORM}")
    known = ("kind", "target", "draft")
    settings = {name: value for name, value in document.items() if name not in known}
    return MeasuredCosts(sides[0], sides[1], settings)


def _passes(entries: Any, where: str) -> Iterable[Pass]:
    if not isinstance(entries, list):
        raise UnreadableFile(f"{where} is no list of passes: the form is {_FORM}")
    for number, entry in enumerate(entries, start=1):
        label = f"pass {number} of {where}"
        if not isinstance(entry, dict):
            raise UnreadableFile(f"{label} is {entry!r:.40}: the form is {_FORM}")
        known: dict[str, Any] = {"batch": 1, "rows": 1, "context": 0, "ms": None, **entry}
        batch, rows, context, ms = (known[name] for name in ("batch", "rows", "context", "ms"))
        counts = (batch, rows, context + 1) if type(context) is int else (0,)
        if any(type(x) is not int or x < 1 for x in counts):
            raise UnreadableFile(
                f"{label}: batch, rows and context must be integers, from 1, 1 and 0"
            )
        if type(ms) not in (int, float) or not 0 < ms < inf:
            raise UnreadableFile(f"{label}: ms is {ms!r:.40}, not milliseconds above 0")
        yield Pass(batch, rows, context, float(ms))


def _at_context(
    passes: Sequence[Pass], context: int | None, name: str
) -> dict[tuple[int, int], float]:
    """Milliseconds of a pass at a context, by batch and rows."""
    contexts = sorted({x.context for x in passes})
    if not contexts:
        return {}
    if context is None:
        if len(contexts) > 1:
            shown = ", ".join(map(str, contexts))
            raise InvalidInput(f"the {name}'s costs are of contexts {shown}: say which by context")
        context = contexts[0]
    if not contexts[0] <= context <= contexts[-1] and len(contexts) > 1:
        raise InvalidInput(
            f"context is {context}, and the {name}'s costs were measured from {contexts[0]} to "
            f"{contexts[-1]}: measure it there, or give one between"
        )
    table: dict[tuple[int, int], float] = {}
    for key in sorted({(x.batch, x.rows) for x in passes}):
        curve = sorted((x.context, x.ms) for x in passes if (x.batch, x.rows) == key)
        table[key] = float(np.interp(context, *np.array(curve).T))
    return table


# --- passes timed ---

#: Numbers of texts together, of rows of each, and of tokens before them.
BATCHES = (1, 4, 16)
ROWS = (1, 2, 4, 8, 16)
CONTEXTS = (128,)

REPEATS = 5

#: Seconds after which one kind of pass is not timed again, once two are counted.
_MOST_SECONDS = 3.0


def measured(
    target: Callable[[], Sequence[Pass]],
    draft: Callable[[], Sequence[Pass]] | None,
    **settings: Any,
) -> MeasuredCosts:
    """Costs that two measurements found, with the machine that they ran on.

    Raises `InvalidInput` where they contradict each other, as on a machine that is busy.
    """
    known = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **settings,
    }
    costs = MeasuredCosts(tuple(target()), () if draft is None else tuple(draft()), known)
    costs.check()
    return costs


def median_ms(seconds: Callable[[], float], repeats: int = REPEATS) -> float:
    """Median milliseconds of a pass, by a function that makes one and tells how long it took."""
    taken: list[float] = []
    while len(taken) <= repeats and (len(taken) < 3 or sum(taken) < _MOST_SECONDS):
        taken.append(seconds())
    return 1e3 * float(np.median(taken[1:]))


def time_model(
    loaded: Any,
    batches: Sequence[int] = BATCHES,
    rows: Sequence[int] = ROWS,
    contexts: Sequence[int] = CONTEXTS,
    repeats: int = REPEATS,
) -> list[Pass]:
    """Median milliseconds of passes of a `LoadedModel` of transformers that keeps keys and values.

    The tokens are random: what a pass takes does not depend on them.
    """
    import torch

    from mdsd_opt.decoding import cache_name, cache_of

    model, name = loaded.model, cache_name(loaded.model)
    named = (("batches", batches, 1), ("rows", rows, 1), ("contexts", contexts, 2))
    for word, numbers, least in named:
        if not numbers or min(numbers) < least:
            raise InvalidInput(f"{word} is {[*numbers]}: give numbers of at least {least}")
    longest = max(contexts) + max(rows)
    if loaded.context_length is not None and longest > loaded.context_length:
        raise InvalidInput(
            f"a context of {max(contexts)} and {max(rows)} rows make {longest}, and the model "
            f"reads {loaded.context_length}: give shorter contexts"
        )
    device = next(model.parameters()).device
    size = model.get_input_embeddings().num_embeddings
    random = torch.Generator().manual_seed(0)

    def seconds(ids: Any, cache: Any) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        model(input_ids=ids, use_cache=True, **{name: cache})
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took = time.perf_counter() - began
        cache.crop(-ids.shape[1])
        return took

    passes = []
    with torch.inference_mode():
        for context, batch in product(contexts, batches):
            shape = (batch, context + max(rows))
            ids = torch.randint(size, shape, generator=random).to(device)
            cache = cache_of(model(input_ids=ids[:, :context], use_cache=True))
            for count in rows:
                once = partial(seconds, ids[:, context : context + count], cache)
                passes.append(Pass(batch, count, context, median_ms(once, repeats)))
    return passes
