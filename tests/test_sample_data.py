"""The bundled logits are what their description says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mdsd_opt.data import sample_logits_path
from mdsd_opt.distributions import softmax
from mdsd_opt.logits_io import load_logits


@pytest.fixture(scope="module")
def sample():
    return load_logits(sample_logits_path())


def test_shapes_and_sequences(sample):
    assert sample.target.shape == sample.draft.shape == (42, 49152)
    assert sample.target.dtype == sample.draft.dtype == np.float16
    assert np.bincount(sample.sequence).tolist() == [3] * 14
    assert (np.diff(sample.position.reshape(14, 3), axis=1) > 0).all()
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


def test_described_overlap(sample):
    p, q = softmax(sample.target), softmax(sample.draft)
    assert np.minimum(p, q).sum(axis=1).mean() == pytest.approx(0.699, abs=5e-4)
