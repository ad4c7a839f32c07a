"""mdsd-opt check, condition and search: claims of the theory, or of one's own, settled exactly."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt.base.files import check_writable
from mdsd_opt.cli import options
from mdsd_opt.cli.output import make_table, remark
from mdsd_opt.cli.view import Section
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.cddlib_checks import CheckResult, LawCounterexample, Polyhedron


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """Size, drafts and limits by which a claim is settled."""

    vocab_size: Annotated[int, "V."] = 4
    num_drafts: Annotated[int, "K."] = 3
    draft: Annotated[
        list[str] | None,
        "q as 1/2,1/4,1/8,1/8; repeated once for each model where drafts differ. "
        "(1, 2, .., V) divided by its sum if left out.",
    ] = None
    engine: Annotated[str, "cddlib, ppl, both, which must agree, or auto: the quicker one."] = (
        "auto"
    )
    timeout: Annotated[float, "Seconds."] = 60.0
    memory: Annotated[float, "GiB each engine may take."] = 4.0
    printed: options.Printed
    progress: Annotated[bool | None, "Progress line on stderr."] = None
    facets: Annotated[bool, "Wait for all facets of cone and polytope, and print them."] = False
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


_SCHEME = "with_replacement, without_replacement, independent."


@options.gathers_options()
def check(
    conjecture: Annotated[
        str | None,
        typer.Argument(
            help="A claim, or 'condition' for inequalities of your own; all claims are listed if "
            "left out."
        ),
    ] = None,
    *,
    settling: Settling,
    inequality: Annotated[
        list[str] | None,
        "With 'condition': one claimed inequality, as 'p0 + p2 >= 8/27'; repeat it.",
    ] = None,
    scheme: Annotated[str, f"With 'condition': {_SCHEME}"] = "with_replacement",
    search: Annotated[bool, "Random search for a counterexample instead."] = False,
    trials: Annotated[int, "With --search: random instances."] = 10_000,
    seed: Annotated[int, "With --search: seed of the instances."] = 0,
    start: Annotated[int, "With --search: first trial, to resume."] = 0,
) -> None:
    """Prove or refute a claim at one size, in exact arithmetic.

    The exit code is 0 if it is proved, 1 if it is refuted, 3 if it held on instances, which settle
    nothing, or stays open.
    """
    if conjecture is None:
        _list(settling.printed)
        return
    from mdsd_opt import cddlib_checks

    if search:
        if settling.draft or inequality:
            raise InvalidInput("--search draws its own instances: leave --draft out")
        instances = partial(cddlib_checks.search, conjecture, trials=trials, rng=seed, start=start)
        _settle(conjecture, settling, instances)
    elif conjecture == "condition":
        _settle_condition(settling, inequality or [], scheme)
    else:
        if inequality:
            raise InvalidInput("--inequality belongs to: mdsd-opt check condition --inequality ...")
        laws = settling.laws()
        claim = partial(
            cddlib_checks.check, conjecture, draft=laws, engine=settling.engine,
            facets=settling.facets or settling.export is not None,
        )  # fmt: skip
        _settle(conjecture, settling, claim)


@options.gathers_options()
def condition(
    inequality: Annotated[
        list[str],
        typer.Argument(
            help="One claimed inequality each, linear in p, as 'p0 + p2 >= (q0 + q2)**2'."
        ),
    ],
    settling: Settling,
    scheme: Annotated[str, _SCHEME] = "with_replacement",
) -> None:
    """Settle whether inequalities of your own are exactly the condition for acceptance one.

    The exit code is 0 if they are, 1 if they are not, 3 if it stays open.
    """
    _settle_condition(settling, inequality, scheme)


def _settle_condition(settling: Settling, inequalities: list[str], scheme: str) -> None:
    from mdsd_opt import cddlib_checks
    from mdsd_opt.drafts import has_many_models

    function = partial(
        cddlib_checks.check_condition, inequalities=inequalities, scheme=scheme,
        draft=settling.laws(has_many_models(scheme)), engine=settling.engine,
    )  # fmt: skip
    _settle("condition", settling, function)


def _settle(conjecture: str, settling: Settling, function: Callable[..., Any]) -> None:
    """Print what the function finds at this size, within these limits, and exit with its code."""
    if not 0 < settling.memory < math.inf:
        raise InvalidInput(f"--memory is {settling.memory}: give a positive number of GiB")
    from mdsd_opt import cddlib_checks
    from mdsd_opt.cli.view import View, present

    if settling.export is not None:
        settling.export.mkdir(parents=True, exist_ok=True)
        check_writable(settling.export / "cone.ine")
    line = _ProgressLine(options.on_a_terminal(settling.progress))
    try:
        result = function(
            vocab_size=settling.vocab_size, num_drafts=settling.num_drafts,
            timeout=settling.timeout, memory=int(settling.memory * 2**30), progress=line.show,
        )  # fmt: skip
    finally:
        line.clear()
    known = cddlib_checks.conjectures().get(conjecture)
    proof = f"proof for every size: {known.proof}" if known and known.proof else None
    document = {**result.to_dict(), "proof": known.proof if known else ""}
    if settling.facets:
        document["polyhedra"] = [each.to_dict() for each in result.polyhedra]
    told = replace(result, facets=()) if settling.facets else result  # which stand in the tables
    sentences = [str(told), *([proof] if proof else [])]
    tables: list[Section] = []
    if settling.printed.of_tables:
        tables = [*_verdict_tables(result), *_facet_tables(result)]
    elif settling.facets:
        tables = _facet_tables(result)
    view = View(tables=tables, conclusion=sentences, document=document)
    present(view, settling.printed)
    if settling.export is not None:
        for name in _saved(result.polyhedra, settling.export):
            remark(f"saved as {name}")
    if result.holds is not True:
        raise typer.Exit(3 if result.holds is None else 1)


def _verdict_tables(result: CheckResult) -> list[Section]:
    """Verdict and counterexamples as tables."""
    size = f"V = {result.vocab_size}, K = {result.num_drafts}"
    rows = [(result.name, result.verdict, str(result.instances or ""), result.scope)]
    headings = ["claim", "verdict", "instances", "scope"]
    tables = [make_table(f"verdict, {size}", headings, rows, words=["claim", "verdict", "scope"])]
    if result.counterexamples:
        headings = ["kind", "p", "acceptance rate"]
        odd = (
            (x.kind, ", ".join(map(str, x.target or ())), str(x.acceptance_rate or ""))
            for x in result.counterexamples
        )
        tables.append(make_table(f"counterexamples, {size}", headings, odd, words=headings))
    return [Section(table=table) for table in tables]


def _facet_tables(result: CheckResult) -> list[Section]:
    """Facets of each polyhedron as a table."""
    tables = []
    for each in result.polyhedra:
        names = [*each.names, *[""] * len(each.sentences)]
        headings = ["inequality", "in words"][: 2 if each.names else 1]
        rows = [row[: len(headings)] for row in zip(each.sentences, names, strict=False)]
        title = f"facets of the {each.kind}: {each.title}"
        tables.append(make_table(title, headings, rows, words=headings))
    return [Section(table=table) for table in tables]


def _saved(polyhedra: Sequence[Polyhedron], folder: Path) -> Iterator[Path]:
    """Files of polyhedra, cone.ine, cone.ext and so on, as they are written."""
    for n, each in enumerate(polyhedra):
        earlier = sum(other.kind == each.kind for other in polyhedra[:n])
        for suffix in (".ine", ".ext"):
            path = folder / f"{each.kind}{earlier + 1 if earlier else ''}{suffix}"
            each.save(path)
            yield path


def _list(printed: options.Printed) -> None:
    from mdsd_opt.cddlib_checks import conjectures
    from mdsd_opt.cli.view import View, present

    known = conjectures().values()
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
    document = {"conjectures": [c.to_dict() for c in known]}
    present(View(tables=tables, conclusion=["", conclusion], document=document), printed)


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


@options.gathers_options()
def search(
    claim: Annotated[
        str,
        typer.Argument(
            help="A claim about a target p and a draft q, as 'p0 >= q0**3' or "
            "'without_replacement(2) >= with_replacement(2)', which are the best acceptance rates."
        ),
    ],
    vocab_size: Annotated[int, "V."] = 3,
    given: Annotated[str | None, "Where this does not hold, the claim need not."] = None,
    trials: Annotated[int, "Random laws that are tried."] = 1000,
    seed: Annotated[int, "Of the laws."] = 0,
    *,
    printed: options.Printed,
) -> None:
    """Search for laws that refute a claim, in exact arithmetic, and shrink what is found.

    In the claim: p0, q0, numbers, + - * / **, min, max, abs, sum(p), the optimum of a scheme with K
    drafts, as greedy(2), and >=, <=, ==, joined by 'and'. The exit code is 1 if the claim is
    refuted, 3 if it held on all laws, which settles nothing, or if none met the premise.
    """
    from mdsd_opt.cddlib_checks import TextClaim, laws_tried
    from mdsd_opt.cli.view import View, present

    premise = None if given is None else TextClaim(given, vocab_size)
    found = laws_tried(TextClaim(claim, vocab_size, premise), vocab_size, 2, trials, seed)
    odd, near = found.counterexample, found.nearest
    document = {
        "claim": claim,
        "given": given,
        "vocab_size": vocab_size,
        "trials": trials,
        "seed": seed,
        "holds": None if odd is None else False,
        "verdict": found.verdict,
        "instances": found.instances,
        "counterexample": odd and odd.to_dict(),
        "nearest": near and near.to_dict(),
    }
    if not found.instances:
        lines = [f"OPEN: nothing was tried: none of {trials:,} laws meets the premise"]
    elif odd is None:
        where = f"{vocab_size} tokens{' that meet the premise' if given else ''}"
        told = f"on {found.instances:,} laws of {where}, which settles nothing"
        lines = [f"HELD: {claim}, {told}"]
        if near is not None:
            lines += [f"nearest to failing, with {float(-near.excess):.6g} left, at", *_shown(near)]
    else:
        lines = [f"REFUTED: {claim}, by {odd.excess} = {float(odd.excess):.6f}, at", *_shown(odd)]
    of = odd or near
    numbers = of.to_dict() if of else {"p": [], "q": [], "fails_by": ""}
    laws = [", ".join(numbers[x]) for x in "pq"]
    rows = [[claim, found.verdict, f"{found.instances:,}", *laws, str(numbers["fails_by"])]]
    headings = ["claim", "verdict", "instances", "p", "q", "fails by"]
    table = make_table(f"search, V = {vocab_size}", headings, rows, words=headings)
    tables = [Section(table=table)] if printed.of_tables else ()
    present(View(tables=tables, conclusion=lines, document=document), printed)
    raise typer.Exit(3 if odd is None else 1)


def _shown(found: LawCounterexample) -> list[str]:
    """Both laws, a line each."""
    return [f"  {x} = ({', '.join(found.to_dict()[x])})" for x in "pq"]


@options.gathers_options()
def prove(
    claim: Annotated[
        str,
        typer.Argument(help="A claim about p and q, as 'with_replacement(2) - rrs(2) <= 4/27'."),
    ],
    vocab_size: Annotated[int, "V."] = 3,
    given: Annotated[str | None, "Where this does not hold, the claim need not."] = None,
    timeout: Annotated[float, "Seconds."] = 60.0,
    proof: Annotated[
        Path | None, "JSON file for the proof, which examples/check_proof.py checks."
    ] = None,
    *,
    printed: options.Printed,
) -> None:
    """Prove a claim for all laws p and q of V tokens, or refute it, in exact arithmetic.

    The claim is written as for search; its rates are with_replacement(2), without_replacement(2),
    rrs(2) and kseq(2). The exit code is 0 if it is proved, 1 if it is refuted, 3 if it stays open.
    """
    from mdsd_opt.cddlib_checks import prove_laws
    from mdsd_opt.cli.view import View, present

    if proof is not None:
        check_writable(proof)
    result = prove_laws(claim, vocab_size, given, timeout)
    odd = result.counterexample
    laws = [", ".join(map(str, law)) for law in odd.laws] if odd else ["", ""]
    margin = "" if result.margin is None else str(result.margin)
    rows = [[claim, result.verdict, *laws, str(odd.excess) if odd else "", margin, result.scope]]
    headings = ["claim", "verdict", "p", "q", "fails by", "margin", "scope"]
    table = Section(table=make_table(f"proof, V = {vocab_size}", headings, rows, words=headings))
    tables = [table] if printed.of_tables else ()
    present(View(tables=tables, conclusion=[str(result)], document=result.to_dict()), printed)
    if proof is not None:
        if result.holds:
            result.save(proof)
        remark(f"proof saved as {proof}" if result.holds else "no proof to save")
    if result.holds is not True:
        raise typer.Exit(3 if result.holds is None else 1)
