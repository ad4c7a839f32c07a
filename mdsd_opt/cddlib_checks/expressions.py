"""Claims as text, such as ``p0 >= q0**3``, read by a grammar of their own, in fractions.

Nothing is evaluated but what stands here: tokens' probabilities, numbers as they are written,
arithmetic, a few functions, and the optimum of a draft scheme.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mdsd_opt.cddlib_checks.draft_laws import exact_number
from mdsd_opt.cddlib_checks.law_search import Law, optimum
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.errors import InvalidInput
from mdsd_opt.problem import TransportProblem

#: Most letters of a claim, and the largest exponent in it.
_MOST_LETTERS, _MOST_EXPONENT = 1000, 64

#: Most bits of a numerator or a denominator that is raised to a power.
_MOST_BITS = 2**16

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip

_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}

#: Amount by which each comparison fails, from its left and its right side.
_FAILURES: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.GtE: lambda a, b: b - a,
    ast.LtE: lambda a, b: a - b,
    ast.Eq: lambda a, b: abs(a - b),
}

_GRAMMAR = (
    "write p0, q0, numbers such as 1/3 or 0.25, + - * / **, min, max, abs, sum(p), the optimum of "
    "a scheme as with_replacement(2), and between them >=, <= or =="
)


@dataclass(frozen=True, slots=True)
class TextClaim:
    """Claim about a target p and a draft q, read from text; called with both it returns a Fraction.

    The value is how much the claim fails by, at most zero where it holds, or where `given`, another
    claim, does not. With several comparisons it is the most that one of them fails by.
    """

    text: str
    vocab_size: int
    given: TextClaim | None = None

    def __post_init__(self) -> None:
        weights = range(1, self.vocab_size + 1)  # different ones, which may be divided by
        p, q = (tuple(Fraction(w**n, sum(x**n for x in weights)) for w in weights) for n in (1, 2))
        try:
            self._failures(_tree(self.text), p, q)  # reads all of it
        except ZeroDivisionError:
            raise InvalidInput(f"the claim {self.text!r} divides by zero") from None

    def __call__(self, p: Law, q: Law) -> Fraction:
        if self.given is not None and self.given(p, q) > 0:
            return Fraction(0)
        return max(self._failures(_tree(self.text), p, q))

    def _failures(self, node: ast.expr, p: Law, q: Law) -> Sequence[Fraction]:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            return [x for value in node.values for x in self._failures(value, p, q)]
        if not isinstance(node, ast.Compare):
            raise self._unreadable(node)
        sides = [self._value(side, p, q) for side in (node.left, *node.comparators)]
        if any(type(op) not in _FAILURES for op in node.ops):
            raise self._unreadable(node)
        return [_FAILURES[type(op)](sides[i], sides[i + 1]) for i, op in enumerate(node.ops)]

    def _value(self, node: ast.expr, p: Law, q: Law) -> Fraction:
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.Name):
            return self._probability(node, p, q)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._value(node.operand, p, q)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left, p, q), self._value(node.right, p, q)
            return self._combined(node, left, right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._called(node, node.func.id, p, q)
        raise self._unreadable(node)

    def _number(self, node: ast.Constant) -> Fraction:
        text = ast.unparse(node)
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self._unreadable(node)
        return exact_number(text)  # 0.1 is a tenth, not what a float makes of it

    def _probability(self, node: ast.Name, p: Law, q: Law) -> Fraction:
        match = re.fullmatch(r"([pq])_?(\d{1,4})", node.id)
        if match is None:
            raise self._unreadable(node)
        token = int(match[2])
        if token >= self.vocab_size:
            raise InvalidInput(
                f"the claim {self.text!r} names token {token}: tokens are 0 to "
                f"{self.vocab_size - 1}"
            )
        return (p if match[1] == "p" else q)[token]

    def _combined(self, node: ast.BinOp, left: Fraction, right: Fraction) -> Fraction:
        if isinstance(node.op, ast.Pow):
            whole = right.denominator == 1 and 0 <= right <= _MOST_EXPONENT
            if not whole:
                raise InvalidInput(
                    f"the claim {self.text!r} has the exponent {right}: give a whole number up to "
                    f"{_MOST_EXPONENT}"
                )
            size = max(left.numerator.bit_length(), left.denominator.bit_length())
            if size * right > _MOST_BITS:
                raise InvalidInput(f"the claim {self.text!r} has numbers beyond {_MOST_BITS} bits")
            return left ** int(right)
        if type(node.op) not in _ARITHMETIC:
            raise self._unreadable(node)
        if isinstance(node.op, ast.Div) and right == 0:
            raise ZeroDivisionError
        return Fraction(_ARITHMETIC[type(node.op)](left, right))

    def _called(self, node: ast.Call, name: str, p: Law, q: Law) -> Fraction:
        if name == "sum" and len(node.args) == 1:
            return sum(self._values(node.args, p, q), Fraction(0))
        if name in SINGLE_MODEL_SCHEMES and len(node.args) == 1:
            count = self._value(node.args[0], p, q)
            if count.denominator != 1 or not 1 <= count <= self.vocab_size + 8:
                raise InvalidInput(f"the claim {self.text!r} asks for {count} drafts")
            drafts = SINGLE_MODEL_SCHEMES[name](q, int(count))
            return optimum(TransportProblem(p, drafts))
        if name in _FUNCTIONS and node.args:
            return Fraction(_FUNCTIONS[name](*self._values(node.args, p, q)))
        raise self._unreadable(node)

    def _values(self, nodes: Sequence[ast.expr], p: Law, q: Law) -> list[Fraction]:
        """Values of arguments, of which p and q alone stand for all their numbers."""
        values: list[Fraction] = []
        for node in nodes:
            if isinstance(node, ast.Name) and node.id in ("p", "q"):
                values += p if node.id == "p" else q
            else:
                values.append(self._value(node, p, q))
        return values

    def _unreadable(self, node: ast.expr) -> InvalidInput:
        return InvalidInput(
            f"the claim {self.text!r} is not readable at {ast.unparse(node)!r:.60}: {_GRAMMAR}"
        )


@functools.lru_cache
def _tree(claim: str) -> ast.expr:
    """Syntax tree of a claim, made once for all the laws that it is put to."""
    text = re.sub(r"(?<![<>=!])=(?!=)", "==", claim.replace("≥", ">=").replace("≤", "<="))
    text = text.replace("^", "**")
    if len(text) > _MOST_LETTERS:
        raise InvalidInput(f"the claim has {len(text):,} letters: give up to {_MOST_LETTERS:,}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InvalidInput(f"the claim {claim!r} is not readable: {_GRAMMAR}") from error
