"""Settings shared by all tests."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings

from mdsd_opt.cli import main

settings.register_profile("dev", deadline=None, max_examples=40)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A shell's background job ignores Ctrl-C, and so would every program that a test starts there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def built_kernels(tmp_path_factory):
    """`support.host_runtime.build`, which compiles each library once for all processes of a run."""
    import fcntl

    from support.host_runtime import build

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def built(cluster_size, **options):
        label = repr((cluster_size, sorted(options.items())))
        folder = shared / f"kernels-{hashlib.sha256(label.encode()).hexdigest()[:12]}"
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            libraries = [*folder.glob("*.so")]
            return libraries[0] if libraries else build(folder, cluster_size, **options)

    return built


@dataclass
class Finished:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run_cli(monkeypatch, capsys):
    """The command line in this process, as `main` leaves it."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mdsd-opt", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        output = capsys.readouterr()
        return Finished(code, output.out, output.err)

    return run
