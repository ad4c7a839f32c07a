"""What verbs say that they may have to compile."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from support.commands import verbs

import mdsd_opt
from mdsd_opt.base.numba_cache import KernelCache, kernel_name
from mdsd_opt.cli.verbs import KERNELS

PACKAGE = Path(mdsd_opt.__file__).parent


def test_only_verbs_have_kernels() -> None:
    assert set(KERNELS) <= verbs().keys()


@pytest.mark.parametrize("name", sorted({name for names in KERNELS.values() for name in names}))
def test_every_name_is_that_of_a_kernel_that_is_kept(name: str) -> None:
    file, _, function = name.partition(".")
    (path,) = PACKAGE.rglob(f"{file}.py")
    module = ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts))
    dispatcher = getattr(import_module(module), function)
    assert isinstance(dispatcher._cache, KernelCache)
    assert kernel_name(dispatcher.py_func) == name
