"""Claims about rates for all laws: proofs, refutations, and proof files that another one checks."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mdsd_opt.cddlib_checks import TextClaim, law_forms, prove_laws, search_laws
from mdsd_opt.errors import InvalidInput, UnknownName

WR, WO, TV = "with_replacement", "without_replacement", "sum(max(pi - qi, 0))"
CHECKER = Path(__file__).parents[2] / "examples" / "check_proof.py"

#: Claims, the numbers of tokens at which they are settled, and whether they are true.
CLAIMS = [
    (f"{WR}(2) >= {WR}(1)", (2, 3, 4), True),
    (f"{WR}(5) >= {WR}(4)", (2, 3), True),
    (f"{WR}(3) - {WR}(2) <= {WR}(2) - {WR}(1)", (2, 3, 4), True),
    (f"{WR}(2) <= sum(min(pi, 1 - (1 - qi)**2))", (2, 3, 4), True),
    (f"{WR}(3) <= sum(min(pi, 1 - (1 - qi)**3))", (2, 3), True),
    (f"{WR}(1) == sum(min(pi, qi))", (2, 3, 4), True),
    (f"{WO}(2) >= {WR}(2)", (2, 3, 4), True),
    (f"{WO}(3) >= {WR}(3)", (3, 4), True),
    (f"{WO}(2) <= {WR}(2)", (2, 3), False),
    (f"{WO}(3) - {WO}(2) <= {WO}(2) - {WO}(1)", (3,), False),
    (f"rrs(2) <= {WR}(2)", (2, 3), True),
    (f"{WR}(2) - rrs(2) <= 4/27", (2,), True),
    (f"{WR}(2) - rrs(2) <= 0.149", (2, 3), True),
    (f"{WR}(2) - rrs(2) <= 4/27 - 1/1000000", (2, 3), False),
    (f"{WR}(3) - rrs(3) <= 0.18591", (2,), True),
    (f"{WR}(3) - rrs(3) <= 0.1859", (2,), False),
    (f"rrs(2) >= 23/27 * {WR}(2)", (2,), True),
    ("rrs(2) == 1 - max(0, q0*(q0 - p0), q1*(q1 - p1))", (2,), True),
    ("rrs(2) <= kseq(2)", (2, 3), True),
    ("rrs(3) <= kseq(3)", (2,), True),
    ("kseq(2) - rrs(2) <= 1/27", (2,), True),
    (f"{WR}(2) - kseq(2) <= 1/9", (2,), True),
    (f"kseq(2) >= 8/9 * {WR}(2)", (2,), True),
    (f"{WR}(2) - kseq(2) <= 0.11", (2,), False),
    (f"1 - {WR}(2) <= {TV}", (2, 3), True),
    (f"1 - {WR}(2) <= {TV}**2", (2, 3), False),
    (f"1 - {WR}(2) >= 2*{TV} - 1", (2, 3), True),
    (f"{WR}(2) >= 1 - prod(1 - min(pi, qi))", (2, 3), True),
    (f"{WR}(1)*{WR}(3) <= {WR}(2)**2", (2, 3), True),
    (f"{WR}(2) <= 2*{WR}(1)", (2, 3), True),
    (f"{WR}(2) - rrs(2) <= p0*p1", (2,), True),
    ("p0 >= q0**3", (2, 3), False),
    (f"{WR}(2) >= 1 implies p0 >= q0**2", (2, 3), True),
    (f"p0 >= q0**2 and p1 >= q1**2 implies {WR}(2) >= 1", (2,), True),
    (f"p0 >= q0**2 and p1 >= q1**2 and p2 >= q2**2 implies {WR}(2) >= 1", (3,), False),
    (f"abs(p0 - q0) <= 1/10 implies {WR}(2) >= 0.9", (2,), True),
    (f"abs(p0 - q0) <= 1/10 implies {WR}(2) >= 0.9", (3,), False),
    (f"abs(p0 - q0) * {WR}(2) <= 1 - q0", (2, 3), False),
]


def at(size: int) -> list[Any]:
    return [pytest.param(text, size, holds, id=f"{size}: {text}")
            for text, sizes, holds in CLAIMS if size in sizes]  # fmt: skip


def check(document: dict[str, Any], path: Path) -> bool:
    path.write_text(json.dumps(document))
    command = [sys.executable, str(CHECKER), str(path)]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("text", "size", "holds"),
    [*at(2), *(pytest.param(*x.values, id=x.id, marks=pytest.mark.slow) for x in (*at(3), *at(4)))],
)
def test_claims_are_settled_as_they_are_known(
    text: str, size: int, holds: bool, tmp_path: Path
) -> None:
    found = prove_laws(text, size, timeout=900)
    assert found.holds is holds, str(found)
    assert found.verdict == ("proved" if holds else "refuted")
    if holds:
        assert (found.margin, found.left) == (0, 0)
        found.save(tmp_path / "proof.json")
        assert check(json.loads((tmp_path / "proof.json").read_text()), tmp_path / "again.json")
    else:
        assert found.counterexample is not None
        assert found.claim(*found.counterexample.laws) == found.counterexample.excess > 0
        with pytest.raises(InvalidInput, match="only a proof can be written"):
            found.save(tmp_path / "none.json")
        assert not (tmp_path / "none.json").exists()


def test_the_scope_says_what_a_proof_rests_on() -> None:
    assert prove_laws("with_replacement(2) >= with_replacement(1)", 2).verdict == "proved"
    assert "the prefix theorem" in prove_laws(f"{WR}(2) >= {WR}(1)", 2).scope
    named = prove_laws("kseq(2) >= kseq(1) - 1 and p0 <= 1", 2)
    assert named.holds
    assert "Lemma 4 for K-SEQ" in named.scope
    assert "prefix" not in named.scope


def test_the_cone_is_left_to_claims_that_are_the_same_for_all_orders() -> None:
    assert law_forms.uses_cone(TextClaim("sum(pi**2) >= 0", 2))
    assert not law_forms.uses_cone(TextClaim("p0 >= q0**3", 2))
    assert not law_forms.uses_cone(TextClaim("sum(pi**2) >= 0", 2, TextClaim("q0 >= 1/2", 2)))
    assert prove_laws("p0 >= q0**3", 2).verdict == "refuted"


def test_limits_are_told() -> None:
    text = f"{WR}(2) - rrs(2) <= 4/27"  # tight on a surface of three tokens
    found = prove_laws(text, 3, timeout=2)
    assert (found.verdict, found.holds) == ("open", None)
    assert "time ran out" in found.reason
    assert found.margin is None or found.margin > 0
    wide = prove_laws(f"{TV} * {TV} * {WR}(3) * {WR}(2) <= {WO}(3) * 5", 4, timeout=0.05)
    assert wide.holds is None
    assert "time ran out" in wide.reason  # though its clauses take minutes
    for beyond in ("greedy(2) >= 0", "p0 / (q0 - q1) >= p0 / (q0 - q1) - q0"):
        assert "not provable here" in prove_laws(beyond, 2).reason
    assert prove_laws("p0 + q0 >= 2", 1).holds
    with pytest.raises(InvalidInput, match="positive number of seconds"):
        prove_laws("p0 >= 0", 2, timeout=0)
    with pytest.raises(UnknownName, match="top_k"):
        prove_laws("topk(2) >= 0", 2)


def laws(rng: random.Random, size: int) -> tuple[Fraction, ...]:
    while True:
        w = [rng.choice((0, rng.randint(1, 9), rng.randint(1, 9))) for _ in range(size)]
        if sum(w):
            return tuple(Fraction(x, sum(w)) for x in w)


@pytest.mark.parametrize(
    "text",
    [
        f"{WR}(2) - rrs(2) <= 1/8", f"{WO}(2) - {WR}(2) <= 1/10", f"{TV}**2 <= 1 - {WR}(1)",
        f"p0 >= 1/4 implies rrs(2) >= {WR}(2) - 1/20", "max(pi - qi) <= 1/2", "prod(pi) >= q0*q1/9",
        f"{WO}(2) >= 3/4 and abs(p0 - q1) >= 1/4", "min(p) <= 2 * max(min(pi, qi))",
    ],
)  # fmt: skip
def test_clauses_say_what_the_claim_says(text: str) -> None:
    """At a law in a clause's domain all clauses hold just where the claim does."""
    rng = random.Random(1)
    for size in (2, 3):
        claim = TextClaim(text, size)
        cone = law_forms.uses_cone(claim)
        listed = list(law_forms.clauses(claim, time.monotonic() + 600))
        for _ in range(20):
            p, q = laws(rng, size), laws(rng, size)
            if not all(q):
                continue
            order = sorted(range(size), key=lambda i: p[i] / q[i], reverse=True)
            if cone:
                p, q = (tuple(law[i] for i in order) for law in (p, q))
            ratio = [*(x / y for x, y in zip(p, q, strict=True)), Fraction(0)]
            first = [ratio[i] - ratio[i + 1] for i in range(size)] if cone else list(p)
            truth = all(_holds(c, [*first, *q]) for c in listed if c.blocks == (size, size))
            assert truth == (claim(p, q) <= 0), (p, q)


def _holds(clause: Any, point: list[Fraction]) -> bool:
    def value(terms: Any) -> Fraction:
        total = Fraction(0)
        for key, c in terms.items():
            for x, n in zip(point, key, strict=True):
                c *= x**n
            total += c
        return total

    if any(value(x) < 0 for x, _ in clause.premises):
        return True
    return max(value(x) for x in clause.goals[:-1]) >= 0


def _leaves(cell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "split" not in cell:
        yield cell
    for part in cell.get("parts", []):
        yield from _leaves(part)


def _mutants() -> dict[str, Callable[[dict[str, Any]], None]]:
    """Changes of a clause of a proof with a split cell, each of which leaves no proof."""

    def leaf(clause: dict[str, Any], number: int = 0) -> Any:
        return list(_leaves(clause["cell"]))[number]

    def used(clause: dict[str, Any]) -> Any:
        return next(x for x in _leaves(clause["cell"]) if len(x["goals"]) > 1)["goals"]

    return {
        "a dropped cell": lambda c: c["cell"]["parts"].pop(),
        "a cell twice": lambda c: c["cell"]["parts"].__setitem__(1, c["cell"]["parts"][0]),
        "cells swapped": lambda c: c["cell"]["parts"].reverse(),
        "a third cell": lambda c: c["cell"]["parts"].append(c["cell"]["parts"][0]),
        "a moved corner": lambda c: leaf(c)["corners"][0].__setitem__(1, 10**6),
        "a corner that is none": lambda c: leaf(c)["corners"].__setitem__(0, [0, 0, 0, 0]),
        "a negative corner": lambda c: leaf(c)["corners"].__setitem__(
            0, [-x for x in leaf(c)["corners"][0]]
        ),
        "a corner left out": lambda c: leaf(c)["corners"].pop(),
        "a corner of the whole": lambda c: c["cell"]["corners"][0].__setitem__(1, 1),
        "another point of the edge": lambda c: c["cell"]["split"].__setitem__(2, 10**6),
        "a point beyond the edge": lambda c: c["cell"]["split"].__setitem__(2, -1),
        "no edge": lambda c: c["cell"]["split"].__setitem__(0, c["cell"]["split"][1]),
        "an edge between simplices": lambda c: c["cell"]["split"].__setitem__(
            0, (c["cell"]["split"][0] + 2) % 4
        ),
        "a negative multiplier": lambda c: leaf(c)["goals"][0].__setitem__(2, -1),
        "no multiplier": lambda c: leaf(c).update(goals=[]),
        "a multiplier that is far larger": lambda c: used(c)[0].__setitem__(2, 10**12),
        "a multiplier left out": lambda c: used(c).pop(0),
        "a goal of another number": lambda c: used(c)[0].__setitem__(0, -1),
        "a multiplier of a negative power": lambda c: used(c)[0][1].__setitem__(0, -1),
        "a lower goal": lambda c: [x[0].__setitem__(1, -(10**9)) for x in c["goals"]],
        "goals of the other sign": lambda c: [
            term.__setitem__(1, -term[1]) for x in c["goals"] for term in x
        ],
        "a square taken too often": lambda c: leaf(c).update(
            squares=[[[9, 0, 0, 0], [0, 9, 0, 0], 1]]
        ),
        "a square of the other sign": lambda c: leaf(c).update(
            squares=[[[2, 0, 2, 0], [0, 2, 2, 0], -(10**9)]]
        ),
    }


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("proofs") / "tight.json"
    prove_laws(f"{WR}(2) - rrs(2) <= 4/27", 2, timeout=600).save(path)
    return dict(json.loads(path.read_text()))


@pytest.mark.parametrize("name", _mutants())
def test_a_wrong_proof_is_not_taken(name: str, tight: dict[str, Any], tmp_path: Path) -> None:
    wrong = copy.deepcopy(tight)
    clause = next(c for c in wrong["clauses"] if "split" in c["cell"])
    _mutants()[name](clause)
    assert wrong != tight
    assert check(tight, tmp_path / "right.json")
    assert not check(wrong, tmp_path / "wrong.json")


_ATOMS = [
    f"{WR}(1)", f"{WR}(2)", f"{WR}(3)", f"{WO}(2)", "rrs(2)", "rrs(1)", "sum(min(pi, qi))", TV,
    "max(p0 - q0, 0)", "min(p0, q1)", "abs(p0 - q0)", "p0", "q0", "q1", "q0*q1", "p0*p1",
    "prod(1 - min(pi, qi))", "sum(pi*qi)",
]  # fmt: skip


def _random_claim(rng: random.Random) -> str:
    def side() -> str:
        factors = ("", "", "", "2*", "1/2*", "p0*", "q1*")
        terms = [rng.choice(factors) + rng.choice(_ATOMS) for _ in range(rng.choice((1, 1, 2, 2)))]
        return " + ".join(terms) + rng.choice(("", "", " + 1/4", " - 1/3", " + 1"))

    claim = f"{side()} {rng.choice(('>=', '<='))} {side()}"
    if rng.random() < 0.25:
        premise = f"{rng.choice(_ATOMS)} {rng.choice(('>=', '<='))} {rng.choice(('1/2', '1/4'))}"
        claim = f"{premise} implies {claim}"
    return claim


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "size", "count"), [(1, 2, 260), (2, 3, 40)])
def test_what_is_proved_of_random_claims_holds_at_random_laws(
    seed: int, size: int, count: int
) -> None:
    rng = random.Random(seed)
    seen = []
    for _ in range(count):
        text = _random_claim(rng)
        found = prove_laws(text, size, timeout=5)
        seen.append(found.verdict)
        worst = max(found.claim(laws(rng, size), laws(rng, size)) for _ in range(60))
        if found.holds:
            assert worst <= 0, text
        elif found.holds is None and found.margin is not None:
            assert worst <= found.margin, text
        elif found.counterexample is not None:
            assert found.claim(*found.counterexample.laws) > 0, text
    assert {"proved", "refuted"} <= set(seen)


def test_one_grammar_for_all_tokens() -> None:
    p, q = (Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 4), Fraction(3, 4))
    for text, fails_by in (
        ("sum(min(pi, qi)) >= 1", Fraction(1, 4)), ("prod(pi) >= 1", Fraction(3, 4)),
        ("max(pi - qi) <= 0", Fraction(1, 4)), ("min(pi, qi) >= 1", Fraction(3, 4)),
        ("sum(max(pi - 2 * qi, 0)) <= 0", Fraction(0)), ("rrs(1) >= 1", Fraction(1, 4)),
        ("sum(pi * sum(qi)) <= 0", Fraction(1)), ("q0 >= 1 implies p0 >= 1", Fraction(0)),
    ):  # fmt: skip
        assert TextClaim(text, 2)(p, q) == fails_by, text
    with pytest.warns(UserWarning, match="is over one number"):
        TextClaim("sum(min(p0, q0)) <= 1", 2)
    with pytest.raises(InvalidInput, match="premise"):
        TextClaim("p0 >= 0", 2, TextClaim("kseq(2) >= 1/2", 2))
    low = TextClaim("kseq(2) >= 1", 2)(p, q)
    assert 0 < low < Fraction(1, 4)
    assert search_laws(TextClaim(f"kseq(2) <= {WR}(2)", 2), 2, trials=20) is None


def test_prove_is_a_verb(run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    proved = ("prove", f"{WR}(2) >= {WR}(1)", "-V", "2", "--proof", str(path))
    assert "PROVED" in run_cli.shown(*proved)
    assert check(json.loads(path.read_text()), tmp_path / "copy.json")
    odd = ("prove", "p0 >= q0**3", "-V", "2", "--given", "q0 >= 1/2")
    assert run_cli.document(*odd, code=1)["verdict"] == "refuted"
    for verb, verdict in (("prove", "PROVED"), ("search", "HELD")):
        asked = (verb, "p0 >= 1/3", "-V", "2", "--given", "p0 >= 1/2")
        given = run_cli(*asked).stdout
        assert f"p0 >= 1/3, given p0 >= 1/2{', V = 2:' if verb == 'prove' else ', on'}" in (
            given.removeprefix("HELD: ")
        )
        assert verdict in given
        assert "\np0 >= 1/3,p0 >= 1/2," in run_cli(*asked, "--csv").stdout
    stuck = run_cli.shown("prove", "greedy(2) >= 1 - 1", "-V", "2", code=3)
    assert "not provable here" in stuck
