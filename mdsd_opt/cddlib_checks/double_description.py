"""Polyhedra in exact arithmetic, by cddlib, by PPL, or by both, which must then agree.

Neither can be interrupted from Python: run these functions by `child.run_in_child`, with
`run_with` where the engine is chosen. "auto" takes cddlib where it is quick, PPL beyond, and the
one that is installed where the other is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

from mdsd_opt.base.checked import of_kind
from mdsd_opt.cddlib_checks import with_cddlib, with_ppl
from mdsd_opt.cddlib_checks.subsets import Point, Row, primitive
from mdsd_opt.errors import MissingExtra, SolverError, UnknownName

ENGINES = ("auto", "cddlib", "ppl", "both")

#: Engines that "both" and "auto" use; `run_with` takes Normaliz, too, for facets of cones.
WITNESSES = ("cddlib", "ppl")


class _Normaliz:
    """Interface to Normaliz (PyNormaliz, GPL), in exact arithmetic: a rival in benchmarks."""

    @staticmethod
    def facets_of_cone(rays: Iterable[Sequence[int]]) -> tuple[set[Row], set[Row]]:
        """Facets (b = 0, primitive) and equalities of the cone of non-negative combinations."""
        import PyNormaliz

        PyNormaliz.NmzSetNumberOfNormalizThreads(1)
        cone = PyNormaliz.Cone(cone=[list(ray) for ray in rays])
        facets = {primitive([0, *map(int, row)]) for row in cone.SupportHyperplanes()}
        return facets, {primitive([0, *map(int, row)]) for row in cone.Equations()}


_MODULES = {"cddlib": with_cddlib, "ppl": with_ppl, "normaliz": _Normaliz}
_PACKAGES = {"cddlib": "cdd", "ppl": "ppl", "normaliz": "PyNormaliz"}

#: Numbers of entries of the matrix of rows from which PPL is faster.
_VERTICES_BY_PPL, _CONES_BY_PPL, _PROGRAMMES_BY_PPL = 400, 5000, 1000

INSTALL = {
    "ppl": "pip install pplpy",
    "cddlib": (
        "pycddlib is built from source on Linux and needs a C compiler and the headers of cddlib "
        "and GMP. Debian, Ubuntu: sudo apt-get install gcc python3-dev libcdd-dev libgmp-dev; "
        "macOS: brew install cddlib gmp; then: pip install pycddlib"
    ),
}

_engine = "auto"


def available(engine: str) -> bool:
    """Whether "cddlib" (by pycddlib), "ppl" (by pplpy) or "normaliz" can be imported."""
    return find_spec(_PACKAGES[engine]) is not None


def require(engine: str) -> None:
    """Raise `MissingExtra` with all that has to be installed, system packages too."""
    if of_kind(engine, str, "engine", "its name") not in ENGINES:
        raise UnknownName.among("engine", engine, ENGINES)
    needed = WITNESSES if engine == "both" else (engine,)
    if engine == "auto":
        if not any(map(available, WITNESSES)):
            raise MissingExtra(
                "checks by double description need pycddlib or pplpy, and neither is installed. "
                f"{INSTALL['ppl']}. Or: {INSTALL['cddlib']}"
            )
        return
    for name in needed:
        if not available(name):
            raise MissingExtra(f"engine {engine!r} needs {name}: {INSTALL[name]}")


def run_with(engine: str, job: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Result of ``job(**arguments)`` with every polyhedron computed by this engine."""
    global _engine
    before, _engine = _engine, engine
    try:
        return job(**arguments)
    finally:
        _engine = before


def vertices(rows: Iterable[Row]) -> set[Point]:
    """Vertices of the bounded polyhedron {x: b + a.x >= 0 for all rows}.

    Raises
    ------
    ArithmeticError
        The polyhedron is unbounded.
    """
    points, rays = generators(rows)
    if rays:
        raise ArithmeticError("the claimed polyhedron is unbounded")
    return points


def generators(rows: Iterable[Row]) -> tuple[set[Point], set[Row]]:
    """Vertices and extreme rays, primitive, of the polyhedron {x: b + a.x >= 0 for all rows}.

    Raises `ArithmeticError` where the polyhedron holds a line.
    """
    rows = list(rows)
    if not rows or len(rows[0]) == 1:  # a space of dimension 0, which engines cannot hold
        return ({()} if all(b >= 0 for (b,) in rows) else set()), set()
    return _by_engine("generators", _entries(rows) > _VERTICES_BY_PPL, rows)


def facets_of_cone(rays: Iterable[Sequence[int]]) -> tuple[set[Row], set[Row]]:
    """Facets (b = 0, primitive) and equalities of the cone of non-negative combinations."""
    rays = list(rays)
    return _by_engine("facets_of_cone", _entries(rays) > _CONES_BY_PPL, rays)


def irredundant(rows: Iterable[Row]) -> set[Row]:
    """Rows that no others imply; for a full-dimensional polyhedron these are its facets."""
    return _by_engine("irredundant", False, list(rows))


def project_out_last(rows: Iterable[Row], count: int) -> set[Row]:
    """Irredundant rows of the polyhedron without its last `count` variables."""
    return _by_engine("project_out_last", False, list(rows), count)


def maximise(rows: Iterable[Row], objective: Sequence[int]) -> tuple[Fraction, Point] | None:
    """Largest value of objective.x over the rows and a point that attains it; None if empty.

    Raises `ArithmeticError` where the linear programme is unbounded.
    """
    rows = list(rows)
    return _by_engine("maximise", _entries(rows) > _PROGRAMMES_BY_PPL, rows, objective)


def _entries(rows: Sequence[Sequence[int]]) -> int:
    return len(rows) * len(rows[0]) if rows else 0


def _by_engine(name: str, prefers_ppl: bool, *arguments: Any) -> Any:
    if _engine == "both":
        result, other = (getattr(_MODULES[x], name)(*arguments) for x in WITNESSES)
        # Of several points that attain a maximum, each may find its own.
        agree = result == other if name != "maximise" or None in (result, other) else (
            result[0] == other[0])  # fmt: skip
        if not agree:
            raise SolverError(f"cddlib and PPL disagree ({name}): please report this")
        return result
    engine = _engine
    if engine == "auto":
        engine = "ppl" if prefers_ppl else "cddlib"
        if not available(engine):
            engine = "cddlib" if prefers_ppl else "ppl"
    return getattr(_MODULES[engine], name)(*arguments)
