"""mdsd-opt check, condition and search: claims of the theory, or of one's own, settled exactly."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput


@dataclass(frozen=True, slots=True)
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
    as_json: options.AsJson = False
    progress: Annotated[bool | None, "Progress line on stderr."] = None

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
        _list(settling.as_json)
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
        claim = partial(cddlib_checks.check, conjecture, draft=laws, engine=settling.engine)
        _settle(conjecture, settling, claim)


@options.gathers_options()
def condition(
    inequality: Annotated[
        list[str], typer.Argument(help="One claimed inequality each, as 'p0 + p2 >= 8/27'.")
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
    from mdsd_opt.cli.view import Form, View, present

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
    sentences = [str(result), *([proof] if proof else [])]
    present(View(conclusion=sentences, document=document), Form(as_json=settling.as_json))
    if result.holds is not True:
        raise typer.Exit(3 if result.holds is None else 1)


def _list(as_json: bool) -> None:
    from mdsd_opt.cddlib_checks import conjectures
    from mdsd_opt.cli.view import Section, View, present

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
    present(
        View(tables=tables, conclusion=["", conclusion], document=document),
        Form(as_json=as_json),
    )


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
    as_json: options.AsJson = False,
) -> None:
    """Search for laws that refute a claim, in exact arithmetic, and shrink what is found.

    In the claim: p0, q0, numbers, + - * / **, min, max, abs, sum(p), the optimum of a scheme with K
    drafts, as greedy(2), and >=, <=, ==, joined by 'and'. The exit code is 1 if the claim is
    refuted, 3 if it held on all laws, which settles nothing, or if none met the premise.
    """
    from mdsd_opt.cddlib_checks import TextClaim, laws_tried
    from mdsd_opt.cli.view import Form, View, present

    premise = None if given is None else TextClaim(given, vocab_size)
    found = laws_tried(TextClaim(claim, vocab_size, premise), vocab_size, 2, trials, seed)
    odd = found.counterexample
    document = {
        "claim": claim,
        "given": given,
        "vocab_size": vocab_size,
        "trials": trials,
        "seed": seed,
        "holds": None if odd is None else False,
        "verdict": found.verdict,
        "instances": found.instances,
        "counterexample": odd
        and {
            "p": [str(x) for x in odd.laws[0]],
            "q": [str(x) for x in odd.laws[1]],
            "fails_by": str(odd.excess),
            "trial": odd.trial,
        },
    }
    if not found.instances:
        lines = [f"OPEN: nothing was tried: none of {trials:,} laws meets the premise"]
    elif odd is None:
        where = f" that meet the premise, of {trials:,}," if given else ","
        told = f"on {found.instances:,} laws of {vocab_size} tokens{where} which settles nothing"
        lines = [f"HELD: {claim}, {told}"]
    else:
        laws = (
            f"  {x} = ({', '.join(map(str, law))})" for x, law in zip("pq", odd.laws, strict=True)
        )
        lines = [f"REFUTED: {claim}, by {odd.excess} = {float(odd.excess):.6f}, at", *laws]
    present(View(conclusion=lines, document=document), Form(as_json=as_json))
    raise typer.Exit(3 if odd is None else 1)
