r"""Claims about acceptance rates of K drafts, proved or refuted for all laws p, q of V tokens.

A clause (see `law_forms`) holds on a product of simplices if no coefficient of
:math:`\sum_i w_i g_i - \sum_k s_k c_k - \sum t (x^a + x^b - 2 x^{(a+b)/2})` is negative, for
polynomials :math:`w_i, s_k` and numbers t that are not negative, and :math:`\sum_i w_i` positive.
A linear programme in floats proposes multipliers, integers decide. Cells where that is not enough
are split, the worst first, at the simplest fraction in the middle of the longest edge, so that
corners come to lie where a claim is tight.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mdsd_opt.base.checked import check_counts, real
from mdsd_opt.base.files import write_json
from mdsd_opt.base.frames import Table
from mdsd_opt.cddlib_checks.expressions import TextClaim
from mdsd_opt.cddlib_checks.law_forms import (
    Clause,
    Key,
    NotProvable,
    PastDeadline,
    Terms,
    clauses,
    times,
    uses_cone,
)
from mdsd_opt.cddlib_checks.law_search import Law, LawCounterexample, laws_tried
from mdsd_opt.cddlib_checks.result import ClaimVerdict
from mdsd_opt.errors import InvalidInput

#: Random laws that a claim is put to before a proof is tried, and where none is possible.
_FIRST_TRIALS, _TRIALS = 24, 100

#: Largest denominators of multipliers that are tried where the programme says that they exist.
_DENOMINATORS = (8, 120, 10**4, 10**9)

Ints = Any  # numpy arrays of Python integers


class Claimed(NamedTuple):
    """A claim, its premise and the size, as they were given."""

    claim: str
    given: str | None
    vocab_size: int


@dataclass(frozen=True, slots=True)
class LawProof(ClaimVerdict):
    """Verdict on a claim about all p and q of V tokens.

    Attributes
    ----------
    verdict : str
        "proved", "refuted" by `counterexample`, or "open".
    counterexample : LawCounterexample or None
        Laws p and q, at which rates were computed in another way: optima by cut and flow.
    margin : Fraction or None
        What must be added for the claim to be proved: 0 if it is, None if nothing was.
    clauses, cells, left : int
        Polynomial cases, parts of their domains that were looked at, and parts that are open.
    scope, reason : str
        What the verdict covers and rests on; why a claim is open.
    """

    claim: TextClaim
    holds: bool | None
    counterexample: LawCounterexample | None
    margin: Fraction | None
    clauses: int
    cells: int
    left: int
    scope: str
    reason: str
    seconds: float
    _proof: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    columns: ClassVar = (
        "*_of", "verdict", "holds", "counterexample", "margin", "clauses", "cells", "left",
        "scope", "reason", "seconds",
    )  # fmt: skip

    @property
    def _of(self) -> Claimed:
        given = None if self.claim.given is None else self.claim.given.text
        return Claimed(self.claim.text, given, self.claim.vocab_size)

    def tables(self) -> list[Table]:
        """Table of the verdict."""
        odd = self.counterexample
        laws = [", ".join(map(str, law)) for law in odd.laws] if odd else ["", ""]
        margin = "" if self.margin is None else str(self.margin)
        excess = str(odd.excess) if odd else ""
        headings = ["claim", "given", "verdict", "p", "q", "fails by", "margin", "scope"]
        claim = [self.claim.text, self._of.given or ""]
        row = [*claim, self.verdict, *laws, excess, margin, self.scope]
        return [Table.of(f"proof, V = {self.claim.vocab_size}", headings, [row], headings)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the proof as JSON: clauses, cells, corners, multipliers, for another to check."""
        if self.holds is not True:
            raise InvalidInput(f"the claim is {self.verdict}: only a proof can be written")
        document = {**self._of._asdict(), "rests_on": self.scope, "clauses": self._proof}
        write_json(path, document, indent=None)

    def __str__(self) -> str:
        given = self._of.given
        claim = self.claim.text if given is None else f"{self.claim.conclusion}, given {given}"
        head = f"{claim}, V = {self.claim.vocab_size}: {self.verdict.upper()}"
        lines = [f"{head} ({self.seconds:.2f} s)"]
        if self.counterexample is not None:
            return f"{lines[0]}\n{self.counterexample}, confirmed at these laws in fractions"
        lines += [f"scope: {self.scope}", f"sizes: clauses: {self.clauses}, cells: {self.cells}"]
        if self.reason:
            lines.append(f"note: {self.reason}")
        return "\n".join(lines)


def prove_laws(
    claim: str | TextClaim, vocab_size: int, given: str | None = None, timeout: float = 60.0
) -> LawProof:
    r"""Prove a claim for all laws p and q of V tokens, or refute it, in exact arithmetic.

    Parameters
    ----------
    claim : str
        As ``"with_replacement(2) - rrs(2) <= 4/27"``: comparisons of p0, q0, sums and products over
        all tokens, and the rates with_replacement(K), without_replacement(K), rrs(K), kseq(K).
    vocab_size : int
        V.
    given : str, optional
        Premise: where it does not hold, the claim need not.
    timeout : float
        Seconds.

    Returns
    -------
    LawProof
        Open where time ran out, or where the claim is beyond what is proved here.

    Raises
    ------
    InvalidInput
        The claim or the premise is not readable, or the timeout is not positive.

    Examples
    --------
    >>> from mdsd_opt import cddlib_checks
    >>> proof = cddlib_checks.prove_laws("with_replacement(2) >= with_replacement(1)", 2)
    >>> proof.verdict
    'proved'
    """
    start = time.monotonic()
    check_counts(vocab_size=vocab_size)
    if not 0 < real(timeout) < math.inf:
        raise InvalidInput(f"timeout is {timeout!r:.60}: give a positive number of seconds")
    if not isinstance(claim, TextClaim):
        claim = TextClaim(
            claim, vocab_size, None if given is None else TextClaim(given, vocab_size)
        )
    search = _Proving(claim, start + timeout)
    why = search.run()
    holds = False if search.odd else None if why else True
    return LawProof(
        claim=claim,
        holds=holds,
        counterexample=search.odd,
        margin=Fraction(0) if holds else None if search.odd else search.margin(),
        clauses=len(search.clauses),
        cells=search.cells,
        left=len(search.left),
        scope=_scope(claim),
        reason=why if holds is None else "",
        seconds=time.monotonic() - start,
        _proof=search.written() if holds else [],
    )


def _scope(claim: TextClaim) -> str:
    rates = {name for name, _ in claim.rates()}
    rests = [
        text
        for name, text in (
            ("with_replacement", "the minimum cut for optima"),
            ("rrs", "Lemma 4 for rrs"),
            ("kseq", "Lemma 4 for K-SEQ"),
        )
        if name in rates or (name == "with_replacement" and "without_replacement" in rates)
    ]
    if uses_cone(claim):
        rests.insert(0, "symmetry, continuity and, for rates, the prefix theorem")
    told = f"every p and q of {claim.vocab_size} tokens"
    return f"{told}; rests on {', '.join(rests)}" if rests else told


# --------------------------------------------------------------------------- coefficients in cells


@functools.cache
def _exponents(size: int, degree: int) -> list[Key]:
    if size == 1:
        return [(degree,)]
    return [(n, *e) for n in range(degree, -1, -1) for e in _exponents(size - 1, degree - n)]


@functools.cache
def _monomials(blocks: Key, degrees: Key) -> dict[Key, int]:
    """Places of all monomials of these degrees in a flat row of coefficients."""
    each = (_exponents(n, d) for n, d in zip(blocks, degrees, strict=True))
    return {tuple(itertools.chain(*key)): i for i, key in enumerate(itertools.product(*each))}


@functools.cache
def _shifts(blocks: Key, degrees: Key, more: Key) -> Ints:
    """For each monomial of degrees `more`, where it takes those of `degrees`."""
    target = _monomials(blocks, tuple(map(int.__add__, degrees, more)))
    return np.array([[target[tuple(map(int.__add__, a, b))] for b in _monomials(blocks, degrees)]
                     for a in _monomials(blocks, more)])  # fmt: skip


@functools.cache
def _multinomials(blocks: Key, more: Key) -> list[int]:
    """Coefficients of the product of the powers of the coordinates' sums."""
    whole = math.prod(map(math.factorial, more))
    return [whole // math.prod(map(math.factorial, key)) for key in _monomials(blocks, more)]


@functools.cache
def _squares(blocks: Key, degrees: Key) -> list[tuple[int, int, int]]:
    """Places a, b, c of monomials with x^a + x^b >= 2 x^c."""
    places = _monomials(blocks, degrees)
    return [
        (places[a], places[b], places[tuple((x + y) // 2 for x, y in zip(a, b, strict=True))])
        for a, b in itertools.combinations(places, 2)
        if all((x + y) % 2 == 0 for x, y in zip(a, b, strict=True))
    ]


@functools.lru_cache(2**14)
def _substitution(size: int, degree: int, i: int, j: int, a: int, b: int, kept: int) -> Ints:
    """Matrix on coefficients for the part of a simplex between corner `kept` and a x_i + b x_j."""
    places = {e: n for n, e in enumerate(_exponents(size, degree))}
    moved = j if kept == i else i
    out = np.zeros((len(places),) * 2, dtype=object)
    unit = [tuple(int(r == s) for s in range(size)) for r in range(size)]
    rows: list[Terms] = [{u: a + b} for u in unit]
    rows[moved] = {unit[moved]: b if moved == j else a}
    rows[kept] = {unit[kept]: a + b, unit[moved]: a if kept == i else b}
    for e, place in places.items():
        terms: Terms = {(0,) * size: 1}
        for row, n in zip(rows, e, strict=True):
            for _ in range(n):
                terms = times(terms, row)
        for key, c in terms.items():
            out[place, places[key]] = c
    return out


def _reduced(x: Ints) -> tuple[Ints, int]:
    """Coefficients, divided by what divides them all, and that."""
    divisor = math.gcd(*x.ravel().tolist()) or 1
    return (x // divisor if divisor > 1 else x), divisor


@dataclass(slots=True, eq=False)
class _Cell:
    """Part of a clause's domain: coefficients in its own coordinates, and what is written of it."""

    clause: int
    goals: Ints  # the last row is the unit of the claim
    premises: list[Ints]
    scales: list[Fraction]  # of the goals and of each premise: what they were divided by
    corners: list[Ints]  # for each simplex a matrix: a column is a corner
    node: dict[str, Any]
    margin: Fraction | None = None  # the claim with this added is proved here


class _Proving:
    """Search for a proof of all clauses, or for laws that refute one."""

    def __init__(self, claim: TextClaim, until: float) -> None:
        self.claim, self.until = claim, until
        self.odd: LawCounterexample | None = None
        self.clauses: list[Clause] = []
        self.roots: list[_Cell] = []
        self.pending: list[_Cell] = []
        self.queue: list[tuple[float, int, _Cell]] = []
        self.cells = 0
        self.tried: set[tuple[Law, Law]] = set()  # corners belong to several cells

    def run(self) -> str:
        """Why the claim is open, or nothing if it is settled."""
        if self._refuted_at_random(_FIRST_TRIALS):
            return ""
        try:
            self.clauses = list(clauses(self.claim, self.until))
            self.roots = [self._root(i) for i in range(len(self.clauses))]
            self.pending = list(self.roots)
            while self.pending or self.queue:
                if not self.pending:
                    self.pending = [heapq.heappop(self.queue)[2]]
                    self.pending = self._split(self.pending[0])
                if self._refuted_in(self.pending[0]):
                    break
                del self.pending[0]
        except NotProvable as why:
            return "" if self._refuted_at_random(_TRIALS) else str(why)
        except PastDeadline:
            if not self.roots:
                return "time ran out while the cases were listed"
            told = f"time ran out: {len(self.left):,} cells are left"
            if (margin := self.margin()) is None:
                return told
            return (
                f"{told}, where the claim is proved with {float(margin):.2g} added; if it is tight "
                "inside, where cells cannot end, give a constant with room"
            )
        return ""

    def _refuted_at_random(self, trials: int) -> bool:
        tried = laws_tried(self.claim, self.claim.vocab_size, 2, trials, 0, ascents=0)
        self.odd = tried.counterexample
        return self.odd is not None

    @property
    def left(self) -> list[_Cell]:
        """Cells in which the claim is open."""
        return [*self.pending, *(cell for _, _, cell in self.queue)]

    def margin(self) -> Fraction | None:
        """What must be added to the claim for all that is left to be proved."""
        margins = [cell.margin for cell in self.left]
        return None if None in margins else max(margins, default=None)  # type: ignore[type-var]

    def written(self) -> list[dict[str, Any]]:
        """All clauses with their cells."""
        listed = []
        for clause, root in zip(self.clauses, self.roots, strict=True):
            polynomials = [[list(item) for item in x.items()] for x in clause.goals[:-1]]
            premises = [[list(item) for item in x.items()] for x, _ in clause.premises]
            listed.append({"blocks": clause.blocks, "goals": polynomials, "premises": premises,
                           "cell": root.node})  # fmt: skip
        return listed

    def _root(self, number: int) -> _Cell:
        clause = self.clauses[number]

        def row(terms: Terms, degrees: Key) -> Ints:
            places = _monomials(clause.blocks, degrees)
            out = np.zeros(len(places), dtype=object)
            for key, c in terms.items():
                out[places[key]] = c
            return out

        goals = np.array([row(x, clause.degrees) for x in clause.goals], dtype=object)
        premises = [row(x, degrees) for x, degrees in clause.premises]
        corners = [np.eye(n, dtype=int).astype(object) for n in clause.blocks]
        return _Cell(number, goals, premises, [Fraction(1)] * (1 + len(premises)), corners, {})

    def _refuted_in(self, cell: _Cell) -> bool:
        """Whether the claim is refuted there; if not, the cell is closed or put in the queue."""
        self.cells += 1
        clause = self.clauses[cell.clause]
        cell.node["corners"] = _in_all_coordinates(cell.corners)
        rungs = _rungs(len(clause.blocks), first=cell is self.roots[cell.clause])
        if _by_one(cell):
            return False
        for more, squares in rungs:
            if time.monotonic() > self.until:
                raise PastDeadline
            found = _by_programme(cell, clause, more, squares)
            if found is not None and (cell.margin is None or found < cell.margin):
                cell.margin = found
            if cell.margin == 0:
                return False
        for laws in _points(cell, clause):
            fails = Fraction(0) if laws in self.tried else self._fails_by(*laws)
            self.tried.add(laws)
            if fails > 0:
                self.odd = LawCounterexample(laws, fails, 0)
                return True
        bound = -math.inf if cell.margin is None else -float(cell.margin)
        heapq.heappush(self.queue, (bound, self.cells, cell))
        return False

    def _fails_by(self, p: Law, q: Law) -> Fraction:
        try:
            return self.claim(p, q)
        except ZeroDivisionError:
            return Fraction(0)

    def _split(self, cell: _Cell) -> list[_Cell]:
        """Two cells, by the point of the longest edge that is the simplest fraction."""
        clause = self.clauses[cell.clause]
        edge = _longest(cell.corners)
        if edge is None:
            raise NotProvable("not provable here: there is one law, and it leaves nothing to split")
        k, i, j, a, b = edge
        first = sum(clause.blocks[:k])
        cell.node |= {"split": [first + i, first + j, a, b], "parts": []}
        n, degree, cells = clause.blocks[k], clause.degrees, []
        for kept in (i, j):
            corners = list(cell.corners)
            columns = corners[k] * (a + b)
            columns[:, j if kept == i else i] = a * corners[k][:, i] + b * corners[k][:, j]
            corners[k], shrunk = _reduced(columns)

            def part(x: Ints, degrees: Key, kept: int = kept) -> tuple[Ints, int]:
                each = [len(_exponents(m, d)) for m, d in zip(clause.blocks, degrees, strict=True)]
                shape = (-1, each[k], math.prod(each[k + 1 :]))
                by = _substitution(n, degrees[k], i, j, a, b, kept)
                moved = np.einsum("xay,ab->xby", x.reshape(shape), by)
                return _reduced(moved.reshape(x.shape))

            owns = [own for _, own in clause.premises]
            every = [(cell.goals, degree), *zip(cell.premises, owns, strict=True)]
            (goals, _), *premises = parts = [part(x, own) for x, own in every]
            scales = [scale * divisor / Fraction(shrunk) ** own[k] for scale, (_, divisor), (_, own)
                      in zip(cell.scales, parts, every, strict=True)]  # fmt: skip
            node: dict[str, Any] = {}
            cell.node["parts"].append(node)
            cells.append(_Cell(cell.clause, goals, [x for x, _ in premises], scales, corners, node,
                               cell.margin))  # fmt: skip
        return cells


@functools.cache
def _rungs(count: int, first: bool) -> list[tuple[Key, bool]]:
    """Degrees of multipliers, and whether squares help, as they are tried; more at first."""
    none, *unit = (tuple(int(i == j) for i in range(count)) for j in range(-1, count))
    if not first:
        return [*((u, False) for u in unit[1:]), (none, True)]
    pairs = itertools.combinations_with_replacement(unit[1:], 2)
    twice = ((tuple(map(int.__add__, a, b)), False) for a, b in pairs)
    return [*((u, False) for u in (none, *unit[1:], unit[0])), (none, True), *twice]


def _by_one(cell: _Cell) -> bool:
    """Whether one goal alone, or a premise that is never met, closes the cell."""
    zero = [0] * sum(len(c) for c in cell.corners)
    for number, goal in enumerate(cell.goals[:-1]):
        if min(goal) >= 0:
            cell.node["goals"] = [[number, zero, 1]]
            return True
    for number, premise in enumerate(cell.premises):
        if max(premise) < 0:
            cell.node["premises"] = [[number, zero, 1]]
            return True
    return False


def _by_programme(cell: _Cell, clause: Clause, more: Key, with_squares: bool) -> Fraction | None:
    """Margin that multipliers of degrees `more` prove; they are written if it is zero."""
    from scipy.optimize import linprog

    blocks, degrees = clause.blocks, clause.degrees
    total = tuple(map(int.__add__, degrees, more))
    width = len(_monomials(blocks, total))
    shifts, weights = _shifts(blocks, degrees, more), _multinomials(blocks, more)
    parts: list[tuple[str, int, Ints, Ints, int]] = []  # kind, number, places, coefficients, size
    numbers = [i for i, g in enumerate(cell.goals[:-1]) if max(g) >= 0] or [0]
    top = max(max(map(abs, cell.goals[i])) for i in numbers) or 1
    parts = [("goals", i, to, cell.goals[i], top) for i in numbers for to in shifts]
    many = len(parts)
    for i, (x, (_, own)) in enumerate(zip(cell.premises, clause.premises, strict=True)):
        room = tuple(map(int.__sub__, total, own))
        if min(room) >= 0 and min(x) < 0:
            size = max(map(abs, x))
            parts += [("premises", i, to, -x, size) for to in _shifts(blocks, own, room)]
    if with_squares:
        shape = np.array([-1, -1, 2], dtype=object)
        parts += [("squares", 0, np.array(x), shape, 2) for x in _squares(blocks, total)]
    unit = np.zeros(width, dtype=object)
    for to, weight in zip(shifts, weights, strict=True):
        unit[to] += weight * cell.goals[-1]
    matrix = np.zeros((len(parts) + 1, width))
    for row, (_, _, to, x, size) in zip(matrix, parts, strict=False):
        np.add.at(row, to, (x / size).astype(float))
    matrix[-1] = unit / max(unit)
    height = np.abs(matrix).max(axis=0)
    lhs = -(matrix[:, height > 0] / height[height > 0]).T
    enough = np.zeros((len(weights), len(parts) + 1))
    for column in range(many):
        enough[column % len(weights), column] = -1
    found = linprog(
        [0] * len(parts) + [1],
        np.vstack([lhs, enough]),
        [0.0] * len(lhs) + [-float(w) for w in weights],
        bounds=[(0, 100 * max(weights))] * many
        + [(0, None)] * (len(parts) - many)
        + [(None, None)],
        method="highs-ds",
    )
    if found.x is None:
        return None
    best = None
    for largest in _DENOMINATORS if found.x[-1] < 1e-9 else (10**6,):
        shares = [Fraction(max(v, 0)).limit_denominator(largest) for v in found.x[:-1]]
        for m, weight in enumerate(weights):  # the multipliers of the goals are enough
            among = range(m, many, len(weights))
            most = max(among, key=shares.__getitem__)
            shares[most] += max(0, weight - sum(shares[i] for i in among))
        used = [(s, part) for s, part in zip(shares, parts, strict=True) if s]
        whole = math.lcm(*(s.denominator * part[4] for s, part in used))
        integers = [(s.numerator * top * (whole // (s.denominator * part[4])), part)
                    for s, part in used]  # fmt: skip
        rest = np.zeros(width, dtype=object)
        for c, (_, _, to, x, _) in integers:
            np.add.at(rest, to, c * x)
        margin = _least_margin(rest, unit, whole)
        if margin == 0:
            _write(cell, clause, total, integers)
            return margin
        if margin is not None and (best is None or margin < best):
            best = margin
    return best


def _least_margin(rest: Ints, unit: Ints, whole: int) -> Fraction | None:
    """Least margin such that rest + margin * whole * unit has no negative coefficient."""
    margin = Fraction(0)
    for x, n in zip(rest, unit, strict=True):
        if x < 0:
            if n <= 0:
                return None
            margin = max(margin, Fraction(-x, whole * n))
    return margin


def _write(cell: _Cell, clause: Clause, total: Key, integers: Sequence[tuple[int, Any]]) -> None:
    """Multipliers of the goals and premises, and squares, each with its monomials."""
    keys = list(_monomials(clause.blocks, total))

    def scale(kind: str, number: int) -> Fraction:
        return cell.scales[0 if kind == "goals" else number + 1] if kind != "squares" else one

    one = Fraction(1)
    exact = [c / scale(kind, number) for c, (kind, number, *_) in integers]
    whole = math.lcm(*(x.denominator for x in exact))
    for x, (_, (kind, number, to, _, _)) in zip(exact, integers, strict=True):
        c = int(x * whole)
        if kind == "squares":
            entry = [keys[to[0]], keys[to[1]], c]
        else:
            own = clause.degrees if kind == "goals" else clause.premises[number][1]
            first = next(iter(_monomials(clause.blocks, own)))
            entry = [number, tuple(map(int.__sub__, keys[to[0]], first)), c]
        cell.node.setdefault(kind, []).append(entry)


def _points(cell: _Cell, clause: Clause) -> Iterator[tuple[Law, Law]]:
    """Laws at the corners and in the middle of a cell, where all its goals fail."""
    places = _monomials(clause.blocks, clause.degrees)
    for choice in itertools.product(*map(range, clause.blocks)):
        spots = zip(clause.blocks, clause.degrees, choice, strict=True)
        key = tuple(d if i == j else 0 for n, d, j in spots for i in range(n))
        if max(cell.goals[:-1, places[key]]) < 0:
            chosen = zip(cell.corners, choice, strict=True)
            yield from _laws(clause, [x for c, j in chosen for x in c[:, j]])
    if max(goal.sum() for goal in cell.goals[:-1]) < 0:
        yield from _laws(clause, [x for c in cell.corners for x in c.sum(axis=1)])


def _laws(clause: Clause, point: Sequence[int]) -> Iterator[tuple[Law, Law]]:
    """Laws p and q at a point of the domain, if there are any."""
    both = []
    for law in clause.laws:
        masses = [sum(c * math.prod(map(pow, point, key)) for key, c in x.items()) for x in law]
        if not sum(masses):
            return
        both.append(tuple(Fraction(x, sum(masses)) for x in masses))
    yield both[0], both[1]


def _in_all_coordinates(corners: Sequence[Ints]) -> list[list[int]]:
    """Corners of all simplices, as rows, with zeros for the coordinates of the others."""
    sizes = [len(c) for c in corners]
    return [
        [0] * sum(sizes[:k]) + row + [0] * sum(sizes[k + 1 :])
        for k, c in enumerate(corners)
        for row in c.T.tolist()
    ]


def _longest(corners: Sequence[Ints]) -> tuple[int, int, int, int, int] | None:
    """Simplex k and corners i, j of the longest edge, and weights a, b of its simplest point."""
    best: tuple[float, int, int, int] = (0.0, 0, 0, 0)
    for k, c in enumerate(corners):
        v = (c / c[:, 0].sum()).astype(float)
        for i, j in itertools.combinations(range(c.shape[1]), 2):
            best = max(best, (round(float(np.abs(v[:, i] - v[:, j]).sum()), 9), -k, -i, -j))
    if not best[0]:
        return None
    k, i, j = (-x for x in best[1:])
    c, total = corners[k], corners[k][:, 0].sum()
    row = max(range(len(c)), key=lambda r: abs(c[r, i] - c[r, j]))
    low, high = sorted((Fraction(c[row, i], total), Fraction(c[row, j], total)))
    at = _simplest(low + (high - low) / 3, high - (high - low) / 3)
    share = (at * total - c[row, i]) / (c[row, j] - c[row, i])  # of corner j
    return k, i, j, share.denominator - share.numerator, share.numerator


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """Fraction of least denominator in an interval of numbers that are not negative."""
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(whole)
    return whole - 1 + 1 / _simplest(1 / (high - whole + 1), 1 / (low - whole + 1))
