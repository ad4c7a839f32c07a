"""Random numbers that an interpreted Triton kernel makes for itself, asked of PyTorch instead.

A kernel hashes a seed, a position and a token. Under Triton's interpreter these hashes are
functions of Python that the kernel looks up when it calls them: others, put in their place, draw
from PyTorch, whose draws an audit answers. That the hashes are independent and uniform is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def as_scalar(value: float) -> Any:
    """A float32 as the interpreter hands it on."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return tl.tensor(TensorHandle(np.array([value], dtype=np.float32), tl.float32), tl.float32)


def as_block(values: Any) -> Any:
    """A row of float32 as the interpreter hands it on."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    row = np.asarray(values, dtype=np.float32)
    return tl.tensor(TensorHandle(row, tl.float32), tl.block_type(tl.float32, [row.size]))


def coin(*where: Any, **options: Any) -> Any:
    """A uniform."""
    import torch

    return as_scalar(float(torch.rand(1)))


class Race:
    """Uniforms of a race: those of the first tokens, of which a kernel makes its Gumbel noise.

    They are :math:`u = 1 - e^{-x}` for exponentials x, of which the earliest wins, and of which the
    small ones have all their digits.

    Attributes
    ----------
    vocab_size : int
        To be set before each call; the other places of a block are masked.
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
    """Other values of attributes, for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def log1p(values: Any) -> Any:
    """log(1 + x) of a row, which devices have in a library of their own."""
    with np.errstate(all="ignore"):
        return as_block(np.log1p(values.handle.data))
