"""Number of drafts that were accepted, and that the best rule would have accepted."""

from __future__ import annotations

import math

import numpy as np

from mdsd_opt.auditing.servers.evidence import STAKES
from mdsd_opt.auditing.servers.laws import Law

#: Smaller optima are counted as this, so that one accepted draft does not pay without limit.
_LEAST_OPTIMUM = 0.05


class Acceptance:
    """Counts of the server, and single drafts after texts whose laws are known.

    Attributes
    ----------
    drafted, accepted : int or None
        Counts of the server; None if it has none.
    by_position : tuple of float
    known_drafts, known_accepted : int
    """

    def __init__(self) -> None:
        self.drafted: int | None = None
        self.accepted: int | None = None
        self.by_position: tuple[float, ...] = ()
        self.known_drafts = self.known_accepted = 0
        self._optimal = 0.0
        self._is_known = True
        self._log = np.zeros(STAKES.size)

    def count(self, drafted: int | None, accepted: int | None) -> None:
        """Add the counts of an answer."""
        if drafted is not None:
            self.drafted = (self.drafted or 0) + drafted
            self.accepted = (self.accepted or 0) + (accepted or 0)

    def count_known(
        self, drafted: int, is_accepted: bool, target: Law, draft: Law, tau: float
    ) -> None:
        r"""Add a draft after a text with known laws, where there is room for one token.

        No lossless rule accepts a draft of the law q with a probability above
        :math:`\sum_i \min(p_i, q_i)`; where the draft is the likeliest token of q, not above its
        target probability. The larger one, and the noise of both laws, is what is held against.
        A text without a draft is one that was not accepted. Where several tokens were drafted it is
        not known after which text: nothing is said then, as these come where drafts were refused.
        """
        self._is_known = self._is_known and drafted <= 1
        shared_p, shared_q = target.shared(draft)
        optimum = float(np.minimum(shared_p, shared_q).sum())
        # of what one of both does not list, the smaller mass may be shared
        optimum += min(
            float(target.p.sum() - shared_p.sum()), float(draft.p.sum() - shared_q.sum())
        )
        optimum = min(optimum, 1.0)
        first = target.cell(int(draft.ids[0]))
        greedy = 0.0 if first is None else float(target.p[first])
        if drafted:
            self.known_drafts += 1
            self.known_accepted += is_accepted
            self._optimal += optimum
        most = min(max(optimum, greedy, _LEAST_OPTIMUM) + 2.0 * tau, 1.0)
        self._log += np.log1p(STAKES * (is_accepted - most) / most)

    @property
    def rate(self) -> float | None:
        """Share of all drafts that were accepted; None if there are none."""
        return self.accepted / self.drafted if self.drafted and self.accepted is not None else None

    @property
    def _has_known(self) -> bool:
        return self._is_known and self.known_drafts > 0

    @property
    def known_rate(self) -> float | None:
        """Share of the drafts after known texts that were accepted."""
        return self.known_accepted / self.known_drafts if self._has_known else None

    @property
    def optimum(self) -> float | None:
        """Mean of the optima after known texts."""
        return self._optimal / self.known_drafts if self._has_known else None

    @property
    def log_e(self) -> float:
        """Logarithm of the e-value for more being accepted than any lossless rule can."""
        if not self._is_known:
            return 0.0
        largest = float(self._log.max())
        return largest + math.log(float(np.exp(self._log - largest).mean()))
