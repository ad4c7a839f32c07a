"""Where random numbers come from: `rng` is a seed, 0 if it is None, or a generator of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd_opt.errors import InvalidInput

#: What a function takes as `rng`.
Rng = np.random.Generator | int | None


def generator_of(rng: Any) -> np.random.Generator:
    """The given generator, or a fresh one from a seed."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(seed_of(rng))


def checked_generator(rng: Any) -> np.random.Generator:
    """The generator; `InvalidInput` for a seed, of which each call would draw the same numbers."""
    if hasattr(rng, "standard_exponential"):
        return rng
    raise InvalidInput(
        f"rng is {rng!r:.60}: give a generator, numpy.random.default_rng(seed), the same in all "
        "calls, whose numbers go on"
    )


def seed_of(rng: Any) -> int | None:
    """The seed; None where a generator was given instead."""
    return None if isinstance(rng, np.random.Generator) else drawn_seed(rng)


def drawn_seed(rng: Any, bits: int | None = None) -> int:
    """The seed, of so many bits at most; a generator draws one of 63."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(1 << 63))
    seed = 0 if rng is None else rng
    fits = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0
    if not fits or (bits is not None and seed >= 1 << bits):
        size = "" if bits is None else f" of {bits} bits at most"
        raise InvalidInput(
            f"the seed is {rng!r}: give an integer from 0{size}, or as rng "
            "numpy.random.default_rng(seed), so that the same can be had again"
        )
    return int(seed)
