"""Which text of an order a random tree of drafts holds first."""

from __future__ import annotations

from typing import Any

from mdsd_opt.base.numba_cache import kernel


@kernel
def first_met(
    order: Any, vocab_size: int, levels: Any, level_of: Any, places: Any, starts: Any, counts: Any,
    tokens: Any, weights: Any, misses: Any, taken: Any, chances: Any
) -> float:  # fmt: skip
    """Chance that each text is the first of an order that is in the tree.

    Texts are numbered level by level from the root, 0, those of a level in order of their tokens.

    Parameters
    ----------
    order : ndarray of integers
        Texts, without the root.
    vocab_size : int
    levels : ndarray of integers, shape (L + 2,)
        First text of every level.
    level_of : ndarray of integers, shape (N,)
    places : ndarray of integers, shape (P, 5)
        Of the topology: level, number of drafts, first child, where its misses begin, its row in
        `starts`. Parents before children; the children of a place follow one another.
    starts, counts : ndarray of integers, shape (R, N)
        Draft tuples after every text.
    tokens : ndarray of integers, shape (T, K)
        -1 for a draft that was drawn before.
    weights : ndarray, shape (T,)
        Their probabilities.
    misses : ndarray
        In: ones. Chance that nothing of the order so far is at or below a text, drawn at a place.
    taken : ndarray of bool, shape (N,)
        In: all False.
    chances : ndarray, shape (N,)
        Out.

    Returns
    -------
    float
        That the tree holds none of them.
    """
    left = 1.0
    for n in range(order.size):
        text = order[n]
        level = level_of[text]
        inside = text - levels[level]
        taken[text] = True
        below = False  # below a text that came earlier: met only if that one is
        at = inside
        for above in range(level - 1, 0, -1):
            at //= vocab_size
            below = below or taken[levels[above] + at]
        if below:
            chances[text] = 0.0
            continue
        for c in range(places.shape[0]):
            if places[c, 0] == level:
                misses[places[c, 3] + inside] = 0.0
        at = inside
        for above in range(level - 1, -1, -1):
            at //= vocab_size
            for c in range(places.shape[0]):
                if places[c, 0] != above or places[c, 1] == 0:
                    continue
                row = places[c, 4]
                start = starts[row, levels[above] + at]
                total = 0.0
                for r in range(start, start + counts[row, levels[above] + at]):
                    chance = weights[r]
                    for k in range(places[c, 1]):
                        token = tokens[r, k]
                        if token >= 0:
                            child = places[c, 2] + k
                            chance *= misses[places[child, 3] + at * vocab_size + token]
                    total += chance
                misses[places[c, 3] + at] = total
        chances[text] = max(left - misses[0], 0.0)
        left = misses[0]
    return left
