"""Triton's interpreter, and random numbers in the place of those that a kernel makes for itself.

A Triton kernel makes random numbers for itself: it hashes a seed, a position and a token. Under
Triton's interpreter these hashes are functions of Python that the kernel looks up when it calls
them: others, put in their place, draw from PyTorch, whose draws an audit answers. That the hashes
are independent and uniform is assumed.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput, MissingExtra


def interpreted_triton(package: str) -> dict[str, Any]:
    """Triton and its language by the names that files give them; it interprets kernels.

    Triton reads whether it does when it is imported, for its own functions, and at every kernel.
    """
    if "triton" not in sys.modules:
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        raise MissingExtra(f"the kernels of {package} need triton: {error}") from error
    compiles = isinstance(tl.sum, triton.JITFunction)
    if compiles or os.environ.get("TRITON_INTERPRET") != "1":
        raise InvalidInput(
            "triton is imported already, and compiles: set TRITON_INTERPRET=1 before it is"
        )
    return {"triton": triton, "tl": tl}


def _as_tensor(values: Any, scalar: bool = False) -> Any:
    """A row of float32, or one number, as Triton's interpreter passes it on."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    row = np.atleast_1d(np.asarray(values, dtype=np.float32))
    kind = tl.float32 if scalar else tl.block_type(tl.float32, [row.size])
    return tl.tensor(TensorHandle(row, tl.float32), kind)


def coin(*where: Any, **options: Any) -> Any:
    """Draw one uniform."""
    import torch

    return _as_tensor(float(torch.rand(1)), scalar=True)


def log1p(values: Any) -> Any:
    """Elementwise log(1 + x) of a row; on devices it is in a library of their own."""
    with np.errstate(all="ignore"):
        return _as_tensor(np.log1p(values.handle.data))


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
        return _as_tensor(block)
