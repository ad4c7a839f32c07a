"""Top-k log-probabilities: the rate lies in the interval, whatever the tails are."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from support import oracles

import mdsd_opt as mo
from mdsd_opt.batch.top_logprobs import Listed
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName, UnsupportedScheme

SCHEMES = ("with_replacement", "without_replacement")
Law = NDArray[np.float64]


def top(law: Law, k: int) -> dict[int, float]:
    with np.errstate(divide="ignore"):
        return {int(i): float(np.log(law[i])) for i in np.argsort(-law, kind="stable")[:k]}


def rate(p: Law, q: Law, k: int, scheme: str) -> float:
    return float(mo.acceptance_rates(p, q, k, scheme, kind="probs"))


def completions(
    listed: dict[int, float], vocab_size: int, rng: np.random.Generator, count: int
) -> Law:
    """Laws that the list may come from, in rows: its tail poured over the others up to the cap."""
    known, rows = list(listed), np.arange(count)
    laws = np.zeros((count, vocab_size))
    laws[:, known] = np.exp(list(listed.values()))
    cap, tail = laws[0, known].min(), 1.0 - laws[0].sum()
    others = np.setdiff1d(np.arange(vocab_size), known)
    # evenly somewhere, or as few tokens as can be
    weights = rng.standard_gamma(rng.choice([0.3, 3.0], size=(count, 1)), (count, others.size))
    weights *= tail / weights.sum(axis=1, keepdims=True)
    evenly = rng.random((count, 1)) < 0.5
    laws[:, others] = np.where(evenly, np.minimum(weights, cap), 0.0)
    for i in rng.permuted(np.tile(others, (count, 1)), axis=1).T:
        left = np.maximum(1.0 - laws.sum(axis=1), 0.0)
        laws[rows, i] += np.minimum(cap - laws[rows, i], left)
    return laws / laws.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("known_size", [True, False])
def test_the_rate_of_the_whole_law_is_inside(scheme: str, known_size: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        vocab_size = int(rng.integers(2, 40))
        p, q = rng.dirichlet(np.full(vocab_size, rng.choice([0.1, 1.0])), size=2)
        if rng.random() < 0.3:
            q = 0.7 * p + 0.3 * q
        kp, kq = rng.integers(1, vocab_size + 1, size=2)
        for k in (1, 2, 5):
            found = mo.acceptance_interval(
                top(p, kp), top(q, kq), k, scheme, vocab_size if known_size else None
            )
            assert found.lower - 1e-9 <= rate(p, q, k, scheme) <= found.upper + 1e-9
            assert 0.0 <= found.lower <= found.upper <= 1.0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_real_laws(scheme: str) -> None:
    from mdsd_opt.data import sample_logits_path

    sample = np.load(sample_logits_path())
    p, q = (mo.softmax(sample[name][::6]) for name in ("target", "draft"))
    expected = mo.acceptance_rates(p, q, 4, scheme, kind="probs")
    widths = []
    for listed in (20, 200):
        found = [
            mo.acceptance_interval(top(a, listed), top(b, listed), 4, scheme, p.shape[-1])
            for a, b in zip(p, q, strict=True)
        ]
        lower, upper = np.array([(x.lower, x.upper) for x in found]).T
        assert (lower - 1e-9 <= expected).all()
        assert (expected <= upper + 1e-9).all()
        widths.append((upper - lower).mean())
    assert widths[1] < widths[0] < 0.35


@pytest.mark.parametrize(
    ("scheme", "size", "k", "width"),
    [
        *((scheme, 12, 3, 1e-11) for scheme in SCHEMES),
        *(("without_replacement", 300, k, 1e-8) for k in (16, 64, 200)),
    ],
)
def test_all_tokens_listed_give_the_rate(scheme: str, size: int, k: int, width: float) -> None:
    p, q = np.random.default_rng(size).dirichlet(np.ones(size), size=2)
    lists, expected = (top(p, size), top(q, size)), rate(p, q, k, scheme)
    found = mo.acceptance_interval(*lists, k, scheme, size)
    assert found.lower <= expected <= found.upper <= found.lower + width
    # The same without the size of the vocabulary: the general way, with tails of nothing.
    found = mo.acceptance_interval(*lists, k, scheme)
    assert found.lower == pytest.approx(expected, abs=1e-8)
    assert found.upper == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("vocab_size", [4, 6])
def test_no_completion_lies_outside_and_some_reach_the_ends(scheme: str, vocab_size: int) -> None:
    """Brute force on tiny vocabularies; the ends are attained with replacement."""
    rng = np.random.default_rng(2)
    for _ in range(6):
        p, q = rng.dirichlet(np.ones(vocab_size), size=2)
        lists = top(p, 2), top(q, int(rng.integers(1, vocab_size)))
        for k in (1, 2, 3):
            found = mo.acceptance_interval(*lists, k, scheme, vocab_size)
            laws = [completions(side, vocab_size, rng, 4000) for side in lists]
            rates = mo.acceptance_rates(*laws, k, scheme, kind="probs")
            assert found.lower - 1e-9 <= rates.min()
            assert rates.max() <= found.upper + 1e-9
            if scheme == "with_replacement":
                assert rates.min() - found.lower < 0.05
                assert found.upper - rates.max() < 0.05


def test_the_upper_end_is_the_concave_maximum() -> None:
    """Held against a cutting-plane maximum over both tails, with replacement."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(3)
    vocab_size, k = 6, 3
    subsets = np.array([[h >> i & 1 for i in range(vocab_size)] for h in range(2**vocab_size)])
    for _ in range(8):
        p, q = rng.dirichlet(np.ones(vocab_size), size=2)
        lists = top(p, 3), top(q, 2)
        bounds = []
        for side in lists:
            cap = math.exp(min(side.values()))
            bounds += [
                (math.exp(side[i]),) * 2 if i in side else (0.0, cap) for i in range(vocab_size)
            ]
        sums = np.kron(np.eye(2), np.ones(vocab_size))
        rows: list[Any] = [np.append(np.zeros(2 * vocab_size), 1.0)]
        right = [1.0]
        for _ in range(200):
            solved = linprog(
                np.append(np.zeros(2 * vocab_size), -1.0), np.array(rows), right,
                np.column_stack([sums, [0, 0]]), [1, 1], [*bounds, (0, 1)],
            )  # fmt: skip
            point = solved.x
            q_now = point[vocab_size : 2 * vocab_size]
            inside = subsets @ q_now
            values = 1 + subsets @ point[:vocab_size] - inside**k
            if values.min() > point[-1] - 3e-8:  # nearer than the programme keeps to its rows
                break
            for worst in np.argsort(values)[:2]:
                # t <= 1 + P(H) - [q0^K + K q0^(K-1) (q(H) - q0)]
                q0, h = inside[worst], subsets[worst]
                rows.append(np.concatenate([-h, k * q0 ** (k - 1) * h, [1.0]]))
                right.append(1.0 + (k - 1) * q0**k)
        found = mo.acceptance_interval(*lists, k, vocab_size=vocab_size)
        assert found.upper == pytest.approx(point[-1], abs=1e-7)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_special_laws(scheme: str) -> None:
    one = {3: 0.0}  # as in float32, of any vocabulary
    assert mo.acceptance_interval(one, one, 2, scheme).lower == pytest.approx(1.0, abs=0.01)
    other = {4: 0.0, 3: -math.inf}  # nothing is left for a second draw; {4: 0.0} would leave traces
    assert mo.acceptance_interval(one, other, 2, scheme).upper == pytest.approx(0.0, abs=0.01)
    assert mo.acceptance_interval(one, one, 2, scheme, vocab_size=1).upper == 1.0
    half = {0: math.log(0.5), 1: math.log(0.5)}
    found = mo.acceptance_interval(half, half, 5, scheme)  # more drafts than tokens
    assert found.lower == pytest.approx(1.0)
    assert found.upper == 1.0
    with_zero = {0: 0.0, 1: -math.inf}
    assert mo.acceptance_interval(with_zero, half, 1, scheme).upper == pytest.approx(0.5, abs=0.01)
    names = {" the": math.log(0.7), " a": math.log(0.2)}
    assert mo.acceptance_interval(names, names, 1, scheme).lower == pytest.approx(0.9)


def log(x: Fraction) -> float:
    with localcontext(prec=60):
        return float((Decimal(x.numerator) / Decimal(x.denominator)).ln()) if x else -math.inf


FORMATS: dict[str, Callable[[float], Any]] = {
    "float64": float,
    "float32": lambda x: float(np.float32(x)),
    "float32 as an object": np.float32,
    "float32 as short as can be": lambda x: float(str(np.float32(x))),
    "float32 to six places": lambda x: float(f"{np.float32(x):.6f}"),
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "four places": lambda x: float(f"{x:.4f}"),
    "six digits": lambda x: float(f"{x:.6g}"),
}


def adverse_law(vocab_size: int, rng: np.random.Generator) -> list[Fraction]:
    """Some of a certain token and traces, some with zeros, some even ones."""
    exponents = rng.uniform(0, rng.choice([1, 8, 18]), vocab_size)
    weights = [int(10**x) for x in exponents.tolist()]
    if rng.random() < 0.3:
        weights[int(rng.integers(vocab_size))] = 10 ** int(rng.integers(6, 14))
    if rng.random() < 0.3:
        weights[0] = 0
    return [Fraction(x, sum(weights)) for x in weights]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", FORMATS)
def test_rounded_lists_hold_the_exact_rate(name: str, scheme: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        vocab_size, k = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        laws = [adverse_law(vocab_size, rng) for _ in range(2)]
        if rng.random() < 0.2:
            laws[1] = laws[0]
        lists = []
        for law in laws:
            logs = sorted(((log(x), i) for i, x in enumerate(law)), reverse=True)
            # zeros alone do not tell how they were rounded
            least = sum(float(FORMATS[name](x)) == 0 for x, _ in logs) + 1
            some = logs[: max(int(rng.integers(1, vocab_size + 1)), least)]
            lists.append({i: FORMATS[name](x) for x, i in some})
        truth = oracles.optimum_over_subsets(laws[0], getattr(oracles, scheme)(laws[1], k))
        for size in (vocab_size, None):
            found = mo.acceptance_interval(lists[0], lists[1], k, scheme, size)
            assert Fraction(found.lower) <= truth <= Fraction(found.upper), (lists, k, size)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_logits_in_float32_widen_the_interval_little(scheme: str) -> None:
    """With the sum of the vocabulary in one running sum, which is off by up to 1e-4 and more."""
    from mdsd_opt.data import sample_logits_path

    sample = np.load(sample_logits_path())
    lists: list[list[dict[int, float]]] = []
    laws = []
    for name in ("target", "draft"):
        logits = sample[name][::6].astype(np.float32)
        laws.append(mo.softmax(logits))
        shifted = logits - logits.max(axis=-1, keepdims=True)
        total = np.add.accumulate(np.exp(shifted), axis=-1)[:, -1:]
        single = shifted - np.log(total)
        exact = np.log(laws[-1])
        order = np.argsort(-logits, axis=-1, kind="stable")[:, :200]
        for logs in (single, exact):
            taken = np.take_along_axis(logs, order, axis=-1)
            rows = zip(order.tolist(), taken.tolist(), strict=True)
            lists.append([dict(zip(*row, strict=True)) for row in rows])
    rates = mo.acceptance_rates(*laws, 4, scheme, kind="probs")
    widths = []
    for p, q in (lists[::2], lists[1::2]):
        found = [
            mo.acceptance_interval(a, b, 4, scheme, logits.shape[-1])
            for a, b in zip(p, q, strict=True)
        ]
        assert all(x.lower <= r <= x.upper for x, r in zip(found, rates, strict=True))
        widths.append(np.mean([x.upper - x.lower for x in found]))
    assert widths[1] < widths[0] < 1.03 * widths[1]


def test_renormalised_lists_give_a_rate_outside() -> None:
    found = mo.acceptance_interval({0: math.log(0.6)}, {0: math.log(0.5)}, 1)
    assert found.upper == pytest.approx(0.9)  # divided by their sums, both would be one


@pytest.mark.parametrize(
    ("target", "draft", "options", "error", "said"),
    [
        ({}, {0: 0.0}, {}, InvalidInput, "target_top"),
        ({0: 0.0}, [0.0], {}, InvalidInput, "draft_top"),
        ({0: 0.5}, {0: 0.0}, {}, InvalidDistribution, "logprob 0.5"),
        ({0: math.nan}, {0: 0.0}, {}, InvalidDistribution, "nan"),
        ({0: -0.1, 1: -0.1}, {0: 0.0}, {}, InvalidDistribution, "over one"),
        ({0: -0.1, 1: -9.0}, {0: 0.0}, {"vocab_size": 3}, InvalidDistribution, "likeliest"),
        ({0: -0.1, 1: -3.0}, {0: 0.0}, {"vocab_size": 1}, InvalidInput, "lists 2 tokens"),
        ({0: -0.1, 1: -3.0}, {0: -1.0, 1: -1.0}, {"vocab_size": 2}, InvalidDistribution, "all 2"),
        ({0: 0.0}, {1: 0.0}, {"vocab_size": 1}, InvalidInput, "together"),
        ({0: "-1"}, {0: 0.0}, {}, InvalidDistribution, "logprob '-1'"),
        ({0: 0.0}, {0: 0.0}, {"vocab_size": 0}, InvalidInput, "vocab_size"),
        ({0: 0.0}, {0: 0.0}, {"num_drafts": 0}, InvalidInput, "num_drafts"),
        ({0: 0.0}, {0: 0.0}, {"drafts": "greedy"}, UnsupportedScheme, "with_replacement"),
        ({0: 0.0}, {0: 0.0}, {"drafts": "gready"}, UnknownName, "greedy"),
    ],
)
def test_bad_lists(
    target: Any, draft: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        mo.acceptance_interval(target, draft, **{"num_drafts": 2, **options})


def test_the_least_number_of_tokens_that_hold_a_tail() -> None:
    assert Listed.of({0: math.log(0.4)}, "p", None).tokens_of_tail == 2
    assert Listed.of({0: 0.0}, "p", None).tokens_of_tail == 0
