"""Every method on one problem, side by side, each with its certificate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

import numpy as np

from mdsd_opt.base.frames import Column, Result, Table, wrapped
from mdsd_opt.bench.problem_sets import Place
from mdsd_opt.errors import InvalidInput, MdsdError
from mdsd_opt.problem import Certificate, Solution, TransportProblem, certify
from mdsd_opt.solvers import METHODS, choose, get, methods, solve

#: Distance up to which two bounds show the same digits.
_CLOSED = 1e-9

#: Seconds that a method may take even if all others are quick.
_PATIENCE = 10.0

#: Most lines of a plan, of prices or of tokens on a terminal; JSON has all.
MOST_LINES = 40


class Arc(TypedDict):
    """Mass at which a token is accepted from a draft set."""

    drafts: list[int]
    token: int
    mass: float


class Price(TypedDict):
    """Price of a draft set."""

    drafts: list[int]
    price: float


class Dual(TypedDict, total=False):
    """Prices of tokens, and of draft sets where a plan names these."""

    tokens: list[float]
    sets: list[Price]


class ShownEvidence(TypedDict, total=False):
    """What a solution shows beside its value."""

    subset: list[int]
    plan: list[Arc]
    dual: Dual


@dataclass(frozen=True, slots=True)
class ProvenAnswer(Result):
    """An answer and what its certificate proves; exact bounds are given as fractions, too."""

    solution: Solution
    certificate: Certificate

    columns: ClassVar = (
        Column("acceptance_rate", of="solution.acceptance_rate"),
        Column("status", of=lambda found: str(found.solution.status), holds=str),
        Column("variant", of="solution.variant"),
        Column("lower", of=lambda found: float(found.certificate.lower), holds=float),
        Column("upper", of=lambda found: float(found.certificate.upper), holds=float),
        Column("gap", of=lambda found: float(found.certificate.gap), holds=float),
        Column("valid", of="certificate.valid"), Column("violations", of="certificate.violations"),
        Column("solve_seconds", of="solution.solve_seconds"), "stats",
        Column("message", of="solution.message"), "exact_lower?", "exact_upper?",
    )  # fmt: skip

    @property
    def stats(self) -> dict[str, str | bool | int | float]:
        """Those that are numbers or words."""
        stats = self.solution.stats
        return {k: v for k, v in stats.items() if isinstance(v, (str, int, float))}

    @property
    def exact_lower(self) -> str:
        return str(self.certificate.lower) if self.certificate.exact else ""

    @property
    def exact_upper(self) -> str:
        return str(self.certificate.upper) if self.certificate.exact else ""


@dataclass(frozen=True, slots=True)
class MethodRow(Result):
    """Result of one method and what its certificate proves, or why it could not be used."""

    method: str
    chosen: bool
    solution: Solution | None
    certificate: Certificate | None
    refusal: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    columns: ClassVar = ("method", "chosen", "options?", "refused?", "*found")

    @property
    def refused(self) -> str:
        return self.refusal

    @property
    def label(self) -> str:
        """Name of the method, with the options and the variant that it took."""
        variant = self.solution.variant if self.solution is not None else ""
        given = [f"{name}={x}" for name, x in self.options.items() if f"{name} {x}" not in variant]
        return " ".join([self.method, *given]) + (f" ({variant})" if variant else "")

    @property
    def found(self) -> ProvenAnswer | None:
        """The answer with its proof; None where there is none."""
        if self.solution is None or self.certificate is None:
            return None
        return ProvenAnswer(self.solution, self.certificate)

    def evidence(self, names: Iterable[str]) -> ShownEvidence:
        """JSON-ready subset, plan and dual, those of these names that the solution has."""
        evidence: ShownEvidence = {}
        solution = self.solution
        if solution is None:
            return evidence
        if "subset" in names and solution.subset is not None:
            evidence["subset"] = np.flatnonzero(solution.subset).tolist()
        if "plan" in names and solution.plan is not None:
            evidence["plan"] = [
                {"drafts": list(drafts), "token": token, "mass": mass}
                for drafts, token, mass in solution.plan.items()
            ]
        if "dual" in names and solution.dual is not None:
            evidence["dual"] = {"tokens": solution.dual.tokens.tolist()}
            if solution.dual.sets is not None and solution.plan is not None:
                sets = solution.plan.sets()
                evidence["dual"]["sets"] = [
                    {"drafts": list(drafts), "price": price}
                    for drafts, price in zip(sets, solution.dual.sets.tolist(), strict=True)
                ]
        return evidence


def method_rows(
    problem: TransportProblem,
    names: Sequence[str] | None = None,
    exact: bool = False,
    time_limit: float | None = None,
    tolerance: float | None = None,
    sizes: Sequence[int] | None = None,
    backend: str | None = None,
    rule: str | None = None,
) -> list[MethodRow]:
    """Run the methods (all of them unless named) and certify each result.

    What is refused, or fails, is a row with the reason. A small problem before pays for what is
    loaded and compiled. Options go to the methods that take them.

    Parameters
    ----------
    problem : TransportProblem
    names : sequence of str, optional
        Names of methods, or ``"module:METHOD"``.
    exact : bool
        Certify in exact arithmetic (small problems).
    time_limit : float, optional
        Seconds for each method that can take long; ten, or what the rows above took, by default.
    tolerance : float, optional
        Of the methods that take one: how close bounds have to be to be optimal.
    sizes : sequence of int, optional
        Of the truncated LP, which has a row for each of them.
    backend : str, optional
        Of the linear programmes: highs or cvxpy.
    rule : str, optional
        Of the truncated LP: ratio, or published, the paper's.
    """
    asked = {"backend": backend, "rule": rule}
    began = time.perf_counter()
    limit_of = {"time_limit": time_limit or _PATIENCE}
    if tolerance is not None:
        limit_of["tolerance"] = tolerance
    try:
        chosen = choose(problem, {"time_limit": limit_of["time_limit"]}).method
    except MdsdError:  # so do the methods that it has tried, in rows of their own
        chosen = ""
    rows = []
    for name in names or methods():
        known = get(name).options
        if time_limit is None:
            limit_of["time_limit"] = max(_PATIENCE, time.perf_counter() - began)
        limits = {limit: limit_of[limit] for limit in limit_of if limit in known}
        given = {key: x for key, x in asked.items() if x is not None and key in known}
        for size in sizes if sizes and "size" in known else [None]:
            options = {**given, **({} if size is None else {"size": size})}
            rows.append(_row(problem, name, name == chosen, options, limits, exact))
    return rows


def _row(
    problem: TransportProblem,
    name: str,
    chosen: bool,
    options: dict[str, Any],
    limits: dict[str, Any],
    exact: bool,
) -> MethodRow:
    title = get(name).name
    small = Place("random", problem.drafts.scheme, 4, problem.num_drafts, 0).small
    try:
        with suppress(MdsdError):
            solve(small(), method=name, **options, **limits)
        solution = solve(problem, method=name, **options, **limits)
        certificate = certify(problem, solution, exact=exact)
    except Exception as error:
        known = isinstance(error, MdsdError)
        if not known and name in METHODS.own():
            raise
        text = str(error) if known else f"{type(error).__name__}: {error}".partition("\n")[0]
        return MethodRow(title, chosen, None, None, text, options)
    return MethodRow(title, chosen, solution, certificate, "", options)


def methods_table(rows: Sequence[MethodRow], title: str) -> Table:
    """Table with a line for each of the rows; the method that "auto" takes is marked."""
    caption = "* taken by method='auto'; certified gap: what the certificate leaves open"
    if any(row.solution is None for row in rows):
        caption += "; -: not used, see below"
    return Table.of(
        f"{title}\n"
        "the most that a lossless verifier accepts, by every method; gap: lower is better",
        ("method", "acceptance\nrate", "certified\ngap", "seconds", "status", "size"),
        map(_cells, rows), ("method", "status"), caption=caption, heading="Methods",
        beside=("size",),
        shows=f"Optimal acceptance rate by every method, with the certified gap; {title}",
    )  # fmt: skip


def _cells(row: MethodRow) -> tuple[str, ...]:
    name = wrapped(f"{row.label} *" if row.chosen else row.label, 20)
    if row.solution is None or row.certificate is None:
        return (name, "-", "-", "-", "not used", "")
    status = str(row.solution.status)
    if (loss := row.solution.stats.get("loss_bound_tighter")) is not None:
        status += f", loses at most {loss:.3g}"
    if not row.certificate.valid:
        status += "; NOT VALID: " + "; ".join(row.certificate.violations)
    return (
        name,
        f"{row.solution.acceptance_rate:.9f}",
        f"{float(row.certificate.gap):.0e}",
        f"{row.solution.solve_seconds:.3g}",
        wrapped(status, 14),
        _size(row.solution),
    )


def best_first(rows: Sequence[MethodRow]) -> list[MethodRow]:
    """Rows by what their certificate leaves open, the first of equal ones first."""
    done = [row for row in rows if row.certificate is not None]
    return sorted(done, key=lambda row: round(float(row.certificate.gap), 9))  # type: ignore[union-attr]


def with_plan(rows: Sequence[MethodRow]) -> MethodRow:
    """Best row that has a plan; `InvalidInput` if none has."""
    for row in best_first(rows):
        if row.solution is not None and row.solution.plan is not None:
            return row
    raise InvalidInput("none of these methods found a plan: --method full_lp and max_flow have one")


def evidence_tables(rows: Sequence[MethodRow], names: Sequence[str]) -> list[Table]:
    """Table for the subset, the plan and the dual, each of the best method that has one."""
    tables = []
    for name in names:
        having = [row for row in best_first(rows) if name in row.evidence([name])]
        if name == "dual":  # prices of the draft sets come with a plan
            having.sort(key=lambda row: "plan" not in row.evidence(["plan"]))
        if having:
            shown: Mapping[str, Any] = having[0].evidence([name])
            tables.append(_EVIDENCE[name](having[0], shown[name]))
        else:
            raise InvalidInput(
                f"none of these methods found what --{name} shows: --method full_lp and max_flow do"
            )
    return tables


def _subset_table(row: MethodRow, tokens: list[int]) -> Table:
    assert row.solution is not None
    assert row.solution.subset is not None
    size = row.solution.subset.size
    shown = ", ".join(map(str, tokens[:MOST_LINES])) or "none"
    more = f", and {len(tokens) - MOST_LINES:,} more" if len(tokens) > MOST_LINES else ""
    return Table.of(
        f"subset of {row.label}: 1 + P(H) - Q(H) is the upper bound",
        ("tokens of H", "how many", "of"),
        [(shown + more, f"{len(tokens):,}", f"{size:,}")],
    )


def _plan_table(row: MethodRow, arcs: list[dict[str, Any]]) -> Table:
    largest = sorted(arcs, key=lambda arc: -arc["mass"])[:MOST_LINES]
    caption = ""
    if len(arcs) > len(largest):
        caption = f"the largest of {len(arcs):,} masses above zero; --json has all of them"
    return Table.of(
        f"plan of {row.label}: how often the token is accepted from the draft set",
        ("draft set", "token", "mass"),
        [(_named(x["drafts"]), str(x["token"]), f"{x['mass']:.9f}") for x in largest],
        caption=caption,
    )


def _dual_table(row: MethodRow, dual: dict[str, Any]) -> Table:
    tokens, sets = enumerate(dual["tokens"]), dual.get("sets", [])
    lines = [(f"token {i}", f"{price:.9g}") for i, price in tokens if price > 0]
    lines += [(_named(x["drafts"]), f"{x['price']:.9g}") for x in sets if x["price"] > 0]
    caption = "all others have price 0"
    if len(lines) > MOST_LINES:
        caption += f"; {len(lines) - MOST_LINES:,} more in --json"
    return Table.of(
        f"dual of {row.label}: prices that prove the upper bound",
        ("token or draft set", "price"),
        lines[:MOST_LINES],
        caption=caption,
    )


_EVIDENCE: dict[str, Callable[[MethodRow, Any], Table]] = {
    "subset": _subset_table,
    "plan": _plan_table,
    "dual": _dual_table,
}


def _named(drafts: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, drafts)) + "}"


def methods_conclusion(rows: Sequence[MethodRow]) -> str:
    """Sentence about the tightest bounds that hold, and who proves them."""
    proven = [
        (row.label, row.certificate)
        for row in rows
        if row.certificate is not None and row.certificate.valid
    ]
    if not proven:
        return "no method proves a bound"
    name, tightest = min(proven, key=lambda pair: pair[1].gap)
    if tightest.gap < _CLOSED:
        return f"the optimum is {float(tightest.lower):.9f}, proven by the certificate of {name}"
    low, lower = max(((float(c.lower), name) for name, c in proven), key=lambda bound: bound[0])
    high, upper = min(((float(c.upper), name) for name, c in proven), key=lambda bound: bound[0])
    return f"the optimum is from {low:.9f} (by {lower}) to {high:.9f} (by {upper})"


def _size(solution: Solution) -> str:
    for key, unit in (("num_variables", "variables"), ("arcs", "arcs"), ("prefixes", "prefixes")):
        if key in solution.stats:
            return f"{solution.stats[key]:,} {unit}"
    return ""
