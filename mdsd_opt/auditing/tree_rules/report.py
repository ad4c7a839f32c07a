"""Report of an audit of whole texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mdsd_opt.evidence import TREES, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeAuditReport(Report):
    """Verdict of `audit_tree`.

    Attributes
    ----------
    length : int
        Tokens of the texts that were compared: the most that one step gives.
    num_trees : int
        Trees of drafts that were enumerated; 0 by sampling.
    blind_spots : tuple of str
        Faults that no audit on these laws and this tree can see.
    laws : str
        Name of the laws on which this was found; empty if they are the given ones.
    """

    length: int
    num_trees: int = 0
    blind_spots: tuple[str, ...] = ()
    laws: str = ""

    kind: ClassVar = TREES

    @property
    def coverage_unmet(self) -> bool:
        """Whether some situation never occurred, so that nothing is known of it."""
        return self.coverage is not None and bool(self.coverage.unmet)


def blind_spots(vocab_size: int, depth: int) -> tuple[str, ...]:
    """Faults that no audit can see on problems so small, in words."""
    spots = []
    if vocab_size < 3:
        spots.append(
            f"a residual of the wrong scale (with V = {vocab_size} it is one token: take V >= 3)"
        )
    if depth < 2:
        spots.append("what is wrong from the second draft on (take two levels or more)")
    elif depth < 3:
        spots.append("what is wrong in the middle of a block only (take three levels or more)")
    return tuple(spots)
