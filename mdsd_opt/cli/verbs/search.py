"""mdsd-opt search: a counterexample to a claim of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsd_opt.cli import options


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
    refuted, 3 if nothing was found, which proves nothing.
    """
    from mdsd_opt.cddlib_checks import TextClaim, search_laws
    from mdsd_opt.cli.view import Form, View, present

    premise = None if given is None else TextClaim(given, vocab_size)
    found = search_laws(TextClaim(claim, vocab_size, premise), vocab_size, trials=trials, seed=seed)
    document = {
        "claim": claim,
        "given": given,
        "vocab_size": vocab_size,
        "trials": trials,
        "seed": seed,
        "verdict": "undecided" if found is None else "refuted",
        "counterexample": found
        and {
            "p": [str(x) for x in found.laws[0]],
            "q": [str(x) for x in found.laws[1]],
            "fails_by": str(found.excess),
            "trial": found.trial,
        },
    }
    if found is None:
        told = [f"no counterexample in {trials:,} laws of {vocab_size} tokens, which is no proof"]
    else:
        laws = (
            f"  {x} = ({', '.join(map(str, law))})" for x, law in zip("pq", found.laws, strict=True)
        )
        told = [f"REFUTED: {claim}, by {found.excess} = {float(found.excess):.6f}, at", *laws]
    present(View(conclusion=told, document=document), Form(as_json))
    raise typer.Exit(3 if found is None else 1)
