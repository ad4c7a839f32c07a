"""Kernels of trees of drafts: the best plan, the first text met, chances by the value of places."""

from __future__ import annotations

from typing import Any

from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import power
from mdsd_opt.verifiers import death_levels, fill_side, spans_of_blocks


@kernel
def best_below(rates: Any, below: Any, best: Any, counts: Any, sums: Any) -> None:
    """Compute the largest W of a node that may use up to b drafts, for b = 0, 1, ...

    `rates`, shape (K + 1, K), fall in every row; `below`, shape (n + 1,), is W of its drafts, and
    may be `best` itself, where there is no limit of depth. Out: `best` and `counts`, both of shape
    (n + 1,), W and drafts after the node, 0 where b - 1 bring as much; `sums`, shape (K + 1, K,
    n + 1), [k, j, s] the most that the first j + 1 of k drafts bring with s below them.
    """
    best[0] = 0.0
    counts[0] = 0
    for b in range(1, best.size):
        most = best[b - 1]
        count = 0
        for k in range(1, min(rates.shape[1], b) + 1):
            s = b - k
            top = rates[k, 0] * (1.0 + below[s])
            sums[k, 0, s] = top
            for j in range(1, k):
                rate = rates[k, j]
                before = sums[k, j - 1]
                # In falling order the last has at most its share. Two maxima: neither waits.
                end = s // (j + 1) + 1
                top = before[s] + rate
                other = top
                for x in range(1, end - 1, 2):
                    value = before[s - x] + rate * (1.0 + below[x])
                    top = value if value > top else top
                    value = before[s - x - 1] + rate * (1.0 + below[x + 1])
                    other = value if value > other else other
                value = before[s - end + 1] + rate * (1.0 + below[end - 1])
                top = max(top, other, value)
                sums[k, j, s] = top
            if top > most:
                most = top
                count = k
        best[b] = most
        counts[b] = count


@kernel
def first_met(
    order: Any, vocab_size: int, levels: Any, level_of: Any, parts: Any, below: Any, starts: Any,
    counts: Any, tokens: Any, weights: Any, misses: Any, taken: Any, chances: Any, merges: bool
) -> float:  # fmt: skip
    """Compute each text's chance to be the first of an order in the tree; return that of none.

    Texts are numbered level by level from the root, 0, those of a level in order of their tokens;
    `order` is without the root, `levels`, shape (L + 2,), has the first text of every level.
    `parts`, shape (P, 5), are of the topology, the root last: level, number of drafts, where the
    parts after them begin in `below`, where its misses begin, its row in `starts`; equal parts of a
    level are one. `starts` and `counts`, shape (R, N), say where draft tuples after every text are:
    `tokens`, shape (T, K), -1 for a draft that was drawn before, and `weights`, shape (T,), their
    probabilities. `misses`, ones at first, are chances that nothing of the order so far is at or
    below a text, drawn at a part. In: `taken`, shape (N,), all False; out: `chances`, shape (N,).
    With `merges`, draws that coincide are one node, and the tuples are of one draft.
    """
    rest = 1.0
    for n in range(order.size):
        text = order[n]
        level = level_of[text]
        inside = text - levels[level]
        taken[text] = True
        follows = False  # a text that came earlier: met only if that one is
        at = inside
        for above in range(level - 1, 0, -1):
            at //= vocab_size
            follows = follows or taken[levels[above] + at]
        if follows:
            chances[text] = 0.0
            continue
        for c in range(parts.shape[0]):
            if parts[c, 0] == level:
                misses[parts[c, 3] + inside] = 0.0
        at = inside
        for above in range(level - 1, -1, -1):
            at //= vocab_size
            for c in range(parts.shape[0]):
                if parts[c, 0] != above or parts[c, 1] == 0:
                    continue
                row = parts[c, 4]
                start = starts[row, levels[above] + at]
                stop = start + counts[row, levels[above] + at]
                after = below[parts[c, 2] : parts[c, 2] + parts[c, 1]]
                if merges:
                    total = 1.0
                    missed = 1.0
                    for k in range(after.size):
                        if k == 0 or after[k] != after[k - 1]:
                            child = parts[after[k], 3] + at * vocab_size
                            missed = 0.0
                            for r in range(start, stop):
                                missed += weights[r] * misses[child + tokens[r, 0]]
                        total *= missed
                else:
                    total = 0.0
                    for r in range(start, stop):
                        chance = weights[r]
                        for k in range(after.size):
                            token = tokens[r, k]
                            if token >= 0:
                                chance *= misses[parts[after[k], 3] + at * vocab_size + token]
                        total += chance
                misses[parts[c, 3] + at] = total
        chances[text] = max(rest - misses[-1], 0.0)
        rest = misses[-1]
    return rest


@kernel
def rank_chances(
    target: Any, q: Any, num_drafts: int, sums: Any, blocks: Any, links: Any, keys: Any,
    entries: Any, levels: Any, spans: Any, lives: Any, chances: Any,
) -> None:  # fmt: skip
    """Add the result of `recursive_rejection.rank_chances` to zeros in `chances`, shape (K,).

    `target` and `q` have shape (n,), `sums` (5, n + 1); `blocks`, `links`, `keys`, `entries` and
    `levels` are those of `death_levels`, `spans` and `lives` of `spans_of_blocks`: room for all of
    them.
    """
    n = target.size
    below, passed = sums[0], sums[1]
    below[0] = 0.0
    passed[0] = 0.0
    difference = 0.0
    best = 0.0
    split = 0
    before = 0.0
    for i in range(n):
        below[i + 1] = min(below[i] + q[i], 1.0)
        contained = power(below[i + 1], num_drafts)
        blocks[1, i] = q[i]
        blocks[2, i] = contained - before
        difference += target[i] - blocks[2, i]
        before = contained
        if difference < best:
            best = difference
            split = i + 1
    x = blocks[0]
    for i in range(n):
        x[i] = target[i]
    inside = power(below[split], num_drafts)
    fill_side(q, x, 0, split, inside, True, sums[2:])
    fill_side(q, x, split, n, 1.0 - inside, False, sums[2:])
    for i in range(n):
        share = 1.0 if target[i] > 0.0 else 0.0
        share = target[i] / x[i] if target[i] < x[i] else share
        passed[i + 1] = passed[i] + q[i] * share
    death_levels(blocks, links, keys, entries, levels)
    spans_of_blocks(levels, spans, lives)
    for j in range(2 * n + 1):
        if j <= n:
            start, stop, life = spans[0, j], spans[1, j], lives[j]
        else:
            start, stop = j - n - 1, j - n
            life = min(levels[start], levels[stop])
        mass = life * (passed[stop] - passed[start])
        if mass > 0.0:
            for k in range(num_drafts):
                chances[k] += mass * power(below[start], k) * power(below[stop], num_drafts - 1 - k)
