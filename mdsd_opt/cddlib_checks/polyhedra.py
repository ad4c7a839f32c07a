r"""Polyhedra of a check as a result: inequalities, vertices and rays, and the files of other tools.

The files are those of cddlib, which lrs and others read as well: a ``.ine`` file holds
inequalities, each row ``b a_1 .. a_n`` for :math:`b + a x \ge 0`, a ``.ext`` file holds generators,
each row ``1 x`` for a vertex and ``0 x`` for a ray.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

from mdsd_opt.base.files import write_text
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.errors import InvalidInput

#: A row (b, a_1, .., a_n) of b + a.x >= 0, or a generator (1 or 0, x_1, .., x_n).
Numbers = tuple[Fraction | int, ...]


@dataclass(frozen=True, slots=True)
class Polyhedron(Result):
    r"""A polyhedron in exact arithmetic, by its facets and by its vertices and rays.

    Attributes
    ----------
    kind : str
        "cone", over all laws of the drafts and targets, or "polytope", of the targets of one law.
    title : str
        What it holds, in words.
    variables : tuple of str, shape (n,)
        Names of the coordinates: p0, p1, ... are the target's, W{0,1} the mass of that draft set.
    facets : tuple of tuple of Fraction, each of shape (n + 1,)
        Rows (b, a) of :math:`b + a x \ge 0`, none implied by the others.
    equalities : tuple of tuple of Fraction, each of shape (n + 1,)
        Rows (b, a) of :math:`b + a x = 0`.
    generators : tuple of tuple of Fraction, each of shape (n + 1,)
        (1, x) for a vertex and (0, x) for an extreme ray.
    names : tuple of str
        Each facet in words of the theory, as ``P({0,1}) >= Q({0,1})``.
    """

    kind: str
    title: str
    variables: tuple[str, ...]
    facets: tuple[Numbers, ...]
    equalities: tuple[Numbers, ...]
    generators: tuple[Numbers, ...]
    names: tuple[str, ...] = ()

    def written(self, row: Sequence[Fraction | int], sign: str = ">=") -> str:
        """A row as a sentence about the variables: ``p0 + p2 >= 8/27``."""
        text = ""
        for name, a in zip(self.variables, row[1:], strict=True):
            if a:
                join = ("-" if a < 0 else "") if not text else (" - " if a < 0 else " + ")
                text += join + ("" if abs(a) == 1 else f"{abs(a)} ") + name
        return f"{text or '0'} {sign} {-row[0]}"

    @property
    def sentences(self) -> list[str]:
        """All facets, then all equalities, each as a sentence about the variables."""
        facets = [self.written(row) for row in self.facets]
        return facets + [self.written(row, "=") for row in self.equalities]

    def table(self) -> Table:
        """Table of the facets, in words of the theory as well where there are some."""
        names = [*self.names, *[""] * len(self.sentences)] if self.names else []
        headings = ["inequality", "in words"][: 1 + bool(names)]
        rows = zip(self.sentences, names, strict=False) if names else zip(self.sentences)
        return Table.of(f"facets of the {self.kind}: {self.title}", headings, rows, headings)

    def tables(self) -> list[Table]:
        """That table."""
        return [self.table()]

    columns: ClassVar = (
        "kind", "title", "variables",
        Column("inequalities", of="sentences"), "generators",
    )  # fmt: skip

    def ine(self) -> str:
        """Inequalities and equalities as the text of a ``.ine`` file."""
        rows = [*self.equalities, *self.facets]
        places = " ".join(str(n) for n in range(1, len(self.equalities) + 1))
        linear = [f"linearity {len(self.equalities)} {places}"] if places else []
        return self._file("H-representation", linear, rows)

    def ext(self) -> str:
        """Vertices and rays as the text of a ``.ext`` file."""
        return self._file("V-representation", [], self.generators)

    def save(self, path: str | Path) -> None:
        """Write the file of other tools that the end of the name asks for, whole or not at all.

        Raises
        ------
        InvalidInput
            The name ends neither in ``.ine`` nor in ``.ext``.
        """
        path = Path(path)
        forms = {".ine": self.ine, ".ext": self.ext}
        if path.suffix not in forms:
            raise InvalidInput(f"{path} ends in {path.suffix!r}: give a name with .ine or .ext")
        write_text(path, forms[path.suffix]())

    def _file(self, kind: str, linear: list[str], rows: Sequence[Numbers]) -> str:
        whole = all(Fraction(x).denominator == 1 for row in rows for x in row)
        size = f"{len(rows)} {len(self.variables) + 1} {'integer' if whole else 'rational'}"
        lines = [f"* {self.title}", f"* columns: 1 {' '.join(self.variables)}", kind, *linear]
        return "\n".join(
            [*lines, "begin", size, *(" ".join(map(str, row)) for row in rows), "end\n"]
        )
