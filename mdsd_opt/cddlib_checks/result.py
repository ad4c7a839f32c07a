"""Results of a check, and the inequalities in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.cddlib_checks.polyhedra import Polyhedron
from mdsd_opt.cddlib_checks.subsets import mask_of


@dataclass(frozen=True, slots=True)
class Inequality:
    """Inequality sum_i c_i p_i >= bound, a claim about targets.

    Attributes
    ----------
    coefficients : tuple of Fraction, shape (V,)
    bound : Fraction
    """

    coefficients: tuple[Fraction, ...]
    bound: Fraction

    @classmethod
    def on_subset(cls, vocab_size: int, tokens: Sequence[int], bound: Fraction) -> Inequality:
        """Inequality P(tokens) >= bound."""
        mask = mask_of(tokens)
        return cls(tuple(Fraction(mask >> i & 1) for i in range(vocab_size)), bound)

    def slack(self, p: Sequence[Fraction]) -> Fraction:
        """Left side minus right side: negative if the inequality is violated."""
        total = -self.bound
        for c, x in zip(self.coefficients, p, strict=True):
            if c:
                total += c * x
        return total

    def __str__(self) -> str:
        text = ""
        for i, c in enumerate(self.coefficients):
            if c:
                sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
                factor = "" if abs(c) == 1 else f"{abs(c)} "
                text += f"{sign}{factor}p{i}"
        return f"{text or '0'} >= {self.bound}"


@dataclass(frozen=True, slots=True)
class Counterexample(Result):
    """One instance on which a claim fails, in fractions.

    Attributes
    ----------
    kind : str
        "too weak": the claim admits `target`, yet its acceptance is below one. "too strong": the
        target has acceptance one, yet the claim excludes it. "suboptimal prefix", "not convex",
        "smaller acceptance", "unequal value" and "lossy" belong to the other claims.
    explanation : str
        Description of the failure, with its numbers.
    drafts : dict
        The draft scheme, as in problem files: numbers are strings of fractions.
    target : tuple of Fraction, optional
        p.
    acceptance_rate : Fraction, optional
        alpha* of that target and those drafts.
    subset : tuple of int, optional
        The tokens the failure is about.
    confirmed : str
        Name of the independent exact computation that confirms it.
    """

    kind: str
    explanation: str
    drafts: Mapping[str, Any]
    target: tuple[Fraction, ...] | None = None
    acceptance_rate: Fraction | None = None
    subset: tuple[int, ...] | None = None
    confirmed: str = ""

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.explanation}"]
        if self.target is not None:
            lines.append(f"  target p = ({', '.join(map(str, self.target))})")
        lines.append(f"  drafts: {describe_drafts(self.drafts)}")
        if self.acceptance_rate is not None:
            lines.append(f"  acceptance rate {approximate(self.acceptance_rate)}")
        if self.confirmed:
            lines.append(f"  confirmed by {self.confirmed}")
        return "\n".join(lines)


def approximate(x: Fraction) -> str:
    """Text of a fraction, with its decimal if that is worth printing."""
    if x.denominator == 1:
        return str(x)
    text = str(x)
    gap = 1 - x
    near = f"1 - {float(gap):.6g}" if 0 < gap < Fraction(1, 10**4) else f"{float(x):.6g}"
    return near if len(text) > 60 else f"{text} = {near}"


def describe_drafts(drafts: Mapping[str, Any]) -> str:
    """Text of the scheme of a problem file in one line."""
    scheme = str(drafts.get("scheme", "")).replace("_", " ")
    q = drafts.get("q")
    if q and isinstance(q[0], list):
        laws = ", ".join(f"q{k + 1} = ({', '.join(row)})" for k, row in enumerate(q))
        return f"{scheme}, {laws}"
    if q:
        return f"{scheme}, K = {drafts.get('num_drafts')}, q = ({', '.join(q)})"
    return f"{scheme}, {dict(drafts)}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Finding of one prover: proved within its scope (True), refuted, or not settled (None).

    The scope says for which V, K, drafts and targets. `instances` counts those on which the claim
    held, where they are all that was looked at.
    """

    holds: bool | None
    scope: str
    counterexamples: tuple[Counterexample, ...] = ()
    facets: tuple[Inequality, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    polyhedra: tuple[Polyhedron, ...] = ()
    instances: int = 0


class ClaimVerdict(Result):
    """What is known of a claim: it `holds` or not, or held on `instances`, which settle nothing."""

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """Verdict in a word: proved, refuted, held (on `instances`, which is no proof) or open."""
        of: Any = self
        left = "held" if getattr(of, "instances", 0) else "open"
        return {True: "proved", False: "refuted", None: left}[of.holds]


@dataclass(frozen=True, slots=True)
class CheckResult(ClaimVerdict):
    """Verdict on one claim at one size.

    Attributes
    ----------
    name : str
    statement : str
    vocab_size, num_drafts : int
    holds : bool or None
        True: proved, for what `scope` says. False: refuted by `counterexample`. None: not settled.
    instances : int
        Number of instances on which the claim held, where nothing but instances was tried.
    method : str
        How it was proved, or tried.
    counterexamples : tuple of Counterexample
        Each confirmed by a second exact computation.
    facets : tuple of Inequality
        The facets of the polytope of targets of the drafts in question, if there is one.
    polyhedra : tuple of Polyhedron
        The cones over all targets and laws of the drafts, and that polytope: facets, vertices and
        rays of each, to be printed or saved for other tools.
    scope : str
        Exact scope of the verdict.
    reason : str
        Why nothing is settled, or which prover ran out of time although another settled the claim.
    sizes : dict of str to int
        Rows, rays, vertices and the like.
    seconds : float
    """

    name: str
    statement: str
    vocab_size: int
    num_drafts: int
    holds: bool | None
    counterexamples: tuple[Counterexample, ...]
    facets: tuple[Inequality, ...]
    scope: str
    reason: str
    sizes: Mapping[str, int]
    seconds: float
    instances: int = 0
    method: str = ""
    polyhedra: tuple[Polyhedron, ...] = ()

    @property
    def counterexample(self) -> Counterexample | None:
        """First counterexample, or None."""
        return self.counterexamples[0] if self.counterexamples else None

    columns: ClassVar = (
        "name", "statement", "vocab_size", "num_drafts", "holds", "counterexamples",
        Column("facets", of=lambda result: [str(x) for x in result.facets], holds=list[str]),
        "scope", "reason", "sizes", "seconds", "instances", "method", "verdict", "counterexample",
    )  # fmt: skip

    def tables(self) -> list[Table]:
        """Tables of the verdict, of its counterexamples and of the facets of each polyhedron."""
        size = f"V = {self.vocab_size}, K = {self.num_drafts}"
        named = [
            Column("claim", of=lambda result: result.name, is_text=True),
            Column("verdict", is_text=True),
            Column("instances", of=lambda result: result.instances or None),
            Column("scope", is_text=True),
        ]
        tables = [Table(f"verdict, {size}", named, [self])]
        if self.counterexamples:
            headings = ["kind", "p", "acceptance rate"]
            odd = (
                (x.kind, ", ".join(map(str, x.target or ())), str(x.acceptance_rate or ""))
                for x in self.counterexamples
            )
            tables.append(Table.of(f"counterexamples, {size}", headings, odd, headings))
        return [*tables, *(polyhedron.table() for polyhedron in self.polyhedra)]

    def __str__(self) -> str:
        tried = ""
        if self.verdict == "held":
            tried = f" on {self.instances:,} instances, which settles nothing"
        lines = [
            f"{self.name}, V = {self.vocab_size}, K = {self.num_drafts}: {self.verdict.upper()}"
            f"{tried} ({self.seconds:.2f} s)",
            f"claim: {self.statement}",
        ]
        if self.method:
            lines.append(f"by: {self.method}")
        if self.scope:
            lines.append(f"scope: {self.scope}")
        if self.reason:
            lines.append(f"note: {self.reason}")
        lines += [str(c) for c in self.counterexamples]
        if self.sizes:
            named = (f"{key.replace('_', ' ')}: {value}" for key, value in self.sizes.items())
            lines.append("sizes: " + ", ".join(named))
        if self.facets:
            lines.append("facets of the polytope of these drafts, in the target:")
            lines += [f"  {facet}" for facet in self.facets]
        return "\n".join(lines)
