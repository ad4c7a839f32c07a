r"""Maximum flow from tokens to draft sets by Dinic's algorithm, in int64.

The network is source -> token i (capacity p_i) -> set S that holds i (unbounded) -> sink (capacity
W_S). A set only passes flow on, so levels, queue and current arcs are kept for tokens alone: from
token u the search reaches token v in one step where some set S holds both and v sends flow into S,
which u can take over. Sets need no memory but their residual capacity.

Draft sets come in compressed rows (`tokens`, `offsets`), as in `SupportLaw`; `set_starts` and
`sets` list for every token the sets that hold it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Integers
from mdsd_opt.base.numba_cache import kernel

Levels = NDArray[np.int32]

#: Level of a set from which no free capacity can be reached.
UNREACHED = 2**31 - 1


@kernel
def list_sets_of_tokens(
    tokens: NDArray[np.int32], offsets: Integers, set_starts: Integers, sets: NDArray[Any]
) -> None:
    """Transpose the compressed rows; fills `set_starts`, shape (V + 1,), and `sets`."""
    set_starts[:] = 0
    for i in tokens:
        set_starts[i + 1] += 1
    for i in range(set_starts.size - 1):
        set_starts[i + 1] += set_starts[i]
    place = set_starts.copy()
    for s in range(offsets.size - 1):
        for arc in range(offsets[s], offsets[s + 1]):
            i = tokens[arc]
            sets[place[i]] = s
            place[i] += 1


@kernel
def fill_greedily(
    tokens: NDArray[np.int32],
    offsets: Integers,
    token_left: Integers,
    set_left: Integers,
    flow: Integers,
) -> None:
    """Fill a first flow: every set is served by those of its tokens that have most to spare.

    To spare means a large ratio of p_i to the mass of all sets that hold i, a priority rule close
    to an optimal one, so that hardly more than one phase is left to do.
    """
    demand = np.zeros(token_left.size)
    for s in range(offsets.size - 1):
        for arc in range(offsets[s], offsets[s + 1]):
            demand[tokens[arc]] += set_left[s]
    spare = token_left / np.maximum(demand, 1.0)

    for s in range(offsets.size - 1):
        while set_left[s] > 0:
            best = -1
            for arc in range(offsets[s], offsets[s + 1]):
                i = tokens[arc]
                if token_left[i] > 0 and (best < 0 or spare[i] > spare[tokens[best]]):
                    best = arc
            if best < 0:
                break
            moved = min(token_left[tokens[best]], set_left[s])
            flow[best] += moved
            token_left[tokens[best]] -= moved
            set_left[s] -= moved


@kernel
def label_tokens(
    tokens: NDArray[np.int32],
    offsets: Integers,
    set_starts: Integers,
    sets: NDArray[Any],
    token_left: Integers,
    set_left: Integers,
    flow: Integers,
    level: Levels,
    queue: Levels,
) -> int:
    """Compute each token's distance from those with mass left; -1 if it is out of reach.

    Returns the first level on which a token meets a set with free capacity, or `UNREACHED`, when
    the flow is maximal. Tokens beyond that level may stay unlabelled.
    """
    waiting = 0
    for i in range(level.size):
        level[i] = -1
        if token_left[i] > 0:
            level[i] = 0
            queue[waiting] = i
            waiting += 1
    done = 0
    while done < waiting:
        u = queue[done]
        done += 1
        for k in range(set_starts[u], set_starts[u + 1]):
            s = sets[k]
            if set_left[s] > 0:
                return level[u]
            for arc in range(offsets[s], offsets[s + 1]):
                v = tokens[arc]
                if level[v] < 0 and flow[arc] > 0:
                    level[v] = level[u] + 1
                    queue[waiting] = v
                    waiting += 1
    return UNREACHED


@kernel
def saturate_level(
    tokens: NDArray[np.int32],
    offsets: Integers,
    set_starts: Integers,
    sets: NDArray[Any],
    token_left: Integers,
    set_left: Integers,
    flow: Integers,
    level: Levels,
    last_level: int,
) -> int:
    """Add a blocking flow along shortest paths; return the number of augmentations.

    `level` comes from `label_tokens`, which returned `last_level`; dead ends lose their level.
    """
    current = set_starts[:-1].copy()  # sets before this one lead nowhere in this phase
    forward = np.empty(last_level + 1, np.int64)  # path: flow rises on arc forward[d] ...
    backward = np.empty(last_level + 1, np.int64)  # ... and falls on arc backward[d] of that set
    augmentations = 0
    for first in range(level.size):
        if level[first] != 0:
            continue
        u = first
        depth = 0
        while token_left[first] > 0:
            inward = -1
            onward = -1
            s = 0
            while current[u] < set_starts[u + 1]:
                s = sets[current[u]]
                if depth == last_level:
                    if set_left[s] > 0:
                        break
                else:
                    for arc in range(offsets[s], offsets[s + 1]):
                        v = tokens[arc]
                        if level[v] == depth + 1 and flow[arc] > 0:
                            onward = arc
                            break
                    if onward >= 0:
                        break
                current[u] += 1
            if current[u] == set_starts[u + 1]:
                level[u] = -1
                if depth == 0:
                    break
                depth -= 1
                u = tokens[forward[depth]]
                continue
            for arc in range(offsets[s], offsets[s + 1]):
                if tokens[arc] == u:
                    inward = arc
            forward[depth] = inward
            if depth < last_level:
                backward[depth] = onward
                depth += 1
                u = tokens[onward]
                continue

            moved = min(token_left[first], set_left[s])
            for d in range(depth):
                moved = min(moved, flow[backward[d]])
            token_left[first] -= moved
            set_left[s] -= moved
            flow[inward] += moved
            restart = depth
            for d in range(depth - 1, -1, -1):
                flow[forward[d]] += moved
                flow[backward[d]] -= moved
                if flow[backward[d]] == 0:
                    restart = d
            u = tokens[forward[restart]]  # go on from the first arc that ran dry
            depth = restart
            augmentations += 1
    return augmentations


@kernel
def level_cuts(
    tokens: NDArray[np.int32],
    offsets: Integers,
    target: Integers,
    supports: Integers,
    level: Levels,
) -> Integers:
    """Capacity of the cut with the tokens of level < n on the source side, for n = 0, 1, ...

    Such a cut severs the other tokens from the source and the sets of its own tokens from the sink:
    the value of H = the other tokens, in units. After the last phase the last cut is minimal.
    """
    num_levels = 0
    for i in range(level.size):
        num_levels = max(num_levels, level[i] + 1)
    change = np.zeros(num_levels + 1, np.int64)
    for i in range(level.size):
        change[0] += target[i]
        if level[i] >= 0:
            change[level[i] + 1] -= target[i]
    for s in range(offsets.size - 1):
        lowest = num_levels
        for arc in range(offsets[s], offsets[s + 1]):
            i = tokens[arc]
            if 0 <= level[i] < lowest:
                lowest = level[i]
        if lowest < num_levels:
            change[lowest + 1] += supports[s]
    return np.cumsum(change)
