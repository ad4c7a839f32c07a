"""Drafts without replacement at any number of drafts: Q, and all that is computed from it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
import sorted_rates
from numpy.typing import NDArray
from support import oracles
from support.few_lines import few_lines
from support.logit_rows import confident_rows

import mdsd_opt as mo
from mdsd_opt.data import sample_logits_path
from mdsd_opt.drafts import inclusion_masses
from mdsd_opt.drafts import plackett_luce_kernels as plackett_luce
from mdsd_opt.prefix_search import race_kernels as quadrature
from mdsd_opt.prefix_search.race_kernels import race_nodes, race_terms

Vector = NDArray[np.float64]


def uniform_containment(vocab_size: int, num_drafts: int) -> Vector:
    """C(h, K) / C(V, K) of every prefix of V equal tokens, shape (V + 1,)."""
    everything = comb(vocab_size, num_drafts)
    return np.array([comb(h, num_drafts) / everything for h in range(vocab_size + 1)])


def fine_nodes(slowest: float, num_drafts: int) -> tuple[Vector, Vector]:
    """Plain trapezoid rule in log t, with about four times the nodes of the package."""
    step = 0.14 / np.sqrt(num_drafts)
    t = np.exp(np.arange(-14.0, np.log((4 * num_drafts + 45) / slowest), step))
    return t, step * t


def bound(num_drafts: int) -> float:
    """What is promised of the absolute error of Q."""
    return 1e-12 if num_drafts <= 64 else 1e-9


def uniform(vocab_size: int, num_drafts: int) -> mo.WithoutReplacement:
    return mo.WithoutReplacement(np.full(vocab_size, 1 / vocab_size), num_drafts)


UNIFORM = [
    (80, 60), (200, 9), (200, 16), (200, 48), (200, 64), (200, 100), (200, 199), (1000, 500),
    (1000, 990), (4096, 64), (4096, 512), (49_152, 8), (49_152, 64), (262_144, 3), (262_144, 24),
]  # fmt: skip


@pytest.mark.parametrize(("vocab_size", "num_drafts"), UNIFORM)
def test_containment_of_equal_tokens(vocab_size: int, num_drafts: int) -> None:
    found = uniform(vocab_size, num_drafts).prefix_containment(np.arange(vocab_size))
    sizes = np.unique(np.linspace(0, vocab_size, 2001).astype(int))
    exact = uniform_containment(vocab_size, num_drafts)[sizes]
    np.testing.assert_allclose(found[sizes], exact, rtol=0, atol=bound(num_drafts))


@pytest.mark.parametrize("num_drafts", [3, 8, 9, 40, 64, 100, 150])
def test_slopes_of_equal_tokens(num_drafts: int) -> None:
    exact = np.diff(uniform_containment(200, num_drafts)) * 200
    found = uniform(200, num_drafts).prefix_slopes(np.arange(200))
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=200 * bound(num_drafts))


@pytest.mark.parametrize("num_drafts", [9, 24, 64, 100])
@pytest.mark.parametrize("heavy", [3, "K - 1", "K"])
@pytest.mark.parametrize("weight", [30, 10**12, 10**40])
def test_containment_of_tokens_of_two_kinds(num_drafts: int, heavy: Any, weight: int) -> None:
    heavy = {"K - 1": num_drafts - 1, "K": num_drafts}.get(heavy, heavy)
    light = 160 - heavy
    exact = oracles.of_two_weights(heavy, light, Fraction(weight), num_drafts)
    total = weight * heavy + light
    q = [Fraction(w, total) for w in [weight] * heavy + [1] * light]
    drafts = mo.WithoutReplacement(q, num_drafts)
    upwards = drafts.prefix_containment(np.r_[heavy : heavy + light, :heavy])
    downwards = drafts.prefix_containment(np.arange(heavy + light))
    for a in range(heavy + 1):
        assert upwards[light + a] == pytest.approx(float(exact(a, light)), abs=bound(num_drafts))
    for b in range(light + 1):
        assert downwards[heavy + b] == pytest.approx(float(exact(heavy, b)), abs=bound(num_drafts))


@pytest.mark.parametrize("num_drafts", [3, 8, 9, 24, 64, 100])
def test_containment_of_real_logits(num_drafts: int) -> None:
    sample = np.load(sample_logits_path())
    problem = mo.TransportProblem.from_logits(
        sample["target"][0], sample["draft"][0], num_drafts, "without_replacement"
    )
    drafts: Any = problem.drafts
    order = np.random.default_rng(0).permutation(np.argsort(-drafts.q)[:4000])
    outside = float(np.delete(drafts.q, order).sum())
    slowest = plackett_luce.rates_left(drafts.q, num_drafts)
    fine = plackett_luce.prefix_curve(
        drafts.q[order], outside, num_drafts, *fine_nodes(slowest, num_drafts)
    )[0]
    found = drafts.prefix_containment(order)
    assert fine.max() > 0.01  # or the comparison would say nothing
    np.testing.assert_allclose(found, fine, rtol=0, atol=bound(num_drafts))


def exact_weights(logits: np.ndarray) -> list[Fraction]:
    """Softmax of a row to 60 digits, as Fractions that sum to one."""
    with localcontext() as context:
        context.prec = 60
        weights = [Fraction(Decimal(float(x) - float(logits.max())).exp()) for x in logits]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("seed", range(4))
def test_rates_of_confident_rows_are_those_in_fractions(seed: int) -> None:
    """Of the sum over times that is the truth below, and of the batch."""
    counts = (1, 2, 4)
    target, draft = confident_rows(np.random.default_rng(seed), 3, 6, np.float64)
    found = mo.acceptance_rates(target, draft, counts, drafts="without_replacement")
    for rates, *sides in zip(found, target, draft, strict=True):
        p, q = (exact_weights(x) for x in sides)
        floats = [sorted_rates.probabilities(x) for x in sides]
        order = sorted_rates.prefix_order(*floats)
        inside = [sum(p[i] for i in order[:n]) for n in range(order.size + 1)]
        for k, rate in zip(counts, rates, strict=True):
            contained = mo.WithoutReplacement(q, k).law(True).prefix_containment(order)
            least = min(a - b for a, b in zip(inside, contained, strict=True))
            exact = float(1 + least) if k < order.size else float(inside[-1])
            assert rate == pytest.approx(exact, abs=1e-12)
            by_sorting = sorted_rates.without_replacement(*floats, k)
            assert by_sorting == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("counts", [(1, 31), (1, 2, 31), (1, 8, 24, 31), (2, 30), (1, 3, 64)])
def test_rates_of_confident_rows_for_several_numbers_of_drafts(
    counts: tuple[int, ...], dtype: Any
) -> None:
    rng = np.random.default_rng(counts[-1])
    for size in (8, 40, 64):
        rows = confident_rows(rng, 4, size, dtype)
        found = mo.acceptance_rates(*rows, counts, drafts="without_replacement")
        for rates, *sides in zip(found, *rows, strict=True):
            laws = [sorted_rates.probabilities(x) for x in sides]
            exact = [sorted_rates.without_replacement(*laws, k) for k in counts]
            np.testing.assert_allclose(rates, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("num_drafts", "seed"), [(40, 0), (40, 1), (48, 2), (48, 3), (48, 5)])
def test_many_drafts_of_which_some_are_as_good_as_certain(num_drafts: int, seed: int) -> None:
    """The law of how many rang is kept where it counts; late, when few have rung, it does, too."""
    size = {40: 68, 48: 75}[num_drafts]
    rows = 15 * np.random.default_rng(seed).standard_normal((2, 64, size))
    found = mo.acceptance_rates(*rows, num_drafts, drafts="without_replacement")
    for rate, *sides in zip(found, *rows, strict=True):
        p, q = (mo.softmax(x) for x in sides)
        order = sorted_rates.prefix_order(p, q)
        contained = mo.WithoutReplacement(q, num_drafts).prefix_containment(order)
        least = (np.append(0.0, np.cumsum(p[order])) - contained).min()
        assert rate == pytest.approx(1 + min(0.0, least), abs=1e-12)


def skewed(vocab_size: int, lightest: int, low: float) -> np.ndarray:
    """A target with little mass on the first tokens."""
    p = np.full(vocab_size, low / vocab_size)
    p[lightest:] = (1 - p[:lightest].sum()) / (vocab_size - lightest)
    return p


def optimum(p: np.ndarray, lightest: int, num_drafts: int) -> float:
    """Uniform drafts and a target of two levels: Q is convex, so the ends of the levels decide."""
    contained = uniform_containment(p.size, num_drafts)[lightest]
    return 1 + min(0.0, float(p[:lightest].sum()) - contained)


CASES = [(80, 60, 79), (200, 48, 198), (200, 64, 198), (200, 100, 199), (1000, 24, 990)]


@pytest.mark.parametrize(("vocab_size", "num_drafts", "lightest"), CASES)
def test_solver_certificate_verifier_and_batch(
    vocab_size: int, num_drafts: int, lightest: int
) -> None:
    p = skewed(vocab_size, lightest, 1e-3)
    expected = pytest.approx(optimum(p, lightest, num_drafts), abs=bound(num_drafts))
    assert expected.expected < 0.95  # something is lost
    drafts = uniform(vocab_size, num_drafts)
    problem = mo.TransportProblem(p, drafts)
    solution = mo.solve(problem)
    assert solution.acceptance_rate == expected
    certificate = mo.certify(problem, solution)
    assert certificate.valid
    assert certificate.lower == expected
    assert certificate.upper == expected
    logits = np.log(p)[None], np.zeros((1, vocab_size))
    (rate,) = mo.acceptance_rates(*logits, num_drafts, drafts="without_replacement")
    assert rate == expected
    verifier = mo.verifiers.get("optimal")
    assert float(verifier.acceptance_rate(problem)) == expected
    binned = mo.verifiers.get("optimal", binned=True).acceptance_rate(problem)
    assert float(binned) <= expected.expected + bound(num_drafts)
    assert float(binned) + binned.gap >= expected.expected - bound(num_drafts)


@pytest.mark.parametrize(("vocab_size", "num_drafts", "lightest"), CASES[:4])
def test_decisions_accept_as_often_as_is_optimal(
    vocab_size: int, num_drafts: int, lightest: int
) -> None:
    """Both levels are blocks, and drafts are alike within: the law of a decision is an average."""
    p = skewed(vocab_size, lightest, 1e-3)
    problem = mo.TransportProblem(p, uniform(vocab_size, num_drafts))
    verifier = mo.verifiers.get("optimal")
    contained = uniform_containment(vocab_size, num_drafts)[lightest]
    low = verifier.decide(problem, np.arange(num_drafts))
    high = verifier.decide(problem, np.r_[lightest, : num_drafts - 1])
    rate = contained * low.accept.sum() + (1 - contained) * high.accept.sum()
    assert rate == pytest.approx(optimum(p, lightest, num_drafts), abs=bound(num_drafts))


@pytest.mark.parametrize("num_drafts", [9, 24, 32, 64, 512])
@pytest.mark.parametrize("vocab_size", [1100, 4096, 9000])
def test_batches_of_tokens_that_are_just_light(vocab_size: int, num_drafts: int) -> None:
    lightest = int(vocab_size * (1 - 1 / num_drafts))
    p = skewed(vocab_size, lightest, 1e-3)
    rates = mo.acceptance_rates(
        np.log(p)[None], np.zeros((1, vocab_size)), num_drafts, drafts="without_replacement"
    )
    assert rates[0] == pytest.approx(optimum(p, lightest, num_drafts), abs=bound(num_drafts))


@pytest.mark.parametrize("num_drafts", [3, 9, 24, 64, 100, 150])
def test_inclusion_of_equal_tokens(num_drafts: int) -> None:
    p = np.arange(200.0)
    (mass,) = inclusion_masses(np.full(200, 1 / 200), p / p.sum(), [num_drafts])
    assert mass == pytest.approx(num_drafts / 200, abs=bound(num_drafts))


def coarse_nodes(slowest: float, num_drafts: int, first: float, checks: bool) -> Any:
    """A fixed step, and too short a range for many drafts; nodes that check others stay."""
    if checks:
        return race_nodes(slowest, num_drafts, first, checks)
    x = np.arange(-2.6, np.log(38.0 / slowest), 0.15)
    t = np.exp(x - np.exp(-x))
    return t, 0.15 * t * (1 + np.exp(-x))


def coarse_terms(slowest: float, num_drafts: int, checks: bool) -> tuple[float, float, float, int]:
    """The same nodes for the search; those that check it stay."""
    light_rate, step, first, size = race_terms(slowest, num_drafts, checks)
    if not checks:
        step, first, size = 0.15, -2.6, coarse_nodes(slowest, num_drafts, first, checks)[0].size
    return light_rate, step, first, size


def plain(drafts: mo.WithoutReplacement) -> Any:
    return drafts


def mixed(drafts: mo.WithoutReplacement) -> Any:
    return mo.MixtureDrafts([(0.7, drafts), (0.3, mo.WithReplacement(drafts.q, 3))])


def beside_a_fixed_token(drafts: mo.WithoutReplacement) -> Any:
    return mo.FixedPlusDrafts([199], drafts)


def beside_another_model(drafts: mo.WithoutReplacement) -> Any:
    ascending = np.arange(1.0, drafts.vocab_size + 1)
    other = mo.WithReplacement(ascending / ascending.sum(), 2)
    return mo.MixtureDrafts([(0.7, drafts), (0.3, other)])


@pytest.mark.parametrize("made", [plain, mixed, beside_a_fixed_token, beside_another_model])
@pytest.mark.parametrize("num_drafts", [24, 48, 100])
def test_an_error_of_the_quadrature_is_no_proof(
    made: Callable[[mo.WithoutReplacement], Any], num_drafts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = skewed(200, 198, 1e-3)
    problem = mo.TransportProblem(p, made(uniform(200, num_drafts)))
    truth = mo.solve(problem)
    with monkeypatch.context() as patch:
        patch.setattr(quadrature, "race_nodes", coarse_nodes)
        patch.setattr(quadrature, "race_terms", coarse_terms)
        solution = mo.solve(problem)
        certificate = mo.certify(problem, solution)
        error = abs(problem.drafts.containment(solution.subset) - _contained(problem, solution))
    assert error > 1e-8
    assert certificate.lower <= truth.upper_bound + 1e-12
    assert certificate.upper >= truth.lower_bound - 1e-12
    assert certificate.gap >= error
    honest = mo.certify(problem, truth)
    assert honest.valid
    assert honest.gap <= truth.upper_bound - truth.lower_bound + 1e-11


def _contained(problem: mo.TransportProblem, solution: Any) -> float:
    return problem.drafts.with_finer_quadrature().containment(solution.subset)


def test_schemes_in_closed_form_need_no_second_evaluation() -> None:
    q = [0.5, 0.3, 0.2]
    schemes: list[Any] = [mo.WithReplacement(q, 9), mo.WithoutReplacement(q, 2)]
    schemes += [mo.WithoutReplacement(q, 5), mo.GreedyDrafts(q, 2)]
    schemes += [mo.MixtureDrafts([(0.5, schemes[0]), (0.5, schemes[1])])]
    schemes += [mo.FixedPlusDrafts([0], schemes[0])]
    for drafts in schemes:
        assert drafts.with_finer_quadrature() is drafts


def refusals() -> dict[str, Callable[[], Any]]:
    q = np.arange(1.0, 49_153.0)
    q /= q.sum()
    problem = mo.TransportProblem(q, mo.WithoutReplacement(q, 4000))
    logits = np.log(q)[None].repeat(2, axis=0)
    few = mo.WithoutReplacement(np.arange(1, 201) / 20_100, 9)
    return {
        "solve": lambda: mo.solve(problem, "subset_selection"),
        "verifier": lambda: mo.verifiers.get("optimal").acceptance_rate(problem),
        "decision": lambda: mo.verifiers.get("optimal").verify(
            problem, np.arange(4000), rng=np.random.default_rng(0)
        ),
        "binned": lambda: mo.verifiers.get("optimal", binned=True).acceptance_rate(problem),
        "naive_target": lambda: mo.verifiers.get("naive_target").acceptance_rate(problem),
        "batch": lambda: mo.acceptance_rates(
            logits, logits[::-1], [3, 4000], drafts="without_replacement"
        ),
        "exact containment": lambda: few.law(True).prefix_containment(np.arange(200)),
        "exact law": lambda: few.law(True).support_law().masses(),
    }


@pytest.mark.parametrize("name", refusals())
def test_what_would_take_too_long_is_refused_at_once(name: str) -> None:
    refused = refusals()[name]
    with few_lines(), pytest.raises(mo.ProblemTooLarge, match="raft"):
        refused()


def test_fewer_possible_tokens_are_not_refused() -> None:
    logits = np.zeros((1, 49_152))
    masked = logits.copy()
    masked[0, 3000:] = -np.inf
    rates = mo.acceptance_rates(logits, masked, 4000, drafts="without_replacement")
    assert rates[0] == pytest.approx(3000 / 49_152, abs=1e-12)
