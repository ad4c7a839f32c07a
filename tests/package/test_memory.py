"""Memory ceilings: large vocabularies and batches need little beside their input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the limit on private memory is Linux's"
)

# Each program defines prepare() -> work: what was compiled and loaded by then is not counted.
CHILD = """
import os, resource, sys
import numpy as np
import mdsd_opt as mo
from mdsd_opt.base.files.logits import load_logits

def ceiling(megabytes):
    status = open("/proc/self/status").read()
    now = int(status.split("VmData:")[1].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (now + (megabytes << 20),) * 2)

def logits(vocab_size):
    rng = np.random.default_rng(0)
    target = 2.5 * rng.standard_normal(vocab_size)
    return target, target + rng.standard_normal(vocab_size)

{work}

if os.fork() == 0:  # what only the large one asks for is not compiled below the ceiling
    work(small=False)
    os._exit(0)
os.wait()
work(small=True)
ceiling({megabytes})
try:
    work(small=False)
except MemoryError:
    sys.exit("over the ceiling")
"""

RATES = """
folder = sys.argv[1]
def work(small):
    sample = load_logits([f"{folder}/target.npy", f"{folder}/draft.npy"])
    rows = slice(2) if small else slice(None)
    rates = mo.acceptance_rates(
        sample.target[rows], sample.draft[rows], (2, 4), SCHEME, num_threads=2)
    assert np.isfinite(rates).all()
"""

DECISION = """
verifier = mo.verifiers.get("optimal", **OPTIONS)
def problem_of(vocab_size):
    return mo.TransportProblem.from_logits(*logits(vocab_size), num_drafts=8, drafts=SCHEME)
problems = {True: problem_of(1000), False: problem_of(1 << 18)}
drafts = {small: problem.drafts.sample(np.random.default_rng(0))
          for small, problem in problems.items()}
def work(small):
    for seed in range(5):
        verifier.verify(problems[small], drafts[small], np.random.default_rng(seed))
"""

SOLVE = """
def problem_of(vocab_size):
    return mo.TransportProblem.from_logits(*logits(vocab_size), num_drafts=8, drafts=SCHEME)
problems = {True: problem_of(1000), False: problem_of(1 << 18)}
def work(small):
    solution = mo.solve(problems[small])
    assert mo.certify(problems[small], solution).gap < 1e-9
"""

REFUSED = """
from mdsd_opt.errors import ProblemTooLarge
def work(small):
    p = np.full(400, 1 / 400)
    for method in ("full_lp", "dual_lp", "max_flow"):
        try:
            mo.solve(mo.TransportProblem(p, mo.WithReplacement(p, 5)), method=method)
        except ProblemTooLarge:
            continue
        sys.exit(f"{method} has tried")
"""


def run(work, megabytes, *arguments):
    return subprocess.run(
        [sys.executable, "-c", CHILD.format(work=work, megabytes=megabytes), *arguments],
        capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Logits of 64 positions, 32 MiB a side, 64 MiB each in double precision."""
    folder = tmp_path_factory.mktemp("batch")
    rng = np.random.default_rng(0)
    target = rng.standard_normal((64, 131_072), dtype=np.float32)
    np.save(folder / "target.npy", target)
    np.save(folder / "draft.npy", target + rng.standard_normal(target.shape, dtype=np.float32))
    return folder


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy", "top_k"])
def test_batches_are_read_row_by_row(batch, scheme):
    done = run(RATES.replace("SCHEME", repr(scheme)), 32, str(batch))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [{}, {"binned": True}])
@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
def test_a_decision_takes_a_few_vectors(scheme, options):
    work = DECISION.replace("SCHEME", repr(scheme)).replace("OPTIONS", repr(options))
    done = run(work, 32)  # 16 vectors of the vocabulary
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement", "greedy"])
def test_the_optimum_takes_a_few_vectors(scheme):
    done = run(SOLVE.replace("SCHEME", repr(scheme)), 64)
    assert done.returncode == 0, done.stderr


def test_what_is_too_large_is_refused_before_memory_is_taken():
    done = run(REFUSED, 16)
    assert done.returncode == 0, done.stderr


def test_the_ceiling_holds():
    done = run("def work(small):\n    np.ones(1000 if small else 6 << 20)", 32)
    assert done.returncode == 1
    assert "over the ceiling" in done.stderr
