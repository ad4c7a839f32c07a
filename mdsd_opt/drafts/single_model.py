"""What all schemes with a single draft model share."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.distributions import Distribution
from mdsd_opt.drafts.base import PrefixDraftScheme, checked_num_drafts


class OneDraft(PrefixDraftScheme):
    """K drafts from one draft distribution q, whose ratios p/q order the tokens."""

    def __init__(self, q: Any, num_drafts: int) -> None:
        self.model = Distribution.of(q, "q")
        self.num_drafts = checked_num_drafts(num_drafts)
        self.vocab_size = self.model.vocab_size

    @property
    def q(self) -> NDArray[np.float64]:
        return self.model.values

    @cached_property
    def exact_q(self) -> tuple[Fraction, ...]:
        return self.model.exact()

    def propensity(self) -> NDArray[np.float64]:
        return self.q

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.q

    @property
    def exact_weights(self) -> tuple[Fraction, ...]:
        return self.exact_q
