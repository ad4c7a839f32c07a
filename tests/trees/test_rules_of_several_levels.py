"""What rules for trees lose of several levels: the instances of the theorem, and its constants."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction as F
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize
from support.tables import Table, output_law, target_law

import mdsd_opt as mo
from mdsd_opt.decoding import get_rule, k_ary, tree_bound

Laws = tuple[Table, Table]

PAGE = Path(__file__).parents[2] / "docs" / "theory" / "trees.md"


def tables(vocab_size: int, laws: Callable[[tuple[int, ...]], tuple[list, list]]) -> Laws:
    """Target and draft after texts of up to two tokens."""
    target, draft = (Table.of(vocab_size, 2, lambda text, n=n: laws(text)[n]) for n in (0, 1))
    return target, draft


def rare_child(vocab_size: int, drafted: F) -> Laws:
    """First p = q; after it one token that is drafted with `drafted`, and another without p."""
    one = [1] + [0] * (vocab_size - 1)
    flat = [F(1, vocab_size)] * vocab_size
    return tables(
        vocab_size,
        lambda text: {0: (flat, flat), 1: (one, [drafted, 1 - drafted, *one[2:]])}.get(
            len(text), (one, one)
        ),
    )


def nested(num_drafts: int, roots: tuple[F, F], drafted: F) -> Laws:
    """Tokens a, a', t, B of the lower bound; `roots` are y^(1/K) at the root and after t."""

    def laws(text: tuple[int, ...]) -> tuple[list, list]:
        if len(text) == 2 or text == (3,):
            return [1, 0, 0, 0], [1, 0, 0, 0]
        if text in ((0,), (1,)):
            return [1, 0, 0, 0], [drafted, 1 - drafted, 0, 0]
        root = roots[len(text)]
        y = root**num_drafts
        a = [y / 2, y / 2] if text == () else [y, 0]
        return [*a, 1 - y, 0], [*a, 1 - root, root - y]

    return tables(4, laws)


def bounds(laws: Laws, num_drafts: int) -> tuple[float, float]:
    found = tree_bound(*(x.in_floats() for x in laws), k_ary(num_drafts, 2), tolerance=1e-9)
    return found.lower, found.upper


def accepts(rule: str, laws: Laws, num_drafts: int) -> F:
    """Mean number of accepted drafts of two levels, of a law that is right exactly."""
    law, accepted = output_law(get_rule(rule), *laws, k_ary(num_drafts, 2), "with_replacement")
    assert np.array_equal(law, target_law(laws[0], 3))
    return accepted


@pytest.mark.parametrize(
    ("rule", "accepted"),
    [("traversal", F(23, 16)), ("traversal_hull", F(19, 12)), ("level_sequential", F(205, 128))],
)
def test_a_rare_child_below_three_tokens(rule: str, accepted: F) -> None:
    laws = rare_child(3, F(1, 4))
    assert accepts(rule, laws, 2) == accepted
    low, high = bounds(laws, 2)
    assert low == pytest.approx(1.6015625, abs=1e-9)
    assert high == pytest.approx(1.6015625, abs=1e-9)


def test_from_the_root_down_no_rule_sees_the_rare_child() -> None:
    target, draft = (x.in_floats() for x in rare_child(3, F(1, 4)))
    for rule in ("optimal", "rrs", "kseq"):
        _, accepted = output_law(get_rule(rule), target, draft, k_ary(2, 2), "with_replacement")
        assert accepted == pytest.approx(23 / 16, abs=1e-9)


@pytest.mark.parametrize("num_drafts", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_traversal_misses_the_token_it_would_need(num_drafts: int) -> None:
    """The formula of the proof, before its limit, is what the package's own rule accepts."""
    roots, drafted = (F(9, 10), F(4, 5)), F(1, 6)
    accepted: F | int = 0
    for root, rare in zip(reversed(roots), (F(1), 1 - (1 - drafted) ** num_drafts), strict=True):
        y, q = root**num_drafts, 1 - root
        passed = q + (1 - y - q) * (1 - root ** (num_drafts - 1))
        accepted = y * (1 + (rare if accepted else 0)) + passed * (1 + accepted)
    laws = nested(num_drafts, roots, drafted)
    assert accepts("traversal", laws, num_drafts) == accepted
    assert bounds(laws, num_drafts)[0] > float(accepted) + 0.2


def limits(levels: int) -> list[float]:
    return list(accumulate(range(levels), lambda t, _: 1 - 1 / (4 * (1 + t)), initial=0.0))


def with_many(rates: np.ndarray) -> float:
    """What traversal tends to where the path it should see is one of a Poisson number."""
    total, reached, before = 0.0, 1.0, 1.0
    for level, rate in enumerate(rates):
        none = 0.0
        for mean in rates[level::-1]:
            none = np.exp(mean * (none - 1))
        u, v = (1 - none) / before, -np.expm1(-rate)
        total += reached * (1 - u * (1 - v))
        reached, before = reached * u * v, 1 - none
    return total


def test_constants_are_what_the_page_says() -> None:
    text = PAGE.read_text()
    rows = [
        [float(cell) for cell in line.strip("|").split("|")]
        for line in text.partition("| D | loses at least")[2].splitlines()[2:7]
    ]
    least = optimize.minimize_scalar(
        lambda u: 1 - u + u**2 - 0.75 * u**3 / np.log1p(-u), bounds=(0.01, 0.99), method="bounded"
    )
    assert least.fun == pytest.approx(0.846118, abs=1e-6)
    assert [row[0] for row in rows] == [1, 2, 3, 4, 12]
    for levels, low, searched, high in rows:
        d = int(levels)
        assert low == pytest.approx(d - limits(d)[d], abs=1e-6)
        assert high == pytest.approx(d - least.fun if d > 1 else 0.25, abs=1e-6)
        if d <= 4:
            start = np.log(np.full(d, 0.35))
            found = optimize.minimize(
                lambda x: with_many(np.exp(x)), start, method="Nelder-Mead",
                options={"xatol": 1e-8, "fatol": 1e-12, "maxfev": 20_000},
            )  # fmt: skip
            assert searched == pytest.approx(d - found.fun, abs=1e-6)
        assert low <= searched <= high
    rates = np.array([0.3174, 0.3108, 0.3091, *[0.3087] * 6, 0.3106, 0.3346, 0.6384])
    assert 12 - with_many(rates) == pytest.approx(rows[-1][2], abs=1e-6)
    assert 3**0.5 / 2 > limits(60)[60] - 1e-12 > 0.866


def test_no_random_table_breaks_the_bound() -> None:
    """Steps of the upper bound on tables of two levels, with the certified optimum."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        vocab_size, num_drafts = int(rng.integers(2, 4)), 2
        target, draft = (Table(rng, vocab_size, 2, concentration=0.5) for _ in "pq")
        _, accepted = output_law(
            get_rule("traversal"), target, draft, k_ary(num_drafts, 2), "with_replacement"
        )
        best = tree_bound(target, draft, k_ary(num_drafts, 2), tolerance=1e-9)
        p, q = target(()), draft(())
        s = 0.0
        for _ in range(num_drafts):
            s += np.maximum(p - s * q, 0).sum()
        off = p > s * q
        u, x = p[off].sum(), q[off].sum()
        v = 1 - (1 - x) ** num_drafts
        rates = [one_token(target((t,)), draft((t,)), num_drafts) for t in np.flatnonzero(off)]
        beta = float(np.dot(q[off], rates) / x) if x else 0.0
        assert s * x >= u * v - 1e-12
        reached = 1 - u + s * x
        assert accepted >= reached + 0.75 * s * x * beta - 1e-9
        assert best.upper >= accepted - 1e-9
        most = 1 - u + min(u, v) + 1 - u + min(u, v, num_drafts * x * beta)
        assert best.lower <= most + 1e-9


def one_token(p: np.ndarray, q: np.ndarray, num_drafts: int) -> float:
    return mo.solve(mo.TransportProblem(p, mo.WithReplacement(q, num_drafts))).acceptance_rate
