"""The functions of examples/torch_verifiers.py, and PyTorch in one thread."""

from __future__ import annotations

import pytest
import torch
import torch_verifiers

# The processes of a run have the cores to themselves; on tensors as small as these, threads that
# wait for one another take longer than the work.
torch.set_num_threads(1)


def put_in_bins(monkeypatch, bins, race_bins):
    """So few that tokens of small vocabularies share them."""
    monkeypatch.setattr(torch_verifiers, "_BINS", bins)
    monkeypatch.setattr(torch_verifiers, "_RACE_BINS", race_bins)


@pytest.fixture(params=["many bins", "few bins"])
def bins(request, monkeypatch):
    """How many bins the optimal rule has."""
    if request.param == "few bins":
        put_in_bins(monkeypatch, 5, 4)


@pytest.fixture(params=["optimal", "optimal in few bins", "rrs"])
def name(request, monkeypatch):
    """A function of the file; laws are enumerated by it thousands of times."""
    function, *bins = request.param.split(maxsplit=1)
    put_in_bins(monkeypatch, *(5, 4) if bins else (64, 48))
    return function
