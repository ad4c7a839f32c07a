"""Goldens: what the package answers today, recorded to be compared after it is rewritten.

A kind of them is a file of `tests/goldens`, a case a line. Audits have a seed, counts, and a clock
that stands still: nothing goes by time. To record what is missing, or all anew, or to compare:

    python tests/support/goldens.py [KIND ...] [--anew | --check]
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import mdsd_opt as mo

TESTS = Path(__file__).parents[1]

#: What is recorded of a report of an audit.
FACTS = (
    *("verdict_class", "verdict", "total_variation", "detectable_bias", "cause", "num_trials"),
    *("num_checks", "acceptance_rate", "accept_length", "notes", "example"),
)

Case = Callable[[], Any]


def plain(value: Any) -> Any:
    """What JSON has for a value; the line that names a server's address is left out."""
    if isinstance(value, Fraction):
        return str(value)
    if is_dataclass(value):
        named = {one.name: getattr(value, one.name) for one in fields(value)}
        return {name: plain(x) for name, x in named.items() if name != "repeat"}
    if isinstance(value, Mapping):
        return {str(name): plain(x) for name, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(x) for x in value]
    return plain(value.tolist()) if isinstance(value, (np.ndarray, np.generic)) else value


def facts(report: Any) -> dict[str, Any]:
    told = {name: plain(getattr(report, name)) for name in FACTS if hasattr(report, name)}
    return {**told, "num_violations": len(report.violations)}


def found(case: Case) -> Any:
    """What a case gives while no time passes; a refusal is an answer."""
    with mock.patch.object(time, "perf_counter", partial(float, 1_000.0)):
        try:
            return json.loads(json.dumps(plain(case())))
        except mo.MdsdError as error:
            return {"refused": type(error).__name__}


def path_of(kind: str) -> Path:
    return TESTS / "goldens" / f"{kind}.json"


def load(kind: str) -> dict[str, Any]:
    """What is recorded of a kind; nothing where that was not done yet."""
    return json.loads(path_of(kind).read_text("utf-8")) if path_of(kind).exists() else {}


def differences(new: Any, old: Any, where: str = "") -> list[str]:
    """Where two facts differ: numbers by more than 1e-12, relatively above 1; all else."""
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        new, old = dict(enumerate(new)), dict(enumerate(old))
    if isinstance(new, dict) and isinstance(old, dict) and new.keys() == old.keys():
        return [x for n in old for x in differences(new[n], old[n], f"{where}/{n}")]
    numbers = isinstance(new, float) and isinstance(old, (float, int))
    if numbers and math.isclose(new, old, rel_tol=1e-12, abs_tol=1e-12):
        return []
    return [] if new == old else [f"{where}: {new!r} where {old!r} is recorded"]


def main(arguments: list[str]) -> int:
    """Record, or count the cases that are not as recorded."""
    from support.golden_cases import KINDS

    wrong = 0
    for kind in [x for x in arguments if not x.startswith("--")] or KINDS:
        old = {} if "--anew" in arguments else load(kind)
        for name, case in KINDS[kind]():
            if "--check" in arguments:
                told = differences(found(case), old.get(name), f"{kind}: {name}")
                print("\n".join(told) or f"{kind}: {name} is as recorded", flush=True)
                wrong += bool(told)
            elif name not in old:
                old[name] = found(case)
                lines = (f"{json.dumps(n)}: {json.dumps(x)}" for n, x in sorted(old.items()))
                path_of(kind).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
                print(f"{time.process_time():8.1f} CPU s  {kind}: {name}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent / "examples")]  # as pytest has them
    sys.exit(main(sys.argv[1:]))
