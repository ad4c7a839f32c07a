"""The only door to Normaliz (PyNormaliz, GPL), in exact arithmetic: a rival in benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mdsd_opt.cddlib_checks.rows import Row, primitive


def facets_of_cone(rays: Iterable[Sequence[int]]) -> tuple[set[Row], set[Row]]:
    """Facets (b = 0, primitive) and equalities of the cone of non-negative combinations."""
    import PyNormaliz

    PyNormaliz.NmzSetNumberOfNormalizThreads(1)
    cone = PyNormaliz.Cone(cone=[list(ray) for ray in rays])
    facets = {primitive([0, *map(int, row)]) for row in cone.SupportHyperplanes()}
    return facets, {primitive([0, *map(int, row)]) for row in cone.Equations()}
