"""The kernel of the optimal verifier: an exact law, nearly optimal, replayable."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support import chi_square
from support.host_engine import HostEngine, build
from support.kernel_cases import LOG2_E, near_rows, pair_of
from support.logit_rows import rows_of_every_character

import mdsd_opt as mo
from mdsd_opt.batch import verify_batch
from mdsd_opt.batch.device_rates import filter_settings
from mdsd_opt.batch.rows import Sampling
from mdsd_opt.gpu import availability, twin
from mdsd_opt.gpu.rates import with_filters
from mdsd_opt.gpu.verification import Randomness, verify_rows
from mdsd_opt.verifiers.optimal.hull import blocks_around, death_levels, selection_law


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("kernels"), cluster_size=2)


@pytest.fixture(scope="module")
def engine(library: Path) -> HostEngine:
    return HostEngine(library, block_size=32)


def weighed(target: NDArray[Any], draft: NDArray[Any], k: int) -> twin.WeighedRow:
    return twin.weigh(
        np.asarray(target, np.float32), np.asarray(draft, np.float32), k, LOG2_E, LOG2_E
    )


def probabilities(row: twin.WeighedRow) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return row.p / float(row.p.sum()), row.q / float(row.q.sum())


def curve(row: twin.WeighedRow, k: int) -> tuple[Any, Any, Any, Any, twin.CollapsedMarginal]:
    """Bins with mass, and on them the marginal's masses, q's, and the slopes of F."""
    marginal = twin.collapse(row, k)
    used = np.flatnonzero(np.diff(marginal.a) > 0)
    w = np.diff(marginal.a)[used]
    f = np.diff(marginal.a**k)[used] / w
    return used, np.diff(marginal.r)[used], w, f, marginal


def exact_output_law(row: twin.WeighedRow, k: int) -> NDArray[np.float64]:
    """All draft tuples enumerated, the level integrated over the intervals between merges."""
    p, q = probabilities(row)
    used, x, w, f, marginal = curve(row, k)
    levels = death_levels(x, w, f)
    place = {int(b): i for i, b in enumerate(used)}
    accept = np.minimum(
        1.0,
        np.divide(
            p,
            marginal.ratio[row.bins] * q,
            out=np.ones_like(p),
            where=marginal.ratio[row.bins] * q > 0,
        ),
    )
    left = np.maximum(p - marginal.ratio[row.bins] * q, 0.0)
    law = np.zeros_like(p)
    rejected = 0.0
    for drafts in product(np.flatnonzero(q > 0).tolist(), repeat=k):
        probability = float(np.prod(q[list(drafts)]))
        places = [place[int(row.bins[d])] for d in drafts]
        for length, start, stop in blocks_around(max(places), levels):
            z = next(d for d, i in zip(drafts, places, strict=True) if start <= i < stop)
            law[z] += probability * length * accept[z]
            rejected += probability * length * (1.0 - accept[z])
    if left.sum() > 0:
        law += rejected * left / left.sum()
    return law


class TestLaw:
    @given(
        weights=st.lists(
            st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5
        ).filter(lambda pairs: any(p for p, _ in pairs) and any(q for _, q in pairs)),
        k=st.integers(1, 3),
    )
    def test_is_exactly_the_target(self, weights: list[tuple[int, int]], k: int) -> None:
        with np.errstate(divide="ignore"):
            target, draft = np.log(np.array(weights, dtype=np.float64)).T
        row = weighed(target, draft, k)
        p, _ = probabilities(row)
        np.testing.assert_allclose(exact_output_law(row, k), p, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("k", [1, 2, 4, 8])
    def test_of_the_selected_draft_is_the_marginal(self, k: int) -> None:
        for name, (target, draft) in rows_of_every_character(700).items():
            row = weighed(target, draft, k)
            _, x, w, f, marginal = curve(row, k)
            law = selection_law(w, f, death_levels(x, w, f))
            np.testing.assert_allclose(law, x, rtol=0, atol=1e-11, err_msg=name)
            f_ends = marginal.a**k
            assert (marginal.r >= f_ends - 1e-15).all(), name
            assert marginal.r[-1] == 1.0

    @pytest.mark.parametrize("k", [1, 2, 4, 8])
    def test_loses_little_acceptance(self, k: int) -> None:
        """The bins are 2 percent wide, which is what may be lost where the optimum is near one."""
        for name, (target, draft) in rows_of_every_character(3000).items():
            row = weighed(target, draft, k)
            p, q = probabilities(row)
            marginal = twin.collapse(row, k)
            reached = np.minimum(p, marginal.ratio[row.bins] * q).sum()
            best = mo.acceptance_rates(target.astype(np.float32), draft.astype(np.float32), k)
            assert reached <= best + 1e-6, name
            assert reached >= best - 6e-3, name


def drawn(rng: np.random.Generator, draft: NDArray[Any], k: int) -> NDArray[np.int64]:
    q = mo.softmax(draft)
    return np.stack([rng.choice(row.size, k, p=row) for row in q]).astype(np.int64)


class TestKernel:
    @pytest.mark.parametrize("k", [1, 2, 3, 8])
    @pytest.mark.parametrize("size", [2, 7, 300])
    def test_decides_as_the_twin(self, engine: HostEngine, size: int, k: int) -> None:
        rng = np.random.default_rng(size * 10 + k)
        for name, (target, draft) in rows_of_every_character(size).items():
            trials = 12
            pair = [np.repeat(x[None].astype(np.float32), trials, 0) for x in (target, draft)]
            drafts = drawn(rng, pair[1].astype(np.float64), k)
            uniforms = rng.random((trials, 3))
            found = verify_rows(engine, pair_of(*pair), drafts, Randomness(0), uniforms)
            row = weighed(target, draft, k)
            expected = [twin.verify_row(row, d, u) for d, u in zip(drafts, uniforms, strict=True)]
            assert found.tokens.tolist() == expected, name
            assert not found.is_bad.any()

    def test_large_rows(self, library: Path) -> None:
        target, draft = near_rows(6, 20_000)
        rng = np.random.default_rng(5)
        drafts = drawn(rng, draft.astype(np.float64), 4)
        uniforms = rng.random((6, 3))
        uniforms[3:, 1] = 1 - 2.0**-53  # rejected where that is possible at all
        engine = HostEngine(library, "random", block_size=128)
        found = verify_rows(engine, pair_of(target, draft), drafts, Randomness(0), uniforms)
        expected = [
            twin.verify_row(weighed(target[i], draft[i], 4), drafts[i], uniforms[i])
            for i in range(6)
        ]
        assert found.tokens.tolist() == expected

    def test_rejected_drafts_are_replaced_from_the_residual(self, engine: HostEngine) -> None:
        """Disjoint supports: every draft is rejected, and the output follows the target."""
        target = np.array([0.5, 1.5, -np.inf, -np.inf], np.float32)
        draft = np.array([-np.inf, -np.inf, 0.0, 1.0], np.float32)
        draws = (np.arange(50) + 0.5) / 50
        uniforms = np.stack([np.full(50, 0.3), np.zeros(50), draws], axis=1)
        pair = pair_of(np.repeat(target[None], 50, 0), np.repeat(draft[None], 50, 0))
        drafts = np.full((50, 2), 3, np.int64)
        found = verify_rows(engine, pair, drafts, Randomness(0), uniforms)
        share = mo.softmax(target)[0]
        assert found.tokens.tolist() == [0 if u < share else 1 for u in draws]

    def test_rows_without_a_possible_draft(self, engine: HostEngine) -> None:
        target, draft = near_rows(2, 50)
        draft[:, 7] = -np.inf
        drafts = np.array([[-1, -1], [7, 99]], np.int64)
        uniforms = np.array([[0.5, 0.5, 0.25], [0.5, 0.5, 0.75]])
        found = verify_rows(engine, pair_of(target, draft), drafts, Randomness(0), uniforms)
        for row in range(2):
            ends = np.cumsum(mo.softmax(target[row]))
            assert found.tokens[row] == np.searchsorted(ends, uniforms[row, 2])

    def test_bad_rows(self, engine: HostEngine) -> None:
        target, draft = near_rows(3, 50)
        target[1, 4] = np.nan
        drafts = np.zeros((3, 2), np.int64)
        found = verify_rows(engine, pair_of(target, draft), drafts, Randomness(3))
        assert found.is_bad.tolist() == [0, 1, 0]
        assert found.tokens[1] == -1
        assert (found.tokens[[0, 2]] >= 0).all()


class TestRandomNumbers:
    def test_published_vectors(self) -> None:
        """The first words of Philox4x32-10 for counter and key zero, from Random123."""
        bits = np.array([0x6627E8D5, 0xE169C58D])
        expected = ((bits[0] >> 5) * 2.0**26 + (bits[1] >> 6)) / 2.0**53
        assert twin.uniforms_of(0, 0, np.array([0]))[0, 0] == expected

    def test_streams_differ_and_repeat(self) -> None:
        rows = np.arange(1000)
        first = twin.uniforms_of(1 << 40 | 7, 3, rows)
        np.testing.assert_array_equal(first, twin.uniforms_of(1 << 40 | 7, 3, rows))
        for other in (twin.uniforms_of(7, 3, rows), twin.uniforms_of(1 << 40 | 7, 4, rows)):
            assert (other != first).all()
        assert abs(np.corrcoef(first.T) - np.eye(3)).max() < 0.15
        assert abs(first.mean() - 0.5) < 0.05

    def test_the_kernel_draws_the_same(self, engine: HostEngine) -> None:
        target, draft = near_rows(20, 60)
        drafts = drawn(np.random.default_rng(0), draft.astype(np.float64), 3)
        randomness = Randomness(seed=12345678901234567890, step=4_000_000_000, first_row=1 << 33)
        found = verify_rows(engine, pair_of(target, draft), drafts, randomness)
        rows = randomness.first_row + np.arange(20)
        uniforms = twin.uniforms_of(randomness.seed, randomness.step, rows)
        again = verify_rows(engine, pair_of(target, draft), drafts, Randomness(0), uniforms)
        assert found.tokens.tolist() == again.tokens.tolist()


class TestBatch:
    def test_is_the_kernel_row_by_row(self, engine: HostEngine) -> None:
        target, draft = near_rows(12, 80)
        drafts = drawn(np.random.default_rng(1), draft.astype(np.float64), 3)
        on_engine = verify_rows(engine, pair_of(target, draft), drafts, Randomness(9, 2))
        found = verify_batch(target, draft, drafts, seed=9, step=2)
        assert found.tokens.tolist() == on_engine.tokens.tolist()
        for token, place, ids in zip(found.tokens, found.draft_index, drafts, strict=True):
            assert place == (ids.tolist().index(token) if token in ids else -1)
        np.testing.assert_array_equal(found.accepted, found.draft_index >= 0)

    @pytest.mark.parametrize("options", [{"top_k": 5, "min_p": 0.1}, {"temperature": 0.0}])
    def test_filters(self, engine: HostEngine, options: dict[str, Any]) -> None:
        target, draft = near_rows(10, 80)
        drafts = np.ascontiguousarray(np.argsort(-draft, axis=1)[:, [0, 2, 1]])
        settings = filter_settings(
            Sampling(
                options.get("temperature", 1.0), options.get("top_k"), None, options.get("min_p")
            ),
            Sampling(1.0, options.get("top_k"), None, options.get("min_p")),
        )
        assert settings is not None
        pair = pair_of(target, draft)
        if "temperature" in options:
            pair = replace(pair, target_scale=1.0)
        pair = with_filters(engine, pair, settings)
        on_engine = verify_rows(engine, pair, drafts, Randomness(1))
        found = verify_batch(target, draft, drafts, seed=1, draft_temperature=1.0, **options)
        assert found.tokens.tolist() == on_engine.tokens.tolist()
        kept = mo.softmax(target, **options) > 0
        assert kept[np.arange(10), found.tokens].all()

    def test_shapes_follow_the_logits(self) -> None:
        target, draft = (x.reshape(2, 3, 40) for x in near_rows(6, 40))
        drafts = np.zeros((2, 3, 2), np.int32)
        found = verify_batch(target, draft, drafts, temperature=0.7, draft_temperature=1.3)
        assert found.tokens.shape == found.draft_index.shape == (2, 3)
        single = verify_batch(
            target[0, 0], draft[0, 0], drafts[0, 0], temperature=0.7, draft_temperature=1.3
        )
        assert single.tokens == found.tokens[0, 0]

    def test_accepts_as_often_as_the_optimum(self) -> None:
        """4000 decisions: three standard errors are 0.024 at most, with a false alarm in 370."""
        target, draft = near_rows(1, 30, seed=3)
        trials = 4000
        drafts = np.random.default_rng(4).choice(30, (trials, 2), p=mo.softmax(draft[0]))
        pair = [np.broadcast_to(x, (trials, 30)) for x in (target, draft)]
        found = verify_batch(*pair, drafts, seed=5)
        best = mo.acceptance_rates(target[0], draft[0], 2)
        assert abs(found.accepted.mean() - best) < 0.024
        law = dict(enumerate(mo.softmax(target[0])))
        assert chi_square.p_value(found.tokens.tolist(), law) > 1e-3

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"drafts": np.zeros((2, 3))}, "token ids"),
            ({"drafts": np.zeros((3, 3), int)}, "all axes of drafts"),
            ({"drafts": np.zeros((2, 65), int)}, "at most 64"),
            ({"temperature": 1e7}, "temperatures"),
            ({"seed": -1}, "seed"),
            ({"step": 1 << 32}, "step"),
            ({"device": "tpu"}, "device"),
        ],
    )
    def test_errors(self, changes: dict[str, Any], message: str) -> None:
        target, draft = near_rows(2, 10)
        arguments: dict[str, Any] = {"drafts": np.zeros((2, 3), int)} | changes
        with pytest.raises(mo.errors.InvalidInput, match=message):
            verify_batch(target, draft, **arguments)

    def test_bad_rows_are_named(self) -> None:
        target, draft = near_rows(2, 10)
        draft[1] = -np.inf
        with pytest.raises(mo.errors.InvalidDistribution, match="draft_logits row 1 is all -inf"):
            verify_batch(target, draft, np.zeros((2, 1), int))

    def test_a_device_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(availability, "why_unavailable", lambda: "there is none")
        target, draft = near_rows(1, 10)
        with pytest.raises(availability.NoDevice, match="there is none"):
            verify_batch(target, draft, np.zeros((1, 1), int), device="gpu")
