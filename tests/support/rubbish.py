"""Every public callable with rubbish in each of its arguments, in a process of its own.

`python rubbish.py DOOR ...` calls functions and classes that check what they are given, and prints
a line of JSON for every answer that is no result and no clear error: one that names the argument,
or shows what was given. Calls and memory are limited, not time: what does not end is told as that.
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
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import mdsd_opt as mo
from mdsd_opt.bench import BenchReport, Record
from mdsd_opt.corpora import RateRow
from mdsd_opt.errors import MdsdError, MissingExtra
from mdsd_opt.evidence import MeanInterval

#: Calls of functions, of Python and of C, that refusing may take.
MOST_CALLS = 400_000

#: Doors that take rubbish for some arguments, as a seed, and then do all their work.
LONG = ("audit", "assert_lossless", "check_")

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

RECORD = Record("solvers", "x", "y", 9, 2, "float64", 1, 0, 3, median_ms=1.0, p90_ms=1.0)
MODELS = {"target": lambda text: np.log(P[0]), "draft": lambda text: np.log(P[1])}
FEW = {"num_trials": 20, "edge_probes": 2, "driven_checks": 65}

#: What is right for one door alone, and given with each of its calls; made when it is asked for.
OWN: dict[str, Callable[[], dict[str, Any]]] = {
    "plots.advice": lambda: {"result": mo.advise(np.log(P), np.log(P), max_drafts=2)},
    "plots.bench": lambda: {"result": BenchReport((RECORD,), {})},
    "plots.draft_filters": lambda: {"result": mo.best_draft_filter(np.log(P), np.log(P), 2)},
    "plots.plan": lambda: {"result": PROBLEM},
    "plots.rates": lambda: {
        "result": [RateRow("greedy", 2, "optimal", MeanInterval(0.5, 0.4, 0.6, 9))]
    },
    "mo.advise_from_counts": lambda: {"accepted": [0, 1, 1], "depth": 3},
    "mo.assert_lossless": lambda: FEW,
    "batch.verify_batch": lambda: {"drafts": [[0, 0], [2, 2]]},
    "mo.compare_drafts": lambda: {"drafts": {"a": np.log(P), "b": np.log(P[::-1])}},
    "decoding.generate": lambda: {**MODELS, "max_new_tokens": 2},
    "decoding.generate_batch": lambda: {**MODELS, "prompts": [[0, 1]]},
    "decoding.generate_steps": lambda: {**MODELS, "max_new_tokens": 2},
    "decoding.measured_rates": lambda: {**MODELS, "texts": [[0, 1, 2]]},
    "decoding.tree_bound": lambda: MODELS,
    "decoding.tree_optimum": lambda: MODELS,
    "decoding.set_targets": lambda: {"laws": lambda text: P[0]},
    "mo.Logits": lambda: {"target": np.log(P), "draft": np.log(P)},
    "mo.audit": lambda: {
        "verify": lambda p, q, drafts, rng: np.zeros(np.shape(drafts)[:-1], int)[()]
    },
    "mo.audit_portfolio": lambda: {"verify": lambda target, draft, drafts, rng: 0},
    "mo.audit_tree": lambda: {"verify": lambda root, rng: (0,)},
    "mo.audit_tokens": lambda: {"laws": [P], "tokens": [[0, 1]]},
    "mo.audit_trace": lambda: {
        "target": P,
        "draft_law": P,
        "drafts": [[0, 1], [1, 0]],
        "tokens": [0, 1],
    },
    "mo.best_draft_temperature": lambda: {
        "target_logits": np.log(P[0]),
        "draft_logits": np.log(P[1]),
    },
    "mo.relax": lambda: {"kl": 0.1},
    "mo.relaxed_rates": lambda: {"drafts": "greedy", "kl": 0.1},
    "mo.DraftSetLaw": lambda: {"masses": {(0, 1): 1.0}},
    "mo.parametrize_with_checks": lambda: {"subjects": ["rrs"]},
    "decoding.Topology": lambda: {"num_drafts": {(): 2}},
    "mo.check_tree_rule": lambda: {"rule": "traversal", **FEW},
    "cddlib_checks.prove_laws": lambda: {"claim": "p0 >= 0"},
}

#: Given beside what is tried though it may be left out: the other model, and what is short to do.
ALWAYS: dict[str, Any] = {
    "options": mo.AuditOptions(**FEW, progress=False),
    "trials": 2, "timeout": 1.0, "draft_logits": np.log(P),
}  # fmt: skip

#: What some import, with more calls and memory than a refusal takes.
HEAVY = {
    "plots": ("matplotlib.figure", "matplotlib.backends.backend_agg"), "serving": ("torch",),
    "audit_trace": ("scipy.stats", "scipy.ndimage"),
    "custom_generate": ("torch", "transformers.generation"),
}  # fmt: skip

#: Arguments that messages call otherwise, as formulas do.
SHOWN_AS = {"draft_distributions": "q[", "draft_law": "draft scheme",
            "draft": "law", "control": "text", "prompts": "prompt",
            "draft_promise": "promise"}  # fmt: skip

#: Arguments that may be functions: a class is called, and what it raises comes through.
CALLED = {"claim", "progress", "scheme", "model", "children", "draw", "rule", "verifier", "on_step",
          "target", "draft"}  # fmt: skip

#: Those that talk to servers, print or register with PyTorch: they have tests of their own.
ELSEWHERE = {"audit_server", "show_versions", "register_operators"}


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


def cases(
    door: Callable[..., Any], own: dict[str, Any]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Argument, rubbish and keywords of each call: one is rubbish, all others are right."""
    right, given = RIGHT | ALWAYS | own, {*ALWAYS, *own}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    made = door.__init__ if isinstance(door, type) else door  # type: ignore[misc]
    parameters = {n: x for n, x in inspect.signature(made).parameters.items() if x.kind in kinds}
    parameters.pop("self", None)
    for name in parameters:
        for kind, rubbish in RUBBISH.items():
            if (kind == "a class" and name in CALLED) or rubbish is parameters[name].default:
                continue
            yield (
                name,
                kind,
                own
                | {
                    other: rubbish if other == name else right.get(other, rubbish)
                    for other, x in parameters.items()
                    if other == name or other in given or x.default is x.empty
                },
            )


class TooManyCalls(BaseException):
    """Work that a refusal does not take."""


def limited(call: Callable[[], Any], most: int = MOST_CALLS) -> Any:
    """Result of a call; `TooManyCalls` beyond the limit."""
    left = most

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


def names(message: str, name: str, value: Any) -> bool:
    """Whether a message names the argument, or shows the value or its type, or those of a part."""
    parts = [*value] if isinstance(value, (list, dict, set, bytes)) else [value]
    if isinstance(value, np.ndarray):
        parts += [*value.flat, value[0]]
    shown = {name.replace("_", " ").removesuffix("s"), SHOWN_AS.get(name, name)}
    shown |= {x for y in (value, *parts) for x in (repr(y)[:20], str(y)[:20], type(y).__name__)}
    return any(words in message.replace("_", " ") for words in shown)


def fault(door: Callable[..., Any], keywords: dict[str, Any]) -> str:
    """What is wrong with the answer, "" if nothing is."""
    given = {n: x for n, x in keywords.items() if any(x is kind for kind in RUBBISH.values())}
    most = MOST_CALLS * (10 if door.__name__.startswith(LONG) else 1)
    for again in (True, False):
        try:
            limited(lambda: door(**keywords), most)
        except MdsdError as error:
            named = any(names(str(error), *one) for one in given.items())
            missing = isinstance(error, MissingExtra) or "needs a CUDA device" in str(error)
            return "" if named or missing else f"says only {error!s:.100}"
        except TooManyCalls:
            if again:  # something was imported, or a kernel compiled
                continue
            return "does not end"
        except BaseException as error:
            if isinstance(error, AssertionError) and door.__name__.startswith("assert_"):
                return ""  # an answer of what it is for
            return f"{type(error).__name__}: {str(error)[:100]}"
        return ""
    return ""


def main(wanted: list[str]) -> None:
    warnings.simplefilter("ignore")
    for module in (x for part, xs in HEAVY.items() if part in "".join(wanted) for x in xs):
        with suppress(ImportError):
            import_module(module)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES,) * 2)
    told = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        for name in wanted:
            door = doors()[name]
            told.write(json.dumps(["begins", name]) + "\n")
            told.flush()
            tried = 0
            for argument, kind, keywords in cases(door, OWN.get(name, dict)()):
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
