"""What batched rates accept, what they refuse, and what must not make a difference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest
import sorted_rates
from numpy.typing import NDArray

import mdsd_opt as mo
from mdsd_opt.batch.acceptance import converted
from mdsd_opt.errors import InvalidDistribution, InvalidInput, UnknownName
from mdsd_opt.prefix_search.weigh_kernels import SINGLE_UNIT, weigh, weigh_single

SCHEMES = ("with_replacement", "without_replacement", "greedy", "top_k")
FLOATS = ("float64", "float32", "float16", "bfloat16")


def logits(seed: int, *shape: int, dtype: Any = "float64") -> NDArray[Any]:
    values = np.random.default_rng(seed).normal(size=shape) * 3
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("target_dtype", [*FLOATS, "int8", "int64", ">f4", "longdouble", "bool"])
@pytest.mark.parametrize("draft_dtype", FLOATS)
def test_every_dtype_means_its_exact_values(
    scheme: str, target_dtype: str, draft_dtype: str
) -> None:
    target = logits(0, 3, 500, dtype=target_dtype)
    draft = logits(1, 3, 500, dtype=draft_dtype)
    rates = mo.acceptance_rates(target, draft, (1, 3), scheme)
    exact = mo.acceptance_rates(target.astype(np.float64), draft.astype(np.float64), (1, 3), scheme)
    assert rates.dtype == np.float64
    tolerance = 5e-8 if scheme == "with_replacement" else 1e-13
    np.testing.assert_allclose(rates, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_half_precision_number_is_decoded(dtype: Any) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        expected = halves.astype(np.float64)
        numbers = converted(halves, np.dtype(np.float32)).astype(np.float64)
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_array_equal(np.signbit(numbers[expected == 0]), [False, True])


@numba.njit
def weighed(row: NDArray[Any], largest: float, scale: float) -> Any:
    exponents, weights = np.empty(row.size), np.empty(row.size)
    weigh(row, largest, scale, exponents, weights)
    return exponents, weights


@numba.njit
def weighed_in_single(row: NDArray[np.float32], largest: float, scale: float) -> Any:
    weights = np.empty_like(row)
    weigh_single(row, largest, scale, weights)
    return weights


EXPONENTS = np.concatenate([np.linspace(-1100.0, 0.0, 7001), np.linspace(-3, 0, 3001)])


def test_weights_are_powers_of_two() -> None:
    exponents, weights = weighed(EXPONENTS, 0.0, 1.0)
    inside = EXPONENTS > -1022
    np.testing.assert_array_equal(exponents[inside], EXPONENTS[inside])
    np.testing.assert_allclose(
        weights[inside] * 2.0**-52, 2.0 ** EXPONENTS[inside], rtol=1e-15, atol=0
    )
    assert (weights[EXPONENTS < -1074.5] == 0).all()
    assert (weights[EXPONENTS > -1074] > 0).all()


@pytest.mark.parametrize("largest", [0.0, 0.3, -17.9, 80.0, 4321.0, 3e6, -1e8])
@pytest.mark.parametrize("temperature", [1.0, 0.37, 25.0])
def test_single_precision_weights(largest: float, temperature: float) -> None:
    """Relative to double precision: the rounding of one float32, and no bias."""
    row = (np.linspace(-150, 1, 5000) * temperature + largest).astype(np.float32)
    sampling = float(row.max()), np.log2(np.e) / temperature
    exact_exponents, exact = weighed(row, *sampling)
    weights = weighed_in_single(row, *sampling)
    normal = exact_exponents > -145
    error = weights[normal] * SINGLE_UNIT / exact[normal] - 1
    assert np.abs(error).max() < 1.2e-7
    if abs(largest) < 1e4:  # beyond, there are few distinct values
        assert abs(error.mean()) < 1e-8
    assert (weights[exact_exponents < -151] == 0).all()


@pytest.mark.parametrize("shift", [-1e8, -3e6, -5e4, 3e4, 2e6, 5e8])
def test_logits_far_from_zero(shift: float) -> None:
    target = (logits(0, 4, 300) * 20 + shift).astype(np.float32)
    draft = (logits(1, 4, 300) * 20 - shift / 3).astype(np.float32)
    for scheme in SCHEMES:
        rates = mo.acceptance_rates(target, draft, drafts=scheme, temperature=9.0)
        exact = mo.acceptance_rates(
            target.astype(np.float64), draft.astype(np.float64), drafts=scheme, temperature=9.0
        )
        np.testing.assert_allclose(rates, exact, rtol=0, atol=5e-8)


def test_temperature_zero_leaves_the_lowest_of_the_likeliest() -> None:
    target = np.array([[0.0, 2.0, 2.0], [0.0, 1.0, 2.0]])
    draft = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    greedy_target = mo.acceptance_rates(target, draft, 2, temperature=0, draft_temperature=1.0)
    q = np.exp(draft) / np.exp(draft).sum(axis=1, keepdims=True)
    chosen = q[[0, 1], [1, 2]]
    np.testing.assert_allclose(greedy_target, 1 - (1 - chosen) ** 2, atol=1e-15)
    both = mo.acceptance_rates(target, draft, 2, temperature=0)
    assert both.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "filters",
    [
        {"top_k": 5},
        {"top_p": 0.7},
        {"min_p": 0.05},
        {"top_k": 50, "top_p": 0.9, "min_p": 0.01},
        {"top_k": 1},
        {"top_k": 4, "temperature": 0},
        {"top_p": 0.8, "temperature": 0.5, "draft_temperature": 2.0},
        {"temperature": 2.5},
        {"temperature": 0.5, "draft_temperature": 0.3},
    ],
)
def test_filters_are_those_of_softmax(scheme: str, filters: dict[str, Any]) -> None:
    target, draft = np.round(logits(0, 2, 200)), np.round(logits(1, 2, 200))
    rates = mo.acceptance_rates(target, draft, 3, scheme, **filters)
    of_draft = dict(filters)
    of_draft["temperature"] = of_draft.pop("draft_temperature", of_draft.get("temperature", 1.0))
    of_target = {k: v for k, v in filters.items() if k != "draft_temperature"}
    for row in range(2):
        p = mo.softmax(target[row], **of_target).astype(np.longdouble)
        q = mo.softmax(draft[row], **of_draft).astype(np.longdouble)
        assert rates[row] == pytest.approx(sorted_rates.RATES[scheme](p, q, 3), abs=1e-12)


def test_strides_and_read_only_arrays() -> None:
    target, draft = logits(0, 4, 6, 300), logits(1, 4, 6, 300)
    rates = mo.acceptance_rates(target, draft)
    fortran = np.asfortranarray(target)
    np.testing.assert_array_equal(mo.acceptance_rates(fortran, draft), rates)
    np.testing.assert_array_equal(mo.acceptance_rates(target[::-1], draft[::-1]), rates[::-1])
    np.testing.assert_array_equal(
        mo.acceptance_rates(target[:, 1::2], draft[:, 1::2]), rates[:, 1::2]
    )
    strided = mo.acceptance_rates(target[..., ::3], draft[..., ::3])
    copied = mo.acceptance_rates(target[..., ::3].copy(), draft[..., ::3].copy())
    np.testing.assert_array_equal(strided, copied)
    unaligned = np.frombuffer(b"x" + target.tobytes(), dtype=np.uint8)[1:].view(np.float64)
    assert not unaligned.flags.writeable
    np.testing.assert_array_equal(
        mo.acceptance_rates(unaligned.reshape(target.shape), draft), rates
    )
    assert target.flags.writeable  # the caller's array is left as it was


def test_shapes() -> None:
    target, draft = logits(0, 2, 3, 50), logits(1, 2, 3, 50)
    assert mo.acceptance_rates(target, draft).shape == (2, 3)
    assert mo.acceptance_rates(target, draft, [1, 2, 3, 4]).shape == (2, 3, 4)
    assert mo.acceptance_rates(target, draft, (2,)).shape == (2, 3, 1)
    assert mo.acceptance_rates(target[0, 0], draft[0, 0]).shape == ()
    assert isinstance(mo.acceptance_rates(target[0, 0], draft[0, 0]), float)
    assert (
        mo.acceptance_rates(target[0, 0].tolist(), draft[0, 0].tolist())
        == (mo.acceptance_rates(target, draft)[0, 0])
    )
    assert mo.acceptance_rates(target[:0], draft[:0]).shape == (0, 3)
    assert mo.acceptance_rates(np.empty((0, 7)), np.empty((0, 7)), [1, 2]).shape == (0, 2)


def test_leading_axes_broadcast() -> None:
    target, draft = logits(0, 2, 1, 50), logits(1, 3, 50)
    rates = mo.acceptance_rates(target, draft)
    assert rates.shape == (2, 3)
    assert rates[1, 2] == mo.acceptance_rates(target[1, 0], draft[2])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_threads_do_not_change_a_bit(scheme: str) -> None:
    target, draft = logits(0, 40, 20_000, dtype="float32"), logits(1, 40, 20_000, dtype="float32")
    alone = mo.acceptance_rates(target, draft, (2, 4), scheme, num_threads=1)
    for num_threads in (2, 3, 7, None):
        again = mo.acceptance_rates(target, draft, (2, 4), scheme, num_threads=num_threads)
        np.testing.assert_array_equal(again, alone)
    row_by_row = [mo.acceptance_rates(t, d, (2, 4), scheme) for t, d in zip(target, draft)]  # noqa: B905
    np.testing.assert_array_equal(row_by_row, alone)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("options", [{}, {"top_k": 10}])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_bad_row_is_named(scheme: str, options: dict[str, Any], dtype: str) -> None:
    good = logits(0, 3, 4, 60, dtype=dtype)
    for value, message in (
        (np.nan, "NaN .first at token 7"),
        (-np.nan, "NaN .first at token 7"),
        (np.inf, r"\+inf .first at token 7"),
        (None, "all -inf"),
    ):
        bad = good.copy()
        if value is None:
            bad[2, 1] = -np.inf
        else:
            bad[2, 1, 7] = value
        with pytest.raises(InvalidDistribution, match=f"target_logits row 2, 1 .*{message}"):
            mo.acceptance_rates(bad, good, drafts=scheme, **options)
        with pytest.raises(InvalidDistribution, match=f"draft_logits row 2, 1 .*{message}"):
            mo.acceptance_rates(good, bad, drafts=scheme, **options)
        with pytest.raises(InvalidDistribution, match=f"^draft_logits (has|is).*{message}"):
            mo.acceptance_rates(good[2, 1], bad[2, 1], drafts=scheme, **options)


def test_the_first_bad_row_is_named_whatever_the_threads() -> None:
    target, draft = logits(0, 64, 20_000), logits(1, 64, 20_000)
    target[[17, 40, 63], 5] = np.nan
    draft[[9, 41], 5] = np.nan
    for num_threads in (1, 2, 5):
        with pytest.raises(InvalidDistribution, match="draft_logits row 9 "):
            mo.acceptance_rates(target, draft, num_threads=num_threads)


def test_vocabularies_of_different_size() -> None:
    target, draft = logits(0, 3, 50), logits(1, 3, 47)
    with pytest.raises(InvalidInput, match=r"50 tokens .* 47.*pad=True"):
        mo.acceptance_rates(target, draft)
    wide = np.concatenate([draft, np.full((3, 3), -np.inf)], axis=1)
    for dtype in FLOATS:
        narrow = draft.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        expected = mo.acceptance_rates(target, wide.astype(narrow.dtype))
        np.testing.assert_array_equal(mo.acceptance_rates(target, narrow, pad=True), expected)
    back = mo.acceptance_rates(draft, target, pad=True, top_k=5)
    np.testing.assert_array_equal(back, mo.acceptance_rates(wide, target, top_k=5))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_drafts": 0}, InvalidInput, "num_drafts is 0.*at least 1"),
        ({"num_drafts": [2, -1]}, InvalidInput, "num_drafts is -1"),
        ({"num_drafts": []}, InvalidInput, "num_drafts is empty"),
        ({"num_drafts": "12"}, InvalidInput, "num_drafts is '1'"),
        ({"num_drafts": None}, InvalidInput, "num_drafts is None"),
        ({"drafts": "with-replacement"}, UnknownName, "Did you mean 'with_replacement'"),
        ({"drafts": ["greedy"]}, UnknownName, "Known: greedy, top_k"),
        ({"verifier": "optimum"}, UnknownName, "Did you mean 'optimal'"),
        ({"temperature": -1}, InvalidInput, "temperature is -1"),
        ({"draft_temperature": np.nan}, InvalidInput, "temperature is nan"),
        ({"top_p": 1.5}, InvalidInput, "top_p is 1.5"),
        ({"num_threads": 0}, InvalidInput, "num_threads is 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mo.acceptance_rates(logits(0, 2, 5), logits(1, 2, 5), **arguments)


def test_bad_arrays() -> None:
    with pytest.raises(InvalidInput, match=r"target_logits has shape \(\)"):
        mo.acceptance_rates(1.0, [0.0, 2.0])
    with pytest.raises(InvalidInput, match=r"draft_logits has shape \(2, 0\)"):
        mo.acceptance_rates(np.zeros((2, 3)), np.zeros((2, 0)))
    with pytest.raises(InvalidInput, match="all axes but the last"):
        mo.acceptance_rates(np.zeros((2, 3)), np.zeros((4, 3)))
    with pytest.raises(InvalidInput, match="dtype"):
        mo.acceptance_rates(np.zeros((2, 3), dtype=complex), np.zeros((2, 3)))


def test_progress_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    mo.acceptance_rates(logits(0, 2, 50), logits(1, 2, 50), progress=True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "acceptance rates" in captured.err
    assert "2/2" in captured.err


def test_dask_arrays_stay_lazy() -> None:
    da = pytest.importorskip("dask.array")
    target, draft = logits(0, 6, 5, 40), logits(1, 6, 5, 40)
    lazy_target = da.from_array(target, chunks=(2, 3, 17))
    lazy_draft = da.from_array(draft, chunks=(3, 5, 40))
    for counts in (3, [1, 2, 3]):
        rates = mo.acceptance_rates(lazy_target, lazy_draft, counts)
        assert isinstance(rates, da.Array)
        expected = mo.acceptance_rates(target, draft, counts)
        assert rates.shape == expected.shape
        np.testing.assert_array_equal(rates.compute(), expected)
    mixed = mo.acceptance_rates(target, lazy_draft, drafts="greedy", pad=True)
    np.testing.assert_array_equal(
        mixed.compute(), mo.acceptance_rates(target, draft, drafts="greedy")
    )
    with pytest.raises(InvalidInput, match="same leading axes"):
        mo.acceptance_rates(lazy_target, lazy_draft[:3])
    target[5, 4, 3] = np.nan
    broken = mo.acceptance_rates(da.from_array(target, chunks=(2, 3, 40)), lazy_draft)
    with pytest.raises(InvalidDistribution, match="target_logits row 5, 4"):
        broken.compute()
