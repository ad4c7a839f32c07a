r"""Laws and drafts whose numbers stay on the device of logits, as rules for trees use them.

Data flows: logits -> integers that are the laws -> tables (sums over bins of p/q, the only copy to
the host) -> laws (linear in each bin) -> the rules -> one extra token, drawn on the device.

*Transfers.* A copy to the host waits for all that the device was told to do: a step makes few of
them, and they all are here. Copies to the device do not wait. Nor do tokens that a device has drawn
and the host has not been told of: to ask for each would be a wait for each level of a tree. They
stand where token ids stand, go into a model as they are, and are kept once the host has copied what
it needs of the whole tree.

*Integers* in proportion to softmax, in torch, are the laws, and every sum of them is exact. A
float32 probability times 2**52 is, once rounded, an integer that float32 holds. Sums of a row stay
below 2**53, and float64 adds them without error, in any order: a row has one total, whoever adds it
up. What softmax gives, up to 2**-53 a token, is what drafts are drawn from and what is verified.

*Tables* of a position are `prefix_search.bins` of these weights. The ends of t in each bin tell how
far apart its ratios are. Drafts without replacement ask for the sums of a race, too, which are made
on the device.

*Decisions*: the optimal rule decides by the plan on bins of p/q, read from their masses alone: of a
target r p and the ratio :math:`\rho` of the marginal to q, :math:`I_t = u_b p_t + v_b q_t` goes on,
with

.. math:: (u, v) = (r, 0),\ (0, \rho),\ (\lambda r, (1 - \lambda) r \ell)

for :math:`\rho \ge r h`, :math:`\rho \le r \ell` and in between, where :math:`\ell` and h bound p/q
in the bin and :math:`\lambda = (\rho - r \ell) / (r (h - \ell))`. Then
:math:`I_t \le \min(r p_t, \rho q_t)` for every token, so that the output follows the target exactly
while all masses come from the table.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import Floats, Integers, Tokens, Vector
from mdsd_opt.base.sampling import Sampling
from mdsd_opt.prefix_search import (
    HALF,
    NUM_BINS,
    Bins,
    RaceSums,
    race_sums_of_row,
    ratios_at,
    steps_of,
)
from mdsd_opt.trees.recursive_rejection import valued_rule, whole_support_masses
from mdsd_opt.verifiers import BinPlan, Drawn, acceptance_probabilities

_number = itertools.count()


def is_host(device: Any) -> bool:
    """Whether a device's numbers are the host's own, so that nothing has to wait for them."""
    return bool(device.type == "cpu")


def on_host(*parts: Any) -> list[Floats]:
    """Tensors of numbers that float64 holds, on the host in one copy.

    The only place where the host waits for the device.
    """
    import torch

    packed = torch.cat([part.flatten().double() for part in parts]).cpu().numpy()
    stops = np.cumsum([part.numel() for part in parts])[:-1]
    arrays = zip(np.split(packed, stops), parts, strict=True)
    return [array.reshape(part.shape) for array, part in arrays]


def on_device(numbers: Any, device: Any) -> Any:
    """Tensor on the device of the host's numbers; from pinned memory where that spares a wait."""
    import torch

    tensor = torch.as_tensor(numbers)
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class PromisedToken:
    """A token that the host does not know yet; never equal to another one, in order of making.

    As an int it is -1 until the promise is kept, which an interrupted step never does. The tensor
    is of int64 and shape ().
    """

    __slots__ = ("_number", "_value", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor, self._number = tensor, next(_number)
        self._value: int | None = None

    def keep(self, value: int) -> None:
        """Set the token; -1 if none was left."""
        self._value = value

    def __int__(self) -> int:
        return -1 if self._value is None else self._value

    def __lt__(self, other: PromisedToken) -> bool:
        return self._number < other._number

    def __ge__(self, least: int) -> bool:
        """Whether the token is at least so large, as far as is known: it may turn out to be -1."""
        return self._value is None or self._value >= least


def token_ids(rows: Sequence[Sequence[Any]], device: Any) -> Any:
    """Rows of token ids of one length, known or promised; int64."""
    import torch

    flat = [token for row in rows for token in row]
    later = [i for i, token in enumerate(flat) if isinstance(token, PromisedToken)]
    if not later:
        return on_device(np.array(rows, np.int64), device)
    known = np.array([0 if isinstance(token, PromisedToken) else token for token in flat], np.int64)
    drawn = torch.stack([flat[i].tensor for i in later]).to(device)
    ids = on_device(known, device).index_copy(0, on_device(later, device), drawn)
    return ids.view(len(rows), len(rows[0]))


def known(tokens: Sequence[Any]) -> tuple[int, ...]:
    """Token ids, all of whose promises are kept."""
    return tuple(map(int, tokens))


#: Distance by which the ends of t are moved apart, for three roundings of t in float32.
_ROUNDING = 5e-7

#: Sums and ends [n, B, 2]; token, n, m and bin of draws [n, 4, K]; races; bins [n, V], which stay.
_Summed = tuple[Vector, Vector, Vector, Sequence[Callable[[], RaceSums]], Any]


class DrawnToken(NamedTuple):
    """Facts about a token on the host: both probabilities, its bin, and the draft's weight."""

    p: float
    q: float
    bin: int
    weight: float


@dataclass(frozen=True, slots=True, eq=False)
class BinTable(Bins):
    """Both laws of a position by bins, in integer weights, and references to them.

    `target` makes its weights, shape (V,), when they are needed, as at a leaf few are; without
    drafts, `draft` and `bins` are None.
    """

    target: Callable[[], Any]
    draft: Any  # weights, shape (V,)
    bins: Any  # integers, shape (V,)
    draws: tuple[int, ...] = ()  # in draw order; -1 where no token was left
    at: dict[int, DrawnToken] = field(default_factory=dict)  # each token that was drawn

    def left(self, draws: Sequence[int]) -> float:
        """Integer weight of the draft that remains without these tokens."""
        return float(self.weights.sum()) - sum(
            self.at[token].weight for token in draws if token >= 0
        )


def bin_tables(
    targets: Any,
    drafts: Sequence[Any],
    draws: Any,
    num_drafts: Sequence[int],
    replaced: bool = True,
    num_bins: int = NUM_BINS,
) -> list[BinTable]:
    """Tables of some positions; one copy to the host.

    `targets`, shape (n, V), and `drafts`, n tensors of shape (V,), are integer weights. `draws`, of
    int64 and shape (n, K), are the tokens drawn at each position, -1 where none was left, of which
    `num_drafts` count; `replaced`: whether they were drawn with replacement.
    """
    summed = summed_on_cpu if is_host(targets.device) else summed_on_device
    sums, ends, drawn, races, bins = summed(targets, drafts, draws, num_drafts, replaced, num_bins)
    low, high = np.moveaxis(ends.astype(np.float64), -1, 0)  # of n/m; an empty bin has none
    lowest = ratios_at(np.maximum(low - _ROUNDING, 0.0))
    highest = ratios_at(np.minimum(high + _ROUNDING, 1.0))
    tables = []
    for i, count in enumerate(num_drafts):
        total = sums[i].sum(axis=0)
        scale = total[1] / total[0]
        at = {
            int(token): DrawnToken(n / total[0], m / total[1], int(place), m)
            for token, n, m, place in drawn[i, :, :count].T.tolist()
            if token >= 0
        }
        masses = np.ascontiguousarray((sums[i] / total).T)
        tables.append(BinTable(
            masses[0], masses[1], scale * lowest[i], scale * highest[i],
            sums[i, :, 1].copy(), None if replaced else races[i],
            partial(operator.getitem, targets, i), drafts[i], bins[i],
            tuple(drawn[i, 0, :count].astype(int).tolist()), at,
        ))  # fmt: skip
    return tables


def undrafted_table(weights: Callable[[], Any]) -> BinTable:
    """Table of a position without drafts: everything is in one bin."""
    one, none = np.ones(1), np.zeros(1)
    return BinTable(one, none, none, none, none, None, weights, None, None)


def summed_on_device(
    targets: Any, drafts: Sequence[Any], draws: Any, num_drafts: Sequence[int], replaced: bool,
    num_bins: int,
) -> _Summed:  # fmt: skip
    """Sums of some positions for the host, in one copy."""
    import torch

    rows = torch.stack(list(drafts))
    sums, ends, bins = sums_on_device(targets, rows, num_bins)
    at = draws.clamp(min=0)
    drawn = [draws.double(), *(array.gather(1, at).double() for array in (targets, rows, bins))]
    parts = [sums, ends, torch.stack(drawn, 1)]
    if not replaced:
        parts += race_sums_on_device(rows, bins, num_drafts, num_bins)
    one, two, three, *race = on_host(*parts)
    most = max(num_drafts)
    races = [partial(race_sums_of, most, *row) for row in zip(*race, strict=True)]
    return one, two, three, races, bins


def sums_on_device(targets: Any, drafts: Any, num_bins: int) -> tuple[Any, Any, Any]:
    """Sums and ends [n, B, 2] and bins [n, V] of two tensors [n, V], in any order."""
    import torch

    count = targets.shape[0]
    bins, ratios = bins_on_device(targets, drafts, num_bins)
    rows = torch.arange(count, device=targets.device, dtype=torch.int32)[:, None] * num_bins
    sums = torch.zeros(count * num_bins, 2, dtype=torch.float64, device=targets.device)
    weights = torch.stack((targets.double(), drafts.double()), -1).view(-1, 2)
    index = (bins + rows).view(-1)
    sums.index_add_(0, index, weights)
    ends = [
        torch.full(
            (count * num_bins,), start, dtype=ratios.dtype, device=ratios.device
        ).scatter_reduce_(0, index.long(), ratios.view(-1), reduction)
        for start, reduction in ((1.0, "amin"), (0.0, "amax"))
    ]
    shape = (count, num_bins, 2)
    return sums.view(shape), torch.stack(ends, -1).view(shape), bins


def bins_on_device(targets: Any, drafts: Any, num_bins: int) -> tuple[Any, Any]:
    """Bins and t of the tokens of two tensors; any bin for NaN."""
    import torch

    never = num_bins - 1
    half = targets.new_full((), HALF)
    drafted = drafts > 0
    ratios = torch.where(drafted, targets / (targets + half * drafts), 0.0)
    places = (ratios * never).to(torch.int32).clamp_(min=0, max=never - 1)
    return torch.where(drafted, places, never), ratios


def summed_on_cpu(
    targets: Any, drafts: Sequence[Any], draws: Any, num_drafts: Sequence[int], replaced: bool,
    num_bins: int,
) -> _Summed:  # fmt: skip
    """Same as `summed_on_device`, by a pass over each row, and one more if a race is asked for."""
    import torch

    from mdsd_opt.prefix_search import row_table

    count = len(num_drafts)
    sums = np.zeros((count, num_bins, 2))
    ends = np.tile(np.array([1.0, 0.0], targets.numpy().dtype), (count, num_bins, 1))
    drawn = np.empty((count, 4, draws.shape[1]))
    bins = np.empty(targets.shape, np.int16)
    races = []
    for i, tokens in enumerate(draws.numpy()):
        n, m = targets[i].numpy(), drafts[i].numpy()
        row_table(n, m, steps_of(num_bins, n.dtype), bins[i], ends[i], sums[i])
        drawn[i] = tokens, n[tokens], m[tokens], bins[i, tokens]
        races.append(partial(race_sums_of_row, m, bins[i], num_drafts[i], num_bins))
    return sums, ends, drawn, races, torch.from_numpy(bins)


def race_sums_on_device(
    weights: Any, bins: Any, num_drafts: Sequence[int], num_bins: int
) -> tuple[Any, Any, Any]:
    """Sums of races of many rows in torch, for `race_sums_of` on the host.

    `weights` and `bins` have shape (n, V), `num_drafts` is K of every row, `num_bins` is B. Returns
    `slowest`, `others` and `unit`, shape (n, 3); moments, shape (n, B, MOMENTS), the first a sum of
    weights, the others rounded to integers in units of `_grain`, which is exact in whatever order
    they are added; weights and bins of heavy tokens, shape (n, 2, L), weight 0 where there is none.
    """
    import torch

    from mdsd_opt.prefix_search import MOMENTS, lightness, most_heavy

    count, vocab_size = weights.shape
    most = max(num_drafts)
    top, at = weights.topk(most_heavy(vocab_size, most), -1)
    top = top.double()
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    heaviest = torch.nn.functional.pad(top.cumsum(-1), (1, 0))
    fewer = on_device([[min(k - 1, vocab_size)] for k in num_drafts], weights.device)
    slowest = total - heaviest.gather(-1, fewer)
    unit = slowest / on_device([[lightness(k)] for k in num_drafts], weights.device).double()
    is_light = weights <= unit
    share = torch.where(is_light, weights / unit, 0.0)
    power = share
    columns = [torch.where(is_light, weights, 0.0).double()]
    for _ in range(1, MOMENTS):
        power = power * share
        columns.append((power / _grain(most)).round_())
    rows = torch.arange(count, device=weights.device, dtype=torch.int32)[:, None] * num_bins
    sums = weights.new_zeros((count * num_bins, MOMENTS), dtype=torch.float64)
    sums.index_add_(0, (bins + rows).view(-1), torch.stack(columns, -1).view(-1, MOMENTS))
    heavy = torch.stack((torch.where(top > unit, top, 0.0), bins.gather(-1, at).double()), 1)
    terms = torch.cat((slowest, total - top[:, :1], unit), -1)
    return terms, sums.view(count, num_bins, MOMENTS), heavy


def _grain(num_drafts: int) -> float:
    """Power of two of which light tokens sum up to less than 2**53."""
    from mdsd_opt.prefix_search import lightness

    return 2.0 ** (ceil(log2(lightness(num_drafts))) - 51)


def race_sums_of(most_drafts: int, terms: Vector, sums: Vector, heavy: Vector) -> RaceSums:
    """Sums that `race_sums_on_device` gives for one row; `most_drafts` are those of all rows."""
    from mdsd_opt.prefix_search import COLUMNS, MOMENT

    num_bins, num_moments = sums.shape
    slowest, others, unit = terms.tolist()
    moments = np.zeros((num_bins, COLUMNS))
    moments[:, MOMENT] = sums[:, 0] / unit
    moments[:, MOMENT + 1 : MOMENT + num_moments] = sums[:, 1:] * _grain(most_drafts)
    first = np.full(num_bins, -1)
    positive = heavy[:, heavy[0] > 0.0]
    following = np.empty(positive.shape[1], np.int64)
    for i, place in enumerate(positive[1].astype(np.int64).tolist()):
        following[i], first[place] = first[place], i
    return RaceSums(slowest, others, unit, moments, (first, following, positive[0].copy()))


UNIT = 2.0**52

_PLAIN = Sampling()


def integer_weights(logits: Any, sampling: Sampling = _PLAIN) -> Any:
    """Weights of rows of logits, [..., V]; float32, or float64 for float64 logits."""
    import torch

    values = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.temperature == 0.0:
        best = values.argmax(-1, keepdim=True)
        return torch.zeros_like(values).scatter_(-1, best, UNIT)
    if sampling.temperature != 1.0:
        values = values / sampling.temperature
    whole = law = torch.softmax(values, -1)
    if sampling.top_k is not None and sampling.top_k < law.shape[-1]:
        law = _at_least(law, law, law.topk(sampling.top_k, -1).values[..., -1:])
    if sampling.top_p is not None and sampling.top_p < 1:
        seen = whole if sampling.joint else law
        descending = seen.sort(-1, descending=True).values
        before = descending.cumsum(-1, dtype=torch.float64) - descending
        num_tokens = (before < sampling.top_p).sum(-1, keepdim=True)
        law = _at_least(law, seen, descending.gather(-1, num_tokens - 1))
    if sampling.min_p is not None and sampling.min_p > 0:
        law = _at_least(law, law, sampling.min_p * law.amax(-1, keepdim=True))
    return law.mul_(UNIT).round_()


def probabilities(law: Any) -> Floats:
    """Draft law on the host: itself, or that of integer weights, which waits for them."""
    if isinstance(law, np.ndarray):
        return law
    weights: Floats = on_host(law)[0]
    return weights / weights.sum()


def _at_least(law: Any, seen: Any, floor: Any) -> Any:
    """Law of the tokens to which another law, or the same, gives at least so much."""
    import torch

    masses = torch.where(seen >= floor, law, 0.0)
    return masses / masses.sum(-1, keepdim=True)


def draw(masses: Any, uniforms: Any) -> Any:
    """Tokens drawn independently in proportion to rows of masses; int64, shape (n, K).

    `masses` has shape (n, V); `uniforms`, of float64 on [0, 1), has shape (n, K).
    """
    import torch

    reached = masses.cumsum(-1, dtype=torch.float64)
    at = uniforms * reached[:, -1:]
    # the product may be rounded up to the total; the last of equal sums has a mass
    last = torch.searchsorted(reached, reached[:, -1:].contiguous())
    return torch.searchsorted(reached, at, right=True).minimum(last)


def draw_distinct(weights: Any, uniforms: Any) -> Any:
    """Tokens drawn one after another, each in proportion to the weights of those not drawn yet.

    A draw is a place on the line of all weights, in which what is drawn already takes no room: one
    sum over the vocabulary serves all draws, and it is exact. `weights`, shape (n, V), are integers
    with sums below 2**53; `uniforms`, shape (n, K), are of float64 on [0, 1). Returns int64, shape
    (n, K), -1 where no token is left.
    """
    import torch

    reached = weights.cumsum(-1, dtype=torch.float64)
    rest = reached[:, -1:].contiguous()
    tokens = []
    starts = masses = rest[:, :0]
    for k in range(uniforms.shape[1]):
        at = (uniforms[:, k : k + 1] * rest).floor_().minimum(rest - 1.0)
        for j in range(k):
            at += torch.where(at >= starts[:, j : j + 1], masses[:, j : j + 1], 0.0)
        exists = rest > 0.0
        token = torch.searchsorted(reached, at, right=True)
        mass = torch.where(exists, weights.gather(-1, token).double(), 0.0)
        tokens.append(torch.where(exists, token, -1))
        starts, order = torch.cat((starts, reached.gather(-1, token) - mass), -1).sort(-1)
        masses = torch.cat((masses, mass), -1).gather(-1, order)
        rest = rest - mass
    return torch.cat(tokens, -1)


class BinnedLaw:
    """Masses a p + c q with coefficients that are one number in every bin, shape (B,).

    They are scaled, added and summed by the table of the position alone; a token is drawn on the
    device.
    """

    __array_ufunc__ = None  # numbers of NumPy leave products to this class

    def __init__(self, table: BinTable, a: Vector, c: Vector) -> None:
        self.table, self.a, self.c = table, a, c

    @classmethod
    def target_of(cls, table: BinTable) -> BinnedLaw:
        """The law p itself."""
        return cls(table, np.ones_like(table.p), np.zeros_like(table.p))

    def __mul__(self, factor: float) -> BinnedLaw:
        return BinnedLaw(self.table, factor * self.a, factor * self.c)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> BinnedLaw:
        return self * (1.0 / divisor)

    def __sub__(self, other: BinnedLaw) -> BinnedLaw:
        return BinnedLaw(self.table, self.a - other.a, self.c - other.c)

    def sum(self) -> float:
        return float(self.a @ self.table.p + self.c @ self.table.q)

    def any(self) -> bool:
        return bool(self.a.any() or self.c.any())

    def normalised(self) -> Any:
        """Law in proportion to the masses; None without any mass."""
        total = self.sum()
        return self / total if total > 0.0 else None

    def draw(self, uniform: float) -> int:
        """One token drawn in proportion to the masses."""
        masses = self.masses()
        uniforms = on_device(np.array([[uniform]]), masses.device)
        return int(on_host(draw(masses[None], uniforms))[0].item())

    def masses(self) -> Any:
        """Masses of all tokens on the device, shape (V,)."""
        import torch

        target = self.table.target().double()
        if self.table.bins is None:
            return target * float(self.a[0])
        bins = self.table.bins.long()
        totals = target.sum(), self.table.draft.sum(dtype=torch.float64)
        a, c = (on_device(x, target.device)[bins] for x in (self.a, self.c))
        return (a * (target / totals[0]) + c * (self.table.draft / totals[1])).clamp_(min=0.0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        masses: NDArray[Any] = self.masses().cpu().numpy()
        if self.table.bins is None:
            masses = masses / masses.sum() * float(self.a[0])
        return masses if dtype is None else masses.astype(dtype)


class BinnedDrafts:
    """K draws from integer weights on the device, shape (V,), with replacement or without."""

    #: Attributes that schemes on the host have; here no rule of theirs applies.
    random_draws = None
    always_drafted = np.empty(0, np.int64)

    def __init__(self, weights: Any, num_drafts: int, replaced: bool = True) -> None:
        self.weights, self.num_drafts, self.replaced = weights, num_drafts, replaced

    def sample(self, rng: np.random.Generator) -> NDArray[Any]:
        """Token ids in draw order, shape (K,); -1 where none is left."""
        (row,) = on_host(_drawn([self], rng))
        return row[0].astype(np.int64)

    def passed(
        self, target: BinnedLaw, draws: Integers, values: Vector
    ) -> tuple[Vector, BinnedLaw]:
        """Masses of a target r p that go on to these draws, as `hull_masses` gives them."""
        table, demand = target.table, float(target.a[0])
        if not self.replaced and table.left(draws.tolist()) == 0.0:
            return self._all_passed(table, demand, draws)
        plan = LinearPlan(table, demand, self.num_drafts, self.replaced)
        return plan.masses(draws, values), BinnedLaw(table, plan.u, plan.v)

    def _all_passed(
        self, table: BinTable, demand: float, draws: Integers
    ) -> tuple[Vector, BinnedLaw]:
        """Result of `passed` if every token is drawn: all of the target there goes on."""
        known = np.array([table.at.get(token, (0.0, 0.0))[:2] for token in draws.tolist()])
        masses = whole_support_masses(
            demand * known[:, 0], known[:, 1], np.where(draws >= 0, np.arange(draws.size), -1)
        )
        drafted: Vector = np.where(table.q > 0.0, demand, 0.0)
        return masses, BinnedLaw(table, drafted, np.zeros_like(drafted))


def sampled(drafts: Sequence[BinnedDrafts], rng: np.random.Generator) -> list[NDArray[Any]]:
    """Draws of several nodes, promised where the host would have to wait for them.

    Then draws that coincide are only found to do so when the promises are kept.
    """
    if is_host(drafts[0].weights.device):
        return [one.sample(rng) for one in drafts]
    rows = []
    for one, row in zip(drafts, _drawn(drafts, rng), strict=True):
        draws = np.empty(one.num_drafts, dtype=object)
        draws[:] = [PromisedToken(token) for token in row[: one.num_drafts].unbind()]
        rows.append(draws)
    return rows


def _drawn(drafts: Sequence[BinnedDrafts], rng: np.random.Generator) -> Any:
    """Draws of some nodes on the device, shape (n, K) for the largest K of them."""
    import torch

    widest = max(one.num_drafts for one in drafts)
    rows = torch.stack([one.weights for one in drafts])
    uniforms = on_device(rng.random((len(drafts), widest)), rows.device)
    return (draw if drafts[0].replaced else draw_distinct)(rows, uniforms)


class LinearPlan(BinPlan):
    """Selection and acceptance at a position of positive demand r.

    `u` and `v`, shape (B,), are the coefficients of p and q in what goes on. Drafts that are drawn
    without replacement must leave something.
    """

    def __init__(
        self, table: BinTable, demand: float, num_drafts: int, replaced: bool = True
    ) -> None:
        super().__init__(table, num_drafts, replaced, demand)
        self._table, groups, ratio = table, self.groups, self.x / self.w
        lowest, highest = demand * groups.lowest, demand * groups.highest
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (ratio - lowest) / (highest - lowest)
        share = np.where(highest < np.inf, np.nan_to_num(share).clip(0.0, 1.0), 0.0)
        share[ratio >= highest] = 1.0
        rest = np.where(share < 1.0, (1.0 - share) * np.minimum(lowest, ratio), 0.0)
        self.u, self.v = self.by_bin(demand * share), self.by_bin(rest)

    @property
    def passed(self) -> float:
        return float(self.u @ self._table.p + self.v @ self._table.q)

    def places(self, tokens: Tokens) -> Tokens:
        at = self._table.at
        return self.groups.place[[at[token].bin for token in tokens.tolist()]]

    def drawn(self, tokens: Tokens) -> Drawn:
        ids, table = tokens.tolist(), self._table
        # all other tokens are one; in integers, no difference loses a small one
        weights = np.array([*(table.at[token].weight for token in ids), table.left(ids)])
        return Drawn(np.arange(tokens.size), self.places(tokens), weights, self.above)

    def acceptance(self, token: int) -> float:
        p, q, place, _ = self._table.at[token]
        ratio = float(self.ratio[place])
        return min(float(self.u[place] * p / q + self.v[place]) / ratio, 1.0) if ratio > 0 else 0.0

    def masses(self, draws: Tokens, values: Vector) -> Vector:
        """Probability that each draft is passed, given the draws; shape (K,)."""
        return acceptance_probabilities(self, draws, partial(valued_rule, values=values))
