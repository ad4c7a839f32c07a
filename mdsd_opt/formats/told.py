"""Numbers of files, which know what they are called and how far they were rounded.

An engine's file names each number once, in a table from our field to the engine's own name; what
is computed of numbers is called by its formula, so that an error can say what contradicts what.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, final

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.content import count, cut
from mdsd_opt.formats.counts import DEEPEST

#: Relative difference of numbers that floats alone may make.
_FLOATS = 1e-6

#: Fields that have several numbers.
_SEVERAL = {"histogram", "positions", "shares", "steps' accepted", "steps' drafted"}


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


def told_of(
    entry: Mapping[str, Any],
    names: Mapping[str, Sequence[str]],
    where: str,
    needed: Collection[str] = (),
) -> dict[str, Told]:
    """Numbers of an object by our names; of several names that a number has, the first there.

    Raises `UnreadableFile` where one is needed, and is not there, or one is no count.
    """
    numbers = {}
    for field, choices in names.items():
        for name in (choices,) if isinstance(choices, str) else choices:
            if (raw := entry.get(name)) is not None:
                several = field in _SEVERAL
                value = _places(raw, name, where) if several else count(entry, name, where)
                numbers[field] = Told(name, value, _rounding(raw))
                break
        else:
            if field in needed:
                count({}, choices if isinstance(choices, str) else choices[0], where)
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
