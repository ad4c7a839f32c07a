"""Code that is not ours, at every door: it ends no program, and nothing of it is called passed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import audit_portfolio
from mdsd_opt.base.foreign import foreign
from mdsd_opt.base.installed import loaded
from mdsd_opt.batch import verify_batch
from mdsd_opt.drafts import by_name
from mdsd_opt.errors import ForeignFault, InvalidInput, MdsdError
from mdsd_opt.servers.adapter import APIS
from mdsd_opt.trees import Node

LAW = np.array([0.5, 0.3, 0.2])
PROBLEM = mo.TransportProblem(LAW, mo.WithReplacement(LAW[::-1].copy(), 1))

#: Module with something to call for every door; `fault` is called by each.
MODULE = """
import asyncio, os, sys, warnings
import numpy as np
import mdsd_opt as mo
from mdsd_opt.auditing.engines.engine import Adapter

def fault():
    {in_call}

def chain(p, q, drafts):
    fault()
    return [int(np.random.choice(p[0].size, p=p[0]))]

def text(target, draft):
    fault()
    weights = np.exp(target([])[0])
    return [int(np.random.choice(weights.size, p=weights / weights.sum()))]

def verify(target, draft, drafts, rng):
    fault()
    return int(rng.choice(target.size, p=target))

class Own(mo.verifiers.Verifier):
    name = "own"
    schemes = (mo.WithReplacement,)

    def decide(self, problem, drafts, exact=False):
        fault()

    def acceptance_rate(self, problem):
        fault()
        return 0.5

VERIFIER = Own()

def method(problem):
    fault()
    found = mo.solve(problem, "subset_selection")
    rate = found.acceptance_rate
    return mo.solvers.Found(acceptance_rate=rate, lower_bound=rate, upper_bound=1.0,
                            status=mo.Status.BOUND)

def next_law(q, earlier):
    fault()
    return q

def made(adapter):
    fault()

ADAPTER = Adapter(package="numpy", tested=(), path="numpy/version.py", function="v", made=made)
SERVER = chain
{at_import}
"""

#: What ends a program, as source.
ENDS = {
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "CancelledError": "raise asyncio.CancelledError",
    "GeneratorExit": "raise GeneratorExit",
}

#: Errors that are no verdicts.
ERRORS = {"recursion": "fault()", "memory": "raise MemoryError", "stop": "raise StopIteration"}


def module_of(
    folder: Path, monkeypatch: Any, in_call: str = "pass", at_import: str = ""
) -> tuple[str, int]:
    """Name of a module in the folder, which is the current one, and the line that does harm."""
    name = f"foreign_{random.SystemRandom().getrandbits(64):x}"
    source = MODULE.format(in_call=in_call, at_import=at_import)
    (folder / f"{name}.py").write_text(source)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    lines = source.splitlines()
    return name, lines.index(at_import if at_import else f"    {in_call}") + 1


AUDIT = ("audit", "--junit", "junit.xml", "--json", "--out", "page.html")

#: Options of the command line by what they load.
VERBS: dict[str, tuple[str, ...]] = {
    "chain": (*AUDIT, "--chain"),
    "text": (*AUDIT, "--text"),
    "verify": (*AUDIT, "--vocab-size", "3", "--verifier"),
    "VERIFIER": ("rates", "--schemes", "with_replacement", "-k", "1", "--json", "--verifiers"),
    "next_law": ("rates", "-k", "1", "--verifiers", "optimal", "--json", "--schemes"),
    "method": ("solve", "problem.json", "--json", "--method"),
    "ADAPTER": (*AUDIT, "--engine"),
    "SERVER": (*AUDIT, "--server", "http://localhost:1", "--api"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mo.save_problem(PROBLEM, tmp_path / "problem.json")
    rows = np.log(np.array([LAW, LAW[::-1]]))
    np.savez(tmp_path / "logits.npz", target=rows, draft=rows[::-1])
    return tmp_path


def verb_on(attribute: str, module: str) -> list[str]:
    given = [*VERBS[attribute], f"{module}:{attribute}"]
    return [given[0], "logits.npz", *given[1:]] if given[0] == "rates" else given


def has_no_verdict(folder: Path) -> None:
    suites = ElementTree.parse(folder / "junit.xml").getroot()
    assert (suites.get("failures"), suites.get("errors")) == ("0", "1")
    page = (folder / "page.html").read_text()
    assert "No verdict" in page
    assert ">PASS<" not in page


@pytest.mark.parametrize("attribute", VERBS)
@pytest.mark.parametrize("end", ENDS)
def test_a_module_that_ends_the_program(
    folder: Path, monkeypatch: Any, run_cli: Any, attribute: str, end: str
) -> None:
    module, line = module_of(folder, monkeypatch, at_import=ENDS[end])
    for name in ("junit.xml", "page.html"):  # of a run that passed
        (folder / name).write_text("PASS")
    told = run_cli.refusal(*verb_on(attribute, module))
    assert f"'{module}:{attribute}' ended the program" in told
    assert f"line {line} of" in told
    if VERBS[attribute][0] == "audit":
        has_no_verdict(folder)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("attribute", ["chain", "text", "verify", "VERIFIER", "next_law"])
def test_a_call_that_ends_the_program(
    folder: Path, monkeypatch: Any, run_cli: Any, attribute: str, end: str
) -> None:
    module, line = module_of(folder, monkeypatch, in_call=ENDS[end])
    told = run_cli.refusal(*verb_on(attribute, module))
    assert "ended the program instead of answering" in told
    assert re.search(f"line {line} of .*in fault", told)
    if VERBS[attribute][0] == "audit":
        has_no_verdict(folder)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("attribute", ["chain", "verify", "VERIFIER", "next_law"])
def test_a_call_that_fails(
    folder: Path, monkeypatch: Any, run_cli: Any, attribute: str, name: str
) -> None:
    module, _ = module_of(folder, monkeypatch, in_call=ERRORS[name])
    error = {"recursion": "RecursionError", "memory": "MemoryError", "stop": "StopIteration"}[name]
    assert error in run_cli.refusal(*verb_on(attribute, module))


def test_a_method_that_ends_the_program_is_a_row(
    folder: Path, monkeypatch: Any, run_cli: Any
) -> None:
    """The others' rows are there."""
    module, line = module_of(folder, monkeypatch, in_call="sys.exit(0)")
    done = run_cli(*verb_on("method", module), "--method", "full_lp")
    first, second = json.loads(done.stdout)["methods"]
    assert "ended the program" in first["refused"]
    assert f"line {line} of" in first["refused"]
    assert second["valid"]


def fault_of(end: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"sys": sys, "os": os, "asyncio": asyncio}
    exec(f"def fault(*given, **named):\n    {ENDS[end]}", scope)
    return scope["fault"]


def tree_of_faulty_models(fault: Any) -> Any:
    return mo.audit_tree(lambda root, rng: [0], fault, fault, "chain1", 0)


def rates_by(verifier: Any) -> Any:
    return mo.acceptance_rates(LAW, LAW, 1, kind="probs", verifier=verifier)


def own_verifier(fault: Any) -> mo.verifiers.Verifier:
    class Own(mo.verifiers.Verifier):
        name = "own"
        schemes = (mo.WithReplacement,)
        decide = acceptance_rate = fault

    return Own()


def decided(fault: Any, monkeypatch: Any) -> Any:
    monkeypatch.setitem(mo.verifiers.base.VERIFIERS.registered, "own", own_verifier(fault))
    return verify_batch(LAW, LAW, [0], kind="probs", verifier="own", with_rates=False)


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    """A compiled handler, which a library of another test may have left, cannot be told from us."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_scheme_stays() -> Iterator[None]:
    """What a test registers or loads by module:attribute is gone when it ends."""
    before = {**by_name.SINGLE_MODEL_SCHEMES}
    yield
    by_name.SINGLE_MODEL_SCHEMES.clear()
    by_name.SINGLE_MODEL_SCHEMES.update(before)


def drafted(fault: Any, _: Any) -> Any:
    mo.drafts.register("harmful", fault)
    return by_name.SINGLE_MODEL_SCHEMES["harmful"](LAW, 1)


#: Functions of Python that call a function of the user's.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "audit": lambda fault, _: mo.audit(fault, PROBLEM, 0, 50),
    "audit, driven": lambda fault, _: mo.audit(fault, PROBLEM, 0, method="driven"),
    "audit, batched": lambda fault, _: mo.audit(fault, PROBLEM, 0, 50, batched=True),
    "audit, a verifier": lambda fault, _: mo.audit(own_verifier(fault), PROBLEM, 0, 50),
    "audit on all laws": lambda fault, _: audit_portfolio(fault, num_trials=50),
    "audit_chain": lambda fault, _: mo.audit_chain(fault, num_trials=50),
    "audit_chain, rows": lambda fault, _: mo.audit_chain(fault, batch=2, num_trials=50),
    "audit_text": lambda fault, _: mo.audit_text(fault, num_texts=50),
    "audit_tree": lambda fault, _: mo.audit_tree(
        fault, lambda text: LAW, lambda text: LAW, "chain1", 0, 50
    ),
    "audit_tree, models": lambda fault, _: tree_of_faulty_models(fault),
    "audit_drafts": lambda fault, _: mo.audit_drafts(fault, mo.WithReplacement(LAW, 1), 0, 50),
    "solve": lambda fault, _: mo.solve(PROBLEM, fault),
    "acceptance_rates": lambda fault, _: rates_by(own_verifier(fault)),
    "verify_batch": decided,
    "draft scheme": drafted,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("door", CALLS)
def test_functions_of_python_that_call_one_that_ends_the_program(
    monkeypatch: Any, door: str, end: str
) -> None:
    fault = fault_of(end)
    with pytest.raises(ForeignFault, match=r"ended the program instead of .*line 2 of <string>"):
        CALLS[door](fault, monkeypatch)


def test_definitions_that_end_the_program(tmp_path: Path) -> None:
    for end in ENDS.values():
        path = tmp_path / "engine.py"
        path.write_text(f"import asyncio, os, sys\ndef g():\n    {end}\nx = g()\n")
        with pytest.raises(InvalidInput, match="hangs on line 3, which cannot be executed"):
            mo.auditing.load_definitions(path, "x")


def test_drafts_that_are_drawn_in_other_ways_are_no_refuge() -> None:
    """There a verifier may refuse drafts, which is no fault; to end the program is one."""

    def verify(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        if drafts[0] == drafts[1]:
            sys.exit(0)
        return right(target, draft, drafts, rng)

    with pytest.raises(ForeignFault, match="ended the program"):
        audit_portfolio(verify, scheme="without_replacement", num_trials=50, max_calls=50)


async def asynchronous(*given: Any) -> int:
    return 0


async def asynchronous_items(*given: Any) -> Any:
    yield 0


@pytest.mark.parametrize("answer", [asynchronous, asynchronous_items])
@pytest.mark.parametrize(
    "door", [name for name in CALLS if name.startswith("audit") and "a verifier" not in name
             and "models" not in name and "drafts" not in name]
)  # fmt: skip
def test_async_functions_are_refused(monkeypatch: Any, door: str, answer: Any) -> None:
    with pytest.raises(ForeignFault, match="is an async function"):
        CALLS[door](answer, monkeypatch)


def right(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
    return int(rng.choice(target.size, p=target))


def told(verify: Any) -> Any:
    report = mo.audit(verify, PROBLEM, 0, 300, method="sampling", edge_probes=8)
    return {**report.to_dict(), "seconds": 0}


def test_generators_are_run() -> None:
    """What they yield is the answer, each draw of it served."""

    def generate(target: Any, draft: Any) -> Any:
        logits = target([])[0]
        yield random.choices(range(logits.size), np.exp(logits))[0]

    found = [
        mo.audit_text(f, num_texts=400, method="driven")
        for f in (generate, lambda *models: list(generate(*models)))
    ]
    assert found[0].verdict_class == found[1].verdict_class == "lossless"

    def rule(root: Node, rng: np.random.Generator) -> Any:
        yield int(rng.choice(root.target.size, p=root.target))

    report = mo.audit_tree(rule, lambda text: LAW, lambda text: LAW, "chain1", 0)
    assert report.lossless


def test_warnings_that_are_errors_give_no_verdict() -> None:
    def warns(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return right(target, draft, drafts, rng)

    with pytest.raises(ForeignFault, match=r"warned \(DeprecationWarning: old\)"):
        told(warns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert told(warns) == told(right)


#: What a function may change of the process, and how to see it.
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "streams": (lambda: setattr(sys, "stdout", None), lambda: (sys.stdout, sys.stderr)),
    "folder": (lambda: os.chdir("/"), os.getcwd),
    "NumPy's errors": (lambda: np.seterr(all="raise"), np.geterr),
    "filters of warnings": (lambda: warnings.simplefilter("ignore"), lambda: [*warnings.filters]),
    "recursion": (lambda: sys.setrecursionlimit(5000), sys.getrecursionlimit),
    "Ctrl-C": (lambda: signal.signal(2, signal.SIG_IGN), lambda: signal.getsignal(2)),
    "os._exit": (lambda: setattr(os, "_exit", None), lambda: os._exit),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_of_the_process_is_put_back(
    tmp_path: Path, monkeypatch: Any, change: str
) -> None:
    monkeypatch.chdir(tmp_path)
    act, seen = CHANGES[change]
    before, expected = seen(), told(right)

    def changing(*given: Any) -> int:
        act()
        return right(*given)

    assert told(changing) == expected
    assert seen() == before

    @foreign("the function")
    def ends() -> None:
        act()
        sys.exit()

    with pytest.raises(ForeignFault):
        ends()
    assert seen() == before


@pytest.mark.parametrize(
    "harm",
    ["print('noise')", "sys.stdout = None", "sys.stdout.close()", "os.chdir('/')",
     "np.seterr(all='raise')", "warnings.simplefilter('error')",
     "sys.stdout.write('noise'); sys.stdout.flush()", "print('noise', file=sys.stderr)"],
)  # fmt: skip
def test_results_alone_are_on_standard_output(
    folder: Path, monkeypatch: Any, run_cli: Any, harm: str
) -> None:
    found = []
    for in_call in ("pass", harm):
        for at_import in ("", harm):
            module, _ = module_of(folder, monkeypatch, in_call, at_import)
            given = ["--verifier", f"{module}:verify", "--trials", "300", "--method", "sampling"]
            (folder / "junit.xml").unlink(missing_ok=True)
            options = ("--vocab-size", "3", "--junit", "junit.xml", "--detect", "1")
            found.append({**run_cli.document("audit", *given, *options), "seconds": 0})
            assert ElementTree.parse(folder / "junit.xml").getroot().get("errors") == "0"
            assert Path.cwd() == folder
    first = found[0]
    first.pop("subject", None)
    for other in found[1:]:
        other.pop("subject", None)
        assert other == first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_handler_of_a_signal_may_end_the_program(number: int) -> None:
    """Ctrl-C is the user's, wherever it comes; and so is what another handler raises."""

    def stop(*_: Any) -> None:
        raise SystemExit(9)

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            mo.audit(lambda *given: signal.raise_signal(number), PROBLEM, 0, 50)
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ctrl_c_ends_the_program_where_compiled_code_handles_signals() -> None:
    """As cysignals does: pplpy's import takes Ctrl-C over, and its handler raises for it alone."""
    ppl = "import ppl; " if importlib.util.find_spec("ppl") else ""
    code = (
        f"import signal; {ppl}import numpy as np, mdsd_opt as mo\n"
        "calls = []\n"
        "def verify(target, draft, drafts, rng):\n"
        "    calls.append(len(calls) == 20 and signal.raise_signal(signal.SIGINT))\n"
        "    return int(rng.choice(target.size, p=target))\n"
        "problem = mo.TransportProblem([0.5, 0.5], mo.WithReplacement([0.2, 0.8], 1))\n"
        "try:\n"
        "    mo.audit(verify, problem, 0, 50, method='sampling')\n"
        "except KeyboardInterrupt:\n"
        "    assert len(calls) == 20, calls\n"
        "    raise SystemExit(130)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr


def test_an_interrupted_audit_leaves_no_verdict(
    folder: Path, monkeypatch: Any, run_cli: Any
) -> None:
    in_call = "__import__('signal').raise_signal(2)"
    module, _ = module_of(folder, monkeypatch, in_call)
    done = run_cli(*verb_on("verify", module))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "mdsd-opt: interrupted\n"
    has_no_verdict(folder)


def test_a_run_that_dies_leaves_no_verdict(folder: Path, monkeypatch: Any, run_cli: Any) -> None:
    """Nobody can catch a crash: what stands in the files before it must not be green."""
    in_call = "import shutil; shutil.copy('junit.xml', 'seen.xml'); raise ValueError"
    module, _ = module_of(folder, monkeypatch, in_call)
    run_cli(*verb_on("verify", module))
    (folder / "seen.xml").rename(folder / "junit.xml")
    has_no_verdict(folder)


def test_doors_in_threads() -> None:
    """Settings are the process's, and are left alone there; ends are errors all the same."""
    caught: list[BaseException] = []

    def enter() -> None:
        try:
            with foreign("work"):
                sys.exit(0)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert isinstance(caught[0], ForeignFault)


def test_a_child_that_leaves_is_left_alone() -> None:
    """A fork inside of a door, as `multiprocessing` makes it, ends by the true `os._exit`."""

    def forks(target: Any, draft: Any, drafts: Any, rng: Any) -> int:
        if not done:
            done.append(os.fork())
            if done[0] == 0:
                os._exit(7)
            done.append(os.waitpid(done[0], 0)[1] >> 8)
        return right(target, draft, drafts, rng)

    done: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork beside threads
        assert told(forks)["verdict_class"] == "no deviation"
    assert done[1] == 7


def test_plugins_that_are_installed(folder: Path, monkeypatch: Any) -> None:
    module, _ = module_of(folder, monkeypatch, at_import="sys.exit(0)")
    for group, name, door in (
        ("solvers", "method", lambda: mo.solve(PROBLEM, "theirs")),
        ("verifiers", "VERIFIER", lambda: mo.verifiers.get("theirs")),
        ("draft_schemes", "next_law", lambda: mo.acceptance_rates(LAW, LAW, 1, "theirs")),
        ("engines", "ADAPTER", lambda: mo.auditing.engines.get("theirs")),
        ("tree_rules", "RULE", lambda: mo.trees.get_rule("theirs")),
        ("server_apis", "ADAPTER", lambda: APIS.get("theirs")),
    ):
        points = {f"mdsd_opt.{group}": {"theirs": f"{module}:{name}"}}
        monkeypatch.setattr(
            "mdsd_opt.base.registry.plugged_in", lambda group, points=points: points.get(group, {})
        )
        with pytest.raises(MdsdError, match="ended the program instead of"):
            door()


def test_the_line_is_the_users(folder: Path, monkeypatch: Any) -> None:
    """Not the one of Python's library that ends programs for it."""
    ends = "__import__('argparse').ArgumentParser().error('no option')"
    module, line = module_of(folder, monkeypatch, at_import=ends)
    with pytest.raises(ForeignFault, match=rf"SystemExit\(2\) \(line {line} of .*{module}.py"):
        loaded(f"{module}:chain")
