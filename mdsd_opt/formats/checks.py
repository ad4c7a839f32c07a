"""Counts of one group, from numbers that say the same thing twice and are held against each other.

A reader names each number as its file does; here they are put together, and where two of them
contradict each other the error names both. Nothing is bent, and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.counts import AcceptedCounts, Measured
from mdsd_opt.formats.told import Contradiction, Told, agree, at_most, told_of


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
    length: Told | None = None,
    rate: Told | None = None,
    percent: Told | None = None,
    **known: Any,
) -> AcceptedCounts | None:
    """Counts of one group from all that a file says of it; None where nothing was drafted.

    Parameters
    ----------
    histogram : Told, optional
        Steps that accepted exactly 0, 1, ... drafts; in place of positions.
    positions, shares : Told, optional
        Steps that accepted at least 1, 2, ... drafts, or their shares of all steps that drafted.
    length : Told, optional
        Tokens of a step, with that of the target.
    rate, percent : Told, optional
        Accepted of drafted, in percent or not.
    **known
        Generated `tokens` and `seconds`, each as it was told, and further fields of
        `AcceptedCounts`.
    """
    if histogram is not None:
        counts = np.asarray(histogram.value, dtype=np.float64)
        steps = _same(where, histogram.total, steps)
        positions = Told(histogram.name, counts[::-1].cumsum()[::-1][1:].tolist())
    if positions is not None:
        _falling(where, positions)
        whole = Told(f"what {positions.name} sums to", float(sum(positions.value)))
        accepted = _same(where, whole, accepted)
    if shares is not None and not shares.value:
        shares = None
    if shares is not None:
        _falling(where, shares)
        at_most(where, shares.at(0), Told("the share of all steps", 1.0))
    for none in (drafted, steps):
        if none is not None and none.value == 0:
            if accepted is not None and accepted.value:
                raise Contradiction(where, accepted, none)
            return None
    if percent is not None:
        rate = Told(percent.name, percent.value / 100.0, percent.off / 100.0)
    if accepted is not None and drafted is not None:
        at_most(where, accepted, drafted)
        if rate is not None:
            agree(where, rate, accepted / drafted)
    means = [x for x in (shares and shares.total, length and length - 1.0) if x is not None]
    if steps is None and accepted is not None:
        if len(means) == 2:
            agree(where, means[1], means[0])
        steps = _steps(where, accepted, drafted, depth, means)
    if steps is not None:
        if accepted is None and length is not None:
            accepted = Told(means[-1].name, means[-1].value * steps.value)
        if accepted is not None:
            for mean in means:
                agree(where, mean, accepted / steps)
        if drafted is not None:
            at_most(where, steps, drafted)
            if depth is not None:
                at_most(where, drafted, steps * depth)
        if positions is not None and positions.value:
            at_most(where, positions.at(0), steps)
        if shares is not None and positions is None and accepted is not None:
            scale = accepted.value / (sum(shares.value) or 1.0)
            positions = Told(shares.name, [min(x * scale, steps.value) for x in shares.value])
    k = None if depth is None else int(depth.value)
    reached: Any = None if positions is None else [*positions.value]
    if positions is not None and reached is not None and depth is not None and k is not None:
        if any(reached[k:]):
            longest = max(n for n, x in enumerate(reached, start=1) if x)
            raise Contradiction(where, Told(f"the longest of {positions.name}", longest), depth)
        reached = [*reached, *[0.0] * k][:k]
    if accepted is None:
        raise UnreadableFile(
            f"{where} does not say how many drafts were accepted: it is cut or changed"
        )
    told_beside: Any = [known.pop(name, None) for name in ("tokens", "seconds")]
    measured = Measured(*(x and x.value for x in told_beside))
    known["measured"] = measured + known.get("measured", Measured())
    known |= {
        name: None if x is None else np.array([float(x.value)])
        for name, x in (("accepted", accepted), ("drafted", drafted), ("steps", steps))
    }
    reached = np.array([reached]) if reached else None
    return AcceptedCounts(depth=k, reached=reached, **{"source": where, **known})


def counts_by_names(
    entry: Mapping[str, Any],
    where: str,
    names: Mapping[str, Sequence[str]],
    dense: bool = True,
    needed: Collection[str] = (),
    **known: Any,
) -> AcceptedCounts | None:
    """Counts of an object by the name, or names, of each field of `counts_of` in it.

    A `dense` histogram has K + 1 places, another those that came.
    """
    numbers = told_of(entry, names, where, needed)
    histogram = numbers.get("histogram")
    if histogram is not None and not histogram.value:
        del numbers["histogram"]
    elif histogram is not None and "depth" not in numbers:
        dense = dense and isinstance(entry[histogram.name], list)
        length = _depth(histogram, numbers.get("drafted"), dense)
        numbers |= {} if length is None else {"depth": length}
    if "shares" in numbers and numbers["shares"].value:
        numbers.setdefault("depth", numbers["shares"].number)
    return counts_of(where, **{**numbers, **known})


def _depth(histogram: Told, drafted: Told | None, dense: bool) -> Told | None:
    """K by a histogram: its places, or what each step drafted if that is whole."""
    if dense:
        return Told(f"the places of {histogram.name} - 1", len(histogram.value) - 1.0)
    longest = max((j for j, times in enumerate(histogram.value) if times), default=0)
    steps = sum(histogram.value)
    each = drafted.value / steps if drafted is not None and steps else None
    if each is None or (each % 1 and each > longest):
        return None
    return Told(f"drafts a step, or the longest of {histogram.name}", max(each, float(longest)))


def _same(where: str, derived: Told, stated: Told | None) -> Told:
    if stated is None:
        return derived
    agree(where, derived, stated)
    return stated


def _falling(where: str, positions: Told) -> None:
    """Raise `Contradiction` where a position is accepted more often than the one before it."""
    for n in range(1, len(positions.value)):
        at_most(where, positions.at(n), positions.at(n - 1))


def _steps(
    where: str, accepted: Told, drafted: Told | None, depth: Told | None, means: list[Told]
) -> Told | None:
    """Steps that drafted, where a file has them in rounded means alone; None where it has none.

    Every mean leaves a range of whole numbers. In all of them, drafted / K stands for steps that
    all drafted K.
    """
    full = None if drafted is None or depth is None else drafted / depth
    if not means:
        return None
    if not accepted.value:
        for mean in means:
            agree(where, mean, accepted)
        return full
    low, high = 0.0, np.inf
    for mean in means:
        if mean.value + mean.off <= 0:
            raise Contradiction(where, mean, accepted)
        low = max(low, accepted.value / (mean.value + mean.off))
        if mean.value > mean.off:
            high = min(high, accepted.value / (mean.value - mean.off))
    name = f"{accepted.name} / {' and '.join(x.name for x in means)}"
    if full is not None:
        if full.value % 1 == 0 and low - 0.5 <= full.value <= high + 0.5:
            return replace(full, off=0.5)
        at_most(where, full, Told(name, high, 0.5))
    middle = (low + high) / 2 if np.isfinite(high) else low
    most = np.inf if drafted is None else drafted.value
    best = float(round(min(max(middle, 0.0 if full is None else full.value), most))) or 1.0
    return Told(name, best, (min(high, 2 * best) - low) / 2 + 0.5)
