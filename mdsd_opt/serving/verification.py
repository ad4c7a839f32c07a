"""`verify_tree`: decisions about trees of drafts, in the signature that engines call already."""

from __future__ import annotations

from typing import Any

from mdsd_opt.serving import reference
from mdsd_opt.serving.arguments import (
    checked_laws,
    checked_outputs,
    checked_thresholds,
    checked_trees,
    require,
)


def verify_tree(
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    uniform_samples: Any,
    uniform_samples_for_final_sampling: Any,
    target_probs: Any,
    draft_probs: Any,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
    draft_rows: Any | None = None,
) -> None:
    r"""Accept a path of every tree, and draw the token behind it; written in place.

    Names and order are those of SGLang's ``tree_speculative_sampling_target_only``. A node has any
    number of certain children, which the draft would propose again, and at most one that was drawn
    at random, x ~ q. With T the tokens of the certain ones, which q leaves out, its acceptance

    .. math:: p(T) + \sum_{t \notin T} \min(p(t), q(t))

    is the largest that a lossless rule has: x is taken with probability :math:`\min(1, p(x)/q(x))`,
    else what is left of p, :math:`(p - q)_+`, draws a certain child or the token behind the path.
    One pass over V for each x that is refused, no sort. Without x at a node this is target-only
    sampling, with the decisions of SGLang's own operation for the same coins; with one child a
    node, and that one drawn, it is verification of a chain.

    Parameters
    ----------
    predicts : int32 [bs N], written
        Tokens, each where the node before it stands: those of the path, and the one behind it.
    accept_index : int32 [bs, S], written
        Places of the root and of the accepted nodes, at most S - 1; what lies behind stays.
    accept_token_num : int32 [bs], written
        How many nodes were accepted, without the root.
    candidates, retrive_index, retrive_next_token, retrive_next_sibling : int64 [bs, N]
        Token of each node, its place in `predicts`, its first child and its next sibling, which
        are nodes of its request; node 0 is the root, -1 is none.
    uniform_samples : float32 [bs, N]
        A coin in [0, 1) for each node: for its own children; where it was drawn and refused, for
        the certain children beside it.
    uniform_samples_for_final_sampling : float32 [bs]
        A coin in [0, 1) for the token behind the path.
    target_probs : float32 [bs, N, V]
        p after each node.
    draft_probs : float32 [bs, N, V], or [R, V] with `draft_rows`
        Laws of children that were drawn. [b, i] is the law of the one child of **node i** that was
        drawn; zeros: all children of node i are certain. A row has probability zero at the tokens
        of certain siblings, and sums to 1. It is read, never written.
    threshold_single, threshold_acc : float
        Below 1 they accept more, and the law of the texts is no longer p: a child is taken if its
        p is at least `threshold_single`, and p is divided by `threshold_acc` where it is compared
        with a coin.
    deterministic : bool
        For the signature; decisions are a function of the arguments either way.
    draft_rows : int64 [bs, N], optional
        [b, c] is the row of `draft_probs` that **child c** was drawn from, -1 if c is certain.
        Rows may be shared, by requests as well; what stands at the root is not read.

    Raises
    ------
    InvalidInput
        A tensor of another shape, type or device, or one that is not contiguous.

    Notes
    -----
    The drawn child of a node is the first, in the order of siblings, to which its row gives a
    positive probability; the others count as certain. Of siblings with equal tokens the first has
    the target's probability, the others none. Nothing waits for the device. Where rounding leaves
    no weight behind the path, the last token is drawn from p: one of probability 0 never is.
    """
    trees = checked_trees(candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    outputs = checked_outputs(trees, predicts, accept_index, accept_token_num)
    laws = checked_laws(trees, target_probs, draft_probs, draft_rows)
    thresholds = checked_thresholds(threshold_single, threshold_acc)
    (bs, num_nodes), device = candidates.shape, candidates.device
    require("uniform_samples", uniform_samples, (bs, num_nodes), "float32", device)
    last_coins = uniform_samples_for_final_sampling
    require("uniform_samples_for_final_sampling", last_coins, (bs,), "float32", device)
    reference.walk(outputs, trees, laws, uniform_samples, last_coins, thresholds)
