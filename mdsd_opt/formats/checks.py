"""Numbers of a file that say the same thing twice, held against each other.

A reader names each number as its file does; here they are put together, and where two of them
contradict each other the error names both. Nothing is bent, and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.content import count, counted
from mdsd_opt.formats.counts import AcceptedCounts

#: Relative difference of numbers that floats alone may make.
_FLOATS = 1e-6


@dataclass(frozen=True, slots=True)
class Told:
    """Number of a file, or several of one name: what it is called, and how far it was rounded."""

    name: str
    value: Any
    off: float = 0.0


class Contradiction(UnreadableFile):
    """A file with two numbers that cannot both be right."""

    def __init__(self, where: str, one: Told, other: Told) -> None:
        self.told = f"{one.name} is {one.value:.6g}, but {other.name} is {other.value:.6g}"
        super().__init__(
            f"{where} contradicts itself: {self.told}. It is cut or changed, or of two runs: give "
            "what the engine wrote"
        )


def agree(where: str, one: Told, other: Told) -> None:
    """Raise `Contradiction` where two numbers differ by more than rounding."""
    if not abs(one.value - other.value) <= one.off + other.off + _FLOATS * max(1.0, abs(one.value)):
        raise Contradiction(where, one, other)


def at_most(where: str, one: Told, other: Told) -> None:
    """Raise `Contradiction` where the first number is larger than the second."""
    if not one.value - other.value <= one.off + other.off + _FLOATS * max(1.0, abs(other.value)):
        raise Contradiction(where, one, other)


def counts_of(
    where: str,
    accepted: Told | None = None,
    drafted: Told | None = None,
    steps: Told | None = None,
    depth: Told | None = None,
    *,
    histogram: Told | None = None,
    positions: Told | None = None,
    shares: Told | None = None,
    mean: Told | None = None,
    rate: Told | None = None,
    **known: Any,
) -> AcceptedCounts | None:
    """Counts of one group from all that a file says of it; None where nothing was drafted.

    Parameters
    ----------
    histogram : Told, optional
        Steps that accepted exactly 0, 1, ... drafts; in place of positions.
    positions, shares : Told, optional
        Steps that accepted at least 1, 2, ... drafts, or their shares of all steps that drafted.
    mean : Told, optional
        Accepted drafts of a step, without the target's token.
    rate : Told, optional
        Accepted of drafted.
    **known
        Further fields of `AcceptedCounts`.
    """
    if histogram is not None:
        given = np.asarray(histogram.value, dtype=np.float64)
        steps = _same(where, Told(f"the sum of {histogram.name}", float(given.sum())), steps)
        positions = Told(histogram.name, given[::-1].cumsum()[::-1][1:].tolist())
    if positions is not None:
        _falling(where, positions)
        whole = Told(f"what {positions.name} sums to", float(sum(positions.value)))
        accepted = _same(where, whole, accepted)
    if shares is not None:
        _falling(where, shares)
        first = Told(f"{shares.name} [0]", max(shares.value, default=0.0))
        at_most(where, first, Told("the share of all steps", 1.0))
    for none in (drafted, steps):
        if none is not None and none.value == 0:
            if accepted is not None and accepted.value:
                raise Contradiction(where, accepted, none)
            return None
    if accepted is not None and drafted is not None:
        at_most(where, accepted, drafted)
        if rate is not None:
            agree(where, rate, _ratio(accepted, drafted))
    if steps is None and accepted is not None:
        steps = _steps(where, accepted, drafted, depth, shares, mean)
    if steps is not None:
        if accepted is None and mean is not None:
            accepted = Told(mean.name, mean.value * steps.value)
        if accepted is not None:
            for told in (mean, _summed(shares)):
                if told is not None:
                    agree(where, told, _ratio(accepted, steps))
        if drafted is not None:
            at_most(where, steps, drafted)
            if depth is not None:
                at_most(where, drafted, Told(f"{steps.name} x {depth.name}",
                        steps.value * depth.value, steps.off * depth.value))  # fmt: skip
        if positions is not None and positions.value:
            at_most(where, Told(f"{positions.name} [0]", positions.value[0]), steps)
        if shares is not None and positions is None and accepted is not None:
            scale = accepted.value / (sum(shares.value) or 1.0)
            positions = Told(shares.name, [min(x * scale, steps.value) for x in shares.value])
    k = None if depth is None else int(depth.value)
    reached = None if positions is None else [*positions.value]
    if reached is not None and depth is not None and k is not None:
        if any(reached[k:]):
            longest = max(n for n, x in enumerate(reached, start=1) if x)
            raise Contradiction(where, Told(f"the longest of {positions.name}", longest), depth)  # type: ignore[union-attr]
        reached = [*reached, *[0.0] * k][:k]
    if accepted is None:
        raise UnreadableFile(
            f"{where} does not say how many drafts were accepted: it is cut or changed"
        )
    return AcceptedCounts(
        np.array([float(accepted.value)]),
        None if drafted is None else np.array([float(drafted.value)]),
        None if steps is None else np.array([float(steps.value)]),
        k,
        None if not reached else np.array([reached]),
        **{"source": where, **known},
    )


def counts_by_names(
    found: dict[str, Any],
    where: str,
    names: Mapping[str, str],
    percent: float = 1.0,
    dense: bool = True,
    **known: Any,
) -> AcceptedCounts | None:
    """Counts of an object by the name of each field of `counts_of` in it; those missing are None.

    `mean` counts the target's token in files; `percent` is what a rate of one is there. A `dense`
    histogram has K + 1 places, another those that came.
    """
    told = {
        field: Told(name, value)
        for field, name in names.items()
        if field != "histogram" and (value := counted(found, name, where)) is not None
    }
    for field, one, off in (("mean", 1.0, 0.0051), ("rate", percent, 0.00051)):
        if field in told:
            name, value = told[field].name, told[field].value
            told[field] = (
                Told(f"{name} - 1", value - 1.0, off) if field == "mean"
                else Told(name, value / one, off)
            )  # fmt: skip
    given = found.get(names.get("histogram", ""))
    if given:
        name = names["histogram"]
        told["histogram"] = histogram = Told(name, _places(given, name, where))
        if "depth" not in told:
            length = _depth(histogram, told.get("drafted"), dense and isinstance(given, list))
            told |= {} if length is None else {"depth": length}
    if "mean" in told and not told.get("steps", Told("", 1)).value:
        del told["mean"]  # of no step
    return counts_of(where, **told, **known)


def _places(given: Any, name: str, where: str) -> list[float]:
    """Histogram of a list, or of an object without its zeros."""
    if isinstance(given, dict):
        sparse = {int(j): count(given, j, where) for j in given}
        if not 0 <= min(sparse) <= max(sparse) <= 256:
            raise UnreadableFile(f"{where}: {name} has a step of {max(sparse)} accepted drafts")
        return [sparse.get(j, 0.0) for j in range(max(sparse) + 1)]
    return [count({name: x}, name, where) for x in given]


def _depth(histogram: Told, drafted: Told | None, dense: bool) -> Told | None:
    """K by a histogram: its places, or what each step drafted if that is whole."""
    longest = max((j for j, times in enumerate(histogram.value) if times), default=0)
    if dense:
        return Told(f"the places of {histogram.name} - 1", len(histogram.value) - 1.0)
    steps = sum(histogram.value)
    each = drafted.value / steps if drafted is not None and steps else None
    if each is None or (each % 1 and each > longest):
        return None
    return Told(f"drafts a step, or the longest of {histogram.name}", max(each, float(longest)))


def _ratio(one: Told, other: Told) -> Told:
    value = one.value / other.value
    return Told(f"{one.name} / {other.name}", value, value * other.off / other.value)


def _summed(shares: Told | None) -> Told | None:
    if shares is None:
        return None
    total, size = float(sum(shares.value)), len(shares.value)
    return Told(f"the sum of {shares.name}", total, shares.off * size)


def _same(where: str, derived: Told, told: Told | None) -> Told:
    if told is None:
        return derived
    agree(where, derived, told)
    return told


def _falling(where: str, told: Told) -> None:
    """Raise `Contradiction` where a position is accepted more often than the one before it."""
    for n, (before, after) in enumerate(zip(told.value, told.value[1:], strict=False)):
        one, other = Told(f"{told.name} [{n + 1}]", after), Told(f"{told.name} [{n}]", before)
        at_most(where, one, other)


def _steps(
    where: str,
    accepted: Told,
    drafted: Told | None,
    depth: Told | None,
    shares: Told | None,
    mean: Told | None,
) -> Told | None:
    """Steps that drafted, where a file has them in rounded means alone; None where it has none.

    Every mean leaves a range of whole numbers. In all of them, drafted / K stands for steps that
    all drafted K.
    """
    means = [x for x in (_summed(shares), mean) if x is not None]
    full = None if drafted is None or depth is None else _ratio(drafted, depth)
    if not means:
        return None
    if not accepted.value:
        for told in means:
            agree(where, told, accepted)
        return full
    ranges = []
    for told in means:
        if told.value + told.off <= 0:
            raise Contradiction(where, told, accepted)
        high = accepted.value / (told.value - told.off) if told.value > told.off else np.inf
        ranges.append((accepted.value / (told.value + told.off), high))
    low, high = max(x[0] for x in ranges), min(x[1] for x in ranges)
    name = f"{accepted.name} / {' and '.join(x.name for x in means)}"
    if low > high + 0.5:
        raise Contradiction(where, replace(means[0], off=0.0), means[-1])
    if full is not None:
        if full.value % 1 == 0 and low - 0.5 <= full.value <= high + 0.5:
            return replace(full, off=0.5)
        at_most(where, full, Told(name, high, 0.5))
    middle = (low + high) / 2 if np.isfinite(high) else low
    most = np.inf if drafted is None else drafted.value
    best = float(round(min(max(middle, 0.0 if full is None else full.value), most))) or 1.0
    return Told(name, best, (min(high, 2 * best) - low) / 2 + 0.5)
