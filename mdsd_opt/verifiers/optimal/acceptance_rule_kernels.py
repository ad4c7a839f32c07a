"""Numba kernels of the optimal rule on groups of tokens, in float64: marginals, blocks, residuals.

`acceptance_rule` explains the blocks, `problem.water_filling` the levels of p_I, and `bin_plan` the
marginal on bins.
"""

from __future__ import annotations

import numpy as np

from mdsd_opt.base.arrays import Flags, Integers, Keys, Matrix, Vector
from mdsd_opt.base.numba_cache import kernel
from mdsd_opt.prefix_search import BUCKET, CONTAINED, RATIO, P, Q, lowest_in_group, pool
from mdsd_opt.problem import water_level

# Rows of what is written: p_I, weight and part of Q of each group, and what the last 0, 1.. groups
# hold.
X, W, GAIN = 0, 1, 2
TOP_P, TOP_W = 3, 4
ROWS = 5

#: Number of tokens whose excess is summed at once.
BLOCK = 1024

water_level_of = kernel(inner=True)(water_level)


@kernel
def fill_groups(ends: Matrix, split: int, filled: Matrix) -> tuple[int, float, int, float]:
    """Write the marginal and its parts to room of shape (ROWS, n + 1).

    Returns raised, c, capped and cap, as `water_filling.fill`.
    """
    n = ends.shape[1] - 1
    for g in range(n):
        for row in (P, Q, CONTAINED):
            filled[row, g] = ends[row, g + 1] - ends[row, g]
    for g in range(n + 1):
        filled[TOP_P, n - g] = ends[P, n] - ends[P, g]
        filled[TOP_W, n - g] = ends[Q, n] - ends[Q, g]
    inside = ends[CONTAINED, split]
    raised, c = water_level_of(ends[:2, : split + 1], ends[RATIO, :split], inside, True)
    others = n - split
    count, cap = water_level_of(
        filled[TOP_P : TOP_W + 1, : others + 1], ends[RATIO, split:n], 1.0 - inside, False
    )
    for g in range(raised):
        filled[X, g] = c * filled[W, g]
    for g in range(n - count, n):
        filled[X, g] = cap * filled[W, g]
    return raised, c, n - count, cap


@kernel
def fill_bins(
    p: Vector, q: Vector, lowest: Vector, highest: Vector, contained: Vector, room: Matrix,
    starts: Integers, x: Vector,
) -> tuple[int, float]:  # fmt: skip
    """Write the marginal x of groups in ascending order of p/q; return the cut, and P - Q there.

    p and q > 0 are masses and `lowest` and `highest` bounds of p/q, shape (n,) as x; `contained`,
    shape (n + 1,), is Q of the first 0, 1, ... groups. `room`, shape (3, n + 1), and `starts`,
    shape (n + 1,), are room.
    """
    n = p.size
    split, least, reached = 0, 0.0, 0.0
    for g in range(n):
        reached += p[g]
        if reached - contained[g + 1] < least:
            split, least = g + 1, reached - contained[g + 1]
    inside = contained[split]
    for g in range(n):
        bound = highest[g] if g < split else lowest[g]
        x[g] = bound * q[g] if bound < np.inf else p[g]
    _towards_means(p, x, 0, split, inside, True)
    _towards_means(p, x, split, n, 1.0 - inside, False)
    fill_side(q, x, 0, split, inside, True, room)
    fill_side(q, x, split, n, 1.0 - inside, False, room)
    # Rounded masses may have brought R below Q: it is kept above.
    reached, before = 0.0, 0.0
    for g in range(n):
        reached += x[g]
        if g + 1 == split:
            reached = inside
        if g + 1 == n:
            reached = 1.0
        above = max(reached, contained[g + 1])
        x[g] = max(above - before, 0.0)
        before = max(above, before)
    _pool(q, x, 0, split, room, starts)
    _pool(q, x, split, n, room, starts)
    return split, least


@kernel(inner=True)
def _towards_means(
    p: Vector, x: Vector, start: int, stop: int, mass: float, from_above: bool
) -> None:
    """Move from the mean ratios to those at the bounds only as far as the mass has room for."""
    means, bounds = 0.0, 0.0
    for g in range(start, stop):
        means += p[g]
        bounds += x[g]
    if bounds <= mass if from_above else bounds >= mass:
        return
    share = min(max((mass - means) / (bounds - means), 0.0), 1.0)
    for g in range(start, stop):
        x[g] = p[g] + share * (x[g] - p[g])


@kernel(inner=True)
def fill_side(
    q: Vector, x: Vector, start: int, stop: int, mass: float, rising: bool, room: Matrix
) -> None:
    """Raise the least ratios x/q of sorted groups, or cap the largest, so that all hold the mass.

    The room for that is of shape (3, n + 1).
    """
    size = stop - start
    room[0, 0], room[1, 0] = 0.0, 0.0
    for i in range(size):
        g = start + i if rising else stop - 1 - i
        room[0, i + 1] = room[0, i] + x[g]
        room[1, i + 1] = room[1, i] + q[g]
        room[2, g - start] = x[g] / q[g]
    count, level = water_level_of(room[:2, : size + 1], room[2, :size], mass, rising)
    for i in range(count):
        g = start + i if rising else stop - 1 - i
        x[g] = level * q[g]


@kernel(inner=True)
def _pool(q: Vector, x: Vector, start: int, stop: int, room: Matrix, starts: Integers) -> None:
    """Make ratios ascend again: widened bounds overlap by their widening."""
    count = 0
    for g in range(start, stop):
        count = pool(count, g, x[g], q[g], starts, room[0], room[1])
    starts[count] = stop
    for b in range(count):
        if starts[b + 1] - starts[b] > 1:
            for g in range(starts[b], starts[b + 1]):
                x[g] = room[0, b] / room[1, b] * q[g]


@kernel
def block_around(
    x: Vector, w: Vector, gains: Vector, level: float, split: int, raised: int, capped: int,
    top: int, starts: Integers, mass: Vector, weight: Vector,
) -> tuple[int, int]:  # fmt: skip
    """Block [start, stop) of place `top` at one level: pool adjacent violators on its side.

    The end of H is a boundary at every level, so one side of it is enough. `starts` is room for one
    place more than x has, `mass` and `weight` for as many.

    The places below `raised`, and those from `capped` on, stand on a water level and enter as one:
    R is straight there and -s Q concave, so no boundary among them is ever a vertex. Where Q is
    straight as well, or s is 0, they are tied, and so are equal ratios elsewhere: all points lie on
    one line, and a block may end at any of them without a change in the law of the returned token,
    which asks only for the chord. Taken one by one, rounding would cut such ties at random.
    """
    first, last = (0, split) if top < split else (split, x.size)
    height = 0
    i = first
    while i < last:
        stop = i + 1
        if i < raised:
            stop = raised
        elif i >= capped:
            stop = last
        block_mass = 0.0
        block_weight = 0.0
        for j in range(i, stop):
            block_mass += x[j] - level * gains[j]
            block_weight += w[j]
        height = pool(height, i, block_weight, -block_mass, starts, weight, mass)
        i = stop
    starts[height] = last
    while starts[height - 1] > top:
        height -= 1
    return starts[height - 1], starts[height]


@kernel
def death_levels(
    blocks: Matrix, links: Integers, keys: Vector, entries: Integers, levels: Vector
) -> None:
    """Merge neighbouring blocks in the order in which they meet, with a heap: O(n log n).

    `blocks`, shape (3, n), holds x, w and the part of Q in each, named by their first token;
    `levels`, shape (n + 1,), all ones, is the result. The rest is room: `links`, shape (3, n), for
    the blocks before and after and a number that grows with every change of a block, by which
    entries of the heap that have gone stale are known; keys, shape (3 n,), and entries, shape (2, 3
    n), for the heap.
    """
    n = blocks.shape[1]
    before, after, stamp = links[0], links[1], links[2]
    for i in range(n):
        before[i] = i - 1
        after[i] = i + 1  # n: none
        stamp[i] = 0
    size = 0
    for low in range(n - 1):
        size = _push(keys, entries, size, _meeting_level(blocks, low, low + 1), low, 0)
    reached = 0.0
    while size > 0:
        key, low, seen = keys[0], entries[0, 0], entries[1, 0]
        size = _pop(keys, entries, size)
        if stamp[low] < 0 or after[low] >= n:
            continue
        high = after[low]
        if stamp[low] + stamp[high] != seen:
            continue
        if key >= 1.0:
            break
        reached = max(reached, key)  # rounding must not let a parent die before its child
        levels[high] = reached
        for r in range(3):
            blocks[r, low] += blocks[r, high]
        stamp[low] += stamp[high] + 1
        stamp[high] = -1
        after[low] = after[high]
        for side in range(2):  # the pairs that the merged block makes with its neighbours
            left = low if side else before[low]
            right = after[low] if side else low
            if left < 0 or right >= n:
                continue
            before[right] = left
            key = _meeting_level(blocks, left, right)
            size = _push(keys, entries, size, key, left, stamp[left] + stamp[right])


@kernel(inner=True)
def _meeting_level(blocks: Matrix, low: int, high: int) -> float:
    w_low, w_high = blocks[1, low], blocks[1, high]
    rise = blocks[0, high] * w_low - blocks[0, low] * w_high
    fall = blocks[2, high] * w_low - blocks[2, low] * w_high
    if rise <= 0.0:
        return 0.0
    if fall <= rise:
        return 1.0
    return rise / fall


@kernel(inner=True)
def _push(keys: Vector, entries: Integers, size: int, key: float, item: int, stamp: int) -> int:
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if keys[parent] <= key:
            break
        _put(keys, entries, child, keys[parent], entries[0, parent], entries[1, parent])
        child = parent
    _put(keys, entries, child, key, item, stamp)
    return size + 1


@kernel(inner=True)
def _pop(keys: Vector, entries: Integers, size: int) -> int:
    """Remove the root; the caller has read it."""
    size -= 1
    key = keys[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        _put(keys, entries, parent, keys[child], entries[0, child], entries[1, child])
        parent = child
    _put(keys, entries, parent, key, entries[0, size], entries[1, size])
    return size


@kernel(inner=True)
def _put(keys: Vector, entries: Integers, place: int, key: float, item: int, stamp: int) -> None:
    keys[place] = key
    entries[0, place] = item
    entries[1, place] = stamp


@kernel
def spans_of_blocks(levels: Vector, spans: Integers, life: Vector) -> None:
    """Compute the block that is born where boundary j dies: its ends, and the length of its life.

    It spans to the nearest boundaries that die later (ties: to the left first, so that equal levels
    make one chain of blocks, all but the last living for no time) and lives until one of them dies.
    Levels and lives have shape (n + 1,); the rows of `spans`, shape (3, n + 1), are left and right
    ends, and room.
    """
    n = levels.size - 1
    left, right, stack = spans[0], spans[1], spans[2]
    height = 0
    for j in range(n + 1):
        while height > 0 and stack[height - 1] > 0 and levels[stack[height - 1]] <= levels[j]:
            height -= 1
        left[j] = stack[height - 1] if height > 0 else 0
        stack[height] = j
        height += 1
    height = 0
    for j in range(n, -1, -1):
        while height > 0 and stack[height - 1] < n and levels[stack[height - 1]] < levels[j]:
            height -= 1
        right[j] = stack[height - 1] if height > 0 else n
        stack[height] = j
        height += 1
    life[0] = 0.0
    life[n] = 0.0
    for j in range(1, n):
        until = 1.0
        if left[j] > 0:
            until = min(until, levels[left[j]])
        if right[j] < n:
            until = min(until, levels[right[j]])
        life[j] = until - levels[j]


@kernel(reassociate=True, inner=True)
def _excess_mass(p: Vector, q: Vector, buckets: Keys, ratio: Vector) -> float:
    mass = 0.0
    for i in range(p.size):
        excess = p[i] - ratio[buckets[i]] * q[i]
        mass += excess if excess > 0.0 else 0.0
    return mass


@kernel
def excess_token(
    p: Vector, q: Vector, buckets: Keys, ratio: Vector, uniform: float, masses: Vector
) -> int:
    """Draw from the positive part of p - ratio q, `ratio` given by bucket; -1 if it has no mass.

    `masses` is room for one number for every `BLOCK` tokens.
    """
    total = 0.0
    for block in range(masses.size):
        start, stop = block * BLOCK, (block + 1) * BLOCK
        masses[block] = _excess_mass(p[start:stop], q[start:stop], buckets[start:stop], ratio)
        total += masses[block]
    if total <= 0.0:
        return -1
    point = uniform * total
    block = 0
    while block + 1 < masses.size and point >= masses[block]:
        point -= masses[block]
        block += 1
    while block > 0 and masses[block] <= 0.0:  # rounding has led past the last token
        block -= 1
        point = total
    last = -1
    for i in range(block * BLOCK, min((block + 1) * BLOCK, p.size)):
        excess = p[i] - ratio[buckets[i]] * q[i]
        if excess > 0.0:
            last = i
            if point < excess:
                break
            point -= excess
    return last


@kernel
def doubt_levels(
    groups: Integers, edges: Vector, split: int, c: float, cap: float, is_doubtful: Flags
) -> bool:
    """Flag the groups that may reach across the water level on their side; return if any do."""
    found = False
    for g in range(groups.shape[1]):
        bucket = groups[BUCKET, g]
        level = c if g < split else cap
        if bucket >= 0 and edges[bucket] < level and level < edges[bucket + 1]:
            is_doubtful[bucket] = True
            found = True
    return found


@kernel
def doubt_block(
    groups: Integers, ends: Matrix, sums: Matrix, lowest: Vector, highest: Vector, exponent: int,
    slack: float, mixing: float, split: int, raised: int, c: float, capped: int, cap: float,
    start: int, stop: int, selected: Vector, is_doubtful: Flags,
) -> bool:  # fmt: skip
    """Flag the groups that may cut the block [start, stop) at a mixing level; return if any do.

    `exponent`, `slack`, `sums`, `lowest` and `highest` are those of `doubt_cut`.

    The block is one edge of the lower hull of R - s Q if nothing on its side of the cut lies below
    the line through its ends. `selected`, of shape (n + 1,), is room for R on that side, up to a
    constant: it follows p, but for the groups that are raised to c q or capped to c' q.
    """
    is_above = start >= split
    first = split if is_above else raised
    last = capped if is_above else split
    for j in range(first, last + 1):
        selected[j] = ends[P, j]
    if is_above:
        for j in range(capped + 1, selected.size):
            selected[j] = ends[P, capped] + cap * (ends[Q, j] - ends[Q, capped])
    else:
        for j in range(raised + 1):
            selected[j] = c * ends[Q, j]
        for j in range(raised + 1, split + 1):
            selected[j] = selected[raised] + (ends[P, j] - ends[P, raised])
    low = selected[start] - mixing * ends[CONTAINED, start]
    high = selected[stop] - mixing * ends[CONTAINED, stop]
    slope = (high - low) / (ends[Q, stop] - ends[Q, start])
    low -= slack
    found = False
    for g in range(first, last):
        bucket = groups[BUCKET, g]
        if bucket >= 0:
            p_mass, q_mass, contained = lowest_in_group(
                sums[bucket], ends, g, lowest[bucket], highest[bucket], exponent
            )
            height = selected[g] + (p_mass - ends[P, g]) - mixing * contained
            if height < low + slope * (q_mass - ends[Q, start]):
                is_doubtful[bucket] = True
                found = True
    return found
