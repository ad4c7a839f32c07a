"""Time that each method takes on transport problems, and the gap that its certificate leaves.

A method has a process of its own for the problems of one size, which is stopped where it exceeds
the limit of time. Every call gets the problem as a new object, so that no answer kept from an
earlier one helps; what is loaded and compiled at a method's first call is paid on a small problem
before. Times are of the whole call: listing the draft sets and stating the programme (setup)
are in it. What became of it says the certificate, not the method.
"""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from typing import Any

from mdsd_opt.bench.problem_sets import (
    FAMILIES,
    SETS,
    USUAL,
    Place,
    places_in,
    places_of_set,
)
from mdsd_opt.bench.record import CLOSED, SHIFT, Outcome, Record, Settings
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, all_schemes, checked_scheme
from mdsd_opt.errors import (
    ForeignFault,
    InvalidInput,
    MdsdError,
    ProblemTooLarge,
    UnknownName,
    UnsupportedScheme,
)
from mdsd_opt.problem import Certificate, Solution, Status, certify
from mdsd_opt.solvers import METHODS, Method, get, methods, solve

#: Method that ratios are measured against, if it has solved the same problem.
AGAINST = "full_lp"

#: Vocabulary sizes that are taken unless some are asked for.
_SIZES, _QUICK_SIZES = (12, 100, 1000), (12,)

#: Seconds of a solution that is not timed again.
_LONG = 20.0

#: Seconds of a solution, unless a limit is given, and seconds to build and to certify a problem.
_LIMIT, _GRACE = 60.0, 60.0


def peak_megabytes() -> float:
    """Largest memory of this process so far; Unix only, 0 elsewhere."""
    try:
        import resource
    except ImportError:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def route_of(text: str) -> tuple[Method, dict[str, Any]]:
    """Method and options of a route such as ``truncated_lp size=40 rule=ratio``."""
    name, *words = text.split()
    method, options = get(name), {}
    for word in words:
        option, equals, value = word.partition("=")
        if not equals or not (method.takes_any or option in method.options):
            known = ", ".join(method.options) or "none"
            raise InvalidInput(
                f"{text!r}: {word!r} is no option of {method.name} with its value, as size=40. "
                f"Its options: {known}"
            )
        with suppress(ValueError):
            value = json.loads(value)
        options[option] = value
    return method, options


def cases_of(settings: Settings) -> list[tuple[str, list[Place]]]:
    """Routes with problems of one size, the sizes in turn."""
    for family in settings.families:
        if family not in FAMILIES:
            raise UnknownName.among("family", family, FAMILIES)
    if settings.scheme not in all_schemes():
        checked_scheme(settings.scheme)
    routes = settings.methods or tuple(methods())
    if settings.backend:
        having = [x for x in routes if "backend" in route_of(x)[0].options]
        if not having:
            raise InvalidInput(f"none of {', '.join(routes)} has a backend: leave --backend out")
        routes = tuple(f"{x} backend={settings.backend}" if x in having else x for x in routes)
    if settings.problems is not None:
        folder = settings.problems
        is_set = str(folder) in SETS
        if is_set and folder.is_dir():
            raise InvalidInput(
                f"problems is {folder}, a named set and a folder here: give {folder.absolute()} "
                "for the folder, or go elsewhere for the set"
            )
        places = places_of_set(str(folder)) if is_set else places_in(folder)
    else:
        quick = settings.quick
        sizes = settings.vocab_sizes or (_QUICK_SIZES if quick else _SIZES)
        places = [
            Place(family, settings.scheme, v, k, settings.seed + n)
            for v in sizes
            for k in settings.num_drafts or (2,)
            for family in settings.families or (USUAL[:1] if quick else USUAL)
            for n in range(settings.instances or (1 if quick else 5))
        ]
    groups: dict[tuple[int, int], list[Place]] = {}
    for place in places:
        groups.setdefault((place.vocab_size, place.num_drafts), []).append(place)
    for route in routes:
        route_of(route)
    return [(route, group) for group in groups.values() for route in routes]


def records(settings: Settings) -> Iterator[Record]:
    """Records of all cases in turn; a method that takes over 20 s is measured once."""
    limit = settings.time_limit or _LIMIT
    kept = {(r.route, r.num_drafts, r.place): r for r in settings.kept}
    for route, places in cases_of(settings):
        method, _ = route_of(route)
        label = " ".join([method.name, *route.split()[1:]])
        empty = [_record(place, label, {}, limit) for place in places]
        known = [kept.get((r.route, r.num_drafts, r.place)) for r in empty]
        yield from (record for record in known if record is not None)
        rest = [place for place, record in zip(places, known, strict=True) if record is None]
        in_process = method.name in METHODS.registered or any(_is_registered(x) for x in rest)
        task: dict[str, Any] = {
            "route": route, "repeats": settings.rounds or 3, "limit": limit,
            "tolerance": settings.tolerance or CLOSED,
        }  # fmt: skip
        found = measured(**task, places=rest, watch=False) if in_process else _beside(task, rest)
        for place, result in zip(rest, found, strict=True):
            yield _record(place, label, result, limit)


def _record(place: Place, route: str, result: dict[str, Any], limit: float) -> Record:
    fields = {**asdict(place), **result}
    del fields["scheme"], fields["path"]
    if place.problem in FAMILIES and place.scheme != "with_replacement":
        fields["problem"] += f", {place.scheme}"
    return Record.timed(
        fields.pop("milliseconds", []), benchmark="solvers", route=route, against=AGAINST,
        gap_kind="certificate" if "gap" in fields else "", limit_ms=1e3 * limit, **fields,
    )  # fmt: skip


def _is_registered(place: Place) -> bool:
    """Whether the draft scheme was registered in this process, and another does not know it."""
    scheme = place.scheme
    return hasattr(SINGLE_MODEL_SCHEMES.get(scheme), "rule") and ":" not in scheme


def _beside(task: dict[str, Any], places: Sequence[Place]) -> Iterator[dict[str, Any]]:
    """Results of `measured` in a process of its own, and in a new one where that has ended."""
    while places:
        case = json.dumps({**task, "places": [asdict(place) for place in places]})
        command = [sys.executable, "-m", "mdsd_opt.bench.solvers", case]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
                places = places[1:]
            _, told = process.communicate()
        finally:
            process.kill()
            process.wait()
        if places:  # it ended on this one
            yield _ended(told, task["limit"])
            places = places[1:]


def _ended(told: str, limit: float) -> dict[str, Any]:
    """Result of a problem on which the process ended."""
    if "Timeout (" in told:
        return {"outcome": Outcome.LIMIT, "note": f"did not finish within {limit:g} s"}
    last = (told.strip().splitlines() or ["without a word"])[-1]
    return {"outcome": Outcome.FAILED, "note": f"its process ended: {last[:200]}"}


def measured(
    route: str,
    places: Sequence[Place],
    repeats: int,
    limit: float,
    tolerance: float,
    watch: bool = True,
) -> Iterator[dict[str, Any]]:
    """Time a route on each problem, in this process, which ends where that takes too long."""
    method, options = route_of(route)
    for name, value in (("time_limit", limit), ("tolerance", tolerance)):
        if name in method.options:
            options.setdefault(name, value)
    patience = 1.2 * limit + 1.0
    for n, place in enumerate(places):
        if watch:
            faulthandler.dump_traceback_later(_GRACE + patience, exit=True)
        if n == 0:
            with suppress(MdsdError):
                solve(place.small(), method, **options)
        seconds: list[float] = []
        solution = None
        try:
            while len(seconds) < repeats and max(seconds, default=0.0) <= min(_LONG, limit):
                problem, solution = place.build(), None  # or two plans would be counted
                if watch:
                    faulthandler.dump_traceback_later(patience, exit=True)
                solution = solve(problem, method, **options)
                seconds.append(solution.solve_seconds)
        except MdsdError as error:
            refusals = (InvalidInput, ProblemTooLarge, UnsupportedScheme)
            is_refused = isinstance(error, refusals) and not isinstance(error, ForeignFault)
            outcome = Outcome.REFUSED if is_refused else Outcome.FAILED
            yield {"outcome": outcome, "note": f"{outcome}: {error}".partition(". ")[0]}
            continue
        assert solution is not None
        peak = peak_megabytes()
        if watch:
            faulthandler.dump_traceback_later(_GRACE, exit=True)
        certificate = certify(problem, solution)
        in_time = max(seconds) <= limit
        yield {
            **_times(seconds),
            "gap": float(certificate.gap),
            "outcome": _outcome(method, solution, certificate, in_time, tolerance),
            "note": _note(solution, certificate, peak),
            "setup_ms": 1e3 * float(solution.stats.get("build_seconds", 0.0)) or None,
            "form": _form(solution),
        }
    if watch:
        faulthandler.cancel_dump_traceback_later()


def _times(seconds: Sequence[float]) -> dict[str, Any]:
    """Milliseconds of the calls; the first apart where it took twice as long as any other."""
    milliseconds = [1e3 * x for x in seconds]
    first, *others = milliseconds
    if others and first > 2 * max(others) + SHIFT:
        return {"milliseconds": others, "first_ms": first}
    return {"milliseconds": milliseconds}


def _outcome(
    method: Method, solution: Solution, certificate: Certificate, in_time: bool, tolerance: float
) -> Outcome:
    if not certificate.valid:
        least, most = certificate.lower - CLOSED, certificate.upper + CLOSED
        claims = solution.acceptance_rate, solution.lower_bound
        refuted = max(claims) > most or solution.upper_bound < least
        return Outcome.FALSE if refuted else Outcome.UNPROVED
    if not in_time:
        return Outcome.LIMIT
    if certificate.gap <= tolerance:
        return Outcome.SOLVED
    if solution.status == Status.LIMIT:
        return Outcome.LIMIT
    is_bound = not method.exact or solution.status == Status.BOUND
    return Outcome.BOUND if is_bound else Outcome.INEXACT


def _note(solution: Solution, certificate: Certificate, peak: float) -> str:
    sizes = ("num_variables", "arcs", "variables", "prefixes")
    size = next((solution.stats[name] for name in sizes if name in solution.stats), None)
    parts = [str(solution.status), "" if size is None else f"size {size:,}", f"peak {peak:.0f} MB"]
    return ", ".join([*filter(None, parts), *certificate.violations[:1]])


def _form(solution: Solution) -> str:
    """Variant that a method took, and whether it made a plan: its time depends on both."""
    variant = solution.variant
    if solution.subset is not None and solution.size == solution.subset.size:
        variant = variant.replace(f"size {solution.size}", "size V")
    return variant if solution.plan is None or not variant else f"{variant}, with a plan"


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    asked["places"] = [Place(**place) for place in asked["places"]]
    results = sys.stdout
    with redirect_stdout(sys.stderr):  # a method of the user's may print
        for result in measured(**asked):
            print(json.dumps(result), file=results, flush=True)
