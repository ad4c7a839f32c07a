"""Integrals of polynomials."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import frozen


@cache
def gauss_rule(degree: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gauss-Legendre nodes and weights on [0, 1], exact up to this degree."""
    x, w = np.polynomial.legendre.leggauss(degree // 2 + 1)
    return frozen((1.0 + x) / 2.0), frozen(w / 2.0)
