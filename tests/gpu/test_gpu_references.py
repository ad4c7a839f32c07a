"""The file that tests on a device compare with holds what the CPU computes."""

from __future__ import annotations

import numpy as np
import pytest
from support import gpu_references
from support.ptx.runtime import Device, PtxRuntime

#: The whole file takes a minute; these are of all kinds.
KINDS = (
    "of_every_character 7 ",
    "of_every_character 701 ",
    "of_types ",
    "of_filters ",
    "of_slices",
)


def test_rates_are_those_of_the_cpu() -> None:
    checked = 0
    for name, case in gpu_references.cases():
        if name.startswith(KINDS):
            found = gpu_references.stored()[name]
            np.testing.assert_allclose(found, case.on_cpu(), rtol=0, atol=1e-7, err_msg=name)
            checked += 1
    assert checked == 2 * 18 + 9 + 10 + 1


def test_there_is_one_of_every_case_and_nothing_else() -> None:
    names = {name for name, _ in gpu_references.cases()}
    tokens = {f"tokens {scheme}" for scheme in gpu_references.SCHEMES}
    assert set(gpu_references.stored()) == names | tokens


@pytest.mark.parametrize("scheme", gpu_references.SCHEMES)
def test_tokens_are_those_of_the_kernels_on_the_host(kernel_device: Device, scheme: str) -> None:
    runtime = PtxRuntime(kernel_device)
    found = gpu_references.tokens_by(runtime, scheme)
    np.testing.assert_array_equal(found, gpu_references.stored()[f"tokens {scheme}"])
