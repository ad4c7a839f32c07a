"""Types of arrays and texts for annotations in every room; docstrings give their shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Law = NDArray[np.float64]  #: probabilities of all tokens
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Numbers = NDArray[Any]  #: float64, or Fractions
Row = NDArray[Any]  #: logits of one position, of any precision
Integers = NDArray[np.int64]
Tokens = NDArray[np.int64]
Keys = NDArray[np.uint16]
Flags = NDArray[np.bool_]
Text = tuple[int, ...]  #: token ids, in order
Model = Callable[[Text], Floats]  #: the law after a text
