"""Finds a shipped function in an installed package, without importing all of an engine.

A Triton kernel makes random numbers for itself: it hashes a seed, a position and a token. Under
Triton's interpreter these hashes are functions of Python that the kernel looks up when it calls
them: others, put in their place, draw from PyTorch, whose draws an audit answers. That the hashes
are independent and uniform is assumed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput, MissingExtra


def installed_version(package: str, tested: tuple[str, ...], any_version: bool) -> str:
    """Installed version: one of those tested, or any, with a warning.

    Raises `MissingExtra` where none is, and `InvalidInput` for others without `any_version`.
    """
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise MissingExtra(
            f"{package} is not installed: pip install --no-deps {package}=={tested[-1]}"
        ) from None
    if version.partition("+")[0] not in tested:
        known = ", ".join(tested)
        if not any_version:
            raise InvalidInput(
                f"{package} {version} is installed; its adapter was tested with {known}, and may "
                "call another version wrongly. Allow that by any_version=True (--any-version)."
            )
        warnings.warn(
            f"{package} {version} is called as {known}, with which the adapter was tested: a "
            "finding may be the adapter's",
            stacklevel=3,
        )
    return version


def file_alone(package: str, path: str, stand_ins: dict[str, ModuleType]) -> ModuleType:
    """One file of a package as a module, imported while other modules stand in.

    The package is called as where it was installed from; stand-ins go by their full names.
    """
    found = Path(str(metadata.distribution(package).locate_file(path)))
    if not found.is_file():
        raise InvalidInput(f"{package} {metadata.version(package)} has no file {path}")
    name = path.removesuffix(".py").replace("/", ".")
    spec = importlib.util.spec_from_file_location(name, found)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = {other: sys.modules.get(other) for other in (*stand_ins, name)}
    sys.modules |= {**stand_ins, name: module}
    try:
        spec.loader.exec_module(module)
    finally:
        for other, old in before.items():
            if old is None:
                del sys.modules[other]
            else:
                sys.modules[other] = old
    return module


def stand_in(name: str, **contents: object) -> dict[str, ModuleType]:
    """A module with these contents, and the empty packages it lies in."""
    parts = name.split(".")
    made = {}
    for n in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:n]))
        module.__path__ = []
        made[module.__name__] = module
    vars(made[name]).update(contents)
    return made


def interpret_triton(package: str) -> None:
    """Have Triton interpret kernels; it reads that once, when it is imported."""
    if "triton" not in sys.modules:
        os.environ.setdefault("TRITON_INTERPRET", "1")
    elif os.environ.get("TRITON_INTERPRET") != "1":
        raise InvalidInput(
            "triton is imported already, and compiles: set TRITON_INTERPRET=1 before it is"
        )
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise MissingExtra(f"the kernels of {package} need triton: {error}") from error


def as_scalar(value: float) -> Any:
    """A float32 as Triton's interpreter passes it on."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return tl.tensor(TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)


def as_block(values: Any) -> Any:
    """A row of float32 as Triton's interpreter passes it on."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    row = np.asarray(values, dtype=np.float32)
    return tl.tensor(TensorHandle(row, tl.float32), tl.block_type(tl.float32, [row.size]))


def coin(*where: Any, **options: Any) -> Any:
    """Draw one uniform."""
    import torch

    return as_scalar(float(torch.rand(1)))


class Race:
    """Uniforms of a race for the first tokens, from which a kernel makes its Gumbel noise.

    They are :math:`u = 1 - e^{-x}` for exponentials x, of which the earliest wins, and of which the
    small ones have all their digits. `vocab_size` is set before each call; other places of a block
    are masked.
    """

    def __init__(self) -> None:
        self.vocab_size = 0

    def __call__(self, seed: Any, position: Any, offset: Any) -> Any:
        import torch

        block = np.full(offset.handle.data.size, 0.5)
        drawn = torch.empty(self.vocab_size).exponential_().double().numpy()
        block[: self.vocab_size] = -np.expm1(-drawn)
        return as_block(block)


@contextmanager
def rebound(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set other values of attributes for the duration of the block."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def log1p(values: Any) -> Any:
    """Elementwise log(1 + x) of a row; on devices it is in a library of their own."""
    with np.errstate(all="ignore"):
        return as_block(np.log1p(values.handle.data))
