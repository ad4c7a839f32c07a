"""The bundled logits are what their description says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.base.sampling import softmax
from mdsd_opt.data import sample_logits_path


@pytest.fixture(scope="module")
def sample():
    return load_logits(sample_logits_path())


def test_shapes_and_sequences(sample):
    assert sample.target.shape == sample.draft.shape == (42, 49152)
    assert sample.target.dtype == sample.draft.dtype == np.float16
    assert np.bincount(sample.sequence).tolist() == [3] * 14
    assert sample.tokens.min() >= 0
    assert sample.tokens.max() < 49152


def test_values_are_finite_bfloat16(sample):
    for logits in (sample.target, sample.draft):
        assert np.isfinite(logits).all()
        low_bits = logits.astype(np.float32).view(np.uint32) & 0xFFFF
        assert not low_bits.any()


def test_the_file_is_small_and_says_where_it_is_from(sample):
    assert sample_logits_path().stat().st_size <= 6_000_000
    assert sample.metadata["licence"].startswith("Apache-2.0")
    assert {"target", "draft", "seed", "weights_sha256", "torch"} <= set(sample.metadata)
    json.dumps(sample.metadata)


def test_described_entropy_and_overlap(sample):
    p, q = softmax(sample.target), softmax(sample.draft)
    assert -(p * np.log(p)).sum(axis=1).mean() == pytest.approx(3.21, abs=5e-3)
    assert np.minimum(p, q).sum(axis=1).mean() == pytest.approx(0.699, abs=5e-4)


@pytest.mark.parametrize(
    ("num_drafts", "described"), [(1, 0.699), (2, 0.870), (4, 0.953), (8, 0.982)]
)
def test_described_acceptance_with_replacement(sample, num_drafts, described):
    """alpha* = 1 + min over prefixes H by p/q of p(H) - q(H)^K [Hu25], in plain NumPy."""
    p, q = softmax(sample.target), softmax(sample.draft)
    order = np.argsort(p / q, axis=1, kind="stable")
    target_mass = np.take_along_axis(p, order, axis=1).cumsum(axis=1)
    draft_mass = np.take_along_axis(q, order, axis=1).cumsum(axis=1)
    deficit = np.minimum((target_mass - draft_mass**num_drafts).min(axis=1), 0.0)
    assert (1 + deficit).mean() == pytest.approx(described, abs=5e-4)


def test_positions_follow_the_stated_rule(sample):
    """Places 0, 16 and 31 of every continuation: the same distances in all texts."""
    position = sample.position.reshape(14, 3)
    assert np.diff(position, axis=1).tolist() == [[16, 15]] * 14


def test_tokens_were_sampled_from_the_target(sample):
    """Tokens read off wrong positions would be far less likely than the entropy says."""
    log_p = np.log(softmax(sample.target))
    surprise = -log_p[np.arange(len(log_p)), sample.tokens]
    entropy = -(np.exp(log_p) * log_p).sum(axis=1)
    variance = (np.exp(log_p) * log_p**2).sum(axis=1) - entropy**2
    assert abs((surprise - entropy).sum()) < 4 * np.sqrt(variance.sum())
    shifted = -log_p[np.arange(len(log_p)), np.roll(sample.tokens, 1)]
    assert (shifted - entropy).sum() > 4 * np.sqrt(variance.sum())
