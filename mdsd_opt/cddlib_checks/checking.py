"""Settle a claim by its provers, in child processes, or look for a counterexample at random.

A random falsifier lets floating point propose and fractions decide, for sizes beyond exact checks.
A claim that survives is not proved. How little its survival says is measured in the same run: the
same sampler is set on a control, a claim of the same kind that is known to be false.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mdsd_opt.base.checked import (
    Rng,
    check_counts,
    check_function,
    checked_integer,
    drawn_seed,
    of_kind,
)
from mdsd_opt.base.keywords import formerly
from mdsd_opt.cddlib_checks.child import DEFAULT_MEMORY, OutOfBudget, run_in_child
from mdsd_opt.cddlib_checks.claims import CONJECTURES, POLYTOPE, Conjecture, Job
from mdsd_opt.cddlib_checks.condition import claimed_condition
from mdsd_opt.cddlib_checks.double_description import require, run_with
from mdsd_opt.cddlib_checks.draft_laws import SCHEMES, drafts_for
from mdsd_opt.cddlib_checks.expressions import inequalities_of
from mdsd_opt.cddlib_checks.random_trials import SliceResult, run_slice
from mdsd_opt.cddlib_checks.result import CheckResult, Evidence
from mdsd_opt.drafts import DraftScheme
from mdsd_opt.errors import InvalidInput, ProblemTooLarge, UnknownName

#: Largest vocabulary: all provers go through the 2**V subsets.
MAX_VOCAB_SIZE = 16

#: Least seconds for a second check of a settled claim.
_SECOND_LOOK = 2.0

#: Number of trials of which one also goes to the control.
_CONTROL_SHARE = 10

Progress = Callable[[str], None]


def conjectures() -> dict[str, Conjecture]:
    """All claims `check` knows, by name: statement, source, status and method of each."""
    return dict(CONJECTURES)


def conjecture_named(name: str) -> Conjecture:
    """The conjecture, or an error that lists those that exist."""
    wanted = str(name).replace("-", "_")
    if wanted not in CONJECTURES:
        raise UnknownName.among("conjecture", name, CONJECTURES)
    return CONJECTURES[wanted]


def check(
    name: str,
    vocab_size: int,
    num_drafts: int,
    draft: Any = None,
    *,
    engine: str = "auto",
    timeout: float = 60.0,
    memory: int | None = DEFAULT_MEMORY,
    progress: Progress | None = None,
    facets: bool = False,
) -> CheckResult:
    """Settle a claim at one size in exact rational arithmetic.

    Parameters
    ----------
    name : str
        One of `conjectures()`.
    vocab_size : int
        V.
    num_drafts : int
        K.
    draft : optional
        q, shape (V,), for provers that need numbers: Fractions, Decimals, strings such as "1/3" and
        "0.1", which mean what they say, or floats that are what they print, as 0.25; others, such
        as 0.1, are refused. K of them for claims about different drafts. By default (1, 2, .., V)
        divided by its sum.
    engine : str
        Library that computes the polyhedra: "cddlib", "ppl", "auto" (the quicker one for the size,
        of those that are installed), or "both", which must agree.
    timeout : float
        Seconds for all parts together; one that does not finish is ended.
    memory : int, optional
        Bound on the address space of a part, in bytes; None for no bound.
    progress : callable, optional
        Called about twice a second with a line that says what is going on.
    facets : bool
        Wait, up to the timeout, for all facets of cone and polytope, though they would only be a
        second look at a claim that is settled: `polyhedra` has them.

    Returns
    -------
    CheckResult
        `holds` is True, False, or None where time or memory ran out, or where the claim held on
        instances, which are all that can be looked at.

    Raises
    ------
    MissingExtra
        The engine is not installed; the message says how to install it.
    UnknownName, InvalidInput, ProblemTooLarge
        The claim, the engine, the size or the draft is not valid.
    """
    conjecture = conjecture_named(name)
    v, k = checked_size(vocab_size, num_drafts)
    _check_budget(timeout, memory)
    least_v, least_k = conjecture.smallest
    if v < least_v or k < least_k:
        raise InvalidInput(
            f"{conjecture.name} says nothing for V = {v}, K = {k}: give vocab_size of at least "
            f"{least_v} and num_drafts of at least {least_k}"
        )
    if isinstance(draft, DraftScheme):  # which people try
        raise InvalidInput(
            "draft is a draft scheme, but each claim says itself how drafts are drawn: give q; "
            "check_condition takes schemes"
        )
    jobs = conjecture.jobs(v, k, draft)
    require(engine)
    return _settle(
        conjecture.name, conjecture.statement, conjecture.method, v, k, jobs, engine, timeout,
        memory, progress, facets,
    )  # fmt: skip


def check_condition(
    vocab_size: int,
    num_drafts: int,
    inequalities: Sequence[Any],
    draft: Any = None,
    *,
    scheme: str = "with_replacement",
    engine: str = "auto",
    timeout: float = 60.0,
    memory: int | None = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> CheckResult:
    """Check whether a list of inequalities is exactly the condition for acceptance one.

    p >= 0 and sum p = 1 need not be listed. A claim that is too weak is refuted by a vertex of its
    polytope with acceptance below one, one that is too strong by a target with acceptance one that
    it excludes.

    Parameters
    ----------
    vocab_size, num_drafts : int
        V and K.
    inequalities : sequence
        Each one a text that is linear in p, as ``"p0 + p2 >= 8/27"`` or ``"p1 >= q1**2"``, where q
        is that of the drafts; a pair of a tuple of tokens and a bound, ``((0, 2), "8/27")`` for
        P({0, 2}) >= 8/27; or a pair of a mapping of coefficients and a bound. Numbers are taken as
        for `check`.
    draft : optional
        q, shape (V,), as for `check`; K of them for independent drafts; or a draft scheme of the
        package.
    scheme : str
        "with_replacement", "without_replacement" or "independent".
    engine, timeout, memory, progress : optional
        As for `check`.

    Returns
    -------
    CheckResult
    """
    v, k = checked_size(vocab_size, num_drafts)
    _check_budget(timeout, memory)
    if progress is not None:
        check_function(progress=progress)
    if of_kind(scheme, str, "scheme", "its name").replace("-", "_") not in SCHEMES:
        raise UnknownName.among("draft scheme", scheme, SCHEMES)
    drafts = drafts_for(scheme.replace("-", "_"), v, k, draft)
    claimed = inequalities_of(of_kind(inequalities, Iterable, "inequalities", "a list"), drafts)
    require(engine)
    job = Job("claimed polytope", claimed_condition, {"drafts": drafts, "claimed": claimed})
    statement = "acceptance one iff " + ", ".join(map(str, claimed)) if claimed else "always one"
    return _settle(
        "condition", statement, POLYTOPE, v, k, [job], engine, timeout, memory, progress, True
    )


def _settle(
    name: str,
    statement: str,
    method: str,
    vocab_size: int,
    num_drafts: int,
    jobs: Sequence[Job],
    engine: str,
    timeout: float,
    memory: int | None,
    progress: Progress | None,
    facets: bool,
) -> CheckResult:
    start = time.perf_counter()
    results: list[tuple[Job, Evidence]] = []
    unfinished: list[str] = []
    settled = False
    for number, job in enumerate(jobs):
        # An equal share of what is left: a prover that takes forever must not starve the next.
        passed = time.perf_counter() - start
        seconds = (timeout - passed) / (len(jobs) - number)
        if settled and not facets:
            seconds = min(seconds, max(passed, _SECOND_LOOK))
        try:
            evidence = run_in_child(
                run_with,
                {"engine": engine, "job": job.prover, "arguments": job.arguments},
                timeout=seconds,
                memory=memory,
                tick=_ticker(progress, f"{name}, {job.title}"),
            )
        except OutOfBudget as end:
            settles_nothing = settled and not facets
            why = "not waited for, as this is settled" if settles_nothing else end
            unfinished.append(f"{job.title}: {why}")
            continue
        results.append((job, evidence))
        settled |= job.decides and evidence.holds is True
        if evidence.holds is False:
            break
    refuted = [e for _, e in results if e.holds is False]
    proved = [e for _, e in results if e.holds is True]
    holds = not refuted if refuted or proved else None
    telling = refuted or proved or [e for _, e in results]
    instances = 0 if holds is not None else sum(e.instances for e in telling)
    remarks = [e.reason for e in telling if e.reason] + unfinished
    return CheckResult(
        name=name,
        statement=statement,
        vocab_size=vocab_size,
        num_drafts=num_drafts,
        holds=holds,
        counterexamples=tuple(c for e in refuted for c in e.counterexamples),
        facets=next((e.facets for e in telling if e.facets), ()),
        scope="; and ".join(e.scope for e in telling),
        reason="; ".join(remarks),
        sizes=_labelled(telling),
        seconds=time.perf_counter() - start,
        instances=instances,
        method=method,
        polyhedra=tuple(each for _, e in results for each in e.polyhedra),
    )


def _labelled(results: Sequence[Evidence]) -> dict[str, int]:
    """Sizes of all provers; the first keeps an equal name, the others add their number."""
    sizes: dict[str, int] = {}
    for number, evidence in enumerate(results, start=1):
        for key, value in evidence.sizes.items():
            sizes[f"{key}_{number}" if key in sizes else key] = value
    return sizes


def _ticker(progress: Progress | None, subject: str) -> Callable[[float], None] | None:
    if progress is None:
        return None
    return lambda seconds: progress(f"{subject}: {seconds:.0f} s")


def checked_size(vocab_size: Any, num_drafts: Any) -> tuple[int, int]:
    """V and K as integers, or an error."""
    v = checked_integer(vocab_size, "vocab_size")
    if v > MAX_VOCAB_SIZE:
        raise ProblemTooLarge(
            f"vocab_size is {v}: exact checks go through all 2^V sets of tokens and end at "
            f"V = {MAX_VOCAB_SIZE}"
        )
    return v, checked_integer(num_drafts, "num_drafts")


def _check_budget(timeout: Any, memory: Any) -> None:
    if not (isinstance(timeout, (int, float)) and 0 < timeout < float("inf")):
        raise InvalidInput(f"timeout is {timeout!r}: give a positive number of seconds")
    if memory is not None:
        checked_integer(memory, "memory")


@formerly(seed="rng")
def search(
    name: str,
    *,
    vocab_size: int,
    num_drafts: int,
    trials: int = 10_000,
    rng: Rng = 0,
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
    trials : int
        Random instances that are tried.
    start : int
        First trial, to resume: trials ``start .. start + trials - 1`` of this seed.
    rng : numpy.random.Generator or int, optional
        Seed, 0 by default, or a generator that draws one.
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
    seed = drawn_seed(rng)
    check_counts(trials=trials, workers=1 if workers is None else workers)
    checked_integer(start, "start", 0)
    _check_budget(timeout, memory)
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
        rest = timeout - (time.perf_counter() - begun)
        try:
            # The slice keeps the deadline itself and tells how far it came.
            return run_in_child(
                run_slice, {**common, **job, "seconds": rest}, timeout=rest + 30, memory=memory
            )
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
    counterexamples = sorted(
        ((x.found_at, x.counterexample) for x in parts if x and x.counterexample),
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
    statement = conjecture.search.control_statement if conjecture.search else ""
    if control is None or control.done == 0:
        blindness = "no time was left to measure how blind the search is"
    else:
        sizes |= {"control_trials": control.done, "control_caught": control.caught}
        blindness = (
            f"how blind: of {control.done} trials on a false claim of the same kind ({statement}), "
            f"{control.caught} caught it"
        )
    if counterexamples:
        sizes["found_at"] = counterexamples[0][0]
    return CheckResult(
        name=conjecture.name,
        statement=conjecture.statement,
        vocab_size=vocab_size,
        num_drafts=num_drafts,
        holds=False if counterexamples else None,
        counterexamples=tuple(c for _, c in counterexamples[:1]),
        facets=(),
        scope=f"V = {vocab_size}, K = {num_drafts}: {done} random instances of seed {seed}",
        reason=blindness,
        sizes=sizes,
        seconds=time.perf_counter() - begun,
        instances=0 if counterexamples else done,
        method="random instances: floats propose, fractions decide",
    )
