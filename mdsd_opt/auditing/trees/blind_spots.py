"""What no audit can see on problems that are too small."""

from __future__ import annotations

BlindSpots = tuple[str, ...]


def blind_spots(vocab_size: int, depth: int) -> BlindSpots:
    """In words, for a vocabulary and a depth of the tree."""
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
