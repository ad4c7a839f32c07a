"""How exact floating point is: draft laws and containment near certainty and at large V."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mdsd_opt.drafts import GreedyDrafts, WithoutReplacement, WithReplacement

#: Near one-hot distributions, where 1 - q cancels unless it is summed.
NEARLY_CERTAIN = {
    "1e-12": [1 - 3e-12, 1e-12, 1.5e-12, 0.5e-12],
    "1e-15": [1 - 3e-15, 1e-15, 1e-15, 1e-15],
    "two giants": [0.5, 0.5 - 3e-13, 1e-13, 2e-13],
    "three giants": [0.4, 0.3, 0.3 - 3e-14, 1e-14, 2e-14],
    "far below rounding": [1.0, 1e-40, 3e-40, 1e-80, 1e-120],
    "smallest": [1.0, 1e-299, 1e-300, 3e-300],
    "geometric": [0.9 * 0.1**i for i in range(9)] + [1e-9],
}


@pytest.mark.parametrize("name", NEARLY_CERTAIN)
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 4])
def test_masses_of_draft_sets_to_relative_precision(name: str, num_drafts: int) -> None:
    for drafts in (
        WithoutReplacement(NEARLY_CERTAIN[name], num_drafts),
        WithReplacement(NEARLY_CERTAIN[name], num_drafts),
        GreedyDrafts(NEARLY_CERTAIN[name], num_drafts),
    ):
        exact = drafts.law(True).support_law().masses()
        law = drafts.support_law()
        found = dict(zip(law.sets(), law.mass.tolist(), strict=True))
        for members, mass in exact.items():
            if mass > 1e-290:  # below, products leave the range of float64
                assert found[members] == pytest.approx(float(mass), rel=2e-14, abs=0), members


@pytest.mark.parametrize("name", NEARLY_CERTAIN)
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 4])
def test_containment_near_certainty(name: str, num_drafts: int) -> None:
    q = NEARLY_CERTAIN[name]
    drafts = WithoutReplacement(q, num_drafts)
    for order in (np.arange(len(q)), np.arange(len(q))[::-1].copy()):
        exact = [float(x) for x in drafts.law(True).prefix_containment(order)]
        np.testing.assert_allclose(drafts.prefix_containment(order), exact, atol=2e-14)


#: Integer weights from nearly even to one token above all others together.
WEIGHTS = {
    "even": lambda i: 20 + i,
    "halving": lambda i: 2**i,
    "steep": lambda i: 30**i,
    "one hot": lambda i: 1000**i,
}

#: Largest allowed error of a prefix curve, about twice what was measured over these weights; the
#: quadrature step is coarser for three and four drafts.
PREFIX_ERROR = {2: 5e-16, 3: 1e-14, 4: 2e-14, 5: 1e-15, 6: 1e-15, 8: 1e-15, 9: 1e-15}


@pytest.mark.parametrize("num_drafts", PREFIX_ERROR)
def test_prefix_curve_against_fractions(num_drafts: int) -> None:
    worst = 0.0
    vocab_size = max(8, num_drafts + 1)
    for weight in WEIGHTS.values():
        weights = [weight(i) for i in range(vocab_size)]
        q = [Fraction(n, sum(weights)) for n in weights]
        drafts = WithoutReplacement(q, num_drafts)
        for order in (np.arange(vocab_size), np.arange(vocab_size)[::-1].copy()):
            exact = np.array([float(x) for x in drafts.law(True).prefix_containment(order)])
            worst = max(worst, np.abs(drafts.prefix_containment(order) - exact).max())
    assert worst <= PREFIX_ERROR[num_drafts]


def zipf(vocab_size: int, exponent: float) -> np.ndarray:
    """A long tail in random order, as next-token distributions have."""
    q = np.arange(1, vocab_size + 1) ** -exponent
    return np.random.default_rng(11).permutation(q / q.sum())


@pytest.mark.parametrize("exponent", [0.7, 1.1, 2.0])
def test_two_drafts_at_large_vocabulary_in_closed_form(exponent: float) -> None:
    """Q(H) = q(H) A - B with A the sum of q/(1-q) over H and B that of q^2/(1-q)."""
    drafts = WithoutReplacement(zipf(131_072, exponent), 2)
    order = drafts.prefix_order(zipf(131_072, 0.9))
    curve = drafts.prefix_containment(order)
    q = drafts.q[order]
    for size in (1, 1000, 65_536, 131_071, 131_072):
        head = q[:size]
        inside = math.fsum(head)
        closed = inside * math.fsum(head / (1 - head)) - math.fsum(head**2 / (1 - head))
        assert curve[size] == pytest.approx(closed, abs=1e-13)


def test_three_drafts_by_pairs() -> None:
    """1 - Q(H) = (1 - q(H)) (1 + S_1 + S_2), S_2 a sum over pairs of H."""
    drafts = WithoutReplacement(zipf(3000, 1.1), 3)
    order = drafts.prefix_order(zipf(3000, 0.9))
    curve = drafts.prefix_containment(order)
    for size in (2, 50, 1500, 2999):
        q = drafts.q[order[:size]]
        outside = math.fsum(drafts.q[order[size:]])
        others = 1 - q
        pairs = (
            np.outer(q, q)
            * (2 - q[:, None] - q)
            / (np.outer(others, others) * (1 - q[:, None] - q))
        )
        second = (pairs.sum() - np.trace(pairs)) / 2
        first = math.fsum(q / others)
        closed = 1 - outside * (1 + first + second)
        assert curve[size] == pytest.approx(closed, abs=1e-13)


def test_exact_containment_of_floats_is_that_of_their_dyadics() -> None:
    drafts = WithReplacement([0.1, 0.9], 3)
    total = Fraction(0.1) + Fraction(0.9)
    assert drafts.law(True).containment([True, False]) == (Fraction(0.1) / total) ** 3


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("size", [4, 300, 3000])
def test_tokens_that_hardly_ring_are_added_at_once(
    size: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one by one, where none, some or nearly all of them are light."""
    from mdsd_opt.drafts import inclusion as module

    rng = np.random.default_rng(size)
    p = rng.dirichlet(np.ones(size))
    q = np.exp(spread * rng.normal(size=size))
    q[: size // 3] *= 1e-7
    q /= q.sum()
    counts = [k for k in (3, 4, 7, 30) if k <= size]
    found = module.inclusion_masses(q, p, counts)
    monkeypatch.setattr(module, "_LIGHT", 0.0)
    np.testing.assert_allclose(found, module.inclusion_masses(q, p, counts), rtol=1e-12, atol=1e-13)


def test_light_tokens_by_fractions() -> None:
    """Both laws before any heavy token, against the product of exact generating functions."""
    from mdsd_opt.drafts.inclusion import light_laws

    q = np.array([3e-6, 1e-6, 8e-7, 2e-7])
    p = np.array([0.1, 0.2, 0.3, 0.4])
    t = np.array([0.5, 20.0, 100.0])
    rang, hits = light_laws(p, q, t, 4)
    for node, time in enumerate(t.tolist()):
        odds = [Fraction(float(np.expm1(rate * time))) for rate in q.tolist()]
        scale = float(np.exp(-q.sum() * time))

        def law(left_out: int | None, odds: list[Fraction] = odds) -> list[Fraction]:
            found = [Fraction(1)]
            for i, x in enumerate(odds):
                if i != left_out:
                    found = [
                        a + x * b
                        for a, b in zip([*found, Fraction(0)], [Fraction(0), *found], strict=True)
                    ]
            return [*found, Fraction(0)]

        others = [law(i) for i in range(4)]
        for n in range(4):
            assert rang[n, node] == pytest.approx(scale * float(law(None)[n]), rel=1e-12, abs=1e-25)
            exact = sum(
                float(a * b) * float(others[i][n])
                for i, (a, b) in enumerate(zip(p, q, strict=True))
            )
            assert hits[n, node] == pytest.approx(scale * exact, rel=1e-12, abs=1e-25)
