"""Interface to cddlib, in exact rational arithmetic (GMP), for `double_description`.

The floating-point variant of cddlib is not used at all: on polytopes of this kind it returns wrong
vertex counts without a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from mdsd_opt.cddlib_checks.subsets import Point, Row, primitive


def _cdd() -> tuple[Any, Any]:
    import cdd
    import cdd.gmp

    return cdd, cdd.gmp


def _matrix(rows: Iterable[Sequence[int | Fraction]], kind: str) -> Any:
    cdd, gmp = _cdd()
    return gmp.matrix_from_array(list(rows), rep_type=getattr(cdd.RepType, kind))


def generators(rows: Iterable[Row]) -> tuple[set[Point], set[Row]]:
    """Vertices and extreme rays; `ArithmeticError` if there is a line."""
    _, gmp = _cdd()
    matrix = gmp.copy_generators(gmp.polyhedron_from_matrix(_matrix(rows, "INEQUALITY")))
    if matrix.lin_set:
        raise ArithmeticError("the polyhedron holds a line")
    points = {tuple(Fraction(x) for x in row[1:]) for row in matrix.array if row[0] == 1}
    return points, {primitive(row[1:]) for row in matrix.array if row[0] == 0}


def facets_of_cone(rays: Iterable[Sequence[int]]) -> tuple[set[Row], set[Row]]:
    """Facets and equalities of the cone of non-negative combinations."""
    _, gmp = _cdd()
    matrix = _matrix(([0, *ray] for ray in rays), "GENERATOR")
    inequalities = gmp.copy_inequalities(gmp.polyhedron_from_matrix(matrix))
    facets, equalities = set(), set()
    for index, row in enumerate(inequalities.array):
        if index in inequalities.lin_set:
            equalities.add(primitive(row))
        elif any(row[1:]):  # the row (1, 0..0) says nothing
            facets.add(primitive(row))
    return facets, equalities


def irredundant(rows: Iterable[Row]) -> set[Row]:
    """Rows that no others imply."""
    _, gmp = _cdd()
    listed = sorted(set(rows))
    if not listed or len(listed[0]) == 1:
        return set()
    redundant = gmp.redundant_rows(_matrix(listed, "INEQUALITY"))
    return {row for index, row in enumerate(listed) if index not in redundant}


def project_out_last(rows: Iterable[Row], count: int) -> set[Row]:
    """Rows after Fourier elimination of the last `count` variables, redundant ones removed."""
    _, gmp = _cdd()
    current = sorted(set(rows))
    for _ in range(count):
        eliminated = gmp.fourier_elimination(_matrix(current, "INEQUALITY"))
        distinct = {primitive(row) for row in eliminated.array}
        current = sorted(irredundant(row for row in distinct if any(row[1:])))
    return set(current)


def maximise(rows: Iterable[Row], objective: Sequence[int]) -> tuple[Fraction, Point] | None:
    """Largest value and a point; None if empty, `ArithmeticError` if unbounded."""
    cdd, gmp = _cdd()
    matrix = gmp.matrix_from_array(
        list(rows),
        rep_type=cdd.RepType.INEQUALITY,
        obj_type=cdd.LPObjType.MAX,
        obj_func=[0, *objective],
    )
    programme = gmp.linprog_from_matrix(matrix)
    gmp.linprog_solve(programme)
    if programme.status == cdd.LPStatusType.OPTIMAL:
        return Fraction(programme.obj_value), tuple(map(Fraction, programme.primal_solution))
    if programme.status == cdd.LPStatusType.INCONSISTENT:
        return None
    raise ArithmeticError(f"linear programme ended as {programme.status.name}")
