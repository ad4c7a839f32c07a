"""Cones and polytopes of a check leave the package whole: what others read of them is the same."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

import mdsd_opt as mo
from mdsd_opt import cddlib_checks

cdd = pytest.importorskip("cdd")
gmp = pytest.importorskip("cdd.gmp")


def read(text: str) -> tuple[str, set[int], list[list[Fraction]]]:
    """Kind, places of equalities from 0 and rows of a file of cddlib."""
    lines = [line for line in text.splitlines() if not line.startswith("*")]
    start = lines.index("begin")
    count, width, _ = lines[start + 1].split()
    rows = [[Fraction(x) for x in line.split()] for line in lines[start + 2 : lines.index("end")]]
    assert (len(rows), {len(row) for row in rows}) == (int(count), {int(width)})
    linear = next((line.split()[2:] for line in lines if line.startswith("linearity")), [])
    return lines[0], {int(n) - 1 for n in linear}, rows


def scaled(rows: list[list[Fraction]]) -> set[tuple[Fraction, ...]]:
    """Rows without their free factor: a vertex begins with 1, a ray's entries sum to 1."""
    return {
        tuple(x / (row[0] or sum(map(abs, row), Fraction(0))) for x in map(Fraction, row))
        for row in rows
    }


def generated(text: str) -> set[tuple[Fraction, ...]]:
    """Vertices and rays that cddlib finds for the inequalities of a file."""
    kind, linear, rows = read(text)
    assert kind == "H-representation"
    matrix = gmp.matrix_from_array(rows, lin_set=linear, rep_type=cdd.RepType.INEQUALITY)
    found = gmp.copy_generators(gmp.polyhedron_from_matrix(matrix))
    assert not found.lin_set
    return scaled(found.array)


def inequalities(text: str) -> list[list[Fraction]]:
    """Facets and equalities that cddlib finds for the generators of a file."""
    kind, _, rows = read(text)
    assert kind == "V-representation"
    matrix = gmp.matrix_from_array(rows, rep_type=cdd.RepType.GENERATOR)
    found = gmp.copy_inequalities(gmp.polyhedron_from_matrix(matrix))
    return [list(map(Fraction, row)) for row in found.array]


@pytest.mark.parametrize(
    ("claim", "size", "k", "polyhedra"),
    [("acceptance_one", 3, 2, 2), ("acceptance_one", 4, 3, 2), ("optimal_value", 3, 2, 1)],
)
def test_files_hold_one_polyhedron_in_two_forms(
    claim: str, size: int, k: int, polyhedra: int
) -> None:
    result = cddlib_checks.check(claim, size, k, facets=True, timeout=600)
    assert len(result.polyhedra) == polyhedra
    for each in result.polyhedra:
        _, _, rows = read(each.ext())
        assert generated(each.ine()) == scaled(rows)
        assert len(inequalities(each.ext())) == len(each.facets) + len(each.equalities)


def test_a_facet_left_out_is_another_polyhedron() -> None:
    cone = cddlib_checks.check("acceptance_one", 3, 2, facets=True, timeout=600).polyhedra[0]
    text = cone.ine().splitlines()
    count = len(cone.facets) + len(cone.equalities)
    place = text.index(next(line for line in text if re.match(rf"{count} \d+ integer", line)))
    text[place] = text[place].replace(f"{count} ", f"{count - 1} ", 1)
    del text[-2]
    assert generated("\n".join(text)) != scaled(read(cone.ext())[2])


def test_facets_are_told_in_words() -> None:
    cone, polytope = cddlib_checks.check("acceptance_one", 3, 2, facets=True, timeout=600).polyhedra
    assert "P({0, 2}) >= Q({0, 2})" in cone.names
    place = cone.names.index("P({0, 2}) >= Q({0, 2})")
    assert cone.sentences[place] == "p0 + p2 - W{0} - W{2} - W{0,2} >= 0"
    assert cone.sentences[-1].endswith("= 0")
    assert polytope.sentences[0] == "p0 >= 1/36"
    assert polytope.sentences[-1] == "p0 + p1 + p2 = 1"


def test_what_is_settled_is_looked_at_again_where_facets_are_asked_for() -> None:
    result = cddlib_checks.check("acceptance_one", 5, 3, facets=True, timeout=600)
    assert [len(each.facets) for each in result.polyhedra] == [
        result.sizes["cone_facets"],
        result.sizes["polytope_facets"],
    ]


def test_files_are_saved_by_the_end_of_their_name(tmp_path) -> None:
    cone = cddlib_checks.check("acceptance_one", 2, 2, facets=True, timeout=600).polyhedra[0]
    cone.save(tmp_path / "cone.ine")
    assert (tmp_path / "cone.ine").read_text() == cone.ine()
    cone.save(tmp_path / "cone.ext")
    assert (tmp_path / "cone.ext").read_text() == cone.ext()
    with pytest.raises(mo.MdsdError, match=r"give a name with \.ine or \.ext"):
        cone.save(tmp_path / "cone.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cone.ext", "cone.ine"]
