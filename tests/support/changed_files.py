"""Files of engines that were cut or changed, and what may come of reading them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_opt.errors import MdsdError
from mdsd_opt.formats import summary

SAMPLES = Path(__file__).parents[1] / "formats" / "samples"

#: Samples that are text, without the one that is compressed.
NAMES = [x for x in json.loads((SAMPLES / "truth.json").read_text("utf-8")) if x[-3:] != ".gz"]

#: Counts that a shorter file cannot have more of.
COUNTS = ("steps", "drafted", "accepted", "tokens", "seconds", "iterations")


def outcome(path: Path, content: bytes) -> dict[str, Any] | None:
    """Summary of a content, or None for one clear error; whatever else is raised is a fault."""
    path.write_bytes(content)
    try:
        found = summary(path)
    except MdsdError as error:
        told = str(error)
        assert "\n" not in told
        assert len(told) > 20
        return None
    obey_the_laws(found)
    return found


def obey_the_laws(found: dict[str, Any]) -> None:
    """Counts are finite, and in the order of what each of them is."""
    numbers = [x for value in found.values() for x in np.ravel(value) if isinstance(x, (int, float))
               ] if "steps" in found else []  # fmt: skip
    assert all(math.isfinite(x) and x >= 0 for x in numbers), found
    steps, drafted, accepted, depth = (
        found.get(x) for x in ("steps", "drafted", "accepted", "depth")
    )
    if accepted is not None and drafted is not None:
        assert accepted <= drafted * (1 + 1e-6) + 1e-6
        assert depth is None or steps is None or drafted <= depth * steps * (1 + 1e-6) + 1.0
    places = found.get("accepted_by_position")
    if places is not None:
        assert np.all(np.diff(places) <= 1e-6 * max(1.0, places[0]))
        assert sum(places) <= (accepted or 0.0) * (1 + 1e-6) + 1e-6


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content)))]


def _digit(content: bytes, rng: np.random.Generator) -> bytes:
    places = [m.start() for m in re.finditer(rb"\d", content)]
    at = int(rng.choice(places))
    return content[:at] + b"%d" % rng.integers(10) + content[at + 1 :]


def _byte(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(content)))
    return content[:at] + bytes([int(rng.integers(256))]) + content[at + 1 :]


def _line_gone(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[int(rng.integers(len(lines)))]
    return b"".join(lines)


def _line_twice(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.splitlines(keepends=True)
    at = int(rng.integers(len(lines)))
    return b"".join([*lines[: at + 1], *lines[at:]])


def _piece_gone(content: bytes, rng: np.random.Generator) -> bytes:
    low, high = sorted(rng.integers(len(content), size=2))
    return content[:low] + content[min(high, low + 40) :]


def _value_of_another_kind(content: bytes, rng: np.random.Generator) -> bytes:
    places = [m.span() for m in re.finditer(rb"-?\d+(?:\.\d+)?", content)]
    low, high = places[int(rng.integers(len(places)))]
    values = (b"null", b'"x"', b"-1", b"1e308", b"[]", b"{}", b"true", b"NaN", b"", b"0")
    return content[:low] + values[int(rng.integers(len(values)))] + content[high:]


CHANGES: dict[str, Callable[[bytes, np.random.Generator], bytes]] = {
    "digit": _digit, "byte": _byte, "line gone": _line_gone, "line twice": _line_twice,
    "piece gone": _piece_gone, "another kind": _value_of_another_kind,
}  # fmt: skip


def try_cut(folder: Path, name: str, seed: int) -> None:
    """A cut file ends in an error, or is what its whole lines say, with or without the last."""
    rng = np.random.default_rng([seed, NAMES.index(name)])
    whole = (SAMPLES / name).read_bytes()
    short = cut(whole, rng)
    path = folder / name
    found = outcome(path, short)
    if found is None:
        return
    before = short[: short.rfind(b"\n") + 1]
    end = whole.find(b"\n", len(short))
    after = whole if end < 0 else whole[: end + 1]
    right = [outcome(path, x) for x in (before, after) if x]
    assert any(said_by(found, x) for x in right if x is not None), (name, seed, found, right)


def said_by(found: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether all that was read is what another reading has, too; a cut line may tell less."""
    return all(
        value is None or np.array_equal(value, whole.get(name))
        if name != "logprobs" else value == whole.get(name)
        for name, value in found.items()
    )  # fmt: skip


def try_change(folder: Path, name: str, kind: str, seed: int) -> None:
    """A changed file ends in an error, or in numbers that can be."""
    rng = np.random.default_rng([seed, NAMES.index(name), [*CHANGES].index(kind)])
    outcome(folder / name, CHANGES[kind]((SAMPLES / name).read_bytes(), rng))
