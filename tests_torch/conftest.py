"""The ways of examples/torch_verifiers.py."""

from __future__ import annotations

import pytest
import torch_verifiers


def put_in_cells(monkeypatch):
    """A few coarse cells for small vocabularies, which are sorted otherwise."""
    bits, octaves = 2, 3
    cells = {"_CELL_BITS": bits, "_CELLS": 2 * octaves << bits}
    cells |= {"_FIRST_CELL": (1023 - octaves) << bits, "_SORTED": 0}
    for name, value in cells.items():
        monkeypatch.setattr(torch_verifiers, name, value)


@pytest.fixture(params=["sorted", "in cells"])
def way(request, monkeypatch):
    """How the optimal rule looks at the vocabulary."""
    if request.param == "in cells":
        put_in_cells(monkeypatch)


@pytest.fixture(params=["optimal", "optimal in cells", "rrs"])
def name(request, monkeypatch):
    """A function of the file."""
    function, *cells = request.param.split(maxsplit=1)
    if cells:
        put_in_cells(monkeypatch)
    return function
