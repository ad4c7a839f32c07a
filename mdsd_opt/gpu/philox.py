"""Random numbers by a counter, with Philox4x32-10 of Salmon et al. (SC 2011), as on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd_opt.base.arrays import Floats, Integers
from mdsd_opt.verifiers import Uniforms

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


@dataclass(frozen=True, slots=True)
class Randomness:
    """Key and counter from which random numbers come."""

    seed: int  # below 2**64; the key
    step: int = 0  # below 2**32; another one for every decision with the same seed


def uniforms_of(randomness: Randomness, rows: Integers) -> Floats:
    """Random numbers of rows by their numbers, shape (n, 4), in the order of `Uniforms`.

    The counter is made of the row's number, the step, and the place among the four.
    """
    found = np.empty((rows.size, len(Uniforms._fields)))
    row = rows.astype(np.uint64)
    for stream in range(found.shape[1]):
        x = [row & _LOW, row >> _HALF]
        x += [np.full(rows.size, value, np.uint64) for value in (randomness.step, stream)]
        keys = [randomness.seed & 0xFFFFFFFF, randomness.seed >> 32]
        for _ in range(10):
            first, second = _MULTIPLIERS[0] * x[0], _MULTIPLIERS[1] * x[2]
            x = [
                (second >> _HALF) ^ x[1] ^ np.uint64(keys[0]),
                second & _LOW,
                (first >> _HALF) ^ x[3] ^ np.uint64(keys[1]),
                first & _LOW,
            ]
            keys = [(key + by) & 0xFFFFFFFF for key, by in zip(keys, _KEY_STEPS, strict=True)]
        bits = (x[0] >> np.uint64(5)).astype(np.float64) * 2.0**26
        found[:, stream] = (bits + (x[1] >> np.uint64(6)).astype(np.float64)) / 2.0**53
    return found
