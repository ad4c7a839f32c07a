r"""Multi-draft verification in PyTorch alone: `optimal` and `rrs`, batched, to paste elsewhere.

Both take, for N positions,

    target    [N, V]  probabilities p of the target model, after temperature and filters
    draft     [N, V]  probabilities q the drafts were sampled from, after temperature and filters
    drafts    [N, K]  token ids, in the order they were drawn; -1: there is none
    uniforms  [N, 3]  random numbers on [0, 1): mixing, acceptance, residual; left out, they come
                      from `generator`, or from torch's own

and are told whether the drafts were drawn with or without replacement. They return the output
tokens, whether each is a draft, and the place of the first draft it equals (-1: none). The output
follows p exactly, whichever drafts came. `optimal` sums the vocabulary up in bins of p/q and is the
optimal rule for these: what it accepts less than any rule could is 1e-5 or so with 2,048 bins, with
replacement, and 1e-4 with 512. `verify_tree` walks a tree of drafts by either of them.

Any device, float64, float32, float16 or bfloat16 in; sums are in float64. Rows are normalised, so
that rounded probabilities are no harm. Shapes depend on shapes alone and no number is asked for:
all of it compiles with ``torch.compile(..., fullgraph=True)``, and nothing waits for the device.
The vocabulary is read in parts: beside the inputs, `optimal` holds at most 1.8 arrays of N x V
float32 with replacement and 3.4 without, and `rrs` 1.0 (K = 8, V = 131,072 and 152,064). Its tables
of bins do not shrink with V: at V = 32,768 they make it 3.9 and 10.5.

    python examples/torch_verifiers.py     # a small demonstration

References: Hu et al., arXiv 2502.18779 (the optimal subset); Miao et al., arXiv 2305.09781,
and Jeon et al., arXiv 2402.14160 (rrs); mdsd_opt (the optimal rule in closed form).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

#: Number of bins of p/q: a race without replacement takes time for each.
_BINS, _RACE_BINS = 2048, 512
#: Number of parts in which the vocabulary is read, and their least size.
_PARTS, _LEAST_PART = 8, 4096
#: Number of tokens that are summed to draw one.
_BLOCK = 64
#: Steps of Newton's method, and those that are kept in a bracket.
_NEWTON_STEPS, _BRACKET_STEPS = 4, 8
#: Share of the mass beside the K - 1 likeliest up to which tokens are light in a race.
_LIGHT = 1 / 64
#: Number of times of a race that are processed together, for each draft.
_TIMES = 64


class Verdicts(NamedTuple):
    tokens: Tensor  # [N] int64
    accepted: Tensor  # [N] bool
    draft_index: Tensor  # [N] int64


class TreeVerdicts(NamedTuple):
    predicts: Tensor  # [bs N] int32: the token behind each place that was passed, else 0
    accept_index: Tensor  # [bs, S] int32: places passed, the root's first, then -1
    accept_token_num: Tensor  # [bs] int32: drafts accepted


class _Decision(NamedTuple):
    """Acceptance of the drafts, and the rest of p for the output otherwise."""

    accept: Tensor  # [N, K]: probability that the output is this draft, by its acceptance
    ratio: Tensor  # [N, 1], or [N, B + 1] by bins: (p - ratio q)+ is left
    extra: Tensor  # [N, K]: and so much more of the drafts
    bins: Tensor | None  # [N, V]: the bin of every token, if there are more than one


_Rule = Callable[[Tensor, Tensor, Tensor, Tensor, bool], _Decision]


def rrs(
    target: Tensor,
    draft: Tensor,
    drafts: Tensor,
    uniforms: Tensor | None = None,
    replacement: bool = True,
    generator: torch.Generator | None = None,
) -> Verdicts:
    """Recursive rejection sampling: accept draft k with min(1, p_k/q_k), else p_k+1 ~ (p_k - q_k)+.

    With replacement q_k = q; without, q_k is q without the tokens drawn before.
    """
    return _verified(_recursive, target, draft, drafts, uniforms, replacement, generator)


def optimal(
    target: Tensor,
    draft: Tensor,
    drafts: Tensor,
    uniforms: Tensor | None = None,
    replacement: bool = True,
    generator: torch.Generator | None = None,
) -> Verdicts:
    """Optimal rule: select a draft by the hull rule, then accept it with min(1, p/p_I)."""
    return _verified(_hull_rule, target, draft, drafts, uniforms, replacement, generator)


def verify_tree(
    verify: Callable[..., Verdicts],
    target: Tensor,
    draft: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    num_drafts: int,
    num_steps: int,
    uniforms: Tensor | None = None,
    replacement: bool = True,
    generator: torch.Generator | None = None,
) -> TreeVerdicts:
    """Walk trees of drafts from their roots, at every node by one rule: `optimal` or `rrs`.

    Trees are in SGLang's layout, [bs, N] integers: `candidates` are tokens, `retrive_index` the
    place of each node among all of bs N, and `retrive_next_token` and `retrive_next_sibling` number
    the first child and the next sibling of a node in its tree, -1: none. Node 0 is the root.
    `target` and `draft`, [bs, N, V], are the laws behind each node; the children of a node are
    `num_drafts` draws from the latter in the order they were drawn (fewer only if it has no more
    tokens), or none at all. At most S = `num_steps` tokens come out, and `uniforms` are
    [bs, S, 3]. Laws of the nodes that are passed are copied, one node of each tree at a time.
    """
    count, rows = len(candidates), torch.arange(len(candidates), device=candidates.device)
    if uniforms is None:
        uniforms = _uniforms(target, (count, num_steps, 3), generator)
    node, last = torch.zeros_like(rows), retrive_index[:, 0].long()
    moving, accepted = torch.ones_like(rows, dtype=torch.bool), torch.zeros_like(rows)
    predicts, passed = torch.zeros_like(retrive_index).flatten().long(), []
    for step in range(num_steps):
        found = []
        child = _at(retrive_next_token, node) if step < num_steps - 1 else torch.full_like(node, -1)
        for _ in range(num_drafts):
            found.append(child)
            child = torch.where(child < 0, child, _at(retrive_next_sibling, child.clamp(min=0)))
        children = torch.stack(found, 1)
        drafts = candidates.gather(1, children.clamp(min=0)).where(children >= 0, -1)
        verdicts = verify(
            target[rows, node], draft[rows, node], drafts, uniforms[:, step], replacement
        )
        predicts = predicts.scatter(0, last, verdicts.tokens.where(moving, predicts[last]))
        passed.append(last.where(moving, -1))
        moving = moving & verdicts.accepted
        node = _at(children, verdicts.draft_index.clamp(min=0)).where(moving, node)
        last = _at(retrive_index, node).where(moving, last)
        accepted = accepted + moving
    return TreeVerdicts(predicts.int(), torch.stack(passed, 1).int(), accepted.int())


@torch.no_grad()
def _verified(
    rule: _Rule, target: Tensor, draft: Tensor, drafts: Tensor, uniforms: Tensor | None,
    replacement: bool, generator: torch.Generator | None,
) -> Verdicts:  # fmt: skip
    """Decide by a rule: one of the drafts by its probabilities, else a token of the rest."""
    drafts = drafts.long()
    if uniforms is None:
        uniforms = _uniforms(target, (len(target), 3), generator)
    if uniforms.shape != (len(target), 3):
        shape = list(uniforms.shape)
        raise ValueError(f"uniforms are {shape}: give [N, 3] for mixing, acceptance and residual")
    mixing, acceptance, residual = uniforms.double().unbind(1)
    decision = rule(target, draft, drafts, mixing, replacement or drafts.shape[1] == 1)
    reached = decision.accept.cumsum(1)
    k = torch.searchsorted(reached, acceptance[:, None].contiguous(), right=True).squeeze(1)
    inside, k = k < drafts.shape[1], k.clamp(max=drafts.shape[1] - 1)
    inside = inside & (_at(decision.accept, k) > 0.0)
    tokens = _at(drafts, k).where(inside, _drawn(target, draft, drafts, decision, residual))
    hits = (drafts == tokens[:, None]) & (drafts >= 0)
    accepted = hits.any(1)
    return Verdicts(tokens, accepted, _first_true(hits).where(accepted, -1))


def _recursive(
    p: Tensor, q: Tensor, drafts: Tensor, mixing: Tensor, replacement: bool
) -> _Decision:
    """Decide by `rrs`: after k drafts (p - c q)+ is left, c smaller by those not put back.

    (p_k - q_k)+ is a multiple of (p - c' q)+, where c' - c is what q_k has of the mass left.
    """
    sum_p, sum_q = _row_sums(p), _row_sums(q)
    valid, at = drafts >= 0, drafts.clamp(min=0)
    p_drafts = (p.gather(1, at) / sum_p[:, None]).where(valid, 0.0)
    q_drafts = (q.gather(1, at) / sum_q[:, None]).where(valid, 0.0)
    left = torch.ones_like(q_drafts) if replacement else _left(q, drafts, q_drafts, sum_q)
    scale = (sum_p / sum_q)[:, None]
    level = torch.zeros_like(sum_p)
    mass = undecided = torch.ones_like(sum_p)
    accept, extra = [], torch.zeros_like(p_drafts)
    for k in range(drafts.shape[1]):
        if k > 0:
            mass = _excess_sums(p, q, level[:, None] * scale) / sum_p + extra.sum(1)
        p_k = (p_drafts[:, k] - level * q_drafts[:, k]).clamp(min=0.0) / mass
        q_k = q_drafts[:, k] / left[:, k]
        share = torch.where(p_k < q_k, p_k / q_k, (p_k > 0.0).double()).where(valid[:, k], 0.0)
        accept.append(undecided * share)
        undecided = undecided * (1.0 - share)
        higher = level + torch.where(valid[:, k] & (undecided > 0.0), mass / left[:, k], 0.0)
        if not replacement:  # the drafts before this one keep what they have
            kept = (p_drafts - level[:, None] * q_drafts).clamp(min=0.0)
            kept = kept - (p_drafts - higher[:, None] * q_drafts).clamp(min=0.0)
            extra = extra + torch.nn.functional.pad(kept[:, :k], (0, drafts.shape[1] - k))
        level = higher
    ratio = level[:, None] * scale
    return _Decision(torch.stack(accept, 1), ratio, extra * sum_p[:, None], None)


class _Plan(NamedTuple):
    """Plan of `optimal` at each position, whichever drafts come."""

    bins: Tensor  # [N, V]: the bin of every token
    sum_p: Tensor  # [N]
    sum_q: Tensor
    q_bins: Tensor  # [N, B]
    outside: Tensor  # [N, B + 1]: q in all bins from a place on
    contained: Tensor  # [N, B + 1]: probability that all drafts are in bins before it
    split: Tensor  # [N, 1]: the optimal subset is all before this place
    ratio: Tensor  # [N, B]: of the law p_I of the selected draft to q
    certain: Tensor  # [N]: the drafts are all tokens there are, and the target is drawn from


def _hull_rule(
    p: Tensor, q: Tensor, drafts: Tensor, mixing: Tensor, replacement: bool
) -> _Decision:
    """Decide by `optimal`: one draft of the block of bins around the topmost, if p allows it."""
    plan = _plan(p, q, drafts.shape[1], replacement)
    return _selected(plan, p, q, drafts, mixing, replacement)


def _plan(p: Tensor, q: Tensor, num_drafts: int, replacement: bool) -> _Plan:
    bins = _BINS if replacement else _RACE_BINS
    race = None
    if replacement:
        place, sums = _bin_sums(p, q, bins)
    else:
        race, light = _race(q, num_drafts)
        place, sums = _bin_sums(p, q, bins, light, _LIGHT * race.slowest, 2 * num_drafts + 2)
        del light
    sum_p, sum_q = sums[0].sum(1), sums[1].sum(1)
    p_bins, q_bins = sums[0, :, :-1] / sum_p[:, None], sums[1, :, :-1] / sum_q[:, None]
    outside = _suffix_sums(q_bins)
    if race is None:
        certain = torch.zeros_like(sum_p, dtype=torch.bool)
        contained = _prefix_sums(q_bins).clamp(max=1.0) ** num_drafts
    else:
        certain, moments = race.certain, _prefix_sums(sums[2:, :, :-1])
        contained = _contained(p, q, race, moments, outside * sum_q[:, None], num_drafts)
    edges = torch.arange(bins + 1, dtype=torch.float64, device=p.device) / bins
    edges = 2.0 * edges / (1.0 - edges) * (sum_q / sum_p)[:, None]
    split, ratio = _marginal(p_bins, q_bins, contained, edges)
    return _Plan(place, sum_p, sum_q, q_bins, outside, contained, split, ratio, certain)


def _selected(
    plan: _Plan, p: Tensor, q: Tensor, drafts: Tensor, mixing: Tensor, replacement: bool
) -> _Decision:
    _, sum_p, sum_q, q_bins, outside, contained, split, ratio, certain = plan
    bins, at = ratio.shape[1], drafts.clamp(min=0)
    p_drafts, q_drafts = p.gather(1, at).double(), q.gather(1, at).double()
    place = _bin(p_drafts, q_drafts, bins)
    place = place.where((drafts >= 0) & (place < bins), -1)
    top = place.amax(1, keepdim=True).clamp(min=0)
    height = _prefix_sums(ratio * q_bins) - mixing[:, None] * contained
    start, stop = _block(height, outside, split, top)
    competes = place >= start
    p_drafts, q_drafts = p_drafts / sum_p[:, None], q_drafts / sum_q[:, None]
    if replacement:
        first = _first_true(competes)[:, None]
        shares = torch.zeros_like(p_drafts).scatter(1, first, 1.0)
    else:
        left = _left(q, drafts, q_drafts, sum_q)
        shares = _pivotal_shares(q_drafts, left, competes, outside, start, stop)
    ratio = torch.nn.functional.pad(ratio, (0, 1))
    selected = ratio.gather(1, place.clamp(min=0)) * q_drafts
    accepted = torch.where(p_drafts < selected, p_drafts / selected, (p_drafts > 0.0).double())
    certain = (certain | (drafts[:, 0] < 0))[:, None]
    accept = torch.where(competes & ~certain, shares * accepted, 0.0)
    ratio = (ratio * (sum_p / sum_q)[:, None]).masked_fill(certain, 0.0)
    return _Decision(accept, ratio, torch.zeros_like(accept), plan.bins)


def _marginal(p: Tensor, q: Tensor, contained: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Optimal subset, all bins before a place, and the ratio of p_I to q in each bin.

    Inside the subset a ratio goes from the mean of its bin up to the largest p/q, and outside down
    to the least one, as far as prefix sums of p_I stay above containment: tokens there are then
    never rejected, or nothing is left of them. What room is left raises the lowest ratios inside to
    a level, and caps the highest outside.
    """
    sums_p, sums_q, outside = _prefix_sums(p), _prefix_sums(q), _suffix_sums(q)
    places = torch.arange(p.shape[1] + 1, device=p.device)
    room = sums_p - contained
    split = room.argmin(1, keepdim=True)
    inside, room = contained.gather(1, split), room - room.gather(1, split)
    below = places[:-1] < split
    mean = torch.where(q > 0.0, p / q, edges[:, :-1])
    growth = torch.where(q > 0.0, contained.diff(dim=1) / q, mean)
    highest, lowest = mean.maximum(growth), mean.minimum(growth)
    bound = torch.where(below, highest.minimum(edges[:, 1:]), lowest.maximum(edges[:, :-1]))
    change = _prefix_sums((bound - mean) * q)
    change = (change - change.gather(1, split)).abs()
    share = torch.where(change > 0.0, room / change, 1.0).clamp(0.0, 1.0)
    sides = (
        share.where(side, 1.0).amin(1, keepdim=True) for side in (places < split, places > split)
    )
    ratio = mean + torch.where(below, *sides) * (bound - mean)

    # A place fits if the level that belongs to it is between the ratios left and right of it.
    sums = _prefix_sums(ratio * q)
    behind = sums - sums.gather(1, split)
    right = torch.nn.functional.pad(ratio, (0, 1), value=torch.inf)
    raised = _first_true(inside + behind <= right * sums_q)[:, None].minimum(split)
    weight = sums_q.gather(1, raised)
    level = torch.where(weight > 0.0, (inside + behind.gather(1, raised)) / weight, 0.0)
    rest = 1.0 - inside - behind
    left = torch.nn.functional.pad(ratio, (1, 0))
    capped = (((rest >= left * outside) & (outside > 0.0)) * places).amax(1, keepdim=True)
    capped = capped.maximum(split)
    weight = outside.gather(1, capped)
    cap = torch.where(weight > 0.0, rest.gather(1, capped) / weight, 0.0).clamp(min=0.0)
    return split, torch.where(below, ratio.maximum(level), ratio.minimum(cap))


def _block(height: Tensor, outside: Tensor, split: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """Edge of the lower hull of (-outside, height) over bin `top`, on its side of `split`.

    Newton's method for the slope at which the lowest points left and right of the bin are level, in
    a bracket after some steps. Sums from the end, as beside q = 1 tokens of q = 1e-20 are lost in
    sums from the start, but they can be likely drafts without replacement.
    """
    last_place = height.shape[1] - 1
    places = torch.arange(last_place + 1, device=height.device)
    above = top >= split
    first, last = split.where(above, 0), torch.where(above, last_place, split)
    left = height.masked_fill((places < first) | (places > top), torch.inf)
    right = height.masked_fill((places <= top) | (places > last), torch.inf)
    heights = torch.stack((left, right.flip(1)), 1)  # of equal points the outer ones
    weights = torch.stack((outside, outside.flip(1)), 1)
    ends = torch.stack((top, last_place - 1 - top), 1)
    lowest, highest = (torch.full_like(height[:, :1], x) for x in (-torch.inf, torch.inf))
    slope = torch.full_like(lowest, torch.nan)
    for step in range(_NEWTON_STEPS + _BRACKET_STEPS):
        rise, run = (x.gather(2, ends).diff(dim=1).squeeze(2) for x in (heights, weights))
        newton = rise / run
        if step >= _NEWTON_STEPS:
            lowest = torch.where(newton > slope, slope.maximum(lowest), lowest)
            highest = torch.where(newton < slope, slope.minimum(highest), highest)
            middle = (lowest + highest) / 2
            halve = ((newton < lowest) | (newton > highest)) & (middle.abs() < torch.inf)
            newton = torch.where(halve, middle, newton)
        slope = newton.nan_to_num(0.0)
        ends = torch.addcmul(heights, slope[:, None], weights, value=-1.0)
        ends = ends.argmin(2, keepdim=True)
    return ends[:, 0], last_place - ends[:, 1]


def _pivotal_shares(
    drawn: Tensor, left: Tensor, competes: Tensor, outside: Tensor, start: Tensor, stop: Tensor
) -> Tensor:
    """Probability of returning each draft of the block, drafts without replacement; [N, K]."""
    first = _first_true(competes)
    z = _at(drawn, first)
    behind, from_start = outside.gather(1, stop), outside.gather(1, start)
    pivotal = behind.squeeze(1) / (left[:, -1] + z)
    for i in range(1, drawn.shape[1]):
        factor = left[:, i] / (left[:, i] + z)
        pivotal = torch.where(i > first, pivotal * factor, pivotal)
    competing = torch.where(competes, drawn, 0.0)
    # A block has never less than these, however it rounds.
    in_block = (from_start - behind).maximum(competing.sum(1, keepdim=True))
    shares = pivotal[:, None] * competing / in_block
    shares = shares.scatter(1, first[:, None], 0.0)
    return shares.scatter(1, first[:, None], (1.0 - shares.sum(1))[:, None])


def _left(q: Tensor, drafts: Tensor, q_drafts: Tensor, sum_q: Tensor) -> Tensor:
    """Mass 1 - q(X_1 .. X_i) for i = 0 .. K; no difference loses a small rest."""
    drawn = drafts.where(drafts >= 0, drafts[:, :1]).clamp(min=0)
    rest = _row_sums(q.scatter(1, drawn, 0.0)) / sum_q
    return _suffix_sums(q_drafts) + rest[:, None]


class _Race(NamedTuple):
    """Exponential clocks of rates q: the drafts are the first K to ring."""

    certain: Tensor  # [N]: there are no more than K tokens
    slowest: Tensor  # [N, 1]: q of all tokens but the K - 1 likeliest
    heavy: Tensor  # [N, H]: the likeliest tokens, all others below _LIGHT slowest


def _race(q: Tensor, num_drafts: int) -> tuple[_Race, Tensor]:
    """Race, and q of the light tokens, [N, V]."""
    size = min(q.shape[1], num_drafts - 1 + round(1.0 / _LIGHT))
    top, heavy = q.topk(size, 1)
    light = q.scatter(1, heavy, 0.0)
    slowest = _row_sums(light) + top[:, num_drafts - 1 :].sum(1, dtype=torch.float64)
    few = torch.ones_like(slowest, dtype=torch.bool)
    certain = top[:, num_drafts] <= 0.0 if size > num_drafts else few
    return _Race(certain, slowest.clamp(min=1e-290)[:, None], heavy), light


def _contained(
    p: Tensor, q: Tensor, race: _Race, moments: Tensor, outside: Tensor, num_drafts: int
) -> Tensor:
    r"""Containment Q of prefixes of the bins in K draws without replacement; [N, B + 1].

    With a = q of the tokens outside and N_t the clocks inside that have rung by t,

        1 - Q = int a exp(-a t) Pr(N_t < K) dt,

    by the trapezoid rule in log t. What is integrated is Pr(N_t < K) - exp(-t) (1 + t), in units
    of the slowest rate, which begins like t^2 wherever it counts: the rest is known, and some
    hundred times do for whatever q. The law of N_t is a product of polynomials for the heavy
    tokens, and comes from the sums of q, q^2, ... over the light ones, `moments`,
    [2 K + 2, N, B + 1], in units of what a light token may have.
    """
    bins = moments.shape[2] - 1
    step = 0.23 if num_drafts <= 4 else min(0.2, 0.57 / math.sqrt(num_drafts))
    first, last = -18.0, math.log(num_drafts + 8.0 * math.sqrt(num_drafts) + 22.0)
    count = math.ceil((last - first) / step) + 1
    times = (first + step * torch.arange(count, dtype=torch.float64, device=q.device)).exp()
    rates = q.gather(1, race.heavy).double()
    place, order = _bin(p.gather(1, race.heavy).double(), rates, bins).sort(dim=1)
    rates = (rates / race.slowest).gather(1, order)
    before = torch.searchsorted(place, torch.arange(bins + 1, device=q.device).repeat(len(q), 1))
    a = (outside / race.slowest)[:, None]
    escape = a / (a + 1.0) + a / (a + 1.0) ** 2
    moments = moments.transpose(0, 1)
    for t in times[:, None].split(max(_TIMES // num_drafts, 1)):
        at = before[:, None].expand(-1, len(t), -1)
        heavy, light = _heavy_laws(rates, t, num_drafts), _light_laws(moments, t, num_drafts)
        fewer = -(-t).exp() * (1.0 + t)
        for n in range(num_drafts):  # heavy ones, and fewer than K - n light ones
            fewer = fewer + heavy[n].gather(2, at) * light[-1 - n]
        escape = escape + (fewer * (-a * t).exp_() * (step * a * t)).sum(1, keepdim=True)
    return (1.0 - escape[:, 0]).clamp(0.0, 1.0)


def _heavy_laws(rates: Tensor, times: Tensor, num_drafts: int) -> list[Tensor]:
    """Laws Pr(N_t = n) of the first 0 .. H tokens, n < K, by times [T, 1]: K [N, T, H + 1]."""
    rung = -rates[:, None] * times
    law = [torch.nn.functional.pad(rung.exp(), (1, 0), value=1.0)]
    law.append(torch.nn.functional.pad(-torch.expm1(rung), (1, 0)))
    law += [torch.zeros_like(law[0]) for _ in range(num_drafts - 2)]
    shift = 1
    while shift <= rates.shape[1]:  # products of 1, 2, 4, ... neighbours
        behind = [
            torch.nn.functional.pad(x[..., :-shift], (shift, 0), value=float(n == 0))
            for n, x in enumerate(law)
        ]
        law = [sum(law[m] * behind[n - m] for m in range(n + 1)) for n in range(num_drafts)]
        shift *= 2
    return law


def _light_laws(moments: Tensor, times: Tensor, num_drafts: int) -> list[Tensor]:
    """Laws Pr(N_t <= n) of light tokens, n < K, by times [T, 1]: K times [N, T, B + 1].

    Power sums of exp(x) - 1 by its series, x = q t being small where it matters; then Newton's
    identities for the elementary symmetric polynomials of it.
    """
    terms, scale = moments.shape[1], _LIGHT * times
    powers = scale ** torch.arange(1, terms + 1, device=scale.device)
    found = [(-scale * moments[:, :1]).exp()]
    sums: list[Tensor] = []
    total = [found[0]]
    for n in range(1, num_drafts):
        # n! S(m, n) / m!, with Stirling numbers of the second kind
        series = [
            sum((-1) ** (n - j) * math.comb(n, j) * j**m for j in range(n + 1)) / math.factorial(m)
            for m in range(1, terms + 1)
        ]
        weights = powers * torch.tensor(series, dtype=torch.float64, device=scale.device)
        sums.append(weights @ moments)
        found.append(sum((-1) ** j * found[n - 1 - j] * sums[j] for j in range(n)) / n)
        total.append(total[-1] + found[n])
    return total


def _bin(p: Tensor, q: Tensor, bins: int) -> Tensor:
    """Bins even in p / (p + 2 q), with a last one for tokens that are never drafted."""
    place = (p / (p + 2.0 * q)).mul_(bins).long().clamp_(max=bins - 1)
    return place.masked_fill_(q <= 0.0, bins)


def _bin_sums(
    p: Tensor, q: Tensor, bins: int, light: Tensor | None = None, unit: Tensor | None = None,
    num_powers: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Bins, [N, V], and sums of p, q and powers of light tokens in a unit, [.., N, B + 1]."""
    places = torch.empty(p.shape, dtype=torch.int16, device=p.device)
    sums = torch.zeros(2 + num_powers, len(p), bins + 1, dtype=torch.float64, device=p.device)
    for part in _parts(p):
        p_part, q_part = p[:, part].double(), q[:, part].double()
        place = _bin(p_part, q_part, bins)
        places[:, part] = place
        sums[0].scatter_add_(1, place, p_part)
        sums[1].scatter_add_(1, place, q_part)
        if light is not None:
            x = light[:, part] / unit
            power = torch.ones_like(x)
            for n in range(2, 2 + num_powers):
                sums[n].scatter_add_(1, place, power.mul_(x))
    return places, sums


def _excess(p: Tensor, q: Tensor, ratio: Tensor, bins: Tensor | None = None) -> Tensor:
    """Excess (p - ratio q)+ in float64, by one ratio or those of bins."""
    ratio = ratio if bins is None else ratio.gather(1, bins.long())
    return torch.addcmul(p.double(), ratio, q.double(), value=-1.0).clamp_(min=0.0)


def _excess_sums(p: Tensor, q: Tensor, ratio: Tensor) -> Tensor:
    return sum(_excess(p[:, part], q[:, part], ratio).sum(1) for part in _parts(p))


def _drawn(p: Tensor, q: Tensor, drafts: Tensor, decision: _Decision, uniform: Tensor) -> Tensor:
    """Token by inverse CDF of the rest of p, over blocks of tokens and then in one of them.

    From p where only rounding can ask for it. A token of probability zero is never drawn, whatever
    the uniform.
    """
    _, ratio, extra, bins = decision
    sums, sums_p = [], []
    for part in _parts(p):
        places = None if bins is None else bins[:, part]
        sums.append(_block_sums(_excess(p[:, part], q[:, part], ratio, places)))
        sums_p.append(_block_sums(p[:, part]))
    at = drafts.clamp(min=0)
    blocks = torch.cat(sums, 1).scatter_add(1, at // _BLOCK, extra)
    blocks = blocks.where(blocks.sum(1, keepdim=True) > 0.0, torch.cat(sums_p, 1).double())
    block, point = _passed(blocks, uniform * blocks.sum(1))
    tokens = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=p.device)
    inside, tokens = tokens < p.shape[1], tokens.clamp(max=p.shape[1] - 1)
    p_block, places = p.gather(1, tokens), None if bins is None else bins.gather(1, tokens)
    weights = _excess(p_block, q.gather(1, tokens), ratio, places)
    weights = weights + ((tokens[:, :, None] == at[:, None]) * extra[:, None]).sum(2)
    weights = weights.where(inside, 0.0)
    weights = weights.where(weights.sum(1, keepdim=True) > 0.0, p_block.where(inside, 0.0))
    return _at(tokens, _passed(weights, point)[0])


def _block_sums(law: Tensor) -> Tensor:
    if law.shape[1] % _BLOCK:
        law = torch.nn.functional.pad(law, (0, -law.shape[1] % _BLOCK))
    return law.unflatten(1, (-1, _BLOCK)).sum(2)


def _passed(weights: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the weight at which sums of weights pass a number, and the number's rest there."""
    reached = weights.cumsum(1)
    place = torch.searchsorted(reached, point[:, None], right=True).squeeze(1)
    place = place.minimum(_last_true(weights > 0.0))
    return place, (point - (_at(reached, place) - _at(weights, place))).clamp(min=0.0)


def _uniforms(target: Tensor, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    device = target.device if generator is None else generator.device
    numbers = torch.rand(shape, generator=generator, dtype=torch.float64, device=device)
    return numbers.to(target.device)


def _parts(rows: Tensor) -> list[slice]:
    """Slices of the vocabulary in parts of whole blocks."""
    size = max(-(-rows.shape[1] // (_PARTS * _BLOCK)) * _BLOCK, _LEAST_PART)
    return [slice(start, start + size) for start in range(0, rows.shape[1], size)]


def _row_sums(rows: Tensor) -> Tensor:
    return sum(rows[:, part].sum(1, dtype=torch.float64) for part in _parts(rows))


def _first_true(flags: Tensor) -> Tensor:
    return flags.view(torch.uint8).argmax(-1)


def _last_true(flags: Tensor) -> Tensor:
    places = torch.arange(flags.shape[1], dtype=torch.int32, device=flags.device)
    return (flags * places).amax(1)


def _prefix_sums(rows: Tensor) -> Tensor:
    return torch.nn.functional.pad(rows.cumsum(-1), (1, 0))


def _suffix_sums(rows: Tensor) -> Tensor:
    return _prefix_sums(rows.flip(-1)).flip(-1)


def _at(rows: Tensor, column: Tensor) -> Tensor:
    return rows.gather(1, column[:, None]).squeeze(1)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    num_rows, vocab_size, num_drafts = 500, 1000, 4
    logits = 2.5 * torch.randn(num_rows, vocab_size, generator=generator)
    target = logits.softmax(1)
    draft = (logits + torch.randn(num_rows, vocab_size, generator=generator)).softmax(1)
    for replacement in (True, False):
        drafts = torch.multinomial(draft, num_drafts, replacement, generator=generator)
        print("with" if replacement else "without", "replacement, accepted:")
        for verify in (rrs, optimal):
            verdicts = verify(target, draft, drafts, replacement=replacement, generator=generator)
            print(f"  {verify.__name__:8} {verdicts.accepted.double().mean():.3f}")


if __name__ == "__main__":
    main()
