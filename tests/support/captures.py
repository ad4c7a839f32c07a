"""A small pair of models to capture, and captures that end too early."""

from __future__ import annotations

import os
from pathlib import Path

from support.markov import MarkovModel

from mdsd_opt.corpora.capture import CaptureSettings

#: So that child processes find the package `support`.
WITH_SUPPORT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", str(Path.cwd()))]
    ),
}

TARGET, DRAFT = MarkovModel(seed=0), MarkovModel(seed=1)
#: Two prompts a shard.
SMALL = CaptureSettings(num_tokens=5, dtype="float32", shard_bytes=2 * 4 * 12 * 5 * 2)


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Interrupted(Exception):
    """Stands in for whatever ends a capture."""


class Failing(MarkovModel):
    """Ends the capture at one of its passes."""

    def __init__(self, last_call):
        super().__init__(seed=0)
        self.last_call = last_call

    def logits(self, ids, rows):
        if self.calls == self.last_call:
            raise Interrupted
        return super().logits(ids, rows)
