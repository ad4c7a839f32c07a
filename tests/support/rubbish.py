"""Every public callable with rubbish in each of its arguments, in a process of its own.

`python rubbish.py DOOR ...` calls functions and classes that check what they are given, and prints
a line of JSON for every answer that is no result and no clear error. Calls and memory are limited,
not time: what does not end is told as that.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.errors import MdsdError

#: Calls of functions, of Python and of C, that refusing may take.
MOST_CALLS = 400_000

#: Bytes that a process may map beyond those that it has.
MOST_BYTES = 4 << 30

RUBBISH: dict[str, Any] = {
    "None": None, "a word": "rubbish", "no word": "", "True": True, "-1": -1, "0": 0, "1.5": 1.5,
    "nan": math.nan, "inf": math.inf, "complex": 1j, "2**70": 2**70, "bytes": b"rubbish",
    "no list": [], "a list of None": [None], "a list of words": ["rubbish", "x"], "ragged":
    [[0.5, 0.5], [1.0]], "a dict": {"rubbish": 1}, "a dict of numbers": {1: 2}, "a set": {1, 2},
    "an array of words": np.array(["rubbish"]), "a class": int, "an object": object(),
    "a module": math,
    "an array of objects": np.array([object(), None]), "an array of dates":
    np.array(["2020-01-01"], dtype="M8[D]"), "an array of nan": np.full((2, 2), np.nan),
}  # fmt: skip

P = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
DRAFTS = mo.WithReplacement(P[0], 2)
PROBLEM = mo.TransportProblem(P[1], DRAFTS)

#: What is right for the arguments that are not tried, by their names.
RIGHT: dict[str, Any] = {
    "target_logits": np.log(P), "draft_logits": np.log(P), "logits": np.log(P), "num_drafts": 2,
    "k": 2, "problem": PROBLEM, "target": P[0], "draft": P[1], "q": P[0], "p": P[1],
    "drafts": DRAFTS, "rule": "rrs", "verifier": "rrs", "scheme": "with_replacement",
    "num_nodes": 3, "depth": 2, "accepted": np.array([0, 1, 1]), "path": "rubbish.json",
    "folder": "rubbish", "max_drafts": 2, "inequalities": ["p0 >= 0"], "claim": lambda p, q: 0,
    "verify": lambda p, q, drafts: [0], "laws": (np.log(P), np.log(P)), "targets": P,
    "prompt": [0, 1], "prompts": [[0, 1]], "tokens": [0, 1], "text": "sum(pi) <= 1",
    "rng": np.random.default_rng(0), "name": "rubbish", "vocab_size": 3,
}  # fmt: skip

#: Arguments that may be functions: a class is called, and what it raises comes through.
CALLED = {"claim", "progress", "scheme"}

#: Those that talk to servers, start processes or compile: they have tests of their own.
ELSEWHERE = {"kernel_budget", "audit_server", "show_versions", "register_operators"}


def doors() -> dict[str, Callable[..., Any]]:
    """Public functions, and classes that check what they are given, by the names of their rooms."""
    rooms = {"mo": mo} | {
        name: x for name in dir(mo) if isinstance(x := getattr(mo, name), ModuleType)
    }
    found: dict[str, Callable[..., Any]] = {}
    seen: set[int] = set()
    for room, module in rooms.items():
        for name in getattr(module, "__all__", ()):
            x = getattr(module, name, None)
            own = isinstance(x, type) and not issubclass(x, BaseException) and (
                "__post_init__" in vars(x)
                or ("__init__" in vars(x) and not hasattr(x, "__dataclass_fields__"))
            )  # fmt: skip
            if (inspect.isfunction(x) or own) and id(x) not in seen and name not in ELSEWHERE:
                seen.add(id(x))
                found[f"{room}.{name}"] = x
    return found


def cases(door: Callable[..., Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Argument, rubbish and keywords of each call: one is rubbish, all others are right."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    made = door.__init__ if isinstance(door, type) else door  # type: ignore[misc]
    parameters = {n: x for n, x in inspect.signature(made).parameters.items() if x.kind in kinds}
    parameters.pop("self", None)
    for name in parameters:
        for kind, rubbish in RUBBISH.items():
            if kind == "a class" and name in CALLED:
                continue
            yield (
                name,
                kind,
                {
                    other: rubbish if other == name else RIGHT.get(other, rubbish)
                    for other, x in parameters.items()
                    if other == name or x.default is x.empty
                },
            )


class TooManyCalls(BaseException):
    """Work that a refusal does not take."""


def limited(call: Callable[[], Any]) -> Any:
    """Result of a call; `TooManyCalls` beyond the limit."""
    left = MOST_CALLS

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal left
        left -= event in ("call", "c_call")
        if left < 0:
            sys.setprofile(None)
            raise TooManyCalls

    sys.setprofile(count)
    try:
        return call()
    finally:
        sys.setprofile(None)


def fault(door: Callable[..., Any], keywords: dict[str, Any]) -> str:
    """What is wrong with the answer, "" if nothing is."""
    for again in (True, False):
        try:
            limited(lambda: door(**keywords))
        except MdsdError as error:
            return "" if len(str(error)) > 15 else f"says only {error!s}"
        except TooManyCalls:
            if again:  # something was imported, or a kernel compiled
                continue
            return "does not end"
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:100]}"
        return ""
    return ""


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES,) * 2)
    told = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        for name in names:
            door = doors()[name]
            told.write(json.dumps(["begins", name]) + "\n")
            told.flush()
            tried = 0
            for argument, kind, keywords in cases(door):
                tried += 1
                if wrong := fault(door, keywords):
                    told.write(json.dumps(["fault", name, argument, kind, wrong]) + "\n")
            told.write(json.dumps(["tried", name, tried]) + "\n")
            told.flush()
        told.write(json.dumps(["ends", ""]) + "\n")
        told.close()
        os.chdir("/")


if __name__ == "__main__":
    main(sys.argv[1:])
