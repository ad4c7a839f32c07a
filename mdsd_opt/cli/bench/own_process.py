"""Measurements in processes of their own: peak memory, and libraries that bear no others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from mdsd_opt.errors import SolverError


def in_own_process(module: str, case: list[Any]) -> dict[str, Any]:
    """What ``python -m module`` prints for a case, both as JSON."""
    command = [sys.executable, "-m", module, json.dumps(case)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SolverError(f"the benchmark of {case} failed: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
