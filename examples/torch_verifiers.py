r"""Multi-draft verification in PyTorch alone: `optimal` and `rrs`, batched, to paste elsewhere.

Both take, for N positions,

    target    [N, V]  probabilities p of the target model, after temperature and filters
    draft     [N, V]  probabilities q the drafts were sampled from, after temperature and filters
    drafts    [N, K]  token ids, in the order they were drawn
    uniforms  [N, 4]  random numbers on [0, 1): mixing, draft, acceptance, residual; left out, they
                      come from `generator`, or from torch's own

and are told whether the drafts were drawn with or without replacement. They return the output
tokens, whether each is a draft, and the place of the first draft it equals (-1: none). The output
follows p exactly, whichever drafts came; `optimal` accepts as often as any such rule can.

Any device, float32, float16 or bfloat16 in; sums are in float64. Rows are normalised, so that
rounded probabilities are no harm. `optimal` costs one sort of each row with replacement; without
replacement it also integrates over some 40 nodes a row for K > 2.

    python examples/torch_verifiers.py     # a small demonstration

References: Hu et al., arXiv 2502.18779 (the optimal subset); Miao et al., arXiv 2305.09781,
and Jeon et al., arXiv 2402.14160 (rrs); mdsd_opt (the optimal rule in closed form).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_BRIDGE_STEPS = 100


class Verdicts(NamedTuple):
    tokens: Tensor  # [N] int64
    accepted: Tensor  # [N] bool
    draft_index: Tensor  # [N] int64


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
    left, q, drafts = _normalised(target), _normalised(draft), drafts.long()
    uniforms = _uniforms(target, generator) if uniforms is None else uniforms.double()
    undecided = torch.ones_like(left[:, 0])
    accept = []
    for k in range(drafts.shape[1]):
        valid = drafts[:, k] >= 0  # padding: fewer tokens than drafts
        token = drafts[:, k].clamp(min=0)
        share = torch.where(valid, _accepted(_at(left, token), _at(q, token)), 0.0)
        accept.append(undecided * share)
        undecided = undecided * (1.0 - share)
        rejected = _normalised((left - q).clamp(min=0.0), empty=left)
        left = torch.where((valid & (undecided > 0.0))[:, None], rejected, left)
        if not replacement:
            rest = q.scatter(1, token[:, None], 0.0)
            q = torch.where(valid[:, None], _normalised(rest, empty=rest), q)
    shares = torch.stack(accept, 1)
    reached = shares.cumsum(1)
    k = torch.searchsorted(reached, uniforms[:, 2:3].contiguous(), right=True).squeeze(1)
    inside = k < drafts.shape[1]
    k = k.clamp(max=drafts.shape[1] - 1)
    inside &= _at(shares, k) > 0.0
    tokens = torch.where(inside, _at(drafts, k), _drawn(left, uniforms[:, 3]))
    return _verdicts(tokens, drafts)


def optimal(
    target: Tensor,
    draft: Tensor,
    drafts: Tensor,
    uniforms: Tensor | None = None,
    replacement: bool = True,
    generator: torch.Generator | None = None,
) -> Verdicts:
    """The optimal rule: select a draft by the hull rule, then accept it with min(1, p/p_I)."""
    p, q, drafts = _normalised(target), _normalised(draft), drafts.long()
    uniforms = _uniforms(target, generator) if uniforms is None else uniforms.double()
    mixing, within, acceptance, residual = uniforms.unbind(1)
    certain = (q > 0.0).sum(1) <= drafts.shape[1] if not replacement else None
    if certain is not None and certain.any():  # the drafts are all there is: draw from the target
        tokens = _drawn(p, residual)
        rest = ~certain
        if rest.any():
            rows = (x[rest] for x in (target, draft, drafts, uniforms))
            tokens[rest] = optimal(*rows, replacement=False).tokens
        return _verdicts(tokens, drafts)

    # Ratios equal but for their rounding errors are tied: 18 bits are rounded away.
    ratio = (p / q).view(torch.int64) + 0x20000 & ~0x3FFFF
    ratio = torch.where(q > 0.0, ratio.view(torch.float64), torch.inf)
    order = ratio.argsort(dim=1, stable=True)
    sorted_p, sorted_q, sorted_ratio = (x.gather(1, order) for x in (p, q, ratio))
    sums_p, sums_q = _prefix_sums(sorted_p), _prefix_sums(sorted_q)
    outside = _suffix_sums(sorted_q)
    drafted = (q > 0.0).sum(1, keepdim=True)
    if replacement:
        contained = sums_q.clamp(max=1.0) ** drafts.shape[1]
    else:
        contained = 1.0 - _escape(sorted_q, outside, drafts.shape[1])

    # The optimal subset: a prefix of the tokens in order of p/q.
    places = torch.arange(p.shape[1] + 1, device=p.device)
    split = (sums_p - contained).masked_fill(places > drafted, torch.inf).argmin(1, keepdim=True)
    inside = contained.gather(1, split)

    # Water levels: p_I = max(p, c q) in the subset, min(p, c' q) outside.
    next_ratio = torch.cat((sorted_ratio, torch.full_like(sorted_ratio[:, :1], torch.inf)), 1)
    wanted = inside - (sums_p.gather(1, split) - sums_p)
    fits = (wanted <= next_ratio * sums_q) & (places >= 1) | (places == split)
    raised = torch.where(split > 0, fits.int().argmax(1, keepdim=True), 0)
    level = wanted.gather(1, raised) / sums_q.gather(1, raised)
    level = torch.where(split > 0, level, 0.0)

    last_ratio = torch.cat((torch.zeros_like(sorted_ratio[:, :1]), sorted_ratio), 1)
    wanted = (1.0 - inside) - (sums_p - sums_p.gather(1, split))
    fits = (wanted >= last_ratio * outside) & (places < drafted) & (places > split)
    fits |= places == split
    capped = (fits * places).amax(1, keepdim=True)
    cap = (wanted.gather(1, capped) / outside.gather(1, capped)).clamp(min=0.0)
    cap = torch.where(outside.gather(1, capped) > 0.0, cap, 0.0)
    nothing_capped = split == drafted
    capped = torch.where(nothing_capped, drafted, capped)

    # R, the prefix sums of p_I, and the drafts that compete: those on the side of the topmost.
    low = torch.where(
        places <= raised,
        level * sums_q,
        level * sums_q.gather(1, raised) + (sums_p - sums_p.gather(1, raised)),
    )
    high = inside + torch.where(
        places <= capped,
        sums_p - sums_p.gather(1, split),
        sums_p.gather(1, capped)
        - sums_p.gather(1, split)
        + torch.where(nothing_capped, 0.0, cap) * (outside.gather(1, capped) - outside),
    )
    selected = torch.where(places <= split, low, high)
    position = torch.empty_like(order).scatter_(1, order, places[:-1].expand_as(order))
    at = position.gather(1, drafts)
    top = at.amax(1, keepdim=True)
    above = top >= split
    first, last = torch.where(above, split, 0), torch.where(above, drafted, split)
    # Weights as sums from the end: beside q = 1, tokens of q = 1e-20 are lost in sums from the
    # start, but they can be likely drafts without replacement.
    start, stop = _block(selected - mixing[:, None] * contained, -outside, top, first, last)
    competes = at >= torch.maximum(start, first)

    if replacement:
        chosen = competes.int().argmax(1)
    else:
        shares = _pivotal_shares(q, drafts, competes, outside, start, stop)
        reached = shares.cumsum(1)
        chosen = torch.searchsorted(reached, within[:, None] * reached[:, -1:], right=True)
        chosen = torch.minimum(chosen, _last_true(shares > 0.0)[:, None]).squeeze(1)

    token = _at(drafts, chosen)
    p_token = _at(p, token)
    raised_to = torch.maximum(p_token, level.squeeze(1) * _at(q, token))
    kept = (_at(at, chosen) >= split.squeeze(1)) | (acceptance * raised_to < p_token)
    kept &= p_token > 0.0

    # After a rejection: what p has above c' q, and all tokens that are never drafted.
    excess = torch.where(q > 0.0, p - cap * q, p).clamp(min=0.0).masked_fill(position < capped, 0.0)
    # Where only rounding can reject, from p.
    other = torch.where(excess.sum(1) > 0.0, _drawn(excess, residual), _drawn(p, residual))
    return _verdicts(torch.where(kept, token, other), drafts)


def _block(
    height: Tensor, weight: Tensor, top: Tensor, first: Tensor, last: Tensor
) -> tuple[Tensor, Tensor]:
    """Ends of the edge of the lower hull of (weight, height) over place `top`, in first .. last.

    Newton's method for the slope at which the lowest points left and right of the place are level,
    in a bracket; it is exact when neither point moves any more.
    """
    places = torch.arange(height.shape[1], device=height.device)
    left_of = (places >= first) & (places <= top)
    right_of = (places > top) & (places <= last)
    last_place = height.shape[1] - 1
    start, stop = top, top + 1
    lowest = torch.full_like(height[:, :1], -torch.inf)
    highest = torch.full_like(lowest, torch.inf)
    slope = (_get(height, stop) - _get(height, start)) / (_get(weight, stop) - _get(weight, start))
    slope = torch.nan_to_num(slope, 0.0, 0.0, 0.0)
    for _ in range(_BRIDGE_STEPS):
        tilted = height - slope * weight
        new_start = tilted.masked_fill(~left_of, torch.inf).argmin(1, keepdim=True)
        flipped = tilted.masked_fill(~right_of, torch.inf).flip(1)
        new_stop = last_place - flipped.argmin(1, keepdim=True)
        if torch.equal(new_start, start) and torch.equal(new_stop, stop):
            break
        start, stop = new_start, new_stop
        difference = _get(tilted, start) - _get(tilted, stop)
        lowest = torch.where(difference < 0.0, torch.maximum(lowest, slope), lowest)
        highest = torch.where(difference > 0.0, torch.minimum(highest, slope), highest)
        newton = (_get(height, stop) - _get(height, start)) / (
            _get(weight, stop) - _get(weight, start)
        )
        middle = (lowest + highest) / 2
        outside = (newton < lowest) | (newton > highest)
        slope = torch.where(outside & middle.isfinite(), middle, torch.nan_to_num(newton, 0.0))
    return start, stop


def _pivotal_shares(
    q: Tensor,
    drafts: Tensor,
    competes: Tensor,
    outside: Tensor,
    start: Tensor,
    stop: Tensor,
) -> Tensor:
    """Probability of returning each draft of the block, drafts without replacement; [N, K]."""
    k = drafts.shape[1]
    drawn = q.gather(1, drafts)
    rest = q.scatter(1, drafts, 0.0).sum(1)
    left = [rest]
    for i in range(k - 1, 0, -1):
        left.append(left[-1] + drawn[:, i])
    left.reverse()  # 1 - q(X_1 .. X_i), i = 1 .. K
    first = competes.int().argmax(1)
    z = _at(drawn, first)
    pivotal = _get(outside, stop).squeeze(1) / (left[-1] + z)
    for i in range(k - 1):
        factor = left[i] / (left[i] + z)
        pivotal = torch.where(i >= first, pivotal * factor, pivotal)
    competing = torch.where(competes, drawn, 0.0)
    in_block = _get(outside, start) - _get(outside, stop)
    in_block = in_block.maximum(competing.sum(1, keepdim=True))  # never less, however it rounds
    shares = pivotal[:, None] * competing / in_block
    shares = shares.scatter(1, first[:, None], 0.0)
    return shares.scatter(1, first[:, None], (1.0 - shares.sum(1))[:, None])


def _escape(q: Tensor, outside: Tensor, num_drafts: int) -> Tensor:
    """1 - Q of every prefix of the sorted tokens: some of K draws without replacement is outside.

    In a race of exponential clocks with rates q, (1 - A) sum_{n < K} S_n, where S_n integrates
    exp(-t) e_n(exp(q t) - 1) over t: e_n are elementary symmetric polynomials of the prefix, here
    cumulated in logarithms, and t runs over the nodes of a double-exponential rule.
    """
    total = torch.ones_like(outside)
    if num_drafts > 1:
        others = torch.where(q > 0.5, _sum_of_others(q), 1.0 - q)
        total = total + _prefix_sums(torch.where(q > 0.0, q / others, 0.0))
    if num_drafts > 2:
        heavy = q.topk(num_drafts - 1, dim=1).indices
        slowest = q.scatter(1, heavy, 0.0).sum(1, keepdim=True)
        step = 0.25 if num_drafts <= 4 else 0.2 if num_drafts <= 8 else 0.15
        last = 38.0 / max(float(slowest.min()), 1e-290)
        for i in range(math.ceil((math.log(last) + 2.6) / step) + 1):
            x = -2.6 + i * step
            t = math.exp(x - math.exp(-x))
            log_weight = math.log(step * t * (1.0 + math.exp(-x)))
            total = total + _later_terms(q, t, log_weight, num_drafts)
    return (outside * total).clamp(0.0, 1.0)


def _later_terms(q: Tensor, t: float, log_weight: float, num_drafts: int) -> Tensor:
    """weight exp(-t) (e_2 + ... + e_{K-1}) of every prefix, the polynomials of exp(q t) - 1.

    Tokens with q t > 40 have rung by t for certain. They are counted apart, so that no difference
    of 1 and their q is taken: prefixes that lack one of them add nothing.
    """
    rung = q * t > 40.0
    certain = rung.sum(1, keepdim=True)
    complete = _prefix_sums(rung.double()) >= certain
    y = (q * t).masked_fill(rung, 0.0)
    log_g = torch.expm1(y).log()
    log_scale = log_weight - y.sum(1, keepdim=True)
    log_e = torch.zeros_like(q[:, :1]).expand(-1, q.shape[1] + 1)
    total = torch.zeros_like(log_e)
    for n in range(num_drafts):
        if n > 0:
            grown = (log_g + log_e[:, :-1]).logcumsumexp(1)
            log_e = torch.cat((torch.full_like(grown[:, :1], -torch.inf), grown), 1)
        counts = complete & (n + certain >= 2) & (n + certain < num_drafts)
        total = torch.where(counts, total + (log_e + log_scale).exp(), total)
    return total


def _sum_of_others(q: Tensor) -> Tensor:
    """For each row, the sum of all but the largest, at every place."""
    largest = q.argmax(1, keepdim=True)
    return q.scatter(1, largest, 0.0).sum(1, keepdim=True).expand_as(q)


def _uniforms(target: Tensor, generator: torch.Generator | None) -> Tensor:
    device = target.device if generator is None else generator.device
    numbers = torch.rand(len(target), 4, generator=generator, dtype=torch.float64, device=device)
    return numbers.to(target.device)


def _normalised(weights: Tensor, empty: Tensor | None = None) -> Tensor:
    """Rows divided by their sums, in float64; rows without mass are taken from `empty`."""
    weights = weights.double()
    sums = weights.sum(1, keepdim=True)
    if empty is None:
        return weights / sums
    return torch.where(sums > 0.0, weights / sums, empty)


def _accepted(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p/q); a token of probability zero is never accepted."""
    return torch.where(p < q, p / q, (p > 0.0).double())


def _drawn(law: Tensor, uniform: Tensor) -> Tensor:
    """Inverse CDF; a token of probability zero is never drawn, whatever the uniform."""
    reached = law.cumsum(1)
    point = uniform[:, None] * reached[:, -1:]
    token = torch.searchsorted(reached, point, right=True).squeeze(1)
    return torch.minimum(token, _last_true(law > 0.0))


def _last_true(flags: Tensor) -> Tensor:
    places = torch.arange(flags.shape[1], device=flags.device)
    return (flags * places).amax(1)


def _prefix_sums(rows: Tensor) -> Tensor:
    return torch.cat((torch.zeros_like(rows[:, :1]), rows.cumsum(1)), 1)


def _suffix_sums(rows: Tensor) -> Tensor:
    return _prefix_sums(rows.flip(1)).flip(1)


def _at(rows: Tensor, column: Tensor) -> Tensor:
    return rows.gather(1, column[:, None]).squeeze(1)


def _get(rows: Tensor, columns: Tensor) -> Tensor:
    return rows.gather(1, columns)


def _verdicts(tokens: Tensor, drafts: Tensor) -> Verdicts:
    hits = drafts == tokens[:, None]
    accepted = hits.any(1)
    return Verdicts(tokens, accepted, torch.where(accepted, hits.int().argmax(1), -1))


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    num_rows, vocab_size, num_drafts = 2000, 1000, 4
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
