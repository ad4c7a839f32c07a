"""`verify_tree`: decisions about trees of drafts, in the signature that engines already call."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from mdsd_opt.errors import MissingExtra
from mdsd_opt.serving import reference, selection
from mdsd_opt.serving.arguments import TreeArguments

_TENSORS = inspect.signature(TreeArguments)
_OF_DRAWS = _TENSORS.replace(
    parameters=[
        *list(_TENSORS.parameters.values())[:11],
        _TENSORS.parameters["uniform_samples"].replace(name="uniform_samples_for_selection"),
        _TENSORS.parameters["draft_rows"],
    ]
)


def _taking(signature: inspect.Signature) -> Callable[[Callable[..., None]], Any]:
    """Decorator: the function shows this signature, and gets its arguments by their names."""

    def signed(operation: Callable[..., None]) -> Any:
        @wraps(operation)
        def bound(*args: Any, **named: Any) -> None:
            operation(**signature.bind(*args, **named).arguments)

        bound.__signature__ = signature.replace(return_annotation=None)  # type: ignore[attr-defined]
        return bound

    return signed


@_taking(_TENSORS)
def verify_tree(**tensors: Any) -> None:
    r"""Accept a path of every tree, and draw the token after it; results are written in place.

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
        Number of accepted nodes, without the root.
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
        Unused, part of the signature; decisions are a function of the arguments either way.
    draft_rows : int64 [bs, N], optional
        [b, c] is the row of `draft_probs` that **child c** was drawn from, -1 if c is certain.
        Rows may be shared, by requests as well; what stands at the root is not read.
    num_drawn : int
        Most children of a node that may have been drawn: one after another, without replacement,
        from one row, children in the order of the draws. They are tried by recursive rejection,
        which is lossless but accepts less than is possible from two on.

    Raises
    ------
    InvalidInput
        A tensor of another shape, type or device, or one that is not contiguous.
    MissingExtra
        The tensors are on a device, and there is no Triton.

    Notes
    -----
    The drawn children of a node are the first `num_drawn`, in the order of siblings, to which their
    row gives a positive probability; the others count as certain. Of siblings with equal tokens the
    first has the target's probability, the others none. A Triton kernel decides on devices of
    NVIDIA and AMD, the same in PyTorch elsewhere; nothing waits for the device. Where rounding
    leaves no weight behind the path, the last token is drawn from p: one of probability 0 never is.
    """
    call = TreeArguments(**tensors).checked()
    _on(call.candidates.device, reference, "triton_walk").walk(call)


@_taking(_OF_DRAWS)
def verify_tree_of_draws(uniform_samples_for_selection: Any, **tensors: Any) -> None:
    r"""Accept a path of every tree of independent draws; results are written in place.

    All children of a node were drawn from one law q, with replacement, and each draw is a node of
    its own, whether its token was drawn before or not. The rule is the optimal one on 256 closed
    bins of p/q (`mdsd_opt.verifiers.optimal`): lossless, and on the bundled logits at most .00044
    below the optimum, at K = 8; no sort, one pass over V for every node that has children, in
    parallel.

    Parameters
    ----------
    predicts, accept_index, accept_token_num : int32
        Written, see `verify_tree`.
    candidates, retrive_index, retrive_next_token, retrive_next_sibling : int64 [bs, N]
        The trees, children in the order in which they were drawn.
    uniform_samples : float32 [bs, N]
        A coin in [0, 1) for each node, as in `verify_tree`.
    uniform_samples_for_final_sampling : float32 [bs]
        A coin in [0, 1) for the token behind the path.
    target_probs : float32 [bs, N, V]
        p after each node.
    draft_probs : float32 [bs, N, V], or [R, V] with `draft_rows`
        [b, i] is the law of all children of node i.
    uniform_samples_for_selection : float32 [bs, N]
        One more coin in [0, 1) for each node, by which one of its children is selected.
    draft_rows : int64 [bs, N], optional
        [b, c] is the row of `draft_probs` that child c was drawn from, the same for its siblings.

    Raises
    ------
    InvalidInput
        A tensor of another shape, type or device, or one that is not contiguous.
    MissingExtra
        The tensors are on a device, and there is no Triton.

    Notes
    -----
    Where a token was drawn several times, the first of its nodes may be accepted; let that one have
    the children. Where a row is zero, or `draft_rows` is -1, the children are certain. Draws
    without replacement go to `verify_tree`, see `num_drawn` there.
    """
    call, levels = TreeArguments(**tensors).checked(), uniform_samples_for_selection
    shape = tuple(call.candidates.shape)
    call.require("uniform_samples_for_selection", levels, "float32", shape)
    plan = _on(levels.device, selection, "triton_selection").select(call, levels)
    _on(levels.device, reference, "triton_walk").walk(call, plan)


def _on(device: Any, usual: ModuleType, kernels: str) -> Any:
    """Module with the kernels for tensors on a device, or the usual one for all others."""
    if device.type != "cuda":  # what ROCm has is called so, too
        return usual
    try:
        return importlib.import_module(f"mdsd_opt.serving.{kernels}")
    except ImportError as error:
        raise MissingExtra.of("triton", "serving", "verify_tree on a device") from error
