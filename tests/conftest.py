"""Settings shared by all tests."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import runpy
import signal
import sys
import textwrap
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from mdsd_opt.cli import main

HERE = Path(__file__).parent
SLOW_CLOCKS = HERE / "support" / "slow_clocks"
BEGUN = pytest.StashKey[float]()

#: Neither bound on time of hypothesis's own.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=40, **UNTIMED)
settings.register_profile("ci", max_examples=40, derandomize=True, **UNTIMED)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

#: Folders whose tests need more than the others, or much longer: collected where they are named.
BESIDE = ("pytorch", "models", "engines", "shipped", "servers", "cluster", "stress")


def pytest_ignore_collect(collection_path, config):
    """Leave out a folder that stands beside, unless a path inside it was asked for."""
    if collection_path.parent != HERE or collection_path.name not in BESIDE:
        return None
    asked = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(collection_path) for path in asked) else True


#: Tests that took `SLOW` CPU seconds or more when `--record-slow` last wrote this file.
SLOW_TESTS = HERE / "slow_tests.txt"
SLOW = 0.5
RECORDED = {line.partition(" ")[2] for line in SLOW_TESTS.read_text().splitlines()}


def pytest_addoption(parser):
    """Options about what is slow, and about the order."""
    parser.addoption("--record-slow", action="store_true", help=f"write {SLOW_TESTS.name} anew")
    parser.addoption("--part", metavar="I/N", help="of the tests chosen every N-th, from the I-th")
    parser.addoption("--slow", type=float, metavar="N", help="clocks run N times as fast")
    parser.addoption("--seed-order", type=int, metavar="N", help="shuffle tests by this seed")


def pytest_configure(config):
    """Slow this process and all that it starts, workers among them, which find it done."""
    if (times := config.getoption("slow")) and "MDSD_OPT_SLOW" not in os.environ:
        os.environ["MDSD_OPT_SLOW"] = str(times)
        beside = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SLOW_CLOCKS), beside]))
        runpy.run_path(str(SLOW_CLOCKS / "sitecustomize.py"))


def pytest_report_header(config):
    """What makes this run another one, as it is written to repeat it."""
    names = ("slow", "seed_order")
    asked = [(name, value) for name in names if (value := config.getoption(name)) is not None]
    return " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in asked)


def shuffled(items, seed):
    """The items in another order; those of a file stay together, as what they share is costly."""
    by_file = defaultdict(list)
    for item in items:
        by_file[item.path].append(item)
    rng = random.Random(seed)
    files = list(by_file.values())
    rng.shuffle(files)
    for each in files:
        rng.shuffle(each)
    return [item for each in files for item in each]


def pytest_itemcollected(item):
    """Mark a test by its folder, and by what it took."""
    room = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
    if room in BESIDE:
        item.add_marker(room)
    if item.nodeid in RECORDED:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Keep the part that `--part` names, in the order of `--seed-order`."""
    if part := config.getoption("part"):
        first, number = map(int, part.split("/"))
        items[:] = items[first % number :: number]
    if (seed := config.getoption("seed_order")) is not None:
        items[:] = shuffled(items, seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Note the CPU seconds of a test, those of programs it starts among them."""
    item.stash[BEGUN] = sum(os.times()[:4])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Hand them to the process that collects the reports."""
    answer = yield
    item.user_properties.append(("cpu_s", sum(os.times()[:4]) - item.stash[BEGUN]))
    return answer


def pytest_sessionfinish(session):
    """Write down which tests were slow; those that did not run keep their line."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("record_slow") or hasattr(session.config, "workerinput"):
        return
    lines = dict(line.split(" ", 1)[::-1] for line in SLOW_TESTS.read_text().splitlines())
    for report in (x for each in reporter.stats.values() for x in each if hasattr(x, "nodeid")):
        for name, seconds in getattr(report, "user_properties", []):
            if name == "cpu_s":
                lines.pop(report.nodeid, None)
                if seconds >= SLOW:
                    lines[report.nodeid] = f"{seconds:.1f}"
    text = "".join(f"{seconds} {name}\n" for name, seconds in sorted(lines.items()))
    SLOW_TESTS.write_text(text)


def pytest_terminal_summary(terminalreporter):
    """Print what tests were skipped for: how many, why, and of which rooms."""
    counts, rooms = Counter(), defaultdict(set)
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        reason = re.sub(r"^could not import '(\w+).*", r"needs \1", reason)
        counts[reason] += 1
        rooms[reason].add(report.nodeid.removeprefix("tests/").partition("/")[0])
    if counts:
        terminalreporter.section(f"{counts.total()} skipped")
        for reason, count in counts.most_common():
            said = textwrap.shorten(reason, 100, placeholder=" ...")
            terminalreporter.line(f"{count:5}  {said} ({', '.join(sorted(rooms[reason]))})")


# A shell's background job ignores Ctrl-C, and so would every program that a test starts there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kernel_device(request):
    """What `support.ptx` compiles the CUDA kernels for; what it builds is kept for the next run."""
    from support import kernel_budget
    from support.ptx.runtime import Device

    try:
        kernel_budget.nvrtc()
    except ImportError as error:
        pytest.skip(f"no NVRTC ({error}): make test-kernels installs it")
    return Device(request.config.cache.mkdir("kernels"))


@dataclass
class Finished:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class CommandLine:
    """The command line in this process, as `main` leaves it."""

    def __init__(self, monkeypatch, capsys):
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments):
        """How a command ends; what it prints with --json is held against its schema."""
        self.monkeypatch.setattr(sys, "argv", ["mdsd-opt", *map(str, arguments)])
        self.capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        output = self.capsys.readouterr()
        if "--json" in arguments and code in (0, 1, 3):
            from support.documents import check_document

            check_document(arguments[0], json.loads(output.out))
        return Finished(code, output.out, output.err)

    def shown(self, *arguments, code=0):
        """What a command prints that ends with this code."""
        done = self(*arguments)
        assert done.returncode == code, done
        return done.stdout

    def document(self, *arguments, code=0):
        """The same with --json, as an object."""
        return json.loads(self.shown(*arguments, "--json", code=code))

    def records(self, *arguments):
        """The same with --csv, as a dictionary for each row."""
        return list(csv.DictReader(io.StringIO(self.shown(*arguments, "--csv"))))

    def refusal(self, *arguments):
        """The one line of a command that is refused and prints nothing else."""
        done = self(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), done
        (line,) = done.stderr.splitlines()
        return line


@pytest.fixture
def run_cli(monkeypatch, capsys):
    """The command line: call it, or ask for what it shows."""
    return CommandLine(monkeypatch, capsys)
