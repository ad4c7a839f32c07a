"""View of every method on one problem, side by side, each with its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mdsd_opt.cli.output import make_table
from mdsd_opt.errors import MdsdError
from mdsd_opt.problem import TransportProblem
from mdsd_opt.problem.certificate import Certificate, certify
from mdsd_opt.problem.solution import Solution
from mdsd_opt.solvers import methods, solve
from mdsd_opt.solvers.warm_up import warm_up

if TYPE_CHECKING:
    from rich.table import Table


#: Distance up to which two bounds show the same digits.
_CLOSED = 1e-9


@dataclass(frozen=True, slots=True)
class MethodRow:
    """Result of one method and what its certificate proves, or why it could not be used."""

    method: str
    chosen: bool
    solution: Solution | None
    certificate: Certificate | None
    refusal: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; exact bounds are given as fractions too."""
        if self.solution is None or self.certificate is None:
            return {"method": self.method, "chosen": self.chosen, "refused": self.refusal}
        document = {
            "method": self.method,
            "chosen": self.chosen,
            "acceptance_rate": self.solution.acceptance_rate,
            "status": str(self.solution.status),
            "lower": float(self.certificate.lower),
            "upper": float(self.certificate.upper),
            "gap": float(self.certificate.gap),
            "valid": self.certificate.valid,
            "violations": list(self.certificate.violations),
            "solve_seconds": self.solution.solve_seconds,
            "stats": {k: v for k, v in self.solution.stats.items() if _plain(v)},
            "message": self.solution.message,
        }
        if self.certificate.exact:
            document["exact_lower"] = str(self.certificate.lower)
            document["exact_upper"] = str(self.certificate.upper)
        return document


def _plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool))


def method_rows(
    problem: TransportProblem,
    names: Sequence[str] | None = None,
    exact: bool = False,
    time_limit: float | None = None,
) -> list[MethodRow]:
    """Run the methods (all of them unless named) and certify each result.

    What is refused, or fails, is a row with the reason. Seconds are those of a second run: each
    method has solved a tiny problem of the same kind before.
    """
    limits: dict[str, Any] = {} if time_limit is None else {"time_limit": time_limit}
    try:
        chosen = solve(problem, **limits).method
    except MdsdError:  # so do the methods that it has tried, in rows of their own
        chosen = ""
    rows = []
    known = methods()
    for name in names or known:
        warm_up(problem, name)
        try:
            taken = {limit: limits[limit] for limit in limits if limit in known[name].options}
            solution = solve(problem, method=name, **taken)
            certificate = certify(problem, solution, exact=exact)
        except MdsdError as error:
            rows.append(MethodRow(name, name == chosen, None, None, str(error)))
            continue
        rows.append(MethodRow(name, name == chosen, solution, certificate))
    return rows


def methods_table(rows: Sequence[MethodRow], title: str) -> Table:
    """Table of the rows; the method that "auto" takes is marked."""
    from rich.markup import escape

    def line(row: MethodRow) -> tuple[str, ...]:
        name = f"{row.method} *" if row.chosen else row.method
        if row.solution is None or row.certificate is None:
            return (name, "-", "-", "-", "not used", "")
        status = str(row.solution.status)
        if not row.certificate.valid:
            status += "; NOT VALID: " + "; ".join(row.certificate.violations)
        return (
            name,
            f"{row.solution.acceptance_rate:.9f}",
            f"{float(row.certificate.gap):.1e}",
            f"{row.solution.solve_seconds:.3g}",
            escape(status),
            _size(row.solution),
        )

    caption = "* taken by method='auto'; certified gap: what the certificate leaves open"
    if any(row.solution is None for row in rows):
        caption += "; -: not used, see below"
    return make_table(
        f"{title}\n"
        "the most that a lossless verifier accepts, by every method; gap: lower is better",
        ("method", "acceptance\nrate", "certified\ngap", "seconds", "status", "size"),
        map(line, rows),
        words=("method", "status"),
        caption=caption,
    )


def conclusion(rows: Sequence[MethodRow]) -> str:
    """Sentence about the tightest bounds that hold, and who proves them."""
    proven = [
        (row.method, row.certificate)
        for row in rows
        if row.certificate is not None and row.certificate.valid
    ]
    if not proven:
        return "no method proves a bound"
    name, tightest = min(proven, key=lambda found: found[1].gap)
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
