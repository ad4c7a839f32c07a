"""The logits that a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdsd_opt.base.files.logits import LogitsSample


def given_sample(paths: Sequence[Path] | None, kind: str | None) -> LogitsSample:
    """Those of the files, of whatever kind, as logits; the bundled ones without files."""
    return stored_sample(paths).taken_as(kind if paths else "logits")


def stored_sample(paths: Sequence[Path] | None) -> LogitsSample:
    """The same as they are stored."""
    from mdsd_opt.base.files.logits import load_logits
    from mdsd_opt.data import sample_logits_path

    if not paths:
        return load_logits(sample_logits_path())
    return load_logits(paths[0] if len(paths) == 1 else paths)
