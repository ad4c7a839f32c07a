"""A random falsifier: floating point proposes, fractions decide. For sizes beyond exact checks.

A claim that survives is not proved. How little its survival says is measured in the same run: the
same sampler is set on a control, a claim of the same kind that is known to be false.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mdsd_opt.cddlib_checks.checking import checked_size, conjecture_named
from mdsd_opt.cddlib_checks.child import DEFAULT_MEMORY, OutOfBudget, run_in_child
from mdsd_opt.cddlib_checks.random_trials import MAX_VOCAB_SIZE, SliceResult, run_slice
from mdsd_opt.cddlib_checks.registry import CONJECTURES, Conjecture
from mdsd_opt.cddlib_checks.result import CheckResult
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName

#: Share of the trials that also goes to the control.
_CONTROL_SHARE = 10


def search(
    name: str,
    *,
    vocab_size: int,
    num_drafts: int,
    trials: int = 10_000,
    seed: int = 0,
    start: int = 0,
    timeout: float = 600.0,
    workers: int | None = None,
    memory: int | None = DEFAULT_MEMORY,
    progress: Callable[[str], None] | None = None,
) -> CheckResult:
    """Look for a counterexample among random targets and drafts.

    Trial number t depends on the seed and t alone, so a search can be resumed with `start`, and
    the number of workers changes nothing.

    Parameters
    ----------
    name : str
        A claim of `conjectures()` that has a search; others raise `UnknownName`, which lists them.
    vocab_size, num_drafts : int
        V (at most 16) and K.
    trials, seed, start : int
        Trials ``start .. start + trials - 1`` of this seed.
    timeout : float
        Seconds, after which each worker stops at its next trial.
    workers : int, optional
        Processes; the number of CPUs by default.

    Returns
    -------
    CheckResult
        `holds` is False with a confirmed counterexample, otherwise None; `reason` says how blind
        the search is, `sizes["next_trial"]` where to resume.
    """
    conjecture = conjecture_named(name)
    wanted = conjecture.search
    if wanted is None:
        known = [c.name for c in CONJECTURES.values() if c.search is not None]
        raise UnknownName.among("claim with a random search", conjecture.name, known)
    v, k = checked_size(vocab_size, num_drafts)
    if v > MAX_VOCAB_SIZE:
        raise ProblemTooLarge(
            f"vocab_size is {v}: the search compares all 2^V sets of tokens and ends at "
            f"V = {MAX_VOCAB_SIZE}"
        )
    for label, value, least in (("trials", trials, 1), ("seed", seed, 0), ("start", start, 0)):
        if operator.index(value) < least:
            raise InvalidInput(f"{label} is {value!r}: give an integer of at least {least}")
    if not 0 < timeout < float("inf"):
        raise InvalidInput(f"timeout is {timeout!r}: give a positive number of seconds")
    count = max(1, min(workers or os.cpu_count() or 1, -(-trials // 100)))

    begun = time.perf_counter()
    jobs: list[dict[str, Any]] = []
    for w in range(count):
        first, last = start + trials * w // count, start + trials * (w + 1) // count
        jobs.append({"search": wanted, "first": first, "last": last})
    share = max(100, trials // _CONTROL_SHARE)
    jobs.append({"search": wanted.control, "first": 0, "last": share, "count_all": True})
    common = {"vocab_size": v, "num_drafts": k, "seed": seed}

    def run(job: dict[str, Any]) -> SliceResult | None:
        left = timeout - (time.perf_counter() - begun)
        try:
            # The slice keeps the deadline itself and tells how far it came.
            result: SliceResult = run_in_child(
                run_slice, {**common, **job, "seconds": left}, timeout=left + 30, memory=memory
            )
            return result
        except OutOfBudget:
            return None

    with ThreadPoolExecutor(count) as pool:
        pending = [pool.submit(run, job) for job in jobs]
        while not all(task.done() for task in pending):
            time.sleep(0.2)
            if progress is not None:
                finished = sum(task.done() for task in pending)
                seconds = time.perf_counter() - begun
                progress(f"search {conjecture.name}: {finished}/{len(jobs)} parts, {seconds:.0f} s")
        slices = [task.result() for task in pending]
    return _combined(conjecture, v, k, seed, jobs, slices, begun)


def _combined(
    conjecture: Conjecture,
    vocab_size: int,
    num_drafts: int,
    seed: int,
    jobs: list[dict[str, Any]],
    slices: list[SliceResult | None],
    begun: float,
) -> CheckResult:
    *parts, control = slices
    found = sorted(
        ((x.found_at, x.found) for x in parts if x is not None and x.found is not None),
        key=lambda pair: pair[0],
    )
    done = sum(x.done for x in parts if x is not None)
    resume = jobs[-2]["last"]
    for job, part in zip(jobs, parts, strict=False):
        reached = job["first"] + (part.done if part is not None else 0)
        if reached < job["last"]:
            resume = reached
            break
    sizes = {
        "trials": done,
        "float_alarms_not_confirmed": sum(x.false_alarms for x in parts if x is not None),
        "next_trial": resume,
    }
    told = conjecture.search.control_statement if conjecture.search else ""
    if control is None or control.done == 0:
        blindness = "no time was left to measure how blind the search is"
    else:
        sizes |= {"control_trials": control.done, "control_caught": control.caught}
        blindness = (
            f"how blind: of {control.done} trials on a false claim of the same kind ({told}), "
            f"{control.caught} caught it"
        )
    if found:
        sizes["found_at"] = found[0][0]
    return CheckResult(
        name=conjecture.name,
        statement=conjecture.statement,
        vocab_size=vocab_size,
        num_drafts=num_drafts,
        holds=False if found else None,
        counterexamples=tuple(c for _, c in found[:1]),
        facets=(),
        scope=f"V = {vocab_size}, K = {num_drafts}: {done} random instances of seed {seed}",
        reason=blindness if found else f"a search proves nothing; {blindness}",
        sizes=sizes,
        seconds=time.perf_counter() - begun,
    )
