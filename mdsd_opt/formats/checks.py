"""Numbers of files, which know what they are called and how far they were rounded, and their laws.

An engine's file names each number once, in a table from our field to the engine's own name. What
is said twice is held together by one table of laws (`_SAME`, `_AT_MOST`), whatever engine says it:
the error has the formulas of both, by the engine's names. Nothing is bent, and nothing is dropped.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple, final

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.content import count, cut
from mdsd_opt.formats.counts import DEEPEST, AcceptedCounts, Measured

#: Relative difference of numbers that floats alone may make.
_FLOATS = 1e-6

#: Fields that have several numbers.
_SEVERAL = {"histogram", "positions", "shares", "each_accepted", "each_drafted"}


def rounding_of(shown: str) -> float:
    """Half of the last place that a number shows, and a little; 0 of a whole number."""
    places = -int(Decimal(shown).as_tuple().exponent)
    return 0.51 * 0.1**places if places > 0 else 0.0


@final
@dataclass(frozen=True, slots=True)
class Told:
    """Number of a file, or several of one name: what it is called, and how far it was rounded."""

    name: str
    value: Any
    off: float = 0.0

    def __add__(self, other: Told | float) -> Told:
        x = _named(other)
        return Told(f"{self.name} + {x.name}", self.value + x.value, self.off + x.off)

    def __sub__(self, other: Told | float) -> Told:
        x = _named(other)
        return Told(f"{self.name} - {x.name}", self.value - x.value, self.off + x.off)

    def __mul__(self, other: Told | float) -> Told:
        x = _named(other)
        off = self.off * x.value + x.off * self.value
        return Told(f"{self.name} x {x.name}", self.value * x.value, off)

    def __truediv__(self, other: Told | float) -> Told:
        x = _named(other)
        value = self.value / x.value
        return Told(f"{self.name} / {x.name}", value, (self.off + value * x.off) / x.value)

    @property
    def total(self) -> Told:
        """Sum of several numbers."""
        size = len(self.value)
        return Told(f"the sum of {self.name}", float(sum(self.value)), self.off * size)

    @property
    def number(self) -> Told:
        """How many numbers there are."""
        return Told(f"the number of {self.name}", float(len(self.value)))

    def at(self, place: int) -> Told:
        """One of several numbers."""
        return Told(f"{self.name} [{place}]", self.value[place], self.off)


def _named(number: Told | float) -> Told:
    return number if isinstance(number, Told) else Told(f"{number:g}", number)


# --- laws ---


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


def at_most(where: str, one: Told, other: Told | float) -> None:
    """Raise `Contradiction` where the first number is larger than the second."""
    x = _named(other)
    if not one.value - x.value <= one.off + x.off + _FLOATS * max(1.0, abs(x.value)):
        raise Contradiction(where, one, x)


#: What a file says twice, by the fields that it is of: each holds where all of them are told.
_SAME: tuple[Callable[..., tuple[Told, Told]], ...] = (
    lambda histogram, steps: (histogram.total, steps),
    lambda positions, accepted: (positions.total, accepted),
    lambda each_accepted, accepted: (accepted, each_accepted.total),
    lambda each_drafted, drafted: (drafted, each_drafted.total),
    lambda rate, accepted, drafted: (rate, accepted / drafted),
    lambda length, accepted, steps: (length - 1.0, accepted / steps),
    lambda shares, accepted, steps: (shares.total, accepted / steps),
    lambda length, shares: (length - 1.0, shares.total),
    lambda shares, hits, steps: (shares.at(0), hits / steps),
    lambda mean_accepted, accepted, rounds: (mean_accepted, accepted / rounds),
    lambda mean_drafted, drafted, rounds: (mean_drafted, drafted / rounds),
    lambda length_of_all, tokens, steps: (length_of_all, tokens / steps),
    lambda accepted, accepted_speed, drafted, drafted_speed: (
        accepted / accepted_speed, drafted / drafted_speed
    ),
    lambda speed, tokens, seconds: (speed, tokens / seconds),
    lambda tokens, decoded: (tokens, decoded),
    lambda overhead, draft_ms, ms: (overhead, draft_ms / ms),
)  # fmt: skip

#: What cannot be more than something else.
_AT_MOST: tuple[Callable[..., tuple[Told, Told]], ...] = (
    lambda shares: (shares.at(0), Told("the share of all steps", 1.0)),
    lambda accepted, drafted: (accepted, drafted),
    lambda steps, drafted: (steps, drafted),
    lambda drafted, steps, depth: (drafted, steps * depth),
    lambda drafted, rounds, depth: (drafted, rounds * depth),
    lambda positions, steps: (positions.at(0), steps),
    lambda depth, limit: (depth, limit),
)


def _falling(several: Told) -> list[tuple[Told, Told]]:
    """Each position, which is accepted at most as often as the one before it."""
    return [(several.at(n), several.at(n - 1)) for n in range(1, len(several.value))]


_LAWS = [
    (hold, tuple(inspect.signature(law).parameters), law)
    for hold, laws in ((agree, _SAME), (at_most, _AT_MOST))
    for law in laws
]


def hold(where: str, told: Mapping[str, Told]) -> None:
    """Raise `Contradiction` where two numbers of a file break a law."""
    for several in (told[x] for x in ("positions", "shares") if x in told):
        for one, other in _falling(several):
            at_most(where, one, other)
    for holds, fields, law in _LAWS:
        if told.keys() >= {*fields}:
            with suppress(ZeroDivisionError, IndexError):  # of nothing nothing is said
                holds(where, *law(*(told[x] for x in fields)))


# --- counts ---


def counts_of(where: str, **fields: Any) -> AcceptedCounts | None:
    """Counts of one group from all that a file says of it; None where nothing was drafted.

    Parameters
    ----------
    accepted, drafted, steps, depth : Told, optional
        As in `AcceptedCounts`.
    histogram : Told, optional
        Steps that accepted exactly 0, 1, ... drafts; in place of positions.
    positions, shares : Told, optional
        Steps that accepted at least 1, 2, ... drafts, or their shares of all steps that drafted.
    length : Told, optional
        Tokens of a step, with that of the target.
    rate, percent : Told, optional
        Accepted of drafted, in percent or not.
    tokens, seconds, rounds : Told, optional
        As in `Measured`.
    **fields
        Further numbers that the laws name, and further fields of `AcceptedCounts`.
    """
    told = {x: fields.pop(x) for x in [*fields] if isinstance(fields[x], Told)}
    known = {name: x for name, x in fields.items() if x is not None}
    if (percent := told.get("percent")) is not None:
        told["rate"] = Told(percent.name, percent.value / 100.0, percent.off / 100.0)
    if (histogram := told.get("histogram")) is not None:
        counts = np.asarray(histogram.value, dtype=np.float64)
        told.setdefault("steps", histogram.total)
        told["positions"] = Told(histogram.name, counts[::-1].cumsum()[::-1][1:].tolist())
    if (positions := told.get("positions")) is not None:
        told.setdefault("accepted", positions.total)
    if "shares" in told and not told["shares"].value:
        del told["shares"]
    hold(where, {x: told[x] for x in told if x not in ("drafted", "steps") or told[x].value})
    accepted, drafted, steps, depth, shares = (
        told.get(x) for x in ("accepted", "drafted", "steps", "depth", "shares")
    )
    for none in (drafted, steps):
        if none is not None and none.value == 0:
            if accepted is not None and accepted.value:
                raise Contradiction(where, accepted, none)
            return None
    length = told.get("length")
    means = [x for x in (shares and shares.total, length and length - 1.0) if x is not None]
    if steps is None and accepted is not None:
        steps = _steps(where, accepted, drafted, depth, means)
    elif accepted is None and steps is not None and length is not None:
        accepted = Told(means[-1].name, means[-1].value * steps.value)
    if accepted is None:
        raise UnreadableFile(
            f"{where} does not say how many drafts were accepted: it is cut or changed"
        )
    by_name = {"accepted": accepted, "drafted": drafted, "steps": steps}
    hold(where, told | {x: number for x, number in by_name.items() if number is not None})
    if shares is not None and positions is None and steps is not None:
        scale = accepted.value / (sum(shares.value) or 1.0)
        positions = Told(shares.name, [min(x * scale, steps.value) for x in shares.value])
    k = None if depth is None else int(depth.value)
    reached: Any = None if positions is None else [*positions.value]
    if positions is not None and depth is not None and k is not None:
        if any(reached[k:]):
            longest = max(n for n, x in enumerate(reached, start=1) if x)
            raise Contradiction(where, Told(f"the longest of {positions.name}", longest), depth)
        reached = [*reached, *[0.0] * k][:k]
    beside: Any = [told[x].value if x in told else None for x in ("tokens", "seconds", "rounds")]
    known["measured"] = Measured(*beside) + known.get("measured", Measured())
    arrays: Any = {x: None if y is None else np.array([float(y.value)]) for x, y in by_name.items()}
    reached = np.array([reached]) if reached else None
    return AcceptedCounts(**arrays, depth=k, reached=reached, **{"source": where, **known})


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


def mean_of(where: str, length: Told, depth: Told | None, measured: Measured) -> AcceptedCounts:
    """Counts of a mean without a number of steps, which counts the target's token."""
    mean = length - 1.0
    if depth is not None:
        at_most(where, mean, depth)
    if mean.value < 0:
        raise Contradiction(where, mean, Told("what a step brings at least", 0.0))
    return AcceptedCounts(
        np.array([mean.value]), depth and np.array([depth.value]), np.ones(1),
        depth and int(depth.value), unit="runs", source=where, assumed=True, measured=measured,
        notes=("a mean without the number of steps: chance is left out",),
    )  # fmt: skip


# --- tables ---


class Field(NamedTuple):
    """Number of a text: its name, a pattern of its value, and one of what stands before that.

    It is off by half of its last place, or by `off`.
    """

    name: str
    value: str
    head: str = ""
    off: float | None = None


def told_in(
    text: str, fields: Mapping[str, Field], where: str, of: str, needed: Collection[str] = ()
) -> dict[str, Told]:
    """Numbers of a text by our names.

    Raises `UnreadableFile` where one is needed, or has begun, and has no value; `of` is what it is
    cut from.
    """
    by_field: dict[str, Told] = {}
    for field, (name, value, own_head, own_off) in fields.items():
        head = own_head or rf"(?:^|[,\s]){re.escape(name)}: "
        matches = re.findall(head + value, text)
        if not matches and (field in needed or re.search(head, text)):
            raise cut(where, of)
        for number, match in enumerate(matches):
            parts = [x.strip() for x in match.split(",")] if match else []
            numbers: Any = [float(x) for x in parts]
            off = max(map(rounding_of, parts), default=0.0) if own_off is None else own_off
            one = Told(name, numbers if field in _SEVERAL else numbers[0], off)
            if number and one != by_field[field]:
                raise UnreadableFile(f"{where} has {name} twice, which {of} has once: {match}")
            by_field[field] = one
    return by_field


#: Names of our fields in an object of JSON: one each, or several of which it has one.
Names = Mapping[str, str | Sequence[str]]


def told_of(
    entry: Mapping[str, Any], names: Names, where: str, needed: Collection[str] = ()
) -> dict[str, Told]:
    """Numbers of an object by our names; of several names that a number has, the first there.

    Raises `UnreadableFile` where one is needed, and is not there, or one is no count.
    """
    numbers = {}
    for field, choices in names.items():
        either = (choices,) if isinstance(choices, str) else choices
        there = [name for name in either if entry.get(name) is not None]
        for name in there[:1] or (either[:1] if field in needed else ()):
            raw, several = entry.get(name), field in _SEVERAL and there
            value = _places(raw, name, where) if several else count(entry, name, where)
            numbers[field] = Told(name, value, _rounding(raw))
    return numbers


def _rounding(raw: Any) -> float:
    """By how much the numbers of a value of JSON are off by rounding."""
    each = raw.values() if isinstance(raw, dict) else raw if isinstance(raw, list) else [raw]
    return max((rounding_of(repr(x)) for x in each if type(x) is float), default=0.0)


def _places(values: Any, name: str, where: str) -> list[float]:
    """Numbers of a list, or of an object without its zeros."""
    named = values.items() if isinstance(values, dict) else enumerate(values)
    places = {int(j): count({f"{name} [{j}]": x}, f"{name} [{j}]", where) for j, x in named}
    longest = max(places, default=-1)
    if longest > DEEPEST or min(places, default=0) < 0:
        raise UnreadableFile(f"{where}: {name} has a step of {longest} accepted drafts")
    return [places.get(j, 0.0) for j in range(longest + 1)]


def counts_by_names(
    entry: Mapping[str, Any],
    where: str,
    names: Names,
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
