"""A CuPy in place of the real one: `support.waiting_cupy`, on kernels that run on the host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.ptx.runtime import Device, PtxRuntime
from support.waiting_cupy import WaitingCupy

from mdsd_opt.gpu import runtime as gpu_runtime


@pytest.fixture(scope="module")
def engine(kernel_device: Device) -> PtxRuntime:
    return PtxRuntime(kernel_device)


@pytest.fixture
def start(
    monkeypatch: pytest.MonkeyPatch, engine: PtxRuntime
) -> Iterator[Callable[..., WaitingCupy]]:
    """Put a CuPy in place, of so many devices."""
    caches = gpu_runtime.why_unavailable, gpu_runtime._function, gpu_runtime.runtime_of_device

    def begin(active_clusters: int = 8, **options: int) -> WaitingCupy:
        for cache in caches:
            cache.cache_clear()
        cupy = WaitingCupy(engine, **options)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setattr(gpu_runtime, "active_clusters", lambda function, size: active_clusters)
        return cupy

    yield begin
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def cupy(start: Callable[..., WaitingCupy]) -> WaitingCupy:
    return start()


@pytest.fixture
def torch(cupy: WaitingCupy, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = cupy.torch()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module
