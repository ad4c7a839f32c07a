"""Every kernel with every pair of types of logits, on the host, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from support.kernel_cases import flat_rows, near_rows, pair_of
from support.ptx.runtime import ALL_TYPES, Device, PtxRuntime

import mdsd_opt as mo
from mdsd_opt.gpu import FilterSettings, Randomness, RowRates, rates, verify_rows, with_filters
from mdsd_opt.gpu.sources import KERNELS, Kernel

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
TOLERANCE = 1e-6
COUNTS = (1, 4)

RATES: dict[str, tuple[Callable[..., RowRates], dict[str, str]]] = {
    "with_replacement": (rates.BY_NAME["with_replacement"], {}),
    "without_replacement": (
        rates.BY_NAME["without_replacement"],
        {"drafts": "without_replacement"},
    ),
    "greedy": (rates.BY_NAME["greedy"], {"drafts": "greedy"}),
    "top_k": (rates.BY_NAME["top_k"], {"drafts": "top_k"}),
    "kseq": (rates.BY_NAME["kseq"], {"verifier": "kseq"}),
    "rrs": (rates.BY_NAME["rrs"], {"verifier": "rrs"}),
}


@pytest.fixture(scope="module")
def runtime(kernel_device: Device) -> WatchedRuntime:
    return WatchedRuntime(kernel_device)


class WatchedRuntime(PtxRuntime):
    """Remembers what it launched."""

    launched: set[tuple[Kernel, tuple[str, str]]]

    def launch(self, kernel: Kernel, types: tuple[str, str], *others: Any) -> None:
        self.launched.add((kernel, types))
        super().launch(kernel, types, *others)


def logits(types: tuple[str, str]) -> tuple[NDArray[Any], NDArray[Any]]:
    target, draft = near_rows(3, 3001)
    return target.astype(DTYPES[types[0]]), draft.astype(DTYPES[types[1]])


def exactly(target: NDArray[Any], draft: NDArray[Any], counts: Any, **options: Any) -> Any:
    return mo.acceptance_rates(*(x.astype(np.float64) for x in (target, draft)), counts, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("types", ALL_TYPES, ids="-".join)
def test_all_kernels(runtime: WatchedRuntime, types: tuple[str, str]) -> None:
    runtime.launched = set()
    target, draft = logits(types)
    settings = FilterSettings(top_k=50)
    for name, (function, options) in RATES.items():
        plain = pair_of(target, draft)
        filtered = with_filters(runtime, plain, settings)
        for pair, filters in ((plain, {}), (filtered, {"top_k": 50})):
            found = function(runtime, pair, COUNTS)
            expected = exactly(target, draft, COUNTS, **options, **filters)
            assert not found.is_bad.any()
            np.testing.assert_allclose(found.rates, expected, rtol=0, atol=TOLERANCE, err_msg=name)

    # Rows that a first look leaves open.
    flat = [x.astype(DTYPES[dtype]) for x, dtype in zip(flat_rows(3001), types, strict=True)]
    equal = [draft.astype(DTYPES[types[0]]), draft]
    for name, pair in (("with_replacement", flat), ("without_replacement", equal)):
        function, options = RATES[name]
        found = function(runtime, pair_of(*pair), (3, 5))
        expected = exactly(*pair, (3, 5), **options)
        np.testing.assert_allclose(found.rates, expected, rtol=0, atol=TOLERANCE, err_msg=name)

    drafts = np.ascontiguousarray(np.argsort(-draft.astype(np.float64), axis=1)[:, :4])
    for scheme in ("with_replacement", "without_replacement"):
        decided = verify_rows(
            runtime,
            pair_of(target, draft),
            drafts,
            Randomness(0),
            with_rates=True,
            is_replaced=scheme == "with_replacement",
        )
        best = exactly(target, draft, 4, drafts=scheme)
        assert (decided.rates <= best + TOLERANCE).all()
        assert (decided.rates + decided.gaps >= best - TOLERANCE).all()
        assert (decided.gaps < 1e-3).all()
        assert ((decided.tokens >= 0) & (decided.tokens < 3001)).all()

    read = {(kernel, types) for kernel in KERNELS if kernel.reads_logits}
    missing = read - runtime.launched  # but for what the rounding of such rows settles
    assert all(kernel.name.startswith("zoomed") for kernel, _ in missing), missing
    assert len(missing) < 2
