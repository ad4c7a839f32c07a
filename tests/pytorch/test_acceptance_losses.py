"""Losses of examples/acceptance_losses.py against exact rates and their derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from acceptance_losses import cross_entropy, rejection

from mdsd_opt import acceptance_rates

KS = (1, 2, 3, 4)


def laws(kind, rng, count=40, size=30):
    """Targets and logits of drafts, float64."""
    logits = rng.standard_normal((count, size))
    p = np.exp(2.0 * rng.standard_normal((count, size)))
    if kind == "near":
        p = np.exp(logits + 0.1 * rng.standard_normal((count, size)))
    if kind == "ties":
        p = np.exp(np.round(p.clip(max=3.0)))
        logits = np.round(logits)
    if kind == "zeros":
        p *= rng.random((count, size)) < 0.3
        p[:, 0] += 1e-3
        logits[rng.random((count, size)) < 0.3] = -50.0
    if kind == "equal":
        p = np.exp(logits)
    if kind == "one token":
        p, logits = p[:, :1], logits[:, :1]
    if kind == "one-hot":
        p = np.eye(size)[rng.integers(size, size=count)]
    return p / p.sum(-1, keepdims=True), logits


def exact(p, logits, num_drafts):
    with np.errstate(divide="ignore"):
        return acceptance_rates(np.log(p), logits, num_drafts=num_drafts)


@pytest.mark.parametrize("kind", ["far", "near", "ties", "zeros", "equal", "one token", "one-hot"])
@pytest.mark.parametrize("k", KS)
def test_rejection_is_exact(kind, k):
    p, logits = laws(kind, np.random.default_rng(KS.index(k)))
    found = rejection(torch.tensor(p), torch.tensor(logits), k).numpy()
    assert 1.0 - found == pytest.approx(exact(p, logits, k), abs=1e-9)


@pytest.mark.parametrize("k", KS)
def test_rejection_in_float32(k):
    p, logits = laws("far", np.random.default_rng(5), size=3000)
    found = rejection(torch.tensor(p).float(), torch.tensor(logits).float(), k).numpy()
    assert 1.0 - found == pytest.approx(exact(p, logits, k), abs=2e-6)


@pytest.mark.parametrize("k", KS)
def test_tokens_that_are_never_drafted_can_be_left_out(k):
    p, logits = laws("far", np.random.default_rng(6))
    logits[:, 20:] = -np.inf
    found = rejection(torch.tensor(p[:, :20]), torch.tensor(logits[:, :20]), k).numpy()
    assert 1.0 - found == pytest.approx(exact(p, logits, k), abs=1e-9)


@pytest.mark.parametrize("k", KS)
def test_gradient_is_that_of_the_exact_rate(k):
    p, logits = laws("far", np.random.default_rng(7), count=6, size=12)
    x = torch.tensor(logits, requires_grad=True)
    rejection(torch.tensor(p), x, k).sum().backward()
    step, numeric = 1e-6, np.zeros_like(logits)
    for token in range(logits.shape[1]):
        up, down = logits.copy(), logits.copy()
        up[:, token] += step
        down[:, token] -= step
        numeric[:, token] = (exact(p, down, k) - exact(p, up, k)) / (2 * step)
    assert np.abs(numeric).max() > 1e-3
    assert x.grad.numpy() == pytest.approx(numeric, abs=1e-6)


def test_cross_entropy_is_least_at_the_target():
    p, logits = laws("far", np.random.default_rng(8))
    at = torch.tensor(np.log(p), requires_grad=True)
    least = cross_entropy(torch.tensor(p), at)
    assert least.detach().numpy() == pytest.approx(-(p * np.log(p)).sum(-1))
    assert (cross_entropy(torch.tensor(p), torch.tensor(logits)) > least).all()
    least.sum().backward()
    assert at.grad.abs().max() < 1e-9
