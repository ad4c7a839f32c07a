"""Logits of a real language model, bundled for the demo and the tests."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

_SAMPLE = "smollm2_135m_skip14_18.npz"


def sample_logits_path() -> Path:
    """File with logits of SmolLM2-135M-Instruct and of the same model with two layers skipped."""
    return Path(str(resources.files(__name__) / _SAMPLE))
