"""Settings shared by all tests."""

from __future__ import annotations

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
