"""Arrays of other libraries, recognised by where their type was defined."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mdsd_opt.base.arrays import frozen, library_of, like, to_numpy
from mdsd_opt.errors import InvalidInput


def test_numpy_arrays_pass_without_a_copy() -> None:
    array = np.arange(3.0)
    assert np.shares_memory(to_numpy(array), array)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16, np.int64, np.bool_])
def test_dtypes_are_kept(dtype: type) -> None:
    assert to_numpy(np.zeros(3, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    "bad",
    [
        "abc",
        ["a"],
        [1j],
        [None],
        [[1], [1, 2]],
        object(),
        np.array("2020-01-01", "M8[D]"),
        [{}],
        np.zeros(2, [("p", float)]),
        np.zeros(2, [("p", float), ("q", float)]),
    ],
)
def test_what_holds_no_real_numbers(bad: object) -> None:
    with pytest.raises(InvalidInput, match=r"^weights (has dtype|is not an array)"):
        to_numpy(bad, "weights")


def test_bfloat16_that_numpy_saved_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", np.ones(2, ml_dtypes.bfloat16))
    with pytest.raises(InvalidInput, match=r"give array\.view\(ml_dtypes\.bfloat16\)"):
        to_numpy(np.load(tmp_path / "p.npy"), "p")


def test_plain_python_counts_as_numpy() -> None:
    assert library_of([1, 2]) == library_of(3.0) == library_of(np.zeros(2)) == "numpy"


def _type_of(module: str) -> type:
    return type("Array", (), {"__module__": module})


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("torch", "torch"),
        ("torch.nn.parameter", "torch"),
        ("jaxlib._jax", "jax"),
        ("jax.core", "jax"),
        ("cupy", "cupy"),
        ("dask.array.core", "dask"),
        ("torchvision.tensors", "numpy"),
    ],
)
def test_libraries_are_told_by_module(module: str, library: str) -> None:
    assert library_of(_type_of(module)()) == library


def test_subclasses_are_recognised() -> None:
    subclass = type("Mine", (_type_of("torch"),), {"__module__": "mine"})
    assert library_of(subclass()) == "torch"


def test_results_for_numpy_are_handed_through() -> None:
    result = np.ones(2)
    assert like([1.0], result) is result


def test_frozen_arrays_are_read_only() -> None:
    array = frozen(np.ones(2))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2.0


def test_a_device_array_is_fetched() -> None:
    class OnDevice(_type_of("cupy")):  # type: ignore[misc]  # a made-up library
        __module__ = "cupy"

        def get(self) -> np.ndarray:
            return np.arange(3.0)

    np.testing.assert_array_equal(to_numpy(OnDevice()), [0.0, 1.0, 2.0])


def test_a_lazy_array_is_computed_and_then_checked() -> None:
    class Lazy(_type_of("dask.array")):  # type: ignore[misc]  # a made-up library
        __module__ = "dask.array"

        def compute(self) -> list[str]:
            return ["a"]

    with pytest.raises(InvalidInput, match="weights has dtype"):
        to_numpy(Lazy(), "weights")
