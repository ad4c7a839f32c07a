"""Measured costs of passes as a file, by batch, rows and context; read as costs of steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from math import inf, log
from typing import Any

from mdsd_opt.base.files import atomic_write, read_json
from mdsd_opt.errors import InvalidInput, UnreadableFile
from mdsd_opt.planning.costs import PassCost, RowsCost, StepCosts

_KIND = "mdsd-opt costs"

#: Kernels take more rows in less time now and then, but not in so much less.
_FAR = 0.6

_FORM = (
    '{"kind": "mdsd-opt costs", "target": [{"batch": 1, "rows": 1, "context": 128, "ms": 20}], '
    '"draft": [...]}'
)


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass that was timed: new tokens of each text, texts, and tokens read before."""

    batch: int
    rows: int
    context: int
    ms: float


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Passes of a target and a draft model.

    Attributes
    ----------
    of_target, of_draft : tuple of Pass
        Of the draft those over one row of each text.
    settings : dict
        Machine, versions, and how it was measured.
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
        """Costs of steps at a batch and a context; between contexts on straight lines.

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
        costs: dict[str, PassCost | RowsCost | None] = {
            "target_ms": plain,
            "draft_ms": {size: ms for (size, rows), ms in draft.items() if rows == 1},
            "rows_ms": by_rows or None,
        }
        if not costs["draft_ms"]:
            costs["draft_ms"] = 0.0
        return StepCosts(
            **costs,  # type: ignore[arg-type]
            verify_ms=verify_ms,
            batch_size=batch,
            draft_passes=draft_passes if self.of_draft else 0,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them as JSON."""
        from json import dumps

        document = {
            "kind": _KIND,
            **self.settings,
            "target": [asdict(x) for x in self.of_target],
            "draft": [asdict(x) for x in self.of_draft],
        }
        with atomic_write(path) as file:
            file.write(dumps(document, indent=1).encode() + b"\n")


def read_costs(path: str | os.PathLike[str]) -> MeasuredCosts:
    """Costs of a file that `mdsd-opt advise --measure` wrote, or of that form.

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


def _passes(given: Any, where: str) -> Iterable[Pass]:
    if not isinstance(given, list):
        raise UnreadableFile(f"{where} is no list of passes: the form is {_FORM}")
    for number, entry in enumerate(given, start=1):
        told = f"pass {number} of {where}"
        if not isinstance(entry, dict):
            raise UnreadableFile(f"{told} is {entry!r:.40}: the form is {_FORM}")
        counts = [
            entry.get(name, 1 if name != "context" else 0) for name in ("batch", "rows", "context")
        ]
        if any(type(x) is not int or x < 0 for x in counts) or min(counts[:2]) < 1:
            raise UnreadableFile(
                f"{told}: batch, rows and context must be integers, from 1, 1 and 0"
            )
        ms = entry.get("ms")
        if isinstance(ms, bool) or not isinstance(ms, (int, float)) or not 0 < ms < inf:
            raise UnreadableFile(f"{told}: ms is {ms!r:.40}, not milliseconds above 0")
        batch, rows, context = counts
        yield Pass(batch, rows, context, float(ms))


def _at_context(
    passes: Sequence[Pass], context: int | None, name: str
) -> dict[tuple[int, int], float]:
    """Milliseconds by batch and rows."""
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
    found: dict[tuple[int, int], float] = {}
    for key in sorted({(x.batch, x.rows) for x in passes}):
        curve = sorted((x.context, x.ms) for x in passes if (x.batch, x.rows) == key)
        found[key] = _between(curve, context)
    return found


def _between(curve: Sequence[tuple[int, float]], place: int) -> float:
    below = [point for point in curve if point[0] <= place] or [curve[0]]
    above = [point for point in curve if point[0] >= place] or [curve[-1]]
    (low, least), (high, most) = below[-1], above[0]
    return least if high <= low else least + (most - least) * (place - low) / (high - low)
