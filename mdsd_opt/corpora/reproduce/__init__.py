"""Experiments of papers, run on the logits at hand."""

from __future__ import annotations

import importlib
from typing import Any

from mdsd_opt.corpora.reproduce.experiment import CapturedLogits, Reproduction
from mdsd_opt.errors import UnknownName

#: Experiments by name, with their sources.
EXPERIMENTS = {
    "hu2025": "[Hu25] draft schemes and verifiers at temperature 0.7 with 3 drafts, and sweeps",
    "khisti2025": "[Khisti25] drafts at temperatures 1.2 to 2.4 against a target at 1.0",
    "spechub": "[SpecHub] two drafts against recursive rejection",
}

__all__ = ["EXPERIMENTS", "CapturedLogits", "Reproduction", "reproduce"]


def reproduce(name: str, logits: CapturedLogits, **options: Any) -> Reproduction:
    """Run an experiment.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    logits : CapturedLogits
    **options
        Options of the experiment: other temperatures, numbers of drafts.

    Raises
    ------
    UnknownName
        No such experiment; the message lists those that exist.
    """
    if name not in EXPERIMENTS:
        raise UnknownName.among("experiment", name, EXPERIMENTS)
    module = importlib.import_module(f"mdsd_opt.corpora.reproduce.{name}")
    result: Reproduction = module.run(logits, **options)
    return result
