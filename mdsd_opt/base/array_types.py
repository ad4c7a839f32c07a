"""Types of arrays for annotations in every room; docstrings give their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Numbers = NDArray[Any]  #: float64, or Fractions
Integers = NDArray[np.int64]
Tokens = NDArray[np.int64]
Keys = NDArray[np.uint16]
Flags = NDArray[np.bool_]
