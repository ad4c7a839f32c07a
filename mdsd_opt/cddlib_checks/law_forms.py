r"""Claims about acceptance rates as clauses of polynomials on products of simplices.

A clause says: where all premises :math:`c_k \ge 0`, some goal :math:`g_i \ge 0`. Values are trees
of min and max over forms: polynomials with integer coefficients, homogeneous in p, in q and in each
further unknown (1 is sum p, or sum q), over products of positive factors. A claim that names no
token and has no premise is read where p/q falls along the tokens: there the sets of smallest ratios
are enough, by the prefix theorem, and the rest follows by symmetry and continuity. The rate of
`rrs` and of K-SEQ are by Lemma 4, their curve.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from mdsd_opt.cddlib_checks.expressions import TextClaim
from mdsd_opt.errors import InvalidInput

#: Most clauses of a claim, and the longest one whose forms are compared in pairs.
_MOST_CLAUSES, _MOST_COMPARED = 20_000, 16

Key = tuple[int, ...]
Terms = dict[Key, int]


class NotProvable(InvalidInput):
    """The claim is outside what is proved for all laws."""


class PastDeadline(Exception):
    """The limit of time was met while the cases were listed."""


class _NeedsSign(Exception):
    """The sign of a factor must be known: both become cases."""

    def __init__(self, form: LawForm) -> None:
        self.form = form


def times(x: Terms, y: Terms) -> Terms:
    """Product of two polynomials."""
    out: Terms = {}
    for a, c in x.items():
        for b, d in y.items():
            key = tuple(map(int.__add__, a, b))
            out[key] = out.get(key, 0) + c * d
    return {k: c for k, c in out.items() if c}


@dataclass(frozen=True, eq=False, slots=True)
class LawForm:
    """Polynomial over an integer and over named factors; its degrees in p, q and each unknown."""

    terms: Terms
    degrees: Key
    scale: int = 1
    factors: Counter[Any] = field(default_factory=Counter)


#: A form, or a node: its kind, its children, and spare ones that change nothing in its value.
Node = tuple[str, list[Any], list[Any]]
Tree = LawForm | Node


@dataclass(frozen=True, slots=True)
class Clause:
    """Goals of which one must be at least zero where all premises are; the last one is the unit.

    Attributes
    ----------
    blocks : tuple of int
        Sizes of the simplices: coordinates of p (or of the ratios), of q, of each unknown.
    """

    blocks: tuple[int, ...]
    goals: list[Terms]
    degrees: Key
    premises: list[tuple[Terms, Key]]
    laws: tuple[list[Terms], list[Terms]]


class _Domain:
    """Coordinates: p and q themselves, or (cone) p_i = q_i (t_i + .. + t_V), so that p/q falls."""

    def __init__(
        self, size: int, cone: bool, support: Sequence[int], unknowns: Sequence[int], until: float
    ) -> None:
        self.size, self.cone, self.support, self.until = size, cone, support, until
        self.blocks = (size, len(support), *(2 for _ in unknowns))
        n, kinds = sum(self.blocks), len(self.blocks)
        unit = [tuple(int(i == j) for j in range(n)) for i in range(n)]
        degree = [tuple(int(i == j) for j in range(kinds)) for i in range(kinds)]
        self.q = [LawForm({}, degree[1])] * size
        for j, i in enumerate(support):
            self.q[i] = LawForm({unit[size + j]: 1}, degree[1])
        rest = [dict.fromkeys(unit[i:size], 1) for i in range(size)]
        self.p = [
            LawForm(times(rest[i], self.q[i].terms) if cone else {unit[i]: 1}, degree[0])
            for i in range(size)
        ]
        first = [size + len(support) + 2 * k for k in range(len(unknowns))]
        self.unknown = {
            k: LawForm({unit[f]: 1}, degree[2 + i])
            for i, (k, f) in enumerate(zip(unknowns, first, strict=True))
        }
        totals = [functools.reduce(_merged, (x.terms for x in law)) for law in (self.p, self.q)]
        self.ones = [*totals, *({unit[f]: 1, unit[f + 1]: 1} for f in first)]
        self.one = LawForm({(0,) * n: 1}, (0,) * kinds)
        self.powers = [[self.one.terms] for _ in self.ones]
        self.factors: dict[Any, LawForm] = {}
        self.assumed: list[tuple[LawForm, int]] = []

    def power(self, kind: int, n: int) -> Terms:
        """Power of the sum that is one."""
        known = self.powers[kind]
        while len(known) <= n:
            known.append(times(known[-1], self.ones[kind]))
        return known[n]

    def common(self, forms: Sequence[LawForm]) -> tuple[list[Terms], LawForm]:
        """Numerators of the forms over one denominator, at one degree, and one as such a form."""
        if time.monotonic() > self.until:
            raise PastDeadline
        factors: Counter[Any] = functools.reduce(Counter.__or__, (x.factors for x in forms))
        scale = math.lcm(*(x.scale for x in forms))
        grown = []
        for x in forms:
            terms, degrees = x.terms, x.degrees
            for name in (factors - x.factors).elements():
                terms = times(terms, self.factors[name].terms)
                degrees = _plus(degrees, self.factors[name].degrees)
            grown.append((terms, degrees, scale // x.scale))
        most = tuple(map(max, zip(*(d for _, d, _ in grown), strict=True)))
        out = []
        for terms, own, share in grown:
            for kind, (low, high) in enumerate(zip(own, most, strict=True)):
                terms = times(terms, self.power(kind, high - low)) if high > low else terms
            out.append({k: share * c for k, c in terms.items()} if share > 1 else terms)
        return out, LawForm({}, most, scale, factors)

    def add(self, x: LawForm, y: LawForm, sign: int = 1) -> LawForm:
        (a, b), z = self.common([x, y])
        return LawForm(_merged(a, b, sign), z.degrees, z.scale, z.factors)

    def mul(self, x: LawForm, y: LawForm) -> LawForm:
        return LawForm(
            times(x.terms, y.terms), _plus(x.degrees, y.degrees), x.scale * y.scale,
            x.factors + y.factors,
        )  # fmt: skip

    def sign(self, x: LawForm) -> int | None:
        """1 or -1 where it is known (0 counts as 1), else None."""
        low, high = (f(x.terms.values(), default=0) for f in (min, max))
        if low >= 0:
            return 1
        if high <= 0:
            return -1
        for y, sign in self.assumed:
            if x.terms.keys() == y.terms.keys():
                a, b = next((c, y.terms[k]) for k, c in x.terms.items())
                if all(c * b == a * y.terms[k] for k, c in x.terms.items()):
                    return sign if a * b > 0 else -sign
        return None

    def degrees(self, of: Key) -> Key:
        """Degrees in the coordinates of each simplex."""
        return (of[0], of[0] + of[1], *of[2:]) if self.cone else of


def _plus(x: Key, y: Key) -> Key:
    return tuple(map(int.__add__, x, y))


def _merged(x: Terms, y: Terms, sign: int = 1) -> Terms:
    out = dict(x)
    for key, c in y.items():
        out[key] = out.get(key, 0) + sign * c
    return {k: c for k, c in out.items() if c}


class _Trees:
    """Algebra of trees, in which a claim is read once for all laws of a domain."""

    def __init__(self, domain: _Domain) -> None:
        self.domain = domain
        self.premises: list[Tree] = []  # of the unknowns
        self._rates: dict[tuple[str, int], Tree] = {}

    def number(self, x: Fraction) -> LawForm:
        one = self.domain.one
        return LawForm(
            dict.fromkeys(one.terms, x.numerator) if x else {}, one.degrees, x.denominator
        )

    def law(self, name: str) -> list[LawForm]:
        return self.domain.p if name == "p" else self.domain.q

    def least(self, values: Iterable[Tree], spare: Iterable[Tree] = ()) -> Tree:
        return self._joined("min", values, spare)

    def most(self, values: Iterable[Tree], spare: Iterable[Tree] = ()) -> Tree:
        return self._joined("max", values, spare)

    def _joined(self, kind: str, values: Iterable[Tree], spare: Iterable[Tree]) -> Tree:
        """Node of that kind without forms that others beat everywhere."""
        flat: list[Tree] = []
        others = list(spare)
        for x in values:
            same = not isinstance(x, LawForm) and x[0] == kind
            flat += x[1] if same else [x]  # type: ignore[index]
            others += x[2] if same else []  # type: ignore[index]
        kept: list[Tree] = []
        for x in flat:
            if isinstance(x, LawForm):
                if any(isinstance(y, LawForm) and self._beats(kind, y, x) for y in kept):
                    continue
                kept = [
                    y for y in kept if not isinstance(y, LawForm) or not self._beats(kind, x, y)
                ]
            kept.append(x)
        return kept[0] if len(kept) == 1 and not others else (kind, kept, others)

    def _beats(self, kind: str, x: LawForm, y: LawForm) -> bool:
        difference = self.domain.add(x, y, -1) if kind == "max" else self.domain.add(y, x, -1)
        return self.domain.sign(difference) == 1

    def add(self, x: Tree, y: Tree) -> Tree:
        """One form and the piecewise summands, which stay apart until clauses are made."""
        summands = [v[1] if not isinstance(v, LawForm) and v[0] == "sum" else [v] for v in (x, y)]
        parts = [z for some in summands for z in some]
        forms = [z for z in parts if isinstance(z, LawForm)]
        form = [functools.reduce(self.domain.add, forms)] if forms else []
        kids = [*form, *(z for z in parts if not isinstance(z, LawForm))]
        return kids[0] if len(kids) == 1 else ("sum", kids, [])

    def mul(self, x: Tree, y: Tree) -> Tree:
        if isinstance(y, LawForm):
            x, y = y, x
        if isinstance(x, LawForm):
            return self.domain.mul(x, y) if isinstance(y, LawForm) else self._scaled(x, y)
        x, y = (self.least([self.most(c) for c in self.clauses(v)]) for v in (x, y))
        if isinstance(x, LawForm) or isinstance(y, LawForm):
            return self.mul(x, y)
        for leaf in (*_leaves(x), *_leaves(y)):
            if self._sign(leaf) < 0:
                raise NotProvable(
                    "not provable here: it multiplies two piecewise values, and one of them can be "
                    "negative"
                )
        return self._joined(x[0], [self.mul(z, y) for z in x[1]], ())

    def _scaled(self, by: LawForm, x: Node, sign: int | None = None) -> Tree:
        sign = self._sign(by) if sign is None else sign
        kids, spare = ([self._times(by, z, sign) for z in part] for part in x[1:])
        if x[0] == "sum":
            return functools.reduce(self.add, kids)
        return self._joined(x[0] if sign > 0 else {"min": "max", "max": "min"}[x[0]], kids, spare)

    def _times(self, by: LawForm, x: Tree, sign: int) -> Tree:
        return self.domain.mul(by, x) if isinstance(x, LawForm) else self._scaled(by, x, sign)

    def _sign(self, form: LawForm) -> int:
        sign = self.domain.sign(form)
        if sign is None:
            raise _NeedsSign(form)
        return sign

    def div(self, x: Tree, y: Tree) -> Tree:
        one = self.domain.one
        if isinstance(y, LawForm) and y.terms.keys() == one.terms.keys():
            (c,) = y.terms.values()
            return self.mul(x, self.number(Fraction(y.scale, c)))
        if not isinstance(y, LawForm) or y.factors or not y.terms or min(y.terms.values()) < 0:
            raise NotProvable("not provable here: it divides by what can be zero or negative")
        name = (y.degrees, y.scale, frozenset(y.terms.items()))
        self.domain.factors[name] = LawForm(y.terms, y.degrees)
        inverse = LawForm(dict.fromkeys(one.terms, y.scale), one.degrees, 1, Counter([name]))
        return self._times(inverse, x, 1)

    def clauses(self, tree: Tree) -> list[list[LawForm]]:
        """Lists of forms such that the tree is the least over lists of the most in each."""
        if isinstance(tree, LawForm):
            return [[tree]]
        kind, kids, spare = tree
        parts = [self.clauses(z) for z in (*kids, *(spare if kind == "max" else ()))]
        if kind == "min":
            return [c for part in parts for c in part]
        if math.prod(map(len, parts)) > _MOST_CLAUSES:
            raise NotProvable(f"not provable here: more than {_MOST_CLAUSES:,} cases; try fewer "
                              "tokens or drafts")  # fmt: skip
        chosen = itertools.product(*parts)
        if kind == "max":
            return [self._pruned([f for clause in c for f in clause]) for c in chosen]
        return [
            self._pruned([functools.reduce(self.domain.add, fs) for fs in itertools.product(*c)])
            for c in chosen
        ]

    def _pruned(self, clause: list[LawForm]) -> list[LawForm]:
        if len(clause) > _MOST_COMPARED:
            return clause
        found = self.most(clause)
        return [found] if isinstance(found, LawForm) else found[1]

    # ------------------------------------------------------------------------------------ rates

    def rate(self, name: str, num_drafts: int) -> Tree:
        wanted = name, num_drafts
        if wanted not in self._rates:
            if name in ("rrs", "kseq"):
                self._rates[wanted] = getattr(self, f"_{name}")(num_drafts)
            elif name in ("with_replacement", "without_replacement"):
                contained = getattr(self, f"_within_{name}")
                cuts = [[self._cut(h, contained(h, num_drafts)) for h in sets]
                        for sets in self._sets()]  # fmt: skip
                self._rates[wanted] = self.least(*cuts)
            else:
                raise NotProvable(
                    f"not provable here: {name} is no piecewise polynomial known here; the rates "
                    "are with_replacement, without_replacement, rrs, kseq"
                )
        return self._rates[wanted]

    def _rrs(self, num_drafts: int) -> Tree:
        level: Tree = self.domain.one
        for _ in range(num_drafts - 1):
            level = self.add(level, self._surplus(level))
        return self._less(self.domain.one, self._surplus(level))

    def _kseq(self, num_drafts: int) -> Tree:
        """One less u^K, where u^K is the surplus at 1 + u + .. + u^(K-1)."""
        u = self.domain.unknown[num_drafts]
        powers = [self._product([u] * n) for n in range(num_drafts + 1)]
        refused = self._surplus(self._total(powers[:-1]))
        self.premises += [self._less(powers[-1], refused), self._less(refused, powers[-1])]
        return self._less(self.domain.one, powers[-1])

    def _less(self, x: Tree, y: Tree) -> Tree:
        return self.add(x, self.mul(self.number(Fraction(-1)), y))

    def _total(self, forms: Iterable[Tree]) -> Tree:
        zero: Tree = self.number(Fraction(0))
        return functools.reduce(self.add, forms, zero)

    def _product(self, forms: Sequence[LawForm]) -> LawForm:
        return functools.reduce(self.domain.mul, forms, self.domain.one)

    def _sets(self) -> tuple[list[Key], list[Key]]:
        """Sets that can be optimal, in the cone those of the smallest ratios, and the others."""
        tokens = range(self.domain.size)
        every = [h for n in (*tokens, len(tokens)) for h in itertools.combinations(tokens, n)]
        if not self.domain.cone:
            return every, []
        some = [tuple(range(j, len(tokens))) for j in (*tokens, len(tokens))]
        return some, [h for h in every if h not in some]

    def _cut(self, h: Key, contained: Tree) -> Tree:
        """1 + p(H) - Q(H)."""
        return self._less(self._total([self.domain.one, *(self.domain.p[i] for i in h)]), contained)

    def _surplus(self, level: Tree) -> Tree:
        """Sum of (p_i - s q_i)_+ at a level s >= 1, the most over sets of p(H) - s q(H)."""
        parts: list[list[Tree]] = [[self.number(Fraction(0))], []]
        for part, sets in zip(parts, self._sets(), strict=True):
            for h in sets:
                rest = [i for i in range(self.domain.size) if i not in h]
                if 0 < len(rest) < self.domain.size:
                    mass, drafted = (self._total([law[i] for i in rest])
                                     for law in (self.domain.p, self.domain.q))  # fmt: skip
                    part.append(self._less(mass, self.mul(drafted, level)))
        return self.most(*parts)

    def _within_with_replacement(self, h: Key, num_drafts: int) -> Tree:
        q = self._total([self.domain.q[i] for i in h])
        assert isinstance(q, LawForm)
        return self._product([q] * num_drafts)

    def _within_without_replacement(self, h: Key, num_drafts: int) -> Tree:
        support = self.domain.support
        inside = [i for i in h if i in support]
        if num_drafts >= len(support):
            return self.number(Fraction(int(len(inside) == len(support))))
        return self._drawn(inside, num_drafts, ())

    def _drawn(self, inside: Sequence[int], num_drafts: int, drawn: Key) -> Tree:
        if not num_drafts:
            return self.domain.one
        q = self.domain.q
        total = self._total(
            self.mul(q[i], self._drawn(inside, num_drafts - 1, (*drawn, i)))
            for i in inside
            if i not in drawn
        )
        left = self._total(q[i] for i in self.domain.support if i not in drawn)
        return self.div(total, left) if drawn else total


def _leaves(x: Tree) -> list[LawForm]:
    return [x] if isinstance(x, LawForm) else [y for z in x[1] for y in _leaves(z)]


def uses_cone(claim: TextClaim) -> bool:
    """Whether the claim is the same for all orders of the tokens: p/q may be taken to fall."""
    return claim.given is None and not claim.names_a_token


def clauses(claim: TextClaim, until: float) -> Iterator[Clause]:
    """All clauses of a claim, on all supports of q where a scheme changes its law.

    Raises `NotProvable`, and `PastDeadline` at the time `until` of the monotonic clock.
    """
    size = claim.vocab_size
    unknowns = sorted({k for name, k in claim.rates() if name == "kseq"})
    counts = [k for name, k in claim.rates() if name == "without_replacement"]
    supports: list[Key] = [tuple(range(size))]
    for n in range(1, min(max(counts, default=1), size)):
        fewer = list(itertools.combinations(range(size), n))
        supports += fewer if claim.names_a_token else fewer[:1]
    for support in supports:
        cone = uses_cone(claim) and len(support) == size
        yield from _cases(
            claim, functools.partial(_Domain, size, cone, support, unknowns, until), []
        )


def _cases(
    claim: TextClaim, make: functools.partial[_Domain], assumed: list[tuple[LawForm, int]]
) -> Iterator[Clause]:
    domain = make()
    domain.assumed = assumed
    algebra = _Trees(domain)
    try:
        goals = algebra.least(claim.slacks(algebra))
        given = claim.given.slacks(algebra) if claim.given is not None else []
        wanted = algebra.clauses(goals)
        options = [c for tree in (*given, *algebra.premises) for c in algebra.clauses(tree)]
    except _NeedsSign as need:
        for sign in (1, -1):
            yield from _cases(claim, make, [*assumed, (need.form, sign)])
        return
    fixed = [LawForm({k: s * c for k, c in f.terms.items()}, f.degrees) for f, s in assumed]
    for clause in wanted:
        for choice in itertools.product(*options):
            terms, common = domain.common([*clause, domain.one])
            yield Clause(
                domain.blocks,
                terms,
                domain.degrees(common.degrees),
                [(x.terms, domain.degrees(x.degrees)) for x in (*fixed, *choice)],
                ([x.terms for x in domain.p], [x.terms for x in domain.q]),
            )
