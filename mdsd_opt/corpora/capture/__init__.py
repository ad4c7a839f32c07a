"""Capture logits: a target continues prompts, and target and draft both read the texts.

The models are anything that satisfies `LanguageModel`; those of the transformers library come from
`mdsd_opt.decoding.models.loading`.
"""

from __future__ import annotations

from mdsd_opt.corpora.capture.capturing import (
    CaptureSettings,
    LanguageModel,
    capture,
    continue_by_logits,
)
from mdsd_opt.corpora.capture.texts import read_prompts, read_text, windows

__all__ = [
    "CaptureSettings",
    "LanguageModel",
    "capture",
    "continue_by_logits",
    "read_prompts",
    "read_text",
    "windows",
]
