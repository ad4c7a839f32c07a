r"""Greedy drafts in tensors: the likeliest tokens for certain, and one more that is drawn.

The children of a node are T, the K - 1 likeliest tokens of q, and one token drawn from
:math:`q'(t) = q(t) / (1 - q(T))` outside T: the scheme "greedy", whose optimal rule is what
`mdsd_opt.serving.verify_tree` decides by. Top-K drafts are the case in which q' is all at one
token. Any q' is lossless, so that it may be chosen node by node, from q alone.

**Trees pruned by scores.** Engines draft more nodes than they verify, and keep those with the
largest products of scores on the way from the root. The law of a drawn child among those kept must
still be q', so its score may not depend on which token it is: it is scored by the mass of all that
it could have been, :math:`1 - q(T)`. Scored by its own q, likely tokens would be kept more often,
and texts no longer follow the target. Scores lie strictly between 0 and 1, so that a node stands
before all below it. What is kept is then decided by draws at nodes that stand before, never by its
own draw; averaging over the draws from the last node to the first leaves the target's law at each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mdsd_opt.base.checked import check_counts, check_function, checked_integer, real
from mdsd_opt.errors import InvalidInput

#: Draws one token from each of the laws [n, V]; int64 [n].
Draw = Callable[[Any], Any]

#: Total variation, outside T, between target and draft that the choice of drafts allows for.
DISAGREEMENT = 0.3

#: Bounds of the scores, so that a product with one is smaller, yet not 0, in float32, too: a node
#: and its children have different scores, and none is kept without its parent.
_LEAST, _MOST = 2.0**-14, 1.0 - 2.0**-23


@dataclass(frozen=True, slots=True, eq=False)
class NodeDrafts:
    """Children of n nodes.

    Attributes
    ----------
    tokens : int64, shape (n, K)
        The likeliest first, the one that was drawn last.
    scores : floating, shape (n, K)
        Scores by which trees may be pruned, times the score of the node.
    laws : floating, shape (n, V)
        q', from which the last child was drawn; all at one token where it is certain.
    """

    tokens: Any
    scores: Any
    laws: Any


def greedy_drafts(
    probs: Any,
    num_drafts: int,
    draw: Draw,
    *,
    may_sample: Any | None = None,
    disagreement: float = DISAGREEMENT,
) -> NodeDrafts:
    r"""The K - 1 likeliest tokens of each node and one drawn from q', or the K likeliest.

    Let t be the likeliest token outside T, a = q'(t) and :math:`\rho = 1 - p(T)`. Top-K drafts
    accept p(t) beside p(T), greedy ones :math:`\sum_{x \notin T} \min(p(x), q'(x))`. The latter is
    the larger in any case if :math:`\rho \le a`. If q' is within total variation
    :math:`\delta` of :math:`p / \rho` outside T, they accept :math:`\rho (1 - \delta)` or more, and
    top-K no more than :math:`\rho (a + \delta)`. So a token is drawn where

    .. math:: 1 - q(T) \le a \quad\text{or}\quad a \le 1 - 2 \delta,

    and the K likeliest are taken elsewhere. Both are lossless: only q is looked at.

    Parameters
    ----------
    probs : floating, shape (n, V)
        q after each node. At a temperature other than 1, q at that temperature: a sharp target
        refuses what is drawn from a flat q.
    num_drafts : int
        K, at most V.
    draw : callable
        A token of each law, shape (n, V) -> (n,): ``lambda q: torch.multinomial(q, 1)[:, 0]``.
    may_sample : bool, shape (n,), optional
        False: the K likeliest in any case, as for requests at temperature 0.
    disagreement : float
        :math:`\delta`.

    Returns
    -------
    NodeDrafts

    Raises
    ------
    InvalidInput
        K outside 1 to V, or `disagreement` outside [0, 1].

    Notes
    -----
    No step waits for the device.
    """
    if not hasattr(probs, "scatter") or probs.ndim != 2 or not probs.is_floating_point():
        raise InvalidInput(f"probs is {probs!r:.60}: give a tensor of laws, floating [n, V]")
    checked_integer(num_drafts, "num_drafts", most=probs.shape[1])
    check_function(draw=draw)
    if not 0.0 <= real(disagreement) <= 1.0:
        raise InvalidInput(f"disagreement is {disagreement!r:.60}; it lies in [0, 1]")
    if may_sample is not None and getattr(may_sample, "shape", None) != probs.shape[:1]:
        raise InvalidInput(f"may_sample is {may_sample!r:.60}: give a boolean tensor [n]")
    import torch

    scores, tokens = torch.topk(probs, num_drafts, dim=-1)
    rest = probs.scatter(1, tokens[:, :-1], 0.0)
    mass = rest.sum(1, keepdim=True)
    likeliest = rest.gather(1, tokens[:, -1:])
    enough = likeliest <= (1.0 - 2.0 * disagreement) * mass
    is_drawn = (mass > torch.finfo(probs.dtype).tiny) & (enough | (mass * mass <= likeliest))
    if may_sample is not None:
        is_drawn = is_drawn & may_sample[:, None]
    certain = torch.zeros_like(probs).scatter(1, tokens[:, -1:], 1.0)
    laws = torch.where(is_drawn, rest / mass, certain)
    last = torch.where(is_drawn, mass, scores[:, -1:])
    return NodeDrafts(
        torch.cat([tokens[:, :-1], draw(laws)[:, None]], 1),
        torch.cat([scores[:, :-1], last], 1).clamp(_LEAST, _MOST),
        laws,
    )


def rows_of_children(kept: Any, num_drafts: int, num_rows: int) -> Any:
    """Row of q' for each node of a tree, as `mdsd_opt.serving.verify_tree` takes them.

    Parameters
    ----------
    kept : int64, shape (bs, N - 1)
        Places of the nodes behind the root among all that were drafted: K of each node that was
        expanded, in the order of these nodes.
    num_drafts : int
        K.
    num_rows : int
        R, laws of each request: of its expanded nodes, in the same order.

    Returns
    -------
    int64, shape (bs, N)
        Rows of laws [bs R, V]; -1 for the root, and for children that were not drawn.
    """
    if not hasattr(kept, "new_full") or kept.ndim != 2:
        raise InvalidInput(f"kept is {kept!r:.60}: give a tensor of places, int64 [bs, N - 1]")
    check_counts(num_drafts=num_drafts, num_rows=num_rows)
    import torch

    request = torch.arange(kept.shape[0], device=kept.device)[:, None]
    row = request * num_rows + kept // num_drafts
    rows = torch.where(kept % num_drafts == num_drafts - 1, row, -1)
    return torch.cat([torch.full_like(request, -1), rows], 1)
