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
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

_BRIDGE_STEPS, _UNGUARDED_STEPS = 100, 8
_BLOCK = 64


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
    drafts = drafts.long()
    uniforms = _uniforms(target, generator) if uniforms is None else uniforms.double()
    mixing, within, acceptance, residual = uniforms.unbind(1)
    certain = (draft > 0.0).sum(1) <= drafts.shape[1] if not replacement else None
    if certain is not None and certain.any():  # the drafts are all there is: draw from the target
        tokens = _drawn(target.double(), residual)
        rest = ~certain
        if rest.any():
            rows = (x[rest] for x in (target, draft, drafts, uniforms))
            tokens[rest] = optimal(*rows, replacement=False).tokens
        return _verdicts(tokens, drafts)

    rows = _Rows(target, draft, drafts.shape[1], replacement)
    opened = None
    while True:
        groups = rows.groups(opened)
        plan = _plan(groups)
        at = rows.places(groups, drafts, opened)
        top = at.amax(1, keepdim=True)
        above = top >= plan.split
        first = torch.where(above, plan.split, 0)
        last = torch.where(above, groups.q.shape[1], plan.split)
        height = plan.selected - mixing[:, None] * groups.contained
        slope, start, stop = _block(height, groups.outside, top, first, last)
        if plan.doubtful is None:  # all tokens are there
            break
        doubtful = plan.doubtful | _doubtful_block(
            groups, plan, height, mixing[:, None], slope, start, stop, top, first, last
        )
        doubtful.scatter_(1, at, True)
        doubtful &= groups.token < -1
        if not doubtful.any():
            break
        opened = rows.opening(opened, groups, doubtful)
    competes = at >= torch.maximum(start, first)

    if replacement:
        chosen = _first_true(competes)
    else:
        shares = _pivotal_shares(rows.q, drafts, competes, groups.outside, start, stop)
        reached = shares.cumsum(1)
        chosen = torch.searchsorted(reached, within[:, None] * reached[:, -1:], right=True)
        chosen = torch.minimum(chosen, _last_true(shares > 0.0)[:, None]).squeeze(1)

    chosen = chosen[:, None]
    token = drafts.gather(1, chosen)
    p_token, q_token = rows.shares(token)
    raised_to = torch.maximum(p_token, plan.level * q_token)
    kept = at.gather(1, chosen) >= plan.split
    kept = ((kept | (acceptance[:, None] * raised_to < p_token)) & (p_token > 0.0)).squeeze(1)
    token = token.squeeze(1)
    if not kept.all():
        lost = (~kept).nonzero().squeeze(1)
        token[lost] = _drawn(rows.residual(lost, plan), residual[lost])
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
#: Numbers of p and q that a thread turns into cells at once.
_PART = 1 << 14
#: Ratios p/q equal but for their rounding errors are tied: 18 bits are rounded away.
_HALF_A_TIE = 1 << 17
#: Without replacement, tokens are light up to this share of what K - 1 drafts leave of q: sums of
#: their powers stand for them.
_LIGHT = 1 / 256
_POWERS = 10


class _Groups(NamedTuple):
    """Tokens in the order of p/q, those of a closed cell together: M groups, M + 1 places."""

    q: Tensor  # [N, M], as all up to `most`
    low: Tensor  # bounds of p/q
    high: Tensor
    token: Tensor  # a token, or _cell_label of a cell that can be opened, or -1: nothing
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

    def __init__(self, target: Tensor, draft: Tensor, num_drafts: int, replacement: bool) -> None:
        self.num_drafts, self.replacement = num_drafts, replacement
        self.by_cells = target.shape[1] > _SORTED and target.device.type == "cpu"
        self.p, self.q = target, draft
        self.sums_p = self.sums_q = torch.ones_like(target[:, :1], dtype=torch.float64)
        if not (self.by_cells and replacement):  # else part by part: it is memory that takes time
            self.p, self.q = _normalised(target), _normalised(draft)
        p, q = self.p, self.q
        if not replacement:
            most, where = q.topk(min(max(num_drafts - 1, 1), q.shape[1]), dim=1)
            self.slowest = q.scatter(1, where[:, : num_drafts - 1], 0.0).sum(1, keepdim=True)
            others = self.slowest + most[:, 1:].sum(1, keepdim=True)  # than the likeliest
            if num_drafts == 1:
                others = others - most
            self.odds = (q / (1.0 - q)).scatter_(1, where[:, :1], most[:, :1] / others)
        if not self.by_cells:
            return
        edges = torch.arange(_FIRST_CELL, _FIRST_CELL + _CELLS + 1, device=p.device)
        edges = (edges << 52 - _CELL_BITS).view(torch.float64)
        lowest, highest, never = (float(edges[i]) for i in (0, -2, -1))
        self.cell = torch.empty(p.shape, dtype=torch.int16)
        cell_p, cell_q = edges.new_zeros(2, len(p), _CELLS + 1)
        for part in self._parts():
            p_part, q_part = p[:, part].double(), q[:, part].double()
            # No number where a token is never drafted: it is in a cell that does not count.
            ratio = q_part.sign().mul_(p_part).div_(q_part)
            ratio.clamp_(lowest, highest).nan_to_num_(never)
            cell = ratio.view(torch.int64).sub_((_FIRST_CELL << 52 - _CELL_BITS) - _HALF_A_TIE)
            cell >>= 52 - _CELL_BITS
            self.cell[:, part] = cell
            cell_p.scatter_add_(1, cell, p_part)
            cell_q.scatter_add_(1, cell, q_part)
        self.sums_p, self.sums_q = cell_p.sum(1, keepdim=True), cell_q.sum(1, keepdim=True)
        scale = self.sums_q / self.sums_p
        low, high = edges[:-1] * scale, edges[1:] * scale
        low[:, 0], high[:, -1] = 0.0, torch.inf
        columns = [low, high, cell_p[:, :-1] / self.sums_p, cell_q[:, :-1] / self.sums_q]
        if not replacement:
            heavy = q > _LIGHT * self.slowest
            self.light = (q / (_LIGHT * self.slowest)).masked_fill_(heavy, 0.0)
            cell = self.cell.long()
            columns += [self._by_cell(cell, x) for x in (self.odds, heavy.double())]
            power = torch.ones_like(q)
            columns += [self._by_cell(cell, power.mul_(self.light)) for _ in range(_POWERS)]
            tokens, there = self._picked(heavy)
            p_heavy, q_heavy = p.gather(1, tokens), q.gather(1, tokens) * there
            self.heavy_q = q_heavy.gather(1, _ratios(p_heavy, q_heavy).argsort(dim=1, stable=True))
        self.cells = torch.stack(columns, 1)
        self.labels = torch.where(columns[3] > 0.0, _cell_label(torch.arange(_CELLS)), -1)

    def shares(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """p and q of some tokens of each row."""
        return self.p.gather(1, tokens) / self.sums_p, self.q.gather(1, tokens) / self.sums_q

    def residual(self, rows: Tensor, plan: _Plan) -> Tensor:
        """What p has above cap q, and all tokens that are never drafted: up to a factor, a law."""
        scale = self.sums_p / self.sums_q
        cap, floor = (plan.cap * scale)[rows], (plan.floor * scale)[rows]
        law = cap.new_empty(len(rows), self.p.shape[1])
        for part in self._parts():
            p, q = self.p[rows, part].double(), self.q[rows, part].double()
            below = p < floor * q
            law[:, part] = p.sub_(q.mul_(cap)).clamp_(min=0.0).masked_fill_(below, 0.0)
        none = law.sum(1) <= 0.0  # where only rounding can reject, from p
        if none.any():
            law[none] = self.p[rows[none]].double()
        return law

    def _parts(self) -> list[slice]:
        """Tokens in parts that stay in the caches; on a device, all of them."""
        if not self.by_cells:
            return [slice(None)]
        num_rows, vocab_size = self.p.shape
        size = max(_PART * torch.get_num_threads() // max(num_rows, 1), 1024)
        return [slice(start, start + size) for start in range(0, vocab_size, size)]

    def _by_cell(self, cell: Tensor, values: Tensor) -> Tensor:
        """Sums over the tokens of each cell, [N, cells]."""
        sums = values.new_zeros(len(values), _CELLS + 1)
        return sums.scatter_add_(1, cell, values)[:, :-1]

    def _picked(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Some tokens of each row in their order, then zeros, and which are there."""
        row, token = mask.nonzero(as_tuple=True)
        counts = torch.bincount(row, minlength=len(mask))
        places = torch.arange(max(int(counts.max()), 1))
        there = places < counts[:, None]
        return there.long().masked_scatter_(there, token), there

    def places(self, groups: _Groups, drafts: Tensor, opened: Tensor | None) -> Tensor:
        """The groups that hold the drafts; [N, K]."""
        labels = drafts
        if self.by_cells:
            cell = self.cell.gather(1, drafts).long()
            labels = _cell_label(cell)
            if opened is not None:
                labels = torch.where(opened.gather(1, cell), drafts, labels)
        return _first_true(groups.token[:, None] == labels[:, :, None])

    def opening(self, opened: Tensor | None, groups: _Groups, doubtful: Tensor) -> Tensor:
        """The table of opened cells with those of some groups."""
        if opened is None:
            opened = torch.zeros(len(self.p), _CELLS + 2, dtype=torch.bool)
            opened[:, _CELLS - 1] = True  # the last has no upper bound
        return opened.scatter(1, torch.where(doubtful, _cell_label(groups.token), _CELLS + 1), True)

    def groups(self, opened: Tensor | None) -> _Groups:
        """Closed cells and the tokens of the others; all tokens where there are no cells."""
        if not self.by_cells:
            ratio, order = _ratios(self.p, self.q).sort(dim=1, stable=True)
            p, q = self.p.gather(1, order), self.q.gather(1, order)
            p = p.masked_fill(q <= 0.0, 0.0)  # never drafted, and of no group
            sums_p, sums_q, outside = _prefix_sums(p), _prefix_sums(q), _suffix_sums(q)
            if self.replacement:
                contained = sums_q.clamp(max=1.0) ** self.num_drafts
            else:
                odds = _prefix_sums(self.odds.gather(1, order))
                contained = 1.0 - _escape(q, outside, self.num_drafts, odds, self.slowest)
            return _Groups(q, ratio, ratio, order, None, None, sums_p, sums_q, outside, contained)
        columns, token = self.cells, self.labels
        if opened is not None:
            columns, token = self._with_tokens(opened)
        low, high, _, q = columns[:, :4].unbind(1)
        sums_p, sums_q, *others = _prefix_sums(columns[:, 2:]).unbind(1)
        outside = _suffix_sums(q)
        if self.replacement:
            within, k = sums_q.clamp(max=1.0), self.num_drafts
            growth = within ** (k - 1)
            contained, growth = growth * within, k * growth
            least, most = growth[:, :-1], growth[:, 1:]
        else:
            odds, heavy, *powers = others
            contained = 1.0 - _escape(
                self.heavy_q, outside, self.num_drafts, odds, self.slowest,
                heavy.round().long(), torch.stack(powers, 2),
            )  # fmt: skip
            least, most = self._growth(q, contained, columns[:, 5])
        return _Groups(q, low, high, token, least, most, sums_p, sums_q, outside, contained)

    def _with_tokens(self, opened: Tensor) -> tuple[Tensor, Tensor]:
        """The columns of the cells with the tokens of those opened, and what stands for which."""
        is_opened = torch.empty(self.p.shape, dtype=torch.bool)
        for part in self._parts():
            torch.gather(opened, 1, self.cell[:, part].long(), out=is_opened[:, part])
        tokens, there = self._picked(is_opened)
        p, q = self.p.gather(1, tokens).double(), self.q.gather(1, tokens).double()
        ratio = (_ratios(p, q) * (self.sums_q / self.sums_p)).masked_fill_(~there, torch.inf)
        q = q / self.sums_q * there
        found = [ratio, ratio, p / self.sums_p * there, q]
        if not self.replacement:
            odds, light = (x.gather(1, tokens) * there for x in (self.odds, self.light))
            heavy = q > _LIGHT * self.slowest
            found += [odds, heavy.double(), *(light**n for n in range(1, _POWERS + 1))]
        closed = ~opened[:, :_CELLS]
        columns = torch.cat((self.cells[:, :2], self.cells[:, 2:] * closed[:, None]), 1)
        columns = torch.cat((columns, torch.stack(found, 1)), 2)
        order = columns[:, 0].argsort(dim=1, stable=True)
        labels = self.labels.where(closed, -1), tokens.where(there, -1)
        columns = columns.gather(2, order[:, None].expand_as(columns))
        return columns, torch.cat(labels, 1).gather(1, order)

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


def _cell_label(cell: Tensor) -> Tensor:
    """The number of a cell as a label that no token has; and the other way round."""
    return -2 - cell


def _plan(groups: _Groups) -> _Plan:
    """The optimal subset, and the water levels that make p_I of p."""
    sums_p, sums_q, outside, contained = sums = groups[-4:]
    together = torch.stack(sums, 1)
    places = torch.arange(groups.q.shape[1] + 1, device=sums_p.device)
    difference = sums_p - contained
    split = difference.argmin(1, keepdim=True)
    p_split, _, out_split, inside = _columns(together, split)
    p_behind = sums_p - p_split
    edge = torch.full_like(inside, torch.inf)
    low = torch.cat((groups.low, edge), 1)

    # A place fits if the level that belongs to it is between the ratios left and right of it: it
    # is the first whose level is below the ratio right of it, or the last of those above the left.
    fits = inside + p_behind <= low * sums_q
    raised = _first_true(fits)[:, None].minimum(split)
    p_raised, q_raised, *_ = _columns(together, raised)
    level = torch.where(q_raised > 0.0, (inside + p_raised - p_split) / q_raised, 0.0)

    left = 1.0 - inside
    high = torch.cat((torch.zeros_like(edge), groups.high), 1)
    fits = (left - p_behind >= high * outside) & (outside > 0.0)
    capped = (fits * places).amax(1, keepdim=True).maximum(split)
    p_capped, _, out_capped, _ = _columns(together, capped)
    cap = ((left - (p_capped - p_split)) / out_capped).clamp_(min=0.0)
    cap = cap.where(out_split > 0.0, 0.0)
    floor = low.gather(1, capped).where(out_split > 0.0, torch.inf)
    # Ratios that are rounded to it are up to half a tie lower.
    floor = (floor.view(torch.int64) - _HALF_A_TIE).view(torch.float64)

    up_to_split = level * sums_q.minimum(q_raised) + (sums_p - p_raised).clamp_(min=0.0)
    behind = p_behind.minimum(p_capped - p_split) + cap * (out_capped - outside).clamp_(min=0.0)
    selected = torch.where(places <= split, up_to_split, inside + behind)
    if groups.least is None:
        return _Plan(split, level, cap, floor, selected, None)
    number = places[:-1]
    doubtful = _may_be_lower(groups, groups.low, groups.high, difference, 1.0, p_split - inside)
    doubtful |= (number == raised - 1) & (level < groups.high)
    doubtful |= (number == capped) & (cap > groups.low)
    return _Plan(split, level, cap, floor, selected, doubtful)


def _may_be_lower(
    groups: _Groups, least: Tensor, most: Tensor, height: Tensor, mixing: Tensor | float,
    than: Tensor, slope: Tensor | float = 0.0,
) -> Tensor:  # fmt: skip
    """Groups inside of which `height` may be lower than a number.

    It grows by q with `least` to `most`, less `mixing` times the growth of `contained`, less
    `slope`, so that it is nowhere lower than two lines from the ends of a group.
    """
    falls = (slope + mixing * groups.most - least).clamp_(min=0.0) * groups.q
    rises = (most - mixing * groups.least - slope).clamp_(min=0.0) * groups.q
    lowest = torch.maximum(height[:, :-1] - falls, height[:, 1:] - rises)
    return ~(lowest >= than)


def _doubtful_block(
    groups: _Groups, plan: _Plan, height: Tensor, mixing: Tensor, slope: Tensor, start: Tensor,
    stop: Tensor, top: Tensor, first: Tensor, last: Tensor,
) -> Tensor:  # fmt: skip
    """Groups that may hold a lower place inside than the ends of the block."""
    number = torch.arange(groups.q.shape[1], device=height.device)
    below = number < plan.split
    least = torch.where(below, groups.low.maximum(plan.level), groups.low.minimum(plan.cap))
    most = torch.where(below, groups.high.maximum(plan.level), groups.high.minimum(plan.cap))
    tilted = height + slope * groups.outside
    than = torch.where(number < top, tilted.gather(1, start), tilted.gather(1, stop))
    lower = _may_be_lower(groups, least, most, tilted, mixing, than, slope)
    return lower & (number >= first) & (number < last)


def _block(
    height: Tensor, outside: Tensor, top: Tensor, first: Tensor, last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The edge of the lower hull of (-outside, height) over place `top`: its slope and ends.

    Newton's method for the slope at which the lowest points left and right of the place, in
    first .. last, are level, in a bracket if it takes long; it is exact when neither point moves.
    Sums from the end, as beside q = 1 tokens of q = 1e-20 are lost in sums from the start, but
    they can be likely drafts without replacement.
    """
    last_place = height.shape[1] - 1
    places = torch.arange(last_place + 1, device=height.device)
    left = height.masked_fill((places < first) | (places > top), torch.inf)
    right = height.masked_fill((places <= top) | (places > last), torch.inf)
    heights = torch.stack((left, right.flip(1)), 1)  # of equal points the outer ones
    weights = torch.stack((outside, outside.flip(1)), 1)
    ends = torch.stack((top, last_place - 1 - top), 1)
    lowest, highest, slope = -torch.inf, torch.inf, torch.nan
    for step in range(_BRIDGE_STEPS):
        rise, run = (x.gather(2, ends).diff(dim=1) for x in (heights, weights))
        newton = rise / run
        if step >= _UNGUARDED_STEPS:
            lowest = torch.where(newton > slope, slope.clamp(min=lowest), lowest)
            highest = torch.where(newton < slope, slope.clamp(max=highest), highest)
            middle = (lowest + highest) / 2
            halve = ((newton < lowest) | (newton > highest)) & (middle.abs() < torch.inf)
            newton = torch.where(halve, middle, newton)
        slope = newton.nan_to_num(0.0)
        found = (heights - slope * weights).argmin(2, keepdim=True)
        if torch.equal(found, ends):
            break
        ends = found
    return -slope[:, 0], ends[:, 0], last_place - ends[:, 1]


def _pivotal_shares(
    q: Tensor, drafts: Tensor, competes: Tensor, outside: Tensor, start: Tensor, stop: Tensor
) -> Tensor:
    """Probability of returning each draft of the block, drafts without replacement; [N, K]."""
    k = drafts.shape[1]
    drawn = q.gather(1, drafts)
    rest = q.scatter(1, drafts, 0.0).sum(1)
    left = [rest]
    for i in range(k - 1, 0, -1):
        left.append(left[-1] + drawn[:, i])
    left.reverse()  # 1 - q(X_1 .. X_i), i = 1 .. K
    first = _first_true(competes)
    z = _at(drawn, first)
    behind, from_start = outside.gather(1, stop), outside.gather(1, start)
    pivotal = behind.squeeze(1) / (left[-1] + z)
    for i in range(k - 1):
        factor = left[i] / (left[i] + z)
        pivotal = torch.where(i >= first, pivotal * factor, pivotal)
    competing = torch.where(competes, drawn, 0.0)
    in_block = (from_start - behind).maximum(
        competing.sum(1, keepdim=True)
    )  # never less, however it rounds
    shares = pivotal[:, None] * competing / in_block
    shares = shares.scatter(1, first[:, None], 0.0)
    return shares.scatter(1, first[:, None], (1.0 - shares.sum(1))[:, None])


def _escape(
    q: Tensor, outside: Tensor, num_drafts: int, odds: Tensor, slowest: Tensor,
    before: Tensor | None = None, powers: Tensor | None = None,
) -> Tensor:  # fmt: skip
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
    q: Tensor, t: Tensor, log_weight: Tensor, num_drafts: int, before: Tensor | None,
    light: list[Tensor] | None,
) -> Tensor:  # fmt: skip
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
    sums = weights.sum(1, keepdim=True, dtype=torch.float64)
    normalised = weights / sums
    return normalised if empty is None else torch.where(sums > 0.0, normalised, empty)


def _ratios(p: Tensor, q: Tensor) -> Tensor:
    """p/q, rounded to tie; infinite for tokens that are never drafted."""
    bits = (p / q).view(torch.int64).add_(_HALF_A_TIE).bitwise_and_(-2 * _HALF_A_TIE)
    return bits.view(torch.float64).masked_fill_(q <= 0.0, torch.inf)


def _accepted(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p/q); a token of probability zero is never accepted."""
    return torch.where(p < q, p / q, (p > 0.0).double())


def _drawn(law: Tensor, uniform: Tensor) -> Tensor:
    """Inverse CDF, over blocks of tokens and then in one of them.

    A token of probability zero is never drawn, whatever the uniform.
    """
    if law.shape[1] % _BLOCK:
        law = torch.nn.functional.pad(law, (0, -law.shape[1] % _BLOCK))
    blocks = law.unflatten(1, (-1, _BLOCK))
    sums = blocks.sum(2)
    block, point = _passed(sums, uniform * sums.sum(1))
    token, _ = _passed(blocks[torch.arange(len(law), device=law.device), block], point)
    return block * _BLOCK + token


def _passed(weights: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """The weight at which sums of weights pass a number, and what of this is left there."""
    reached = weights.cumsum(1)
    place = torch.searchsorted(reached, point[:, None], right=True).squeeze(1)
    place = place.minimum(_last_true(weights > 0.0))
    return place, (point - (_at(reached, place) - _at(weights, place))).clamp_(min=0.0)


def _last_true(flags: Tensor) -> Tensor:
    places = torch.arange(flags.shape[1], dtype=torch.int32, device=flags.device)
    return (flags * places).amax(1)


def _first_true(flags: Tensor) -> Tensor:
    return flags.view(torch.uint8).argmax(-1)


def _prefix_sums(rows: Tensor) -> Tensor:
    return torch.nn.functional.pad(rows.cumsum(-1), (1, 0))


def _suffix_sums(rows: Tensor) -> Tensor:
    return _prefix_sums(rows.flip(-1)).flip(-1)


def _at(rows: Tensor, column: Tensor) -> Tensor:
    return rows.gather(1, column[:, None]).squeeze(1)


def _columns(rows: Tensor, column: Tensor) -> tuple[Tensor, ...]:
    """Numbers of rows [N, F, M] at a place each, [N, 1]: F times [N, 1]."""
    return rows.gather(2, column[:, None].expand(-1, rows.shape[1], -1)).unbind(1)


def _verdicts(tokens: Tensor, drafts: Tensor) -> Verdicts:
    hits = drafts == tokens[:, None]
    accepted = hits.any(1)
    return Verdicts(tokens, accepted, torch.where(accepted, _first_true(hits), -1))


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
