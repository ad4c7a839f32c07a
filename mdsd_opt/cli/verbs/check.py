"""mdsd-opt check, condition and search: claims of the theory, or your own, settled exactly."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from mdsd_opt import cddlib_checks
from mdsd_opt.base.files import check_writable
from mdsd_opt.base.frames import Column, Result, Table
from mdsd_opt.cli import options
from mdsd_opt.cli.output import remark
from mdsd_opt.cli.signatures import Given, given
from mdsd_opt.cli.view import Section, TableForm, View, present
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.cddlib_checks import CheckResult, Conjecture, LawSearch, Polyhedron

_SIZE = given(
    "cddlib_checks:check", "vocab_size num_drafts engine timeout facets",
    vocab_size=4, num_drafts=3,
)  # fmt: skip


Inequality = Annotated[
    list[str] | None, "One claimed inequality each, linear in p, as 'p0 + p2 >= (q0 + q2)**2'."
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """Drafts and limits by which a claim is settled."""

    draft: Annotated[
        list[str] | None,
        "q as 1/2,1/4,1/8,1/8; repeated once for each model where drafts differ. "
        "(1, 2, .., V) divided by its sum if left out.",
    ] = None
    memory: Annotated[float, "GiB each engine may take."] = 4.0
    progress: options.Progress = None
    export: Annotated[
        Path | None,
        "Folder for cone and polytope as .ine and .ext files, which cddlib and lrs read.",
    ] = None

    def laws(self, several: bool = False) -> list[str] | list[list[str]] | None:
        """Lists of the numbers in each --draft; a single one is q itself."""
        if not self.draft:
            return None
        rows = [text.split(",") for text in self.draft]
        return rows[0] if len(rows) == 1 and not several else rows


@dataclass(frozen=True)
class Checked(Result):
    """What is told of a claim."""

    result: CheckResult
    proof: str
    polyhedra: Sequence[Polyhedron] | None

    columns: ClassVar = ("*result", "proof", "polyhedra?")

    def tables(self) -> list[Table]:
        """Those of the claim."""
        return self.result.tables()


@dataclass(frozen=True)
class Claims(Result):
    """All claims."""

    conjectures: list[Conjecture]

    def tables(self) -> list[Table]:
        """A line for each."""
        columns = [Column(x, is_text=True) for x in self.conjectures[0].columns]
        return [Table("claims", columns, self.conjectures)]


@dataclass(frozen=True)
class Searched(Result):
    """What is told of a search."""

    claim: str
    given: str | None
    vocab_size: int
    trials: int
    seed: int
    found: LawSearch

    columns: ClassVar = ("claim", "given", "vocab_size", "trials", "seed", "*found")

    def tables(self) -> list[Table]:
        """Table of what was found about the claim."""
        shown = self.found.counterexample or self.found.nearest
        laws = [", ".join(map(str, x)) for x in ((shown.p, shown.q) if shown else ((), ()))]
        headings = ["claim", "given", "verdict", "instances", "p", "q", "fails by"]
        row = [
            self.claim, self.given or "", self.found.verdict, f"{self.found.instances:,}", *laws,
            str(shown.excess) if shown else "",
        ]  # fmt: skip
        return [Table.of(f"search, V = {self.vocab_size}", headings, [row], headings)]


def check(
    conjecture: Annotated[
        str | None,
        "A claim, or 'condition' for inequalities of your own; all claims are listed if left out.",
    ] = None,
    *,
    size: Given = _SIZE,
    settling: Settling,
    inequality: Inequality = None,
    scheme: Given = given("cddlib_checks:check_condition", "scheme"),
    search: Annotated[bool, "Random search for a counterexample instead."] = False,
    tried: Given = given("cddlib_checks:search", "trials rng=seed start"),
    form: TableForm,
) -> None:
    """Prove or refute a claim at one size, in exact arithmetic.

    The exit code is 0 if it is proved, 1 if it is refuted, 3 if it held on instances, which settle
    nothing, or stays open.
    """
    if conjecture is None:
        _list(form)
    elif search:
        if settling.draft or inequality:
            raise InvalidInput("--search draws its own instances: leave --draft out")
        size = {name: x for name, x in size.items() if name not in ("engine", "facets")}
        instances = partial(cddlib_checks.search, conjecture, **tried)
        _settle(conjecture, settling, form, instances, size)
    elif conjecture == "condition":
        condition(inequality or [], size=size, settling=settling, scheme=scheme, form=form)
    else:
        if inequality:
            raise InvalidInput("--inequality belongs to: mdsd-opt check condition --inequality ...")
        every = size | {"facets": size["facets"] or settling.export is not None}
        claim = partial(cddlib_checks.check, conjecture, draft=settling.laws())
        _settle(conjecture, settling, form, claim, every, size["facets"])


def condition(
    inequality: Inequality,
    *,
    size: Given = _SIZE,
    settling: Settling,
    scheme: Given = given("cddlib_checks:check_condition", "scheme"),
    form: TableForm,
) -> None:
    """Settle whether inequalities of your own are exactly the condition for acceptance one.

    The exit code is 0 if they are, 1 if they are not, 3 if it stays open.
    """
    from mdsd_opt.drafts import has_many_models

    draft = settling.laws(has_many_models(scheme["scheme"]))
    function = partial(
        cddlib_checks.check_condition, inequalities=inequality or (), draft=draft, **scheme
    )
    shown = size.pop("facets")
    _settle("condition", settling, form, function, size, shown)


def _settle(
    conjecture: str,
    settling: Settling,
    form: TableForm,
    function: Callable[..., Any],
    size: Given,
    facets: bool = False,
) -> None:
    """Print what the function finds at this size, within these limits, and exit with its code."""
    if not 0 < settling.memory < math.inf:
        raise InvalidInput(f"--memory is {settling.memory}: give a positive number of GiB")
    if settling.export is not None:
        settling.export.mkdir(parents=True, exist_ok=True)
        check_writable(settling.export / "cone.ine")
    line = _ProgressLine(bool(settling.progress))
    try:
        result = function(**size, memory=int(settling.memory * 2**30), progress=line.show)
    finally:
        line.clear()
    known = cddlib_checks.conjectures().get(conjecture)
    proof = [f"proof for every size: {known.proof}"] if known and known.proof else []
    document = Checked(result, known.proof if known else "", result.polyhedra if facets else None)
    told = replace(result, facets=()) if facets else result  # which stand in the tables
    shown = [each.table() for each in result.polyhedra] if facets else []
    view = View(f"{result.name}", (), [*shown, str(told), *proof], document)
    present(view, form)
    if settling.export is not None:
        for name in _saved(result.polyhedra, settling.export):
            remark(f"saved as {name}")
    _leave(result.holds)


def _leave(holds: bool | None) -> None:
    """Exit with the code of a verdict."""
    if holds is not True:
        raise typer.Exit(3 if holds is None else 1)


def _saved(polyhedra: Sequence[Polyhedron], folder: Path) -> Iterator[Path]:
    """Files of polyhedra, cone.ine, cone.ext and so on, as they are written."""
    for n, each in enumerate(polyhedra):
        earlier = sum(other.kind == each.kind for other in polyhedra[:n])
        for suffix in (".ine", ".ext"):
            path = folder / f"{each.kind}{earlier + 1 if earlier else ''}{suffix}"
            each.save(path)
            yield path


def _list(form: TableForm) -> None:
    known = cddlib_checks.conjectures().values()
    tables = []
    for status, heading in _KINDS.items():
        of_kind = [c for c in known if c.status == status]
        tables.append(Section(text=f"{heading} ({len(of_kind)})" if of_kind else None))
        for c in of_kind:
            tables.append(Section(text="", values=[(c.name, "")]))
            where = f"proof: {c.proof}" if c.proof else ""
            tables.append(Section(values=[(" ", x) for x in (c.statement, c.source, where) if x]))
        tables.append(Section(text="" if of_kind else None))
    conclusion = "each is settled at one size: mdsd-opt check CLAIM --vocab-size V --num-drafts K"
    present(View("Claims", tables, ["", conclusion], Claims([*known])), form)


#: Headings of the claims of each status.
_KINDS = {
    "theorem": "THEOREMS",
    "conjecture": "CONJECTURES, which nobody has proved",
    "false": "REFUTED CLAIMS, which are there to be refuted",
}


class _ProgressLine:
    """One line on stderr that is overwritten."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._width = 0

    def show(self, text: str) -> None:
        if self._wanted:
            print(f"\r{text.ljust(self._width)}", end="", file=sys.stderr, flush=True)
            self._width = len(text)

    def clear(self) -> None:
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)


def search(
    claim: Annotated[
        str,
        "A claim about a target p and a draft q, as 'p0 >= q0**3' or "
        "'without_replacement(2) >= with_replacement(2)', which are the best acceptance rates.",
    ],
    *,
    asked: Given = given("cddlib_checks:prove_laws", "vocab_size given", vocab_size=3),
    tried: Given = given("cddlib_checks:search", "trials rng=seed", trials=1000),
    form: TableForm,
) -> None:
    """Search for laws that refute a claim, in exact arithmetic, and shrink what is found.

    In the claim: p0, q0, numbers, + - * / **, min, max, abs, sum(p), the optimum of a scheme with K
    drafts, as greedy(2), and >=, <=, ==, joined by 'and'. The exit code is 1 if the claim is
    refuted, 3 if it held on all laws, which settles nothing, or if none met the premise.
    """
    size, premise = asked["vocab_size"], asked.get("given")
    given_claim = None if premise is None else cddlib_checks.TextClaim(premise, size)
    text = cddlib_checks.TextClaim(claim, size, given_claim)
    found = cddlib_checks.laws_tried(text, size, 2, **tried)
    odd, near = found.counterexample, found.nearest
    told = claim if premise is None else f"{claim}, given {premise}"
    document = Searched(claim, premise, size, tried["trials"], tried["rng"], found)
    if not found.instances:
        lines = [f"OPEN: nothing was tried: none of {tried['trials']:,} laws meets the premise"]
    elif odd is None:
        where = f"{size} tokens{' that meet the premise' if premise else ''}"
        lines = [f"HELD: {told}, on {found.instances:,} laws of {where}, which settles nothing"]
        if near is not None:
            lines.append(f"nearest to failing, with {float(-near.excess):.6g} left, at")
    else:
        lines = [f"REFUTED: {told}, by {odd.excess} = {float(odd.excess):.6f}, at"]
    if found.instances and (shown := odd or near):
        laws = {"p": shown.p, "q": shown.q}
        lines += [f"  {name} = ({', '.join(map(str, x))})" for name, x in laws.items()]
    present(View("Search", (), lines, document), form)
    _leave(None if odd is None else False)


def prove(
    claim: Annotated[str, "A claim about p and q, as 'with_replacement(2) - rrs(2) <= 4/27'."],
    *,
    asked: Given = given("cddlib_checks:prove_laws", "vocab_size given timeout", vocab_size=3),
    proof: Annotated[
        Path | None, "JSON file for the proof, which examples/check_proof.py checks."
    ] = None,
    form: TableForm,
) -> None:
    """Prove a claim for all laws p and q of V tokens, or refute it, in exact arithmetic.

    The claim is written as for search; its rates are with_replacement(2), without_replacement(2),
    rrs(2) and kseq(2). The exit code is 0 if it is proved, 1 if it is refuted, 3 if it stays open.
    """
    if proof is not None:
        check_writable(proof)
    result = cddlib_checks.prove_laws(claim, **asked)
    present(View("Proof", (), [str(result)], result), form)
    if proof is not None:
        if result.holds:
            result.save(proof)
        remark(f"proof saved as {proof}" if result.holds else "no proof to save")
    _leave(result.holds)
