"""Claims of one's own: as text, as a condition, and with numbers that are what they say."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

import mdsd_opt as mo
from mdsd_opt import cddlib_checks
from mdsd_opt.cddlib_checks import TextClaim, optimum, search_laws
from mdsd_opt.errors import InvalidInput

F = Fraction
P, Q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 4), F(1, 4), F(1, 2))


@pytest.mark.parametrize(
    ("text", "fails_by"),
    [
        ("p0 >= q0**3", F(1, 64) - F(1, 2)),
        ("p0 <= 0.1", F(2, 5)),  # a tenth, and not a float's bits
        ("p_0 = q2", F(0)),
        ("p0 ≥ 1/3 and p1 >= 0.5", F(1, 6)),
        ("1/6 <= p1 <= 1/4", F(1, 12)),
        ("max(p) - min(p0, q0) >= abs(p1 - 1)", F(2, 3) - F(1, 4)),
        ("sum(p) == 1", F(0)),
        ("-p0 + 2*q0 >= +p1/q1", F(4, 3)),
        ("p0 * (q0 + 1)^2 <= 0", F(1, 2) * F(25, 16)),
    ],
)
def test_a_text_means_what_it_says(text: str, fails_by: Fraction) -> None:
    assert TextClaim(text, 3)(P, Q) == fails_by


def test_schemes_stand_for_their_optimum() -> None:
    for name, scheme in (("with_replacement", mo.WithReplacement), ("greedy", mo.GreedyDrafts)):
        expected = optimum(mo.TransportProblem(P, scheme(Q, 2)))
        assert TextClaim(f"{name}(2) <= 0", 3)(P, Q) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "p0", "p0 > q0", "p3 >= 0", "r0 >= 0", "p0 >= 'a'", "p0 >= True", "p0 >= 1j",
        "__import__('os').system('true') >= 0", "p0.real >= 0", "[x for x in p] >= 0",
        "p0 >= q0 or p1 >= q1", "(lambda: 1)() >= 0", "p0 >= q0**1000", "p0 >= 2**p0",
        "open('x') >= 0", "min(p, key=p0) >= 0", "with_replacement(0) >= 0", "p0 % 2 >= 0",
        "p0 >= " + "1 + " * 400 + "1", "(((2**64)**64)**64) >= p0", "greedy(p0) >= 0",
        "p0 >= 1/0", "p0 >= 1/(q0 - q0)",
    ],
)  # fmt: skip
def test_what_is_no_claim_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="the claim"):
        TextClaim(text, 3)


def test_a_premise_excuses() -> None:
    claim = TextClaim("p0 >= 1/2", 3, given=TextClaim("q0 >= 1/2", 3))
    assert claim((F(0), F(0), F(1)), Q) == 0
    found = search_laws(claim, 3)
    assert found is not None
    p, q = found.laws
    assert q[0] >= F(1, 2) > p[0]
    assert search_laws(TextClaim("p0 / p0 == 1", 2), 2, trials=50) is None  # 0/0 says nothing


def test_what_is_divided_by_may_be_zero_here_and_there() -> None:
    claim = TextClaim("p0 >= 1/(q0 - q1) - 100", 3)  # at equal q it says nothing
    assert claim((F(1, 2), F(1, 2), F(0)), (F(1), F(0), F(0))) == F(-199, 2)
    with pytest.raises(InvalidInput, match="names token 9"):  # though the premise excuses it
        TextClaim("p9 >= 0", 3, given=TextClaim("p0 >= 1", 3))


def test_a_float_is_never_a_silent_fraction() -> None:
    with pytest.raises(InvalidInput, match="a float: return a Fraction"):
        search_laws(lambda p, q: float(p[0]), 2)
    exact = mo.TransportProblem([0.25, 0.75], mo.WithReplacement([0.5, 0.5], 2))
    assert optimum(exact) == 1
    for target, draft in (([0.1, 0.9], [0.5, 0.5]), ([0.5, 0.5], [0.1, 0.9])):
        with pytest.raises(InvalidInput, match=r"0\.1 is a float, whose bits hold"):
            optimum(mo.TransportProblem(target, mo.WithReplacement(draft, 2)))


def test_search_is_a_verb(run_cli: Any) -> None:
    found = run_cli.document("search", "p0 >= q0**3", "--vocab-size", "3", code=1)
    assert found["verdict"] == "refuted"
    p, q = (tuple(map(F, found["counterexample"][name])) for name in ("p", "q"))
    assert q[0] ** 3 - p[0] == F(found["counterexample"]["fails_by"]) > 0
    claim = "without_replacement(2) >= with_replacement(2)"
    true = run_cli.shown("search", claim, "--trials", "60", code=3)
    assert "HELD" in true
    assert re.search(r"on [12]\d\d laws of 3 tokens, which settles nothing", true)
    assert "nearest to failing, with 0 left, at" in true
    assert "is not readable" in run_cli.refusal("search", "p0 >")


def test_condition_is_a_verb(run_cli: Any) -> None:
    pytest.importorskip("cdd")
    asked = ("--vocab-size", "3", "-k", "2", "--draft", "1/6,1/3,1/2")
    single = ("condition", "p0 >= 1/36", "p1 >= 1/9", "p2 >= 1/4")
    found = run_cli.document(*single, *asked, code=1)
    assert found["counterexample"]["kind"] == "too weak"
    pairs = ("p0 + p1 >= 1/4", "p0 + p2 >= 4/9", "p1 + p2 >= 25/36")
    run_cli.document(*single, *pairs, *asked)


def test_facets_of_cone_and_polytope_are_told_apart() -> None:
    pytest.importorskip("cdd")
    result = cddlib_checks.check("acceptance_one", vocab_size=3, num_drafts=2, facets=True)
    assert result.sizes["cone_facets"] == 12
    assert result.sizes["polytope_facets"] == len(result.facets) == 6
    assert "facets of the polytope" in str(result)


def test_the_list_has_kinds_apart_and_proofs(run_cli: Any) -> None:
    from pathlib import Path

    text = run_cli.shown("check")
    known = cddlib_checks.conjectures().values()
    places = [text.index(heading) for heading in ("THEOREMS", "REFUTED CLAIMS")]
    assert places == sorted(places)
    for claim in known:
        is_false = text.index(f"\n{claim.name} ") > places[-1]
        assert is_false == (claim.status == "false"), claim.name
    root = Path(__file__).parents[2]
    for claim in known:
        assert bool(claim.proof) == (claim.status == "theorem"), claim.name
        if claim.proof:
            page, _, place = claim.proof.partition("#")
            lines = (root / page).read_text().splitlines()
            heads = {x.lstrip("# ").lower().replace(" ", "-") for x in lines if x.startswith("#")}
            assert not place or place in heads, claim.proof
