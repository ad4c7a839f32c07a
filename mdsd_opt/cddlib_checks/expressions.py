"""Claims as text, such as ``p0 >= q0**3``: one grammar, read in fractions or in other algebras.

Nothing is evaluated but what stands here: tokens' probabilities, numbers as they are written,
arithmetic, a few functions, the optimum of a draft scheme, and the rates of two rules.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from mdsd_opt.base.checked import checked_integer, of_kind
from mdsd_opt.cddlib_checks import rule_bounds
from mdsd_opt.cddlib_checks.draft_laws import exact_number
from mdsd_opt.cddlib_checks.law_search import Law, optimum
from mdsd_opt.cddlib_checks.result import Inequality
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, DraftScheme
from mdsd_opt.errors import InvalidInput, UnknownName
from mdsd_opt.problem import TransportProblem

#: Most letters of a claim, and the largest exponent in it.
_MOST_LETTERS, _MOST_EXPONENT = 1000, 64

#: Most bits of a numerator or a denominator that is raised to a power.
_MOST_BITS = 2**16

#: Rules whose rates with replacement a claim may name, beside the optima of schemes.
RULES = ("rrs", "kseq")

#: Bracket of K-SEQ, both of whose ends are asked for.
_refused_by_kseq = functools.lru_cache(16)(rule_bounds.rejected_by_kseq)

_RATES = (*SINGLE_MODEL_SCHEMES, *RULES)
_OVER_TOKENS = ("sum", "prod", "min", "max")

_GRAMMAR = (
    "write p0, q0, numbers such as 1/3 or 0.25, + - * / **, abs, sum, prod, min, max, over all "
    "tokens i of pi and qi as in sum(min(pi, qi)), an acceptance rate of K drafts, the optimum "
    f"{', '.join(f'{name}(K)' for name in SINGLE_MODEL_SCHEMES)} or of a rule rrs(K), kseq(K), and "
    "between them >=, <= or ==, joined by 'and'"
)


class Algebra(Protocol):
    """Values of claims, and what is done with them."""

    def number(self, x: Fraction) -> Any: ...
    def law(self, name: str) -> Sequence[Any]: ...
    def rate(self, name: str, num_drafts: int) -> Any: ...
    def add(self, x: Any, y: Any) -> Any: ...
    def mul(self, x: Any, y: Any) -> Any: ...
    def div(self, x: Any, y: Any) -> Any: ...
    def least(self, values: Iterable[Any]) -> Any: ...
    def most(self, values: Iterable[Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Fractions:
    """Algebra at one pair of laws, where optima are certified ones.

    K-SEQ has the low end of its bracket, or the high one.
    """

    p: Law
    q: Law
    end: int = 0
    number = Fraction

    def law(self, name: str) -> Law:
        return self.p if name == "p" else self.q

    def rate(self, name: str, num_drafts: int) -> Fraction:
        if name == "rrs":
            return 1 - rule_bounds.rejected_by_rrs(self.p, self.q, num_drafts)
        if name == "kseq":
            return 1 - _refused_by_kseq(self.p, self.q, num_drafts)[self.end]
        drafts = SINGLE_MODEL_SCHEMES[name](self.q, num_drafts)
        return optimum(TransportProblem(self.p, drafts))

    def add(self, x: Fraction, y: Fraction) -> Fraction:
        return x + y

    def mul(self, x: Fraction, y: Fraction) -> Fraction:
        bits = [max(z.numerator.bit_length(), z.denominator.bit_length()) for z in (x, y)]
        if sum(bits) > _MOST_BITS:
            raise InvalidInput(f"the claim has numbers beyond {_MOST_BITS} bits")
        return x * y

    def div(self, x: Fraction, y: Fraction) -> Fraction:
        return x / y

    def least(self, values: Iterable[Fraction]) -> Fraction:
        return min(values)

    def most(self, values: Iterable[Fraction]) -> Fraction:
        return max(values)


#: Most tokens of laws that a claim is read with.
_MOST_SIZE = 1000


@dataclass(frozen=True, slots=True)
class TextClaim:
    """Claim about a target p and a draft q, read from text; called with both it returns a Fraction.

    The value is how much the claim fails by, at most zero where it holds, or where `given`, another
    claim, does not. With several comparisons it is the most that one of them fails by. What stands
    before ``implies`` is a premise as `given` is.
    """

    text: str
    vocab_size: int
    given: TextClaim | None = None
    conclusion: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_integer(self.vocab_size, "vocab_size", most=_MOST_SIZE)
        if self.given is not None:
            of_kind(self.given, TextClaim, "given", "another claim")
        premise, implies, conclusion = of_kind(
            self.text, str, "text", "a claim such as 'rrs(2) <= optimal(2)'"
        ).rpartition(" implies ")
        object.__setattr__(self, "conclusion", conclusion)
        if implies:
            also = f"({premise}) and ({self.given.text})" if self.given else premise
            object.__setattr__(self, "given", TextClaim(also, self.vocab_size))
        if self.given is not None and (self.given.given or "kseq" in self.given.text):
            raise InvalidInput(
                f"the premise {self.given.text!r} has one of its own, or K-SEQ's rate, which is "
                "known within a bracket alone: give comparisons of other numbers"
            )
        weights = range(1, self.vocab_size + 1)  # different ones, which may be divided by
        p, q = (tuple(Fraction(w**n, sum(x**n for x in weights)) for w in weights) for n in (1, 2))
        try:
            self.slacks(Fractions(p, q))  # reads all of it
        except ZeroDivisionError:
            raise InvalidInput(f"the claim {self.text!r} divides by zero") from None
        for node in ast.walk(_tree(conclusion)):
            if _is_call(node, "sum", "prod") and not _over_tokens(node):
                warnings.warn(
                    f"{ast.unparse(node)} is over one number: pi and qi stand for those of all "
                    "tokens, as in sum(min(pi, qi))",
                    stacklevel=3,
                )

    def __call__(self, p: Law, q: Law) -> Fraction:
        if self.given is not None and self.given(p, q) > 0:
            return Fraction(0)
        ends = (0, 1) if "kseq" in self.conclusion else (0,)
        return min(-min(self.slacks(Fractions(p, q, end))) for end in ends)

    def slacks(self, algebra: Algebra) -> list[Any]:
        """Values that must all be at least zero, of the conclusion alone."""
        return self._slacks(_tree(self.conclusion), algebra)

    def rates(self) -> set[tuple[str, int]]:
        """Names and numbers of drafts of the rates in the claim and its premise."""
        trees = [_tree(x.conclusion) for x in (self, self.given) if x is not None]
        return {
            (node.func.id, self._count(node))  # type: ignore[attr-defined, arg-type]
            for tree in trees
            for node in ast.walk(tree)
            if _is_call(node, *_RATES)
        }

    @property
    def names_a_token(self) -> bool:
        """Whether the claim or its premise speaks of a token by its number."""
        trees = [_tree(x.conclusion) for x in (self, self.given) if x is not None]
        return any(re.fullmatch(r"[pq]_?\d+", name) for tree in trees for name in _names(tree))

    def _slacks(self, node: ast.expr, a: Algebra) -> list[Any]:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            return [x for value in node.values for x in self._slacks(value, a)]
        if not isinstance(node, ast.Compare):
            raise self._unreadable(node)
        sides = [self._value(side, a, None) for side in (node.left, *node.comparators)]
        slacks = []
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            if not isinstance(op, ast.GtE | ast.LtE | ast.Eq):
                raise self._unreadable(node)
            if not isinstance(op, ast.LtE):
                slacks.append(a.add(left, _negative(a, right)))
            if not isinstance(op, ast.GtE):
                slacks.append(a.add(right, _negative(a, left)))
        return slacks

    def _value(self, node: ast.expr, a: Algebra, token: int | None) -> Any:
        """Value of a node; `token` is what pi and qi stand for."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, int | float):
                raise self._unreadable(node)
            return a.number(exact_number(ast.unparse(node)))  # 0.1 is a tenth, no float's bits
        if isinstance(node, ast.Name):
            return self._probability(node, a, token)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._value(node.operand, a, token)
            return _negative(a, value) if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            return self._combined(node, a, token)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._called(node, node.func.id, a, token)
        raise self._unreadable(node)

    def _probability(self, node: ast.Name, a: Algebra, token: int | None) -> Any:
        match = re.fullmatch(r"([pq])(?:_?(\d{1,4})|i)", node.id)
        if match is None or (match[2] is None and token is None):
            raise self._unreadable(node)
        named = int(match[2]) if match[2] else token
        assert named is not None
        if named >= self.vocab_size:
            raise InvalidInput(
                f"the claim {self.text!r} names token {named}: tokens are 0 to "
                f"{self.vocab_size - 1}"
            )
        return a.law(match[1])[named]

    def _combined(self, node: ast.BinOp, a: Algebra, token: int | None) -> Any:
        left = self._value(node.left, a, token)
        if isinstance(node.op, ast.Pow):
            exponent = self._whole(node.right, 0, _MOST_EXPONENT, "the exponent")
            return functools.reduce(a.mul, [left] * exponent, a.number(Fraction(1)))
        right = self._value(node.right, a, token)
        if isinstance(node.op, ast.Sub):
            return a.add(left, _negative(a, right))
        for kind, combine in ((ast.Add, a.add), (ast.Mult, a.mul), (ast.Div, a.div)):
            if isinstance(node.op, kind):
                return combine(left, right)
        raise self._unreadable(node)

    def _called(self, node: ast.Call, name: str, a: Algebra, token: int | None) -> Any:
        if name in _RATES:
            return a.rate(name, self._count(node))
        if name == "abs" and len(node.args) == 1:
            value = self._value(node.args[0], a, token)
            return a.most([value, _negative(a, value)])
        if name in _OVER_TOKENS and (len(node.args) == 1 or (name in ("min", "max") and node.args)):
            values = self._values(node, a, None if name in ("sum", "prod") else token)
            if name in ("min", "max"):
                return a.least(values) if name == "min" else a.most(values)
            return functools.reduce(a.add if name == "sum" else a.mul, values)
        if name not in (*_OVER_TOKENS, "abs"):
            raise UnknownName(
                f"unknown name {name!r} in the claim {self.text!r}. Known: abs, "
                f"{', '.join((*_OVER_TOKENS, *_RATES))}."
            )
        raise self._unreadable(node)

    def _values(self, node: ast.Call, a: Algebra, token: int | None) -> list[Any]:
        """Values of arguments, of all tokens where pi and qi stand for none yet."""
        values: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Name) and arg.id in ("p", "q"):
                values += a.law(arg.id)
            elif token is None and _free(arg):
                values += [self._value(arg, a, i) for i in range(self.vocab_size)]
            else:
                values.append(self._value(arg, a, token))
        return values

    def _count(self, node: ast.Call) -> int:
        if len(node.args) != 1:
            raise self._unreadable(node)
        return self._whole(node.args[0], 1, self.vocab_size + 8, "the number of drafts")

    def _whole(self, node: ast.expr, low: int, high: int, what: str) -> int:
        value = self._value(node, Fractions((), ()), None) if not _names(node) else None
        if value is None or value.denominator != 1 or not low <= value <= high:
            raise InvalidInput(
                f"the claim {self.text!r} has {ast.unparse(node)} as {what}: give a whole number "
                f"from {low} to {high}"
            )
        return int(value)

    def _unreadable(self, node: ast.expr) -> InvalidInput:
        return InvalidInput(
            f"the claim {self.text!r} is not readable at {ast.unparse(node)!r:.60}: {_GRAMMAR}"
        )


@dataclass(frozen=True, slots=True)
class _Linear:
    """Algebra of inequalities in p for one q: a value is its coefficients, then its constant."""

    text: str
    vocab_size: int
    q: Law | None

    def number(self, x: Fraction) -> Law:
        return (*[Fraction(0)] * self.vocab_size, x)

    def law(self, name: str) -> list[Law]:
        if name == "p":
            tokens = range(self.vocab_size + 1)
            return [tuple(Fraction(int(i == j)) for j in tokens) for i in tokens[:-1]]
        if self.q is None:
            raise InvalidInput(f"the claim {self.text!r} names q, which is not one law here")
        return [self.number(x) for x in self.q]

    def rate(self, name: str, num_drafts: int) -> Law:
        raise self._curved(f"{name}({num_drafts}) is a rate")

    def add(self, x: Law, y: Law) -> Law:
        return tuple(a + b for a, b in zip(x, y, strict=True))

    def mul(self, x: Law, y: Law) -> Law:
        if any(x[:-1]):
            x, y = y, x
        c = self._constant(x, "it multiplies by p")
        return tuple(c * a for a in y)

    def div(self, x: Law, y: Law) -> Law:
        return self.mul(x, self.number(1 / self._constant(y, "it divides by p")))

    def least(self, values: Iterable[Law]) -> Law:
        return self.number(min(self._constant(x, "it takes a least or largest p") for x in values))

    def most(self, values: Iterable[Law]) -> Law:
        return self.number(max(self._constant(x, "it takes a least or largest p") for x in values))

    def _constant(self, x: Law, why: str) -> Fraction:
        if any(x[:-1]):
            raise self._curved(why)
        return x[-1]

    def _curved(self, why: str) -> InvalidInput:
        return InvalidInput(
            f"the claim {self.text!r} is not linear in p, as inequalities of a condition are: {why}"
        )


def inequalities_of(claims: Iterable[Any], drafts: DraftScheme) -> tuple[Inequality, ...]:
    """Linear inequalities in p, each text of the grammar, an `Inequality`, or a pair.

    In a text q is that of the drafts. A pair has tokens, or a mapping of their coefficients, and
    what these sum to at least.
    """
    size, models = drafts.vocab_size, drafts.models
    q = models[0].exact() if len(models) == 1 else None
    rows: list[Law] = []
    for claim in [claims] if isinstance(claims, str) else claims:
        if isinstance(claim, str):
            read = TextClaim(claim, size)
            if read.given is not None:
                raise InvalidInput(f"the claim {claim!r} has a premise: give inequalities alone")
            try:
                rows += read.slacks(_Linear(claim, size, q))
            except ZeroDivisionError:
                raise InvalidInput(f"the claim {claim!r} divides by zero at this q") from None
        else:
            rows.append(_row(claim, size))
    return tuple(Inequality(row[:-1], -row[-1]) for row in rows)


def _row(claim: Any, size: int) -> Law:
    if isinstance(claim, Inequality):
        if len(claim.coefficients) != size:
            raise InvalidInput(f"inequality {claim} is not about {size} tokens")
        claim = dict(enumerate(claim.coefficients)), claim.bound
    try:
        left, bound = claim
        items = dict(left if isinstance(left, Mapping) else dict.fromkeys(left, 1))
        for i in items:
            checked_integer(i, "a token", 0, most=size - 1)
        return (*(exact_number(items.get(i, 0)) for i in range(size)), -exact_number(bound))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"inequality {claim!r} is not readable: {error}. Give 'p0 + p2 >= 8/27', "
            "((0, 2), '8/27') or ({0: 1, 2: 1}, '8/27')"
        ) from error


def _negative(a: Algebra, x: Any) -> Any:
    return a.mul(a.number(Fraction(-1)), x)


def _is_call(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _names(node: ast.expr) -> set[str]:
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}


def _free(node: ast.expr) -> bool:
    """Whether pi or qi stands in it outside a sum or product, which would say of which token."""
    if _is_call(node, "sum", "prod"):
        return False
    if isinstance(node, ast.Name):
        return node.id in ("pi", "qi")
    return any(_free(x) for x in ast.iter_child_nodes(node) if isinstance(x, ast.expr))


def _over_tokens(node: Any) -> bool:
    return any(_free(x) or (isinstance(x, ast.Name) and x.id in ("p", "q")) for x in node.args)


@functools.lru_cache
def _tree(claim: str) -> ast.expr:
    """Syntax tree of a claim, made once for all the laws that it is put to."""
    text = re.sub(r"(?<![<>=!])=(?!=)", "==", claim.replace("≥", ">=").replace("≤", "<="))
    text = text.replace("^", "**")
    # 2 p1 and 3/4 p1, as inequalities are written
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(?=[pq]_?\d)", r"\1*", text)
    if len(text) > _MOST_LETTERS:
        raise InvalidInput(f"the claim has {len(text):,} letters: give up to {_MOST_LETTERS:,}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InvalidInput(f"the claim {claim!r} is not readable: {_GRAMMAR}") from error
