"""Interface to the Parma Polyhedra Library, in exact integer arithmetic (GMP).

The same functions as in `with_cddlib`; on cones and vertices of more than some six tokens it is
many times as fast.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from math import lcm
from typing import Any

from mdsd_opt.cddlib_checks.subsets import Point, Row, primitive


@cache
def _ppl() -> Any:
    # pplpy 0.9 leaves the processor rounding upwards, which all later arithmetic would do;
    # polyhedra of integers need no rounding.
    libm = ctypes.CDLL(None)
    rounding = libm.fegetround()
    import ppl

    libm.fesetround(rounding)
    if hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread():
        # Its import takes over the alarm, which has to end the process.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return ppl


def _expression(coefficients: Sequence[int | Fraction], constant: int | Fraction = 0) -> Any:
    """Expression in integers that is a positive multiple of constant + coefficients . x."""
    scale = lcm(*(Fraction(x).denominator for x in (constant, *coefficients)))
    return _ppl().Linear_Expression([int(x * scale) for x in coefficients], int(constant * scale))


def _polyhedron(rows: Sequence[Sequence[int | Fraction]]) -> Any:
    """Polyhedron {x : b + a.x >= 0 for all rows (b, a)}."""
    system = _ppl().Constraint_System()
    for b, *a in rows:
        system.insert(_expression(a, b) >= 0)
    polyhedron = _ppl().C_Polyhedron(len(rows[0]) - 1, "universe")
    polyhedron.add_constraints(system)
    return polyhedron


def _inequalities(polyhedron: Any) -> tuple[set[Row], set[Row]]:
    """Irredundant inequalities and equalities, as primitive rows."""
    facets, equalities = set(), set()
    size = polyhedron.space_dimension()
    for constraint in polyhedron.minimized_constraints():
        entries = [int(constraint.inhomogeneous_term()), *map(int, constraint.coefficients())]
        row = primitive(entries + [0] * (1 + size - len(entries)))
        if constraint.is_equality():
            equalities.add(row)
        elif any(row[1:]):
            facets.add(row)
    return facets, equalities


def generators(rows: Iterable[Row]) -> tuple[set[Point], set[Row]]:
    """Vertices and extreme rays; `ArithmeticError` if there is a line."""
    rows = list(rows)
    size = len(rows[0]) - 1
    points, rays = set(), set()
    for generator in _polyhedron(rows).minimized_generators():
        if generator.is_line():
            raise ArithmeticError("the polyhedron holds a line")
        entries = [int(x) for x in generator.coefficients()]
        entries += [0] * (size - len(entries))
        if generator.is_point():
            divisor = int(generator.divisor())
            points.add(tuple(Fraction(x, divisor) for x in entries))
        else:
            rays.add(primitive(entries))
    return points, rays


def facets_of_cone(rays: Iterable[Sequence[int]]) -> tuple[set[Row], set[Row]]:
    """Facets and equalities of the cone of non-negative combinations."""
    ppl = _ppl()
    rays = list(rays)
    system = ppl.Generator_System()
    system.insert(ppl.point(0 * ppl.Variable(len(rays[0]) - 1)))
    for ray in rays:
        if any(ray):
            system.insert(ppl.ray(_expression(ray)))
    return _inequalities(ppl.C_Polyhedron(system))


def irredundant(rows: Iterable[Row]) -> set[Row]:
    """Rows that no others imply, by a linear programme for each row.

    Where these are many, that is many times as fast as generators.
    """
    by_facet: dict[Row, Row] = {primitive(row): row for row in rows}
    rest = sorted(row for row in by_facet if any(row[1:]))
    for row in list(rest):
        b, *a = row
        others = [other for other in rest if other != row]
        best = maximise([*others, (b + 1, *a)], [-x for x in a])
        if best is not None and best[0] <= b:
            rest = others
    return {by_facet[row] for row in rest}


def project_out_last(rows: Iterable[Row], count: int) -> set[Row]:
    """Rows of the polyhedron without its last `count` variables."""
    polyhedron = _polyhedron(sorted(set(rows)))
    polyhedron.remove_higher_space_dimensions(polyhedron.space_dimension() - count)
    return _inequalities(polyhedron)[0]


def maximise(rows: Iterable[Row], objective: Sequence[int]) -> tuple[Fraction, Point] | None:
    """Largest value and a point; None if empty, `ArithmeticError` if unbounded."""
    programme = _ppl().MIP_Problem(len(objective))
    for b, *a in rows:
        programme.add_constraint(_expression(a, b) >= 0)
    programme.set_objective_function(_expression(objective))
    programme.set_optimization_mode("maximization")
    status = programme.solve()["status"]
    if status == "unfeasible":
        return None
    if status != "optimized":
        raise ArithmeticError(f"linear programme ended as {status}")
    point = programme.optimizing_point()
    divisor = int(point.divisor())
    entries = [Fraction(int(x), divisor) for x in point.coefficients()]
    entries += [Fraction(0)] * (len(objective) - len(entries))
    value = sum((c * x for c, x in zip(objective, entries, strict=True)), Fraction(0))
    return value, tuple(entries)
