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
rounded probabilities are no harm. `optimal` sums large vocabularies up in cells of p/q, and looks
into the few of them where the answer may lie; without replacement it also integrates over some 40
nodes a row for K > 2.

    python examples/torch_verifiers.py     # a small demonstration

References: Hu et al., arXiv 2502.18779 (the optimal subset); Miao et al., arXiv 2305.09781,
and Jeon et al., arXiv 2402.14160 (rrs); mdsd_opt (the optimal rule in closed form).
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

_BRIDGE_STEPS = 100


class Verdicts(NamedTuple):
    tokens: Tensor  # [N] int64
    accepted: Tensor  # [N] bool
    draft_index: Tensor  # [N] int64


def _without_graph(verify: Callable[..., Verdicts]) -> Callable[..., Verdicts]:
    """Nothing is recorded for gradients, which would take a tenth of the time."""

    @functools.wraps(verify)
    def verified(*args: Any, **options: Any) -> Verdicts:
        with torch.inference_mode():
            verdicts = verify(*args, **options)
        return Verdicts(*(numbers.clone() for numbers in verdicts))  # ordinary tensors again

    return verified


@_without_graph
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


@_without_graph
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

    rows = _Rows(p, q, drafts.shape[1], replacement)
    opened = None
    while True:
        groups = rows.groups(opened)
        plan = _plan(groups)
        at = rows.places(groups, drafts)
        top = at.amax(1, keepdim=True)
        above = top >= plan.split
        first = torch.where(above, plan.split, 0)
        last = torch.where(above, groups.p.shape[1], plan.split)
        height = plan.selected - mixing[:, None] * groups.contained
        # Weights as sums from the end: beside q = 1, tokens of q = 1e-20 are lost in sums from the
        # start, but they can be likely drafts without replacement.
        start, stop = _block(height, -groups.outside, top, first, last)
        if plan.doubtful is None:  # all tokens are there
            break
        ends = (start, stop, top, first, last)
        doubtful = plan.doubtful | _doubtful_block(groups, plan, height, mixing[:, None], *ends)
        doubtful.scatter_(1, at, True)
        doubtful &= groups.cell < _CELLS
        if not doubtful.any():
            break
        opened = rows.opening(opened, groups, doubtful)
    competes = at >= torch.maximum(start, first)

    if replacement:
        chosen = competes.int().argmax(1)
    else:
        shares = _pivotal_shares(q, drafts, competes, groups.outside, start, stop)
        reached = shares.cumsum(1)
        chosen = torch.searchsorted(reached, within[:, None] * reached[:, -1:], right=True)
        chosen = torch.minimum(chosen, _last_true(shares > 0.0)[:, None]).squeeze(1)

    token = _at(drafts, chosen)
    p_token = _at(p, token)
    raised_to = torch.maximum(p_token, plan.level.squeeze(1) * _at(q, token))
    kept = _at(at, chosen) >= plan.split.squeeze(1)
    kept = (kept | (acceptance * raised_to < p_token)) & (p_token > 0.0)
    if not kept.all():
        lost = ~kept
        # What p has above cap q, and all tokens that are never drafted.
        excess = (p - plan.cap * q)[lost].clamp_(min=0.0)
        excess.masked_fill_((rows.ratio < plan.floor)[lost], 0.0)
        # Where only rounding can reject, from p.
        excess = torch.where(excess.sum(1, keepdim=True) > 0.0, excess, p[lost])
        token[lost] = _drawn(excess, residual[lost])
    return _verdicts(token, drafts)


#: Of the integral without replacement that are held at once.
_NUMBERS = 1 << 18
#: Vocabularies up to this size are sorted whole, and so are all on a device, where sorts are cheap
#: and every operation costs a launch.
_SORTED = 4096
#: Cells of p/q: 2^_CELL_BITS to an octave, from 2^-_OCTAVES to 2^_OCTAVES.
_CELL_BITS, _OCTAVES = 7, 8
_CELLS = 2 * _OCTAVES << _CELL_BITS
_FIRST_CELL = (1023 - _OCTAVES) << _CELL_BITS
_HIGH_HALF = 1 if sys.byteorder == "little" else 0
#: Without replacement, tokens are light up to this share of what K - 1 drafts leave of q: sums of
#: their powers stand for them.
_LIGHT = 1 / 256
_POWERS = 10


class _Groups(NamedTuple):
    """Tokens in the order of p/q, those of a closed cell together: M groups, M + 1 places."""

    p: Tensor  # [N, M], as all up to `most`
    q: Tensor
    low: Tensor  # bounds of p/q
    high: Tensor
    token: Tensor  # of a group of one token; else -1
    cell: Tensor  # of a group that can be opened; else _CELLS + 1
    least: Tensor | None  # bounds of the growth of `contained` by q, inside of cells
    most: Tensor | None
    sums_p: Tensor  # before each place, [N, M + 1], as all that follow
    sums_q: Tensor
    outside: Tensor  # q behind it
    contained: Tensor  # probability that all drafts stand before it


class _Plan(NamedTuple):
    split: Tensor  # the optimal subset: all before this place
    level: Tensor  # p_I = max(p, level q) in it,
    cap: Tensor  # and min(p, cap q) outside,
    floor: Tensor  # where p is above that from this p/q on
    selected: Tensor  # sums of p_I before each place
    doubtful: Tensor | None  # groups that may hold one of these inside


class _Rows:
    """Rows of p and q as groups: by cells of p/q, without a sort, and as fine as it needs to be."""

    def __init__(self, p: Tensor, q: Tensor, num_drafts: int, replacement: bool) -> None:
        self.p, self.q, self.num_drafts, self.replacement = p, q, num_drafts, replacement
        never = q <= 0.0
        # Ratios equal but for their rounding errors are tied: 18 bits are rounded away.
        bits = (p / q).view(torch.int64).add_(0x20000).bitwise_and_(~0x3FFFF)
        self.ratio = bits.view(torch.float64).masked_fill_(never, torch.inf)
        if not replacement:
            most, where = q.topk(min(max(num_drafts - 1, 1), q.shape[1]), dim=1)
            self.slowest = q.scatter(1, where[:, : num_drafts - 1], 0.0).sum(1, keepdim=True)
            others = self.slowest + most[:, 1:].sum(1, keepdim=True)  # than the likeliest
            if num_drafts == 1:
                others = others - most
            self.odds = (q / (1.0 - q)).scatter_(1, where[:, :1], most[:, :1] / others)
        self.by_cells = p.shape[1] > _SORTED and p.device.type == "cpu"
        if not self.by_cells:
            return
        high_half = bits.view(torch.int32).view(*bits.shape, 2)[..., _HIGH_HALF]
        self.cell = (high_half >> 20 - _CELL_BITS).sub_(_FIRST_CELL).clamp_(0, _CELLS - 1)
        self.cell.masked_fill_(never, _CELLS)
        offsets = (_CELLS + 1) * torch.arange(len(p), device=p.device)
        self.flat_cell = (self.cell + offsets[:, None]).flatten() if len(p) > 1 else self.cell[0]
        edges = torch.arange(_FIRST_CELL, _FIRST_CELL + _CELLS + 1, device=p.device)
        edges = (edges << 52 - _CELL_BITS).view(torch.float64)
        self.low, self.high = edges[:-1].clone(), edges[1:].clone()
        self.low[0], self.high[-1] = 0.0, torch.inf
        self.cell_p, self.cell_q = self._by_cell(p), self._by_cell(q)
        if not replacement:
            self.heavy = q > _LIGHT * self.slowest
            self.light = (q / (_LIGHT * self.slowest)).masked_fill_(self.heavy, 0.0)
            self.cell_odds = self._by_cell(self.odds)
            self.cell_heavy = self._by_cell(self.heavy.double())
            powers = [self.light]
            while len(powers) < _POWERS:
                powers.append(powers[-1] * self.light)
            self.cell_powers = torch.stack([self._by_cell(power) for power in powers], 2)
            columns = self._picked(self.heavy, (q, 0.0), (self.ratio, torch.inf))
            order = columns[1].argsort(dim=1, stable=True)
            self.heavy_q = columns[0].gather(1, order)

    def _by_cell(self, values: Tensor) -> Tensor:
        """Sums over the tokens of each cell, [N, cells]."""
        sums = values.new_zeros(len(values) * (_CELLS + 1))
        sums.index_add_(0, self.flat_cell, values.flatten())
        return sums.view(-1, _CELLS + 1)[:, :-1]

    def _picked(self, mask: Tensor, *columns: tuple[Tensor, float]) -> list[Tensor]:
        """Some tokens of each row in their order, and a filling behind them; their numbers last."""
        row, token = mask.nonzero(as_tuple=True)
        counts = torch.bincount(row, minlength=len(mask))
        size = max(int(counts.max()), 1)
        at = row * size + torch.arange(len(row), device=row.device)
        at -= (counts.cumsum(0) - counts)[row]
        number = row * mask.shape[1] + token
        found = []
        for column, filling in columns:
            picked = column.new_full((len(mask) * size,), filling)
            picked[at] = column.take(number)
            found.append(picked.view(-1, size))
        numbers = token.new_full((len(mask) * size,), -1)
        numbers[at] = token
        return [*found, numbers.view(-1, size)]

    def places(self, groups: _Groups, drafts: Tensor) -> Tensor:
        """The groups that hold the drafts; [N, K]."""
        found = []
        for token in drafts.unbind(1):
            holds = groups.token == token[:, None]
            if self.by_cells:
                holds |= groups.cell == self.cell.gather(1, token[:, None])
            found.append(holds.int().argmax(1))
        return torch.stack(found, 1)

    def opening(self, opened: Tensor | None, groups: _Groups, doubtful: Tensor) -> Tensor:
        """The table of opened cells with those of some groups."""
        if opened is None:
            opened = torch.zeros(len(self.p), _CELLS + 2, dtype=torch.bool, device=self.p.device)
            opened[:, _CELLS - 1] = True  # the last has no upper bound
        return opened.scatter(1, torch.where(doubtful, groups.cell, _CELLS + 1), True)

    def groups(self, opened: Tensor | None) -> _Groups:
        """Closed cells and the tokens of the others; all tokens where there are no cells."""
        if not self.by_cells:
            order = self.ratio.argsort(dim=1, stable=True)
            p, q, ratio = (x.gather(1, order) for x in (self.p, self.q, self.ratio))
            p = p.masked_fill(q <= 0.0, 0.0)  # never drafted, and of no group
            contained = None
            if not self.replacement:
                odds = _prefix_sums(self.odds.gather(1, order))
                contained = 1.0 - _escape(q, _suffix_sums(q), self.num_drafts, odds, self.slowest)
            return self._grouped(p, q, ratio, ratio, order, order, contained)
        sources = [(self.p, 0.0), (self.q, 0.0), (self.ratio, torch.inf)]
        if not self.replacement:
            sources += [(self.odds, 0.0), (self.light, 0.0)]
        if opened is None:
            closed = torch.ones_like(self.cell_q, dtype=torch.bool)
            p, q, ratio, *extra = (column[:, :0] for column, _ in sources)
            token = self.cell[:, :0]
        else:
            closed = ~opened[:, :_CELLS]
            p, q, ratio, *extra, token = self._picked(
                opened[:, : _CELLS + 1].flatten().index_select(0, self.flat_cell).view_as(self.p),
                *sources,
            )
        none = torch.full_like(token, _CELLS + 1)
        number = torch.arange(_CELLS, device=p.device)
        can_open = closed & (self.cell_q > 0.0)
        parts = [
            (self.low.expand_as(self.cell_p), ratio),
            (self.high.expand_as(self.cell_p), ratio),
            (self.cell_p * closed, p),
            (self.cell_q * closed, q),
            (torch.full_like(can_open, -1, dtype=torch.int64), token),
            (torch.where(can_open, number, _CELLS + 1), none),
        ]
        if not self.replacement:
            odds, light = extra
            heavy = (q > _LIGHT * self.slowest).double()
            parts += [(self.cell_odds * closed, odds), (self.cell_heavy * closed, heavy)]
        if opened is None:  # cells are in order
            order = number.expand_as(self.cell_p)
            low, high, p, q, token, cell, *extra = (pair[0] for pair in parts)
        else:
            joined = [torch.cat(pair, 1) for pair in parts]
            order = joined[0].argsort(dim=1, stable=True)
            low, high, p, q, token, cell, *extra = (x.gather(1, order) for x in joined)
        if self.replacement:
            return self._grouped(p, q, low, high, token, cell, None)
        odds, heavy = extra
        exponents = torch.arange(1, _POWERS + 1, device=p.device)
        powers = torch.cat(
            (self.cell_powers * closed[:, :, None], light[:, :, None] ** exponents), 1
        )
        powers = powers.gather(1, order[:, :, None].expand_as(powers)).cumsum(1)
        powers = torch.cat((torch.zeros_like(powers[:, :1]), powers), 1)
        before = _prefix_sums(heavy).round().long()
        escape = _escape(
            self.heavy_q, _suffix_sums(q), self.num_drafts, _prefix_sums(odds), self.slowest,
            before, powers,
        )  # fmt: skip
        return self._grouped(p, q, low, high, token, cell, 1.0 - escape, heavy)

    def _grouped(
        self, p: Tensor, q: Tensor, low: Tensor, high: Tensor, token: Tensor, cell: Tensor,
        contained: Tensor | None, heavy: Tensor | None = None,
    ) -> _Groups:  # fmt: skip
        sums_q, k = _prefix_sums(q), self.num_drafts
        least = most = None
        if contained is None:
            within = sums_q.clamp(max=1.0)
            contained = within**k
            if self.by_cells:
                least, most = k * within[:, :-1] ** (k - 1), k * within[:, 1:] ** (k - 1)
        elif heavy is not None:
            least, most = self._growth(q, contained, heavy)
        sums = (_prefix_sums(p), sums_q, _suffix_sums(q), contained)
        return _Groups(p, q, low, high, token, cell, least, most, *sums)

    def _growth(self, q: Tensor, contained: Tensor, heavy: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of the growth of `contained` by q, without replacement.

        Of a token of infinitesimal q it is the larger, the more tokens stand before it; that of
        another one is larger, of a light one hardly. So groups before and behind give bounds.
        """
        slack = (1.0 - _LIGHT) ** (1 - self.num_drafts) * (1.0 + 1e-8)
        growth = contained.diff(dim=1) / q
        known = q > 1e-6
        before = torch.where(known & (heavy == 0.0), growth / slack, 0.0).cummax(1).values
        behind = torch.where(known, growth * slack, torch.inf).flip(1).cummin(1).values.flip(1)
        highest = self.num_drafts / self.slowest
        least = torch.cat((torch.zeros_like(before[:, :1]), before[:, :-1]), 1)
        most = torch.cat((behind[:, 1:], torch.full_like(behind[:, :1], torch.inf)), 1)
        return least, torch.where(heavy > 0.0, highest, most.minimum(highest))


def _plan(groups: _Groups) -> _Plan:
    """The optimal subset, and the water levels that make p_I of p."""
    sums_p, sums_q, outside, contained = groups[-4:]
    num_groups = groups.p.shape[1]
    places = torch.arange(num_groups + 1, device=sums_p.device)
    split = (sums_p - contained).argmin(1, keepdim=True)
    inside, p_inside = _get(contained, split), _get(sums_p, split)
    edge = torch.full_like(groups.low[:, :1], torch.inf)

    # A place fits if the level that belongs to it is between the ratios left and right of it.
    wanted = inside - (p_inside - sums_p)
    fits = (wanted <= torch.cat((groups.low, edge), 1) * sums_q) & (sums_q > 0.0)
    raised = (fits | (places == split)).int().argmax(1, keepdim=True)
    has_inside = _get(sums_q, split) > 0.0
    raised = torch.where(has_inside, raised, 0)
    level = torch.where(has_inside, _get(wanted, raised) / _get(sums_q, raised), 0.0)

    wanted = (1.0 - inside) - (sums_p - p_inside)
    last_ratio = torch.cat((torch.zeros_like(edge), groups.high), 1)
    fits = (wanted >= last_ratio * outside) & (outside > 0.0) & (places > split)
    nothing_capped = _get(outside, split) <= 0.0
    capped = (fits * places).amax(1, keepdim=True).maximum(split)
    capped = torch.where(nothing_capped, num_groups, capped)
    cap = (_get(wanted, capped) / _get(outside, capped)).clamp(min=0.0)
    cap = torch.where(nothing_capped, 0.0, cap)
    floor = _get(torch.cat((groups.low, edge), 1), capped)

    low = torch.where(
        places <= raised,
        level * sums_q,
        level * _get(sums_q, raised) + sums_p - _get(sums_p, raised),
    )
    flat = cap * (_get(outside, capped) - outside)
    high = torch.where(places <= capped, sums_p - p_inside, _get(sums_p, capped) - p_inside + flat)
    selected = torch.where(places <= split, low, inside + high)
    if groups.least is None:
        return _Plan(split, level, cap, floor, selected, None)
    best = _get(sums_p, split) - inside
    doubtful = _lowest_inside(groups, groups.low, groups.high, sums_p, 1.0, 0.0) < best
    number = places[:-1]
    doubtful |= (number == raised - 1) & (level < groups.high)
    doubtful |= (number == capped) & (cap > groups.low)
    return _Plan(split, level, cap, floor, selected, doubtful)


def _lowest_inside(
    groups: _Groups, least: Tensor, most: Tensor, sums: Tensor, mixing: Tensor | float,
    slope: Tensor | float,
) -> Tensor:  # fmt: skip
    """A lower bound of sums - mixing contained + slope outside inside of each group.

    `sums` is convex there and grows by q with `least` to `most`, so that two lines bound it from
    below; two others bound `contained` from above. Their kinks are where the bound may be lowest.
    """
    q, before, behind = groups.q, sums[:, :-1], sums[:, 1:]
    lost, found = groups.contained[:, :-1], groups.contained[:, 1:]
    kinks = (
        (before - behind + most * q) / (most - least),
        (found - lost - groups.least * q) / (groups.most - groups.least),
    )
    bounds = []
    for kink in kinks:
        x = kink.nan_to_num(0.0).clamp(min=0.0).minimum(q)
        height = torch.maximum(before + least * x, behind - most * (q - x))
        held = torch.minimum(lost + groups.most * x, found - groups.least * (q - x))
        bounds.append(height - mixing * held + slope * (groups.outside[:, :-1] - x))
    return torch.minimum(*bounds)


def _doubtful_block(
    groups: _Groups, plan: _Plan, height: Tensor, mixing: Tensor, start: Tensor, stop: Tensor,
    top: Tensor, first: Tensor, last: Tensor,
) -> Tensor:  # fmt: skip
    """Groups that may hold a lower place inside than the ends of the block."""
    left, right = (_get(groups.outside, place) for place in (start, stop))
    slope = (_get(height, stop) - _get(height, start)) / (left - right)
    number = torch.arange(groups.p.shape[1], device=height.device)
    below = number < plan.split
    least = torch.where(below, groups.low.maximum(plan.level), groups.low.minimum(plan.cap))
    most = torch.where(below, groups.high.maximum(plan.level), groups.high.minimum(plan.cap))
    lowest = _lowest_inside(groups, least, most, plan.selected, mixing, slope)
    doubtful = (number >= first) & (number < top) & (lowest < _get(height, start) + slope * left)
    doubtful |= (number > top) & (number < last) & (lowest < _get(height, stop) + slope * right)
    return doubtful


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


def _escape(
    q: Tensor,
    outside: Tensor,
    num_drafts: int,
    odds: Tensor,
    slowest: Tensor,
    before: Tensor | None = None,
    powers: Tensor | None = None,
) -> Tensor:
    """1 - Q of prefixes of the tokens: some of K draws without replacement is outside.

    In a race of exponential clocks with rates q, (1 - A) sum_{n < K} S_n, where S_n integrates
    exp(-t) e_n(exp(q t) - 1) over t: e_n are elementary symmetric polynomials of the prefix, here
    cumulated in logarithms, and t runs over the nodes of a double-exponential rule. `odds` are the
    sums of q / (1 - q) before each place, S_1. With `powers` q holds only the heavy tokens:
    `before` tells how many of them each prefix has, and `powers` the sums over its light ones.
    """
    total = torch.ones_like(outside)
    if num_drafts > 1:
        total += odds
    if num_drafts > 2:
        step = 0.25 if num_drafts <= 4 else 0.2 if num_drafts <= 8 else 0.15
        last = 38.0 / max(float(slowest.min()), 1e-290)
        count = math.ceil((math.log(last) + 2.6) / step) + 1
        x = -2.6 + step * torch.arange(count, dtype=torch.float64, device=q.device)[:, None, None]
        nodes = (x - (-x).exp()).exp()
        log_weights = (step * nodes * (1.0 + (-x).exp())).log()
        at_once = max(1, _NUMBERS // outside.numel())
        for t, log_weight in zip(nodes.split(at_once), log_weights.split(at_once), strict=True):
            light = None
            if powers is not None:
                light = _light_terms(powers, t * _LIGHT * slowest, num_drafts)
                gone = t * slowest > 40.0  # exp(-40): nothing is left of it
                all_light = powers[:, -1:, 0] * _LIGHT * slowest
                log_weight = torch.where(gone, -torch.inf, log_weight - t * all_light)
            total += _later_terms(q, t, log_weight, num_drafts, before, light)
    return (outside * total).clamp(0.0, 1.0)


def _light_terms(powers: Tensor, scale: Tensor, num_drafts: int) -> list[Tensor]:
    """e_0 .. e_{K-1} of exp(scale z) - 1 of every prefix, from the sums of z, z^2, ... over it.

    Power sums by the series of (exp(x) - 1)^j, then Newton's identities: z is at most 1, and the
    scale, [nodes, N, 1], is small.
    """
    scale = scale.clamp(max=40.0 * _LIGHT)
    exponents = torch.arange(1, _POWERS + 1, device=powers.device)
    scales = scale**exponents
    found = [torch.ones_like(scale).expand(-1, -1, powers.shape[1])]
    sums = []
    for n in range(1, num_drafts):
        # n! S(m, n) / m!, with Stirling numbers of the second kind
        series = [
            sum((-1) ** (n - j) * math.comb(n, j) * j**m for j in range(n + 1)) / math.factorial(m)
            for m in range(1, _POWERS + 1)
        ]
        weights = scales * torch.tensor(series, dtype=torch.float64, device=powers.device)
        sums.append(torch.einsum("nmp,tnp->tnm", powers, weights))
        terms = [(-1) ** j * found[n - 1 - j] * sums[j] for j in range(n)]
        found.append(sum(terms[1:], terms[0]) / n)
    return found


def _later_terms(
    q: Tensor,
    t: Tensor,
    log_weight: Tensor,
    num_drafts: int,
    before: Tensor | None,
    light: list[Tensor] | None,
) -> Tensor:
    """weight exp(-t) (e_2 + ... + e_{K-1}) of every prefix, the polynomials of exp(q t) - 1.

    Tokens with q t > 40 have rung by t for certain. They are counted apart, so that no difference
    of 1 and their q is taken: prefixes that lack one of them add nothing. Summed over the nodes t,
    [nodes, 1, 1].
    """
    y = q * t
    rung = y > 40.0
    certain = rung.sum(2, keepdim=True)
    complete = torch.nn.functional.pad(rung.cumsum(2), (1, 0)) >= certain
    y = y.masked_fill_(rung, 0.0)
    log_g = torch.expm1(y).log_()
    log_scale = log_weight - y.sum(2, keepdim=True)
    log_e = torch.zeros_like(y[:, :, :1]).expand(-1, -1, q.shape[1] + 1)
    total = None
    for n in range(num_drafts):
        if n > 0:
            grown = (log_g + log_e[:, :, :-1]).logcumsumexp(2)
            log_e = torch.nn.functional.pad(grown, (1, 0), value=-torch.inf)
        term = (log_e + log_scale).exp_().masked_fill_(~complete, 0.0)
        if before is not None:
            term = term.gather(2, before.expand(len(t), -1, -1))
        for m, others in enumerate([None] if light is None else light[: num_drafts - n]):
            count = n + m + certain
            counts = ((count >= 2) & (count < num_drafts)).double()
            part = (term * counts if others is None else term * (others * counts)).sum(0)
            total = part if total is None else total + part
    assert total is not None
    return total


def _uniforms(target: Tensor, generator: torch.Generator | None) -> Tensor:
    device = target.device if generator is None else generator.device
    numbers = torch.rand(len(target), 4, generator=generator, dtype=torch.float64, device=device)
    return numbers.to(target.device)


def _normalised(weights: Tensor, empty: Tensor | None = None) -> Tensor:
    """Rows divided by their sums, in float64; rows without mass are taken from `empty`."""
    if empty is None:
        weights = weights.to(torch.float64, copy=True)
        return weights.div_(weights.sum(1, keepdim=True))
    weights = weights.double()
    sums = weights.sum(1, keepdim=True)
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
