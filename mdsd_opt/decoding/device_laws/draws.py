"""Drafts drawn from integer weights, in torch, without a wait for the device."""

from __future__ import annotations

from typing import Any


def draw(masses: Any, uniforms: Any) -> Any:
    """Tokens in proportion to rows of masses, each draw for itself.

    Parameters
    ----------
    masses : tensor, shape (n, V)
    uniforms : tensor of float64, shape (n, K)
        On [0, 1).

    Returns
    -------
    tensor of int64, shape (n, K)
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
    sum over the vocabulary serves all draws, and it is exact.

    Parameters
    ----------
    weights : tensor, shape (n, V)
        Integers with sums below 2**53.
    uniforms : tensor of float64, shape (n, K)
        On [0, 1).

    Returns
    -------
    tensor of int64, shape (n, K)
        -1 where no token is left.
    """
    import torch

    reached = weights.cumsum(-1, dtype=torch.float64)
    left = reached[:, -1:].contiguous()
    found = []
    starts = masses = left[:, :0]
    for k in range(uniforms.shape[1]):
        at = (uniforms[:, k : k + 1] * left).floor_().minimum(left - 1.0)
        for j in range(k):
            at += torch.where(at >= starts[:, j : j + 1], masses[:, j : j + 1], 0.0)
        exists = left > 0.0
        token = torch.searchsorted(reached, at, right=True)
        mass = torch.where(exists, weights.gather(-1, token).double(), 0.0)
        found.append(torch.where(exists, token, -1))
        starts, order = torch.cat((starts, reached.gather(-1, token) - mass), -1).sort(-1)
        masses = torch.cat((masses, mass), -1).gather(-1, order)
        left = left - mass
    return torch.cat(found, -1)
