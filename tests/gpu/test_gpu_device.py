"""What only a CUDA device can show: kernels as compiled for it, streams, and other libraries."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from support import gpu_references
from support.gpu_references import COMBINATIONS, DTYPES, FILTERS, SCHEMES, SIZES, reference
from support.kernel_cases import near_rows
from support.logit_rows import confident_rows

import mdsd_opt as mo
from mdsd_opt.batch import DecisionsPlan, RatesPlan, verify_batch
from mdsd_opt.gpu import Randomness, uniforms_of, why_unavailable

REASON = why_unavailable()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(REASON is not None, reason=f"no CUDA device: {REASON}"),
]

TOLERANCE = 2e-6

#: Trees, and schemes of their drafts, that are decided where the model is.
DECODED = [
    ("chain3", "with_replacement"),
    ("2x2", "with_replacement"),
    ("4x1", "without_replacement"),
]


def check(case: Any, *arguments: Any) -> None:
    """Rates on the device are those of the file, see `support.gpu_references`."""
    given = case(*arguments)
    found = mo.acceptance_rates(*given.pair, given.counts, device="gpu", **given.options)
    np.testing.assert_allclose(found, reference(case, *arguments), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", COMBINATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_rates_of_every_character(size: int, dtype: str, name: str) -> None:
    check(gpu_references.of_every_character, size, dtype, name)


@pytest.mark.parametrize("dtypes", list(product(DTYPES, repeat=2)))
def test_types_that_differ(dtypes: tuple[str, str]) -> None:
    check(gpu_references.of_types, *dtypes)


@pytest.mark.parametrize("drafts", SCHEMES)
def test_many_open_bins(drafts: str) -> None:
    check(gpu_references.of_open_bins, drafts)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_runs_agree_bit_for_bit(name: str) -> None:
    target, draft = near_rows(64, 131_072)
    first = mo.acceptance_rates(target, draft, (1, 4), device="gpu", **COMBINATIONS[name])
    for _ in range(5):
        again = mo.acceptance_rates(target, draft, (1, 4), device="gpu", **COMBINATIONS[name])
        assert again.tobytes() == first.tobytes()


def test_batches_larger_than_a_chunk() -> None:
    target, draft = (np.tile(x, (80, 1)) for x in gpu_references.of_large_rows().pair)
    found = mo.acceptance_rates(target, draft, 3, device="gpu")
    expected = np.tile(reference(gpu_references.of_large_rows), 80)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("drafts", SCHEMES)
@pytest.mark.parametrize("place", range(len(FILTERS)))
def test_filters(place: int, drafts: str) -> None:
    check(gpu_references.of_filters, place, drafts)


def test_bad_rows() -> None:
    target, draft = (x.reshape(2, 3, 1000) for x in near_rows(6, 1000))
    target[1, 2, 999] = np.nan
    with pytest.raises(mo.errors.InvalidDistribution, match="target_logits row 1, 2 has a NaN"):
        mo.acceptance_rates(target, draft, 3, device="gpu")


class TestLibraries:
    def test_cupy(self) -> None:
        cupy = pytest.importorskip("cupy")
        target, draft = near_rows(6, 1030)
        on_device = [cupy.asarray(x)[:, 3:1000].reshape(2, 3, -1) for x in (target, draft)]
        found = mo.acceptance_rates(*on_device, (2, 3))
        assert isinstance(found, cupy.ndarray)
        expected = reference(gpu_references.of_slices).reshape(2, 3, 2)
        np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=0, atol=TOLERANCE)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_torch_on_its_own_stream(self, dtype: str) -> None:
        torch = pytest.importorskip("torch")
        target, draft = near_rows(6, 5000)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            pair = [torch.from_numpy(x).cuda().to(getattr(torch, dtype)) for x in (target, draft)]
            padded = [torch.nn.functional.pad(x, (0, 24), value=float("nan")) for x in pair]
            found = mo.acceptance_rates(*(x[:, :5000] for x in padded), 3)
            assert found.device.type == "cuda"
            again = (found + 0).cpu().numpy()
        expected = reference(gpu_references.of_library, dtype)
        np.testing.assert_allclose(again, expected, rtol=0, atol=TOLERANCE)

    def test_jax(self) -> None:
        jax = pytest.importorskip("jax")
        target, draft = near_rows(6, 5000)
        on_device = [jax.numpy.asarray(x) for x in (target, draft)]
        if on_device[0].devices().pop().platform != "gpu":
            pytest.skip("JAX has no device here")
        found = mo.acceptance_rates(*on_device, 3)
        assert isinstance(found, jax.Array)
        expected = reference(gpu_references.of_library, "float32")
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=TOLERANCE)

    def test_what_the_kernels_do_not_do_goes_to_the_cpu(self) -> None:
        cupy = pytest.importorskip("cupy")
        pytest.importorskip("numba")
        target, draft = near_rows(3, 500)
        on_device = [cupy.asarray(x) for x in (target, draft)]
        options = {"drafts": "without_replacement"}
        found = mo.acceptance_rates(*on_device, 40, **options)
        assert isinstance(found, cupy.ndarray)
        expected = mo.acceptance_rates(target, draft, 40, **options)
        np.testing.assert_allclose(found.get(), expected, atol=1e-9)
        with pytest.raises(mo.errors.UnsupportedScheme, match="at most 32"):
            mo.acceptance_rates(*on_device, 40, device="gpu", **options)


class TestVerification:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_decides_as_on_the_host(self, scheme: str) -> None:
        given = gpu_references.decisions()
        found = verify_batch(
            *given.pair, given.drafts, uniforms=given.uniforms, scheme=scheme, device="gpu"
        )
        expected = gpu_references.stored()[f"tokens {scheme}"]
        # The device's exp2 rounds differently: a decision may tip, once in many thousands.
        assert (found.tokens == expected).mean() >= 0.98
        assert (found.accepted == (found.draft_index >= 0)).all()

    def test_batches_larger_than_a_chunk(self) -> None:
        """In chunks by way of the host, and in one piece on the device: the same bits."""
        cupy = pytest.importorskip("cupy")
        target, draft = (np.tile(x, (80, 1)) for x in near_rows(8, 131_072))
        drafts = np.tile(np.argsort(-draft[:8], axis=1)[:, :3], (80, 1))
        in_chunks = verify_batch(target, draft, drafts, rng=4, with_rates=True, device="gpu")
        on_device = [cupy.asarray(x) for x in (target, draft)]
        in_place = verify_batch(*on_device, drafts, rng=4, with_rates=True)
        for name in ("tokens", "draft_index", "acceptance_rate", "gap"):
            there, here = getattr(in_place, name), getattr(in_chunks, name)
            assert isinstance(there, cupy.ndarray)
            assert there.get().tobytes() == here.tobytes()

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("dtypes", list(product(DTYPES, repeat=2)))
    def test_rates_bracket_the_optimum(self, dtypes: tuple[str, str], scheme: str) -> None:
        for k in (1, 3, 8):
            case = gpu_references.of_decisions(*dtypes, k, scheme)
            drafts = np.tile(np.arange(k), (6, 1))
            found = verify_batch(*case.pair, drafts, scheme=scheme, with_rates=True, device="gpu")
            best = reference(gpu_references.of_decisions, *dtypes, k, scheme)
            assert (found.acceptance_rate <= best + TOLERANCE).all()
            assert (found.acceptance_rate + found.gap >= best - TOLERANCE).all()
            assert (found.gap <= 1e-3).all()

    def test_output_has_the_law_of_the_target(self) -> None:
        cupy = pytest.importorskip("cupy")
        trials, size = 200_000, 12
        target, draft = near_rows(1, size, seed=2)
        drafts = np.random.default_rng(1).choice(size, (trials, 3), p=mo.softmax(draft[0]))
        pair = [cupy.broadcast_to(cupy.asarray(x), (trials, size)) for x in (target, draft)]
        found = verify_batch(*pair, drafts, rng=7)
        counts = np.bincount(cupy.asnumpy(found.tokens), minlength=size)
        expected = mo.softmax(target[0]) * trials
        assert ((counts - expected) ** 2 / expected).sum() < 40.0  # false alarm: 4e-5

    def test_random_numbers_are_those_of_the_host(self) -> None:
        target = np.log(np.full((500, 64), 1 / 64, np.float32))
        found = verify_batch(target, target, np.full((500, 1), -1), rng=11, step=5, device="gpu")
        draws = uniforms_of(Randomness(11, 5), np.arange(500))[:, 3]
        np.testing.assert_array_equal(found.tokens, np.floor(draws * 64))


class Replayed:
    """A plan's call, captured in a CUDA graph by PyTorch or by CuPy, on memory that stays."""

    def __init__(self, library: str, plan: Any, given: list[Any]) -> None:
        self.module = pytest.importorskip(library)
        self.library = library
        self.given = [self.array(x) for x in given]
        plan(*self.given)  # views of the results in the library are made here
        self.found: Any = None
        if library == "torch":
            self.module.cuda.synchronize()
            self.graph = self.module.cuda.CUDAGraph()
            with self.module.cuda.graph(self.graph):
                self.found = plan(*self.given)
            return
        self.stream = self.module.cuda.Stream(non_blocking=True)
        self.module.cuda.Device().synchronize()
        with self.stream:
            self.stream.begin_capture()
            self.found = plan(*self.given)
            self.graph = self.stream.end_capture()

    def array(self, values: Any) -> Any:
        if self.library == "torch":
            return self.module.from_numpy(np.ascontiguousarray(values)).cuda()
        return self.module.asarray(np.ascontiguousarray(values))

    def __call__(self, *values: Any) -> Any:
        """What the graph finds on these numbers."""
        for there, new in zip(self.given, values, strict=True):
            if self.library == "torch":
                there.copy_(self.array(new))
            else:
                there.set(new)
        if self.library == "torch":
            self.graph.replay()
            self.module.cuda.synchronize()
        else:
            self.module.cuda.Device().synchronize()
            self.graph.launch(self.stream)
            self.stream.synchronize()
        return self.found


def on_host(values: Any) -> Any:
    return values.get() if hasattr(values, "get") else values.cpu().numpy()


PLANS: list[dict[str, Any]] = [
    {"num_drafts": (1, 3)},
    {"num_drafts": (1, 3, 8), "drafts": "without_replacement"},
    {"num_drafts": (1, 31), "drafts": "without_replacement"},
    {"num_drafts": (2,), "top_k": 40, "top_p": 0.9, "temperature": 0.7},
    {"num_drafts": (2,), "drafts": "greedy"},
    {"num_drafts": (2,), "drafts": "top_k"},
    {"num_drafts": (1, 2), "verifier": "rrs"},
    {"num_drafts": (1, 2), "verifier": "kseq"},
]


@pytest.mark.parametrize("library", ["torch", "cupy"])
class TestGraphs:
    @pytest.mark.parametrize("options", PLANS)
    @pytest.mark.parametrize("size", [700, 49_152])
    def test_rates_are_those_of_plain_calls(
        self, size: int, options: dict[str, Any], library: str
    ) -> None:
        target, draft = near_rows(5, size)
        target[3] = draft[3]  # rows that stay open
        plan = RatesPlan(size, 8, "float32", **options)
        graph = Replayed(library, plan, [target, draft])
        for sides in ((target, draft), (target[::-1].copy(), draft[::-1].copy())):
            found = on_host(graph(*sides))
            expected = mo.acceptance_rates(*sides, device="gpu", kind="logits", **options)
            np.testing.assert_array_equal(found, expected)
            plan.check()

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_replays_draw_anew(self, scheme: str, library: str) -> None:
        target, draft = near_rows(200, 700)
        drafts = np.argsort(-draft, axis=1)[:, :3].astype(np.int64)
        plan = DecisionsPlan(700, 200, "float32", 3, scheme, rng=5)
        graph = Replayed(library, plan, [target, draft, drafts])
        plan.restart(5, 7)
        seen = []
        for step in (7, 8, 9):
            seen.append(on_host(graph(target, draft, drafts).tokens).copy())
            expected = verify_batch(
                target, draft, drafts, scheme=scheme, rng=5, step=step, device="gpu", kind="logits"
            )
            np.testing.assert_array_equal(seen[-1], expected.tokens)
        assert (seen[0] != seen[1]).any()
        assert (seen[1] != seen[2]).any()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_confident_rows(dtype: str, scheme: str) -> None:
    """Rows that few tokens hold nearly all of, several numbers of drafts in a call."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        size = int(rng.choice([2, 3, 8, 33, 40, 57, 64, 150]))
        target, draft = confident_rows(rng, 8, size, DTYPES[dtype])
        counts = [(1, 31), (1, 2, 31), (2, 30), (1, 8, 24, 31), (3, 32)][seed % 5]
        found = mo.acceptance_rates(target, draft, counts, scheme, device="gpu", kind="logits")
        sides = (np.asarray(x, np.float64) for x in (target, draft))
        expected = mo.acceptance_rates(*sides, counts, scheme, kind="logits")
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


class TestTorch:
    @pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
    def test_operators_in_compiled_functions(self, backend: str) -> None:
        torch = pytest.importorskip("torch")
        from mdsd_opt.serving import register_operators

        register_operators()
        operators = torch.ops.mdsd_opt
        target, draft = (torch.from_numpy(x).cuda() for x in near_rows(6, 5000))
        drafts, uniforms = draft.topk(2).indices, torch.rand(6, 4, device="cuda")

        def step(target: Any, draft: Any, drafts: Any, uniforms: Any) -> Any:
            rates = operators.acceptance_rates(target * 2, draft * 2, [1, 2])
            tokens, places = operators.verify_batch(target, draft, drafts, uniforms)
            return rates.mean(-1), tokens + 1, places

        with warnings.catch_warnings():  # of PyTorch's own parts
            warnings.simplefilter("ignore")
            found = torch.compile(step, backend=backend, fullgraph=True)(
                target, draft, drafts, uniforms
            )
        for there, here in zip(found, step(target, draft, drafts, uniforms), strict=True):
            assert there.device.type == "cuda"
            assert torch.equal(there, here)

    def test_trees_are_verified_as_on_the_host(self) -> None:
        pytest.importorskip("torch")
        pytest.importorskip("triton")
        from support.random_trees import random_batch

        from mdsd_opt.serving import verify_tree

        def there(*tensors: Any, **options: Any) -> None:
            moved = [x.cuda() for x in tensors]
            verify_tree(*moved, **options)
            for own, new in zip(tensors[:3], moved[:3], strict=True):
                own.copy_(new)

        for seed in range(60):
            batch = random_batch(np.random.default_rng(seed))
            assert batch.call(there) == batch.call(verify_tree)

    @pytest.mark.parametrize(("tree", "scheme"), DECODED)
    def test_decoding_stays_where_the_model_is(
        self, tree: str, scheme: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same text as on the host, if that does not look at drafts before it has to, either.

        Drafts that coincide would else have no children of their own there, nor draws for them.
        """
        pytest.importorskip("transformers")
        from support.model_families import model_of

        from mdsd_opt.decoding import TreeModel, generate, step_laws
        from mdsd_opt.trees import device_laws as transfers

        for module in (transfers, step_laws):
            monkeypatch.setattr(module, "is_host", lambda device: False)

        texts = []
        for device, options in (("cuda", {}), ("cpu", {"on_device": True})):
            models = [model_of("llama", n) for n in (0, 1)]
            for model in models:
                model.model.to(device)
            found = generate(
                *map(TreeModel, models), [3, 5, 7], tree=tree, scheme=scheme,
                rule="level_sequential",
                max_new_tokens=40, rng=3, **options,
            )  # fmt: skip
            texts.append(found.tokens)
        assert texts[0] == texts[1]
