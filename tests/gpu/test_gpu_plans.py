"""Calls that are prepared once, on a CuPy that counts what is asked of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.kernel_cases import flat_race_rows, flat_rows, near_rows
from support.waiting_cupy import Tensor, WaitingCupy, ndarray

import mdsd_opt as mo
from mdsd_opt.batch import DecisionsPlan, RatesPlan, verify_batch

V = 300
TARGET, DRAFT = near_rows(4, V)
DRAFTS = np.argsort(-DRAFT, axis=1)[:, :3].astype(np.int64)
VERDICT = ("tokens", "draft_index", "acceptance_rate", "gap")


def of(found: Any) -> Any:
    return found.get() if isinstance(found, ndarray) else found.numpy()


def asked_by(cupy: WaitingCupy, call: Callable[[], Any]) -> dict[str, int]:
    before = cupy.asked.copy()
    call()
    return dict(cupy.asked - before)


def replayed(cupy: WaitingCupy, call: Callable[[], Any]) -> Callable[[], None]:
    """Make a call as a CUDA graph captures it: what it launched is done again, and nothing else."""
    stream = cupy.stream
    stream.synchronize()
    call()
    graph = list(stream._queue)

    def replay() -> None:
        for work in graph:
            stream.push(work)

    return replay


class TestRates:
    @pytest.mark.parametrize(
        "options",
        [
            {"num_drafts": (1, 3)},
            {"num_drafts": 2, "temperature": 0.7, "draft_temperature": 1.3},
            {"num_drafts": (1, 3), "drafts": "without_replacement"},
            {"num_drafts": (2,), "top_k": 40, "top_p": 0.9},
            {"num_drafts": 2, "drafts": "greedy", "verifier": "greedy"},
            {"num_drafts": (1, 2), "verifier": "rrs"},
        ],
    )
    def test_are_those_of_plain_calls(self, cupy: WaitingCupy, options: dict[str, Any]) -> None:
        sides = cupy.asarray(TARGET), cupy.asarray(DRAFT)
        expected = mo.acceptance_rates(*sides, kind="logits", **options).get()
        plan = RatesPlan(V, 8, "float32", **options)
        out = cupy.empty(expected.shape, np.float64)
        assert plan(*sides, out=out) is out
        np.testing.assert_array_equal(out.get(), expected)
        np.testing.assert_array_equal(plan(*sides).get(), expected)
        one = plan(cupy.asarray(TARGET[2]), cupy.asarray(DRAFT[2]))  # the bits of any other batch
        np.testing.assert_array_equal(one.get(), expected[2])
        plan.check()

    @pytest.mark.parametrize(
        ("rows", "drafts"),
        [(flat_rows, "with_replacement"), (flat_race_rows, "without_replacement")],
    )
    def test_of_rows_that_stay_open(
        self, cupy: WaitingCupy, rows: Callable[[int], Any], drafts: str
    ) -> None:
        target, draft = rows(3001 if drafts == "with_replacement" else 60)
        plan = RatesPlan(target.shape[1], 1, num_drafts=(2, 3), drafts=drafts)
        found = plan(cupy.asarray(target), cupy.asarray(draft)).get()
        expected = mo.acceptance_rates(target, draft, (2, 3), drafts)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("drafts", ["with_replacement", "without_replacement", "top_k"])
    def test_ask_for_nothing(self, cupy: WaitingCupy, drafts: str) -> None:
        plan = RatesPlan(V, 4, num_drafts=(1, 2), drafts=drafts, top_k=50)
        sides = cupy.asarray(TARGET), cupy.asarray(DRAFT)
        out = cupy.empty((4, 2), np.float64)
        assert asked_by(cupy, lambda: plan(*sides, out=out)) == {}
        assert asked_by(cupy, lambda: plan(*sides)) == {}
        assert asked_by(cupy, plan.check) == {"waits": 1, "copies": 1}

    def test_of_torch_on_its_own_stream(self, torch: Any, cupy: WaitingCupy) -> None:
        plan = RatesPlan(V, 4, num_drafts=(1, 3))
        sides = torch.tensor(TARGET), torch.tensor(DRAFT)
        found = plan(*sides)
        assert isinstance(found, Tensor)
        expected = mo.acceptance_rates(TARGET, DRAFT, (1, 3))
        np.testing.assert_allclose(of(found), expected, rtol=0, atol=1e-6)
        out = torch.tensor(np.zeros((4, 2)))
        assert asked_by(cupy, lambda: plan(*sides, out=out)) == {}
        np.testing.assert_array_equal(of(out), of(found))

    def test_of_two_types_that_broadcast(self, cupy: WaitingCupy) -> None:
        half = TARGET.reshape(2, 2, V).astype(np.float16)
        plan = RatesPlan(V, 4, ("float16", np.float32), num_drafts=2)
        wide = cupy.asarray(np.pad(DRAFT[:2], ((0, 0), (3, 2))))[:, 3:-2]
        found = plan(cupy.asarray(half), wide)
        expected = mo.acceptance_rates(half, DRAFT[:2], 2)
        assert found.shape == (2, 2)
        np.testing.assert_allclose(found.get(), expected, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("library", ["cupy", "torch"])
    def test_what_comes_again_at_the_same_place_is_read_again(
        self, torch: Any, cupy: WaitingCupy, library: str
    ) -> None:
        plan = RatesPlan(V, 4, num_drafts=2)
        held = [cupy.asarray(x) for x in (TARGET, DRAFT)]
        given = [torch.from_dlpack(x) for x in held] if library == "torch" else held
        for turn in (1, -1, 1):
            held[0].set(TARGET[::turn])
            cupy.stream.synchronize()
            found = of(plan(*given))
            expected = mo.acceptance_rates(TARGET[::turn], DRAFT, 2)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        two = [x[1:3] for x in given]  # another shape, of which the first row lies elsewhere
        np.testing.assert_array_equal(of(plan(*two)), found[1:3])
        np.testing.assert_array_equal(of(plan(*(x[:2] for x in given))), found[:2])
        held[1].set(np.full_like(DRAFT, np.nan))
        cupy.stream.synchronize()
        plan(*given)
        with pytest.raises(mo.errors.InvalidDistribution, match="draft_logits row 0"):
            plan.check()

    def test_bad_rows_are_told_when_asked(self, cupy: WaitingCupy) -> None:
        bad = TARGET.copy()
        bad[2, 7] = np.nan
        plan = RatesPlan(V, 4)
        plan.check()  # of no call
        plan(cupy.asarray(bad), cupy.asarray(DRAFT))
        with pytest.raises(mo.errors.InvalidDistribution, match="target_logits row 2 has a NaN"):
            plan.check()
        plan(cupy.asarray(TARGET), cupy.asarray(DRAFT))
        plan.check()

    def test_a_graph_reads_what_is_there_when_it_is_replayed(self, cupy: WaitingCupy) -> None:
        plan = RatesPlan(V, 4)
        target, draft = cupy.asarray(TARGET), cupy.asarray(DRAFT)
        found: list[Any] = []
        replay = replayed(cupy, lambda: found.append(plan(target, draft)))
        target.set(TARGET[::-1])
        assert asked_by(cupy, replay) == {}
        expected = mo.acceptance_rates(TARGET[::-1], DRAFT)
        np.testing.assert_allclose(found[0].get(), expected, rtol=0, atol=1e-6)


class TestDecisions:
    @pytest.mark.parametrize("scheme", ["with_replacement", "without_replacement"])
    def test_are_those_of_plain_calls_of_further_steps(
        self, cupy: WaitingCupy, scheme: str
    ) -> None:
        given = cupy.asarray(TARGET), cupy.asarray(DRAFT), cupy.asarray(DRAFTS)
        plan = DecisionsPlan(V, 6, "float32", 3, scheme, rng=7, step=4, with_rates=True)
        out = mo.verifiers.BatchVerdict(
            *(cupy.empty(4, np.int64) for _ in range(2)), *(cupy.empty(4) for _ in range(2))
        )
        for step in (4, 5):
            expected = verify_batch(*given, scheme=scheme, rng=7, step=step, with_rates=True)
            found = plan(*given) if step == 4 else plan(*given, out=out)
            for name in VERDICT:
                values = getattr(found, name).get(), getattr(expected, name).get()
                np.testing.assert_array_equal(*values)
        assert found is out
        plan.restart(7, 4)
        again = plan(*given).tokens.get()
        np.testing.assert_array_equal(
            again, verify_batch(*given, scheme=scheme, rng=7, step=4).tokens.get()
        )

    def test_ask_for_nothing(self, cupy: WaitingCupy) -> None:
        given = cupy.asarray(TARGET), cupy.asarray(DRAFT), cupy.asarray(DRAFTS)
        plan = DecisionsPlan(V, 4, top_p=0.95)
        plan(*given)
        assert asked_by(cupy, lambda: plan(*given)) == {}

    def test_a_replayed_graph_draws_anew(self, cupy: WaitingCupy) -> None:
        rows = np.zeros(64, np.int64)
        given = [cupy.asarray(np.ascontiguousarray(x[rows])) for x in (TARGET, DRAFT, DRAFTS)]
        plan = DecisionsPlan(V, 64, rng=3)
        found: list[Any] = []
        replay = replayed(cupy, lambda: found.append(plan(*given).tokens))
        first = found[0].get()
        assert asked_by(cupy, replay) == {}
        expected = [verify_batch(*given, rng=3, step=step).tokens.get() for step in (0, 1)]
        np.testing.assert_array_equal(first, expected[0])
        np.testing.assert_array_equal(found[0].get(), expected[1])
        assert (expected[0] != expected[1]).any()

    def test_a_step_ends_with_32_bits_and_a_bad_row_has_no_token(self, cupy: WaitingCupy) -> None:
        bad = TARGET.copy()
        bad[1] = -np.inf
        given = [cupy.asarray(x) for x in (bad, DRAFT, np.full_like(DRAFTS, -1))]
        plan = DecisionsPlan(V, 4, rng=1, step=2**32 - 1)
        assert plan(*given).tokens.get()[1] == -1
        assert (plan(*given).draft_index.get() == -1).all()
        with pytest.raises(mo.errors.InvalidDistribution, match="target_logits row 1"):
            plan.check()
        given[0] = cupy.asarray(TARGET)
        plan.restart(1, 2**32 - 1)
        plan(*given)
        expected = verify_batch(*given, rng=1, step=0).tokens.get()
        np.testing.assert_array_equal(plan(*given).tokens.get(), expected)


class TestPlainCalls:
    def test_ask_for_what_they_return_and_wait_once(self, cupy: WaitingCupy) -> None:
        given = cupy.asarray(TARGET), cupy.asarray(DRAFT), cupy.asarray(DRAFTS)

        def rates() -> None:
            mo.acceptance_rates(*given[:2], (1, 3), kind="logits")

        def decisions() -> None:
            verify_batch(*given, kind="logits")

        for call, results in ((rates, 1), (decisions, 3)):  # of drafts a copy of int64
            call()
            assert asked_by(cupy, call) == {"allocations": results, "copies": 1, "waits": 1}

    def test_on_two_streams_share_nothing(self, cupy: WaitingCupy) -> None:
        given = cupy.asarray(TARGET), cupy.asarray(DRAFT)
        expected = mo.acceptance_rates(*given).get()
        with cupy.cuda.Stream():
            before = cupy.asked["allocations"]
            found = mo.acceptance_rates(*given, kind="logits")
            assert cupy.asked["allocations"] - before > 1
            np.testing.assert_array_equal(found.get(), expected)

    def test_keep_no_more_than_a_few_buffers(self, cupy: WaitingCupy) -> None:
        for rows in range(1, 12):
            some = [cupy.asarray(x[np.zeros(rows, np.int64)]) for x in (TARGET, DRAFT)]
            mo.acceptance_rates(*some, kind="logits")
            if rows == 8:
                before = cupy.live_bytes
        assert cupy.live_bytes < 2 * before


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"dtype": "float64"}, "dtype is 'float64'"),
            ({"num_drafts": tuple(range(1, 10))}, "make several plans"),
            ({"max_rows": 0}, "max_rows is 0"),
        ],
    )
    def test_of_what_is_prepared(
        self, cupy: WaitingCupy, options: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(mo.errors.InvalidInput, match=words):
            RatesPlan(**{"vocab_size": V, "max_rows": 4} | options)

    def test_of_rules_without_kernels(self, cupy: WaitingCupy) -> None:
        with pytest.raises(mo.errors.UnsupportedScheme, match="no kernel of verifier 'gumbel'"):
            RatesPlan(V, 4, verifier="gumbel")
        with pytest.raises(mo.errors.UnsupportedScheme, match="no kernel decides"):
            DecisionsPlan(V, 4, scheme="top_k")

    def test_of_logits_that_do_not_fit(self, cupy: WaitingCupy) -> None:
        plan = RatesPlan(V, 3)
        sides = cupy.asarray(TARGET), cupy.asarray(DRAFT)
        turned = cupy.asarray(np.asfortranarray(TARGET[:3]))
        turned.values = np.asfortranarray(TARGET[:3])
        for target, draft, words in (
            (*sides, "4 rows are more than max_rows = 3"),
            (TARGET[:3], sides[1], "target_logits is not on device 0"),
            (cupy.asarray(TARGET[:3].astype(np.float16)), sides[1], "the plan is for float32"),
            (sides[0][:3, 1:], sides[1][:3, 1:], "the plan is for float32"),
            (turned, sides[1][:3], "the last axis contiguous"),
        ):
            with pytest.raises(mo.errors.InvalidInput, match=words):
                plan(target, draft)
        with pytest.raises(mo.errors.InvalidInput, match="give a contiguous array of float64"):
            plan(sides[0][:3], sides[1][:3], out=cupy.empty((3, 1)))

    def test_without_a_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from mdsd_opt.gpu import runtime as gpu_runtime

        monkeypatch.setitem(sys.modules, "cupy", None)
        gpu_runtime.why_unavailable.cache_clear()
        with pytest.raises(gpu_runtime.NoDevice, match="cupy"):
            RatesPlan(V, 4)
        gpu_runtime.why_unavailable.cache_clear()
