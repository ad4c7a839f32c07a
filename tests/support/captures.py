"""A small pair of models to capture, and captures that end too early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.markov import MarkovModel
from support.until import until

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


#: A capture of a pair that takes its time, into a folder.
SLOWLY = """
import sys
from support.markov import *
from mdsd_opt.corpora import RatesConfig
from mdsd_opt.corpora.capture import *
settings = CaptureSettings(num_tokens=5, dtype="float32", shard_bytes=960)
pair = MarkovModel(seed=0, pause=.03), MarkovModel(seed=1)
capture(prompts(), *pair, sys.argv[1], settings, rates=RATES)
"""


def ended_by(number, folder, rates="None"):
    """Exit code of a capture that gets a signal once it has written another shard."""
    before = len(list(folder.glob("shard-*")))
    command = [sys.executable, "-c", SLOWLY.replace("RATES", rates), str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=WITH_SUPPORT)
    until(lambda: len(list(folder.glob("shard-*"))) > before)
    process.send_signal(number)
    return process.wait(60)


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
