"""The kernels of the optimal verifier: an exact law, nearly optimal, replayable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import chi_square
from support.kernel_cases import decide, drawn, near_rows, pair_of, request_of
from support.logit_rows import rows_of_every_character
from support.ptx.runtime import Device, PtxRuntime
from support.row_plans import PlanningRuntime, RowPlan

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.batch.device import VerificationRequest, verify_in_chunks
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES
from mdsd_opt.gpu import (
    FilterSettings,
    Randomness,
    RowTokens,
    uniforms_of,
    verify_rows,
    with_filters,
)
from mdsd_opt.gpu import runtime as gpu_runtime
from mdsd_opt.verifiers import BatchVerdict, Uniforms

WITH = "with_replacement"
SCHEMES = (WITH, "without_replacement")

#: Of the law of the output, in every token: weights and sums of single precision.
LAW_TOLERANCE = 1e-7


@pytest.fixture(scope="module")
def runtime(kernel_device: Device) -> PlanningRuntime:
    return PlanningRuntime(kernel_device)


def decided(
    runtime: PtxRuntime, target: NDArray[Any], draft: NDArray[Any], k: int, scheme: str
) -> RowTokens:
    """Rates of single rows, for any drafts."""
    pair = [x[None].astype(np.float32) for x in (target, draft)]
    drafts = drawn(np.random.default_rng(k), pair[1], k, scheme)
    return decide(runtime, pair_of(*pair), drafts, scheme, with_rates=True)


def plan_of(
    runtime: PlanningRuntime, target: NDArray[Any], draft: NDArray[Any], k: int, scheme: str
) -> tuple[RowPlan, float]:
    """The plan of a row, and the rate that the kernels find."""
    sides = tuple(np.ascontiguousarray(x, np.float32) for x in (target, draft))
    rate = float(decided(runtime, *sides, k, scheme).rates[0])
    p, q = (mo.softmax(x.astype(np.float64)) for x in sides)
    shape = {"with_replacement": 4.0 if k >= 16 else 2.0, "without_replacement": max(2.0, k / 2)}
    return RowPlan(runtime.plans[0], p, q, shape[scheme], sides), rate


def more(*values: int) -> Any:
    """Values that a first look leaves out."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("scheme", SCHEMES)
class TestLaw:
    @given(
        weights=st.lists(
            st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5
        ).filter(lambda pairs: any(p for p, _ in pairs) and any(q for _, q in pairs)),
        k=st.integers(1, 3),
    )
    def test_is_exactly_the_target(
        self, runtime: PlanningRuntime, scheme: str, weights: list[tuple[int, int]], k: int
    ) -> None:
        with np.errstate(divide="ignore"):
            target, draft = np.log(np.array(weights, dtype=np.float64)).T
        plan, rate = plan_of(runtime, target, draft, k, scheme)
        np.testing.assert_allclose(plan.output_law(k), plan.target, rtol=0, atol=LAW_TOLERANCE)
        if plan.selects:
            assert plan.rate == pytest.approx(rate, abs=1e-6)

    @pytest.mark.parametrize("k", [1, 2, 3])
    @pytest.mark.parametrize("size", [1, 2, 6])
    def test_of_rows_of_every_character(
        self, runtime: PlanningRuntime, scheme: str, size: int, k: int
    ) -> None:
        """Ties, zeros, equal rows, one-hot rows, and tokens far beyond what sums can hold."""
        for name, rows in rows_of_every_character(size).items():
            plan, _ = plan_of(runtime, *rows, k, scheme)
            law = plan.output_law(k)
            np.testing.assert_allclose(law, plan.target, rtol=0, atol=LAW_TOLERANCE, err_msg=name)

    def test_of_a_wrong_plan_is_not(self, runtime: PlanningRuntime, scheme: str) -> None:
        """Another ratio, or drafts of another q than the plan's: the check would see it."""
        target, draft = (x[0] for x in near_rows(1, 5))
        for change in ("ratio", "q"):
            plan, _ = plan_of(runtime, target, draft, 2, scheme)
            if change == "ratio":
                plan.ratio = plan.ratio * np.linspace(0.999, 1.001, 5)
            else:
                plan.q = 0.999 * plan.q + 0.001 / 5
            assert np.abs(plan.output_law(2) - plan.target).max() > 10 * LAW_TOLERANCE

    @pytest.mark.parametrize("k", [2, 8, more(32)])
    def test_marginals_can_be_selected(self, runtime: PlanningRuntime, scheme: str, k: int) -> None:
        """R is convex against q and nowhere below F, so that the rule on blocks gives it.

        Containment without replacement is a sum over nodes, with an error of up to 2e-7.
        """
        rounding = 1e-9 if scheme == "with_replacement" else 2e-7
        for name, rows in rows_of_every_character(700).items():
            plan, _ = plan_of(runtime, *rows, k, scheme)
            if not plan.selects:
                continue
            ends = np.append(0.0, np.cumsum(plan.x))
            assert ends[-1] == pytest.approx(1.0, abs=rounding), name
            assert (ends >= plan.ends - rounding).all(), name
            used = plan.x > 1e-7
            slopes = plan.x[used] / plan.w[used]
            assert (np.diff(slopes) >= -1e-3 * slopes[1:]).all(), name


@pytest.mark.parametrize("scheme", SCHEMES)
class TestKernels:
    @pytest.mark.parametrize(
        ("size", "k"),
        [(2, 1), (2, 3), (7, 2), (7, 8), (300, 1), more(300, 3), more(7, 3), more(300, 8)],
    )
    def test_decide_by_their_plan(
        self, runtime: PlanningRuntime, scheme: str, size: int, k: int
    ) -> None:
        rng = np.random.default_rng(size * 10 + k)
        for name, rows in rows_of_every_character(size).items():
            trials = 2 if size == 300 or (scheme == "without_replacement" and k > 2) else 5
            plan, _ = plan_of(runtime, *rows, k, scheme)
            pair = [np.repeat(x[None].astype(np.float32), trials, 0) for x in rows]
            drafts = drawn(rng, pair[1], k, scheme)
            uniforms = rng.random((trials, 4))
            found = decide(runtime, pair_of(*pair), drafts, scheme, uniforms)
            expected = [
                plan.token([x for x in own if x >= 0], u)
                for own, u in zip(drafts.tolist(), uniforms, strict=True)
            ]
            assert found.tokens.tolist() == expected, name
            assert not found.is_bad.any()

    def test_large_rows(self, kernel_device: Device, scheme: str) -> None:
        (target, _), (_, draft) = near_rows(6, 20_000), near_rows(6, 20_000, seed=1)
        rng = np.random.default_rng(5)
        drafts = drawn(rng, draft, 4, scheme)
        uniforms = rng.random((6, 4))
        uniforms[3:, 2] = 1 - 2.0**-53  # rejected where that is possible at all
        runtime = PlanningRuntime(kernel_device, "random")
        pair = pair_of(target, draft)
        found = decide(runtime, pair, drafts, scheme, uniforms)
        p, q = (mo.softmax(x.astype(np.float64)) for x in (target, draft))
        for row, plan in enumerate(runtime.plans):
            own = RowPlan(plan, p[row], q[row], 2.0, (target[row], draft[row]))
            assert found.tokens[row] == own.token(drafts[row].tolist(), uniforms[row])

    def test_output_of_a_large_vocabulary(self, kernel_device: Device, scheme: str) -> None:
        """Chi-square over 30 cells of 1000 tokens; of the draft's law it is far off.

        A false alarm has probability 1e-4.
        """
        target, draft = near_rows(1, 1000, seed=3)
        trials = 600
        drafts = drawn(np.random.default_rng(4), np.repeat(draft, trials, 0), 2, scheme)
        pair = pair_of(*(np.broadcast_to(x, (trials, 1000)) for x in (target, draft)))
        runtime = PtxRuntime(kernel_device)
        tokens = decide(runtime, pair, drafts, scheme).tokens
        order = np.argsort(target[0] - draft[0])
        cell = np.empty(1000, int)
        cell[order] = np.arange(1000) * 30 // 1000
        for logits, fits in ((target, True), (draft, False)):
            law = np.bincount(cell, weights=mo.softmax(logits[0].astype(np.float64)))
            value = chi_square.p_value(cell[tokens].tolist(), dict(enumerate(law)))
            assert (value > 1e-4) == fits

    def test_rejected_drafts_are_replaced_from_the_residual(
        self, runtime: PlanningRuntime, scheme: str
    ) -> None:
        """Disjoint supports: every draft is rejected, and the output follows the target."""
        target = np.array([0.5, 1.5, -np.inf, -np.inf, -np.inf], np.float32)
        draft = np.array([-np.inf, -np.inf, 0.0, 1.0, 0.5], np.float32)
        draws = (np.arange(50) + 0.5) / 50
        uniforms = np.stack([np.full(50, 0.3), np.zeros(50), np.zeros(50), draws], axis=1)
        pair = pair_of(np.repeat(target[None], 50, 0), np.repeat(draft[None], 50, 0))
        drafts = np.tile([3, 2], (50, 1))
        found = decide(runtime, pair, drafts, scheme, uniforms)
        share = mo.softmax(target)[0]
        assert found.tokens.tolist() == [0 if u < share else 1 for u in draws]

    def test_rows_without_a_possible_draft(self, runtime: PlanningRuntime, scheme: str) -> None:
        target, draft = near_rows(2, 50)
        draft[:, 7] = -np.inf
        drafts = np.array([[-1, -1], [7, 99]], np.int64)
        uniforms = np.array([[0.5, 0.5, 0.5, 0.25], [0.5, 0.5, 0.5, 0.75]])
        pair = pair_of(target, draft)
        found = decide(runtime, pair, drafts, scheme, uniforms)
        for row in range(2):
            ends = np.cumsum(mo.softmax(target[row]))
            assert found.tokens[row] == np.searchsorted(ends, uniforms[row, 3])

    def test_bad_rows(self, runtime: PlanningRuntime, scheme: str) -> None:
        target, draft = near_rows(3, 50)
        target[1, 4] = np.nan
        drafts = np.tile([0, 1], (3, 1))
        pair = pair_of(target, draft)
        found = decide(runtime, pair, drafts, scheme, with_rates=True)
        assert found.is_bad.tolist() == [0, 1, 0]
        assert found.tokens[1] == -1
        assert (found.tokens[[0, 2]] >= 0).all()

    @pytest.mark.parametrize(
        "settings",
        [
            FilterSettings(top_k=40),
            FilterSettings(top_k=2),
            FilterSettings(top_p=0.8),
            FilterSettings(min_p=0.05),
            FilterSettings(target_one_hot=True),
            FilterSettings(target_one_hot=True, draft_one_hot=True),
        ],
        ids=repr,
    )
    def test_filters(self, runtime: PlanningRuntime, scheme: str, settings: FilterSettings) -> None:
        """Only tokens that are left in come out, and the rate brackets the optimum of those."""
        target, draft = near_rows(4, 500)
        temperatures = [
            0.0 if one_hot else 1.0 for one_hot in (settings.target_one_hot, settings.draft_one_hot)
        ]
        options = {"top_k": settings.top_k, "top_p": settings.top_p, "min_p": settings.min_p}
        p, q = (
            mo.softmax(x.astype(np.float64), temperature=t, **options)
            for x, t in zip((target, draft), temperatures, strict=True)
        )
        with np.errstate(divide="ignore"):
            drafts = drawn(np.random.default_rng(0), np.log(q), 3, scheme)
            best = mo.acceptance_rates(np.log(p), np.log(q), 3, drafts=scheme)
        pair = with_filters(runtime, pair_of(target, draft), settings)
        found = decide(runtime, pair, drafts, scheme, with_rates=True)
        assert (p[np.arange(4), found.tokens] > 0).all()
        assert (found.rates <= best + 1e-6).all()
        assert (found.rates + found.gaps >= best - 1e-6).all()

    def test_strides_do_not_matter(self, runtime: PlanningRuntime, scheme: str) -> None:
        """Rows that begin anywhere, run backwards or are padded: as contiguous ones."""
        wide = near_rows(8, 140)
        for rows, columns in (
            (slice(None), slice(0, 101)),
            (slice(None, None, -2), slice(3, 104)),
            (slice(1, None, 3), slice(1, 102)),
        ):
            target, draft = (x[rows, columns] for x in wide)
            drafts = drawn(np.random.default_rng(1), draft, 3, scheme)
            found, expected = (
                decide(runtime, pair_of(*pair), drafts, scheme, with_rates=True)
                for pair in ((target, draft), (target.copy(), draft.copy()))
            )
            assert found.tokens.tolist() == expected.tokens.tolist()
            gaps = np.maximum(found.gaps, expected.gaps) + 1e-6
            assert (np.abs(found.rates - expected.rates) <= gaps).all()


class TestRandomNumbers:
    def test_published_vectors(self) -> None:
        """The first words of Philox4x32-10 for counter and key zero, from Random123."""
        bits = np.array([0x6627E8D5, 0xE169C58D])
        expected = ((bits[0] >> 5) * 2.0**26 + (bits[1] >> 6)) / 2.0**53
        assert uniforms_of(Randomness(0), np.array([0]))[0, 0] == expected

    def test_streams_differ_and_repeat(self) -> None:
        rows = np.arange(1000)
        first = uniforms_of(Randomness(1 << 40 | 7, 3), rows)
        np.testing.assert_array_equal(first, uniforms_of(Randomness(1 << 40 | 7, 3), rows))
        for other in (Randomness(7, 3), Randomness(1 << 40 | 7, 4)):
            assert (uniforms_of(other, rows) != first).all()
        assert abs(np.corrcoef(first.T) - np.eye(4)).max() < 0.15
        assert abs(first.mean() - 0.5) < 0.05

    def test_the_kernel_draws_the_same(self, runtime: PtxRuntime) -> None:
        target, draft = near_rows(20, 60)
        drafts = drawn(np.random.default_rng(0), draft, 3)
        randomness = Randomness(seed=12345678901234567890, step=4_000_000_000)
        pair = pair_of(target, draft)
        found = verify_rows(runtime, pair, drafts, randomness, first_row=1 << 33)
        uniforms = uniforms_of(randomness, (1 << 33) + np.arange(20))
        again = verify_rows(runtime, pair_of(target, draft), drafts, Randomness(0), uniforms)
        assert found.tokens.tolist() == again.tokens.tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
class TestRates:
    """What the rule loses: its acceptance rate, and how far at most it is from the optimum."""

    #: The promise, for weights of single precision.
    ROUNDING = 1e-6

    def brackets(self, rates: Any, gaps: Any, optimum: Any) -> bool:
        return bool(
            (rates <= optimum + self.ROUNDING).all()
            and (rates + gaps >= optimum - self.ROUNDING).all()
        )

    @pytest.mark.parametrize(
        ("size", "k"),
        [(2, 1), (2, 4), (7, 4), (7, 16), (300, 2), (5000, 4), more(300, 16), more(300, 4),
         more(5000, 16)],
    )  # fmt: skip
    def test_bracket_the_optimum(
        self, runtime: PlanningRuntime, scheme: str, size: int, k: int
    ) -> None:
        for name, rows in rows_of_every_character(size).items():
            target, draft = (x.astype(np.float32).astype(np.float64) for x in rows)
            found = decided(runtime, target, draft, k, scheme)
            best = mo.acceptance_rates(target, draft, k, drafts=scheme)
            assert self.brackets(found.rates, found.gaps, best), name
            assert found.gaps[0] <= 1e-3, name

    def test_wrong_ones_do_not(self, runtime: PlanningRuntime, scheme: str) -> None:
        """Numbers of another K are seen to be wrong."""
        target, draft = near_rows(8, 3000)
        best = mo.acceptance_rates(target, draft, (1, 2, 3), drafts=scheme)
        for k in (1, 2, 3):
            drafts = drawn(np.random.default_rng(0), draft, k, scheme)
            found = decide(runtime, pair_of(target, draft), drafts, scheme, with_rates=True)
            fits = [self.brackets(found.rates, found.gaps, best[:, j]) for j in range(3)]
            assert fits == [j == k - 1 for j in range(3)]

    def test_do_not_change_decisions(self, runtime: PlanningRuntime, scheme: str) -> None:
        target, draft = near_rows(40, 200)
        drafts = drawn(np.random.default_rng(0), draft, 2, scheme)
        pair = pair_of(target, draft)
        plain = decide(runtime, pair, drafts, scheme)
        with_rates = decide(runtime, pair, drafts, scheme, with_rates=True)
        assert plain.rates is None
        assert plain.tokens.tolist() == with_rates.tokens.tolist()

    def test_rows_are_those_of_the_drafts_there_are(
        self, runtime: PlanningRuntime, scheme: str
    ) -> None:
        """A row with fewer drafts is verified as such: else the law would not be the target's."""
        target, draft = (np.repeat(x, 4, axis=0) for x in near_rows(1, 400))
        likely = np.argsort(-draft[0])
        draft[:, 399] = -np.inf
        drafts = np.array(
            [[likely[0], -1, likely[1]], [399, likely[0], 1000], [-1, -1, -1], [399, 400, -2]]
        )
        pair = pair_of(target, draft)
        found = decide(runtime, pair, drafts, scheme, with_rates=True)
        best = np.zeros(4)
        best[:2] = mo.acceptance_rates(target[0], draft[0], (2, 1), drafts=scheme)
        assert self.brackets(found.rates, found.gaps, best)
        assert found.rates[2:].tolist() == found.gaps[2:].tolist() == [0.0, 0.0]


def decisions_of(with_rates: bool = False, **sampling: Any) -> VerificationRequest:
    return VerificationRequest(request_of(**sampling), Randomness(9, 2), with_rates)


class TestChunks:
    @pytest.mark.parametrize("chunk_bytes", [1, 3000, 1 << 20])
    @pytest.mark.parametrize("has_uniforms", [False, True])
    def test_any_size_gives_the_same_bits(
        self, runtime: PtxRuntime, chunk_bytes: int, has_uniforms: bool
    ) -> None:
        target, draft = near_rows(12, 152)
        rng = np.random.default_rng(0)
        drafts = drawn(rng, draft, 3)
        uniforms = rng.random((12, 4)) if has_uniforms else None
        whole = verify_rows(
            runtime, pair_of(target, draft), drafts, Randomness(9, 2), uniforms, with_rates=True
        )
        for shape in ((12,), (3, 4)):
            sides = (x.reshape(*shape, 152) for x in (target, draft))
            found = verify_in_chunks(
                runtime,
                *sides,
                drafts.reshape(*shape, 3),
                uniforms,
                decisions_of(with_rates=True),
                chunk_bytes,
            )
            assert isinstance(found, BatchVerdict)
            assert found.tokens.shape == found.gap.shape == found.accepted.shape == shape
            assert found.tokens.tobytes() == whole.tokens.tobytes()
            assert found.acceptance_rate.tobytes() == whole.rates.tobytes()
            assert found.gap.tobytes() == whole.gaps.tobytes()
        places = found.draft_index.ravel()
        for token, place, ids in zip(whole.tokens, places, drafts, strict=True):
            assert place == (ids.tolist().index(token) if token in ids else -1)

    def test_broadcasting_types_filters_and_single_rows(self, runtime: PtxRuntime) -> None:
        target, draft = near_rows(6, 120)
        drafts = np.ascontiguousarray(np.argsort(-draft, axis=1)[:, :3])
        half = target.astype(ml_dtypes.bfloat16)
        request = decisions_of(top_k=40)
        pairs = [(target[0], draft), (half, draft), (half[0], draft[0]), (half[::-1], draft[::-1])]
        for pair in pairs:
            ids = drafts if max(x.ndim for x in pair) == 2 else drafts[0]
            one, many = (
                verify_in_chunks(runtime, *pair, ids, None, request, size)
                for size in (1 << 30, 900)
            )
            assert isinstance(one, BatchVerdict)
            assert isinstance(many, BatchVerdict)
            assert one.tokens.shape == ids.shape[:-1]
            assert one.tokens.tolist() == many.tokens.tolist()
            assert one.acceptance_rate is None

    def test_batches_without_rows(self, runtime: PtxRuntime) -> None:
        empty = np.empty((2, 0, 50), np.float32)
        found = verify_in_chunks(
            runtime, empty, empty, np.empty((2, 0, 3), int), None, decisions_of(with_rates=True)
        )
        assert isinstance(found, BatchVerdict)
        assert found.tokens.shape == found.gap.shape == (2, 0)

    def test_bad_rows_are_named(self, runtime: PtxRuntime) -> None:
        target, draft = (x.reshape(2, 3, 100) for x in near_rows(6, 100))
        draft[1, 0, 7] = np.nan
        with pytest.raises(mo.errors.InvalidDistribution, match="draft_logits row 1, 0 has a NaN"):
            verify_in_chunks(
                runtime, target, draft, np.zeros((2, 3, 3), int), None, decisions_of(), 1000
            )

    def test_what_the_kernel_does_not_do(self, runtime: PtxRuntime) -> None:
        target, draft = near_rows(2, 20)
        drafts = np.zeros((2, 3), int)
        for changes, message in (
            ({"verifier": "rrs"}, "no kernel decides by verifier 'rrs'"),
            ({"scheme": "greedy"}, "with drafts 'greedy'"),
            ({"num_drafts": (65,)}, "at most 64"),
            ({"scheme": "without_replacement", "num_drafts": (33,)}, "at most 32"),
            ({"temperature": 1e-7}, "temperature"),
        ):
            request = replace(decisions_of(), rule=request_of(**changes))
            found = verify_in_chunks(runtime, target, draft, drafts, None, request)
            assert message in str(found)
        found = verify_in_chunks(
            runtime, target.astype(np.float64), draft, drafts, None, decisions_of()
        )
        assert "float32, float16 and bfloat16" in str(found)


class TestBatch:
    """On the CPU."""

    @pytest.mark.parametrize(
        ("scheme", "verifier"),
        [
            ("with_replacement", "optimal"),
            ("with_replacement", "rrs"),
            ("without_replacement", "optimal"),
            ("greedy", "greedy"),
            ("top_k", "optimal"),
        ],
    )
    def test_decides_as_the_verifier(self, scheme: str, verifier: str) -> None:
        target, draft = near_rows(12, 40)
        sampling: dict[str, Any] = {"temperature": 0.8, "top_k": 20}
        p, q = mo.softmax(target, **sampling), mo.softmax(draft, **sampling)
        rng = np.random.default_rng(1)
        drafts = np.stack([SINGLE_MODEL_SCHEMES[scheme](row, 3).sample(rng) for row in q])
        uniforms = uniforms_of(Randomness(9, 2), np.arange(12))
        expected = mo.verifiers.get(verifier).verify_batch(p, q, drafts, uniforms, scheme)
        options = {"scheme": scheme, "verifier": verifier, **sampling}
        found = verify_batch(target, draft, drafts, rng=9, step=2, **options)
        again = verify_batch(target, draft, drafts, uniforms=uniforms, num_threads=2, **options)
        for batch in (found, again):
            assert batch.tokens.tolist() == expected.tokens.tolist()
            assert batch.draft_index.tolist() == expected.draft_index.tolist()
            assert batch.accepted.tolist() == expected.accepted.tolist()

    def test_rates_and_gaps(self) -> None:
        target, draft = near_rows(5, 40)
        drafts = drawn(np.random.default_rng(0), draft, 3)
        drafts[1, 0], drafts[2] = -1, -1
        best = mo.acceptance_rates(target, draft, (3, 2))
        expected = np.array([best[0, 0], best[1, 1], 0.0, best[3, 0], best[4, 0]])
        optimal = verify_batch(target, draft, drafts, with_rates=True)
        np.testing.assert_array_equal(optimal.acceptance_rate, expected)
        np.testing.assert_array_equal(optimal.gap, 0.0)
        other = verify_batch(target, draft, drafts, with_rates=True, verifier="rrs")
        own = mo.acceptance_rates(target, draft, (3, 2), verifier="rrs")
        np.testing.assert_array_equal(other.acceptance_rate[[0, 1, 2]], [own[0, 0], own[1, 1], 0.0])
        np.testing.assert_array_equal(other.acceptance_rate + other.gap, expected)
        assert (other.gap[[0, 1, 3, 4]] > 0).all()
        assert verify_batch(target, draft, drafts).gap is None

    def test_rows_with_fewer_drafts(self) -> None:
        target, draft = near_rows(3, 40)
        drafts = np.argsort(-draft, axis=1)[:, :3]
        drafts[0, 1], drafts[1] = -1, -1
        uniforms = np.random.default_rng(0).random((3, 4))
        found = verify_batch(target, draft, drafts, uniforms=uniforms)
        rule = mo.verifiers.get("optimal")
        p, q = mo.softmax(target), mo.softmax(draft)
        for row, ids in ((0, drafts[0, [0, 2]]), (2, drafts[2])):
            problem = mo.TransportProblem(p[row], mo.WithReplacement(q[row], ids.size))
            single = rule.verify(problem, ids, Uniforms(*uniforms[row].tolist()))
            assert found.tokens[row] == single.token
        assert found.tokens[1] == np.searchsorted(np.cumsum(p[1]), uniforms[1, 3])

    def test_shapes_follow_the_logits(self) -> None:
        target, draft = (x.reshape(2, 3, 40) for x in near_rows(6, 40))
        drafts = np.zeros((2, 3, 2), np.int32)
        found = verify_batch(target, draft, drafts, temperature=0.7, draft_temperature=1.3)
        assert found.tokens.shape == found.draft_index.shape == (2, 3)
        single = verify_batch(
            target[0, 0], draft[0, 0], drafts[0, 0], temperature=0.7, draft_temperature=1.3
        )
        assert single.tokens == found.tokens[0, 0]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"drafts": np.zeros((2, 3))}, "token ids"),
            ({"drafts": np.zeros((3, 3), int)}, "all axes of drafts"),
            ({"drafts": np.full((2, 3), 10)}, "row 0: .*outside"),
            ({"drafts": np.full((2, 3), -2)}, "row 0: .*outside"),
            ({"uniforms": np.zeros((2, 3))}, "uniforms have shape"),
            ({"uniforms": np.ones((2, 4))}, r"of \[0, 1\)"),
            ({"scheme": "none"}, "draft scheme"),
            ({"verifier": "none"}, "verifier"),
            ({"rng": -1}, "seed is -1"),
            ({"step": 1 << 32}, "step"),
            ({"device": "tpu"}, "device"),
        ],
    )
    def test_errors(self, changes: dict[str, Any], message: str) -> None:
        target, draft = near_rows(2, 10)
        arguments: dict[str, Any] = {"drafts": np.zeros((2, 3), int)} | changes
        with pytest.raises(mo.errors.InvalidInput, match=message):
            verify_batch(target, draft, **arguments)

    def test_rows_are_named(self) -> None:
        target, draft = (x.reshape(2, 3, 10) for x in near_rows(6, 10))
        drafts = np.zeros((2, 3, 2), int)
        drafts[1, 2, 0] = 10
        with pytest.raises(mo.errors.InvalidInput, match=r"row 1, 2: .*outside"):
            verify_batch(target, draft, drafts)
        with pytest.raises(mo.errors.InvalidInput, match="must fit"):
            verify_batch(target[:1, :2], draft, drafts)

    def test_bad_rows_are_named(self) -> None:
        target, draft = near_rows(2, 10)
        draft[1] = -np.inf
        with pytest.raises(mo.errors.InvalidDistribution, match="draft_logits row 1 is all -inf"):
            verify_batch(target, draft, np.zeros((2, 1), int))

    def test_a_device_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu_runtime, "why_unavailable", lambda: "there is none")
        target, draft = near_rows(1, 10)
        with pytest.raises(gpu_runtime.NoDevice, match="there is none"):
            verify_batch(target, draft, np.zeros((1, 1), int), device="gpu")
