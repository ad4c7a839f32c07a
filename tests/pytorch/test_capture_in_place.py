"""Rates of logits as they come from models on a device: tensors that never become arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from mdsd_opt.corpora import RatesConfig
from mdsd_opt.corpora.capture import CaptureSettings, capture
from mdsd_opt.errors import InvalidDistribution

CONFIG = RatesConfig(("with_replacement", "top_k"), ("optimal", "rrs"), (1, 2))
PROMPTS = [[1, 2, 3, 4], [5, 6, 7], [2, 2, 2, 2, 2]]


class Model:
    """Logits by a table of the last token; on a device, if it says so."""

    def __init__(self, seed: int, vocab_size: int, is_on_device: bool) -> None:
        self.table = torch.randn(40, vocab_size, generator=torch.Generator().manual_seed(seed))
        self.vocab_size, self.is_on_device = vocab_size, is_on_device
        self.asked = {"arrays": 0, "tensors": 0}

    def logits_in_place(self, ids: Sequence[int], rows: Sequence[int]) -> Any:
        self.asked["tensors"] += 1
        return self.table[[ids[row] for row in rows]]

    def logits(self, ids: Sequence[int], rows: Sequence[int]) -> Any:
        self.asked["arrays"] += 1
        return self.table[[ids[row] for row in rows]].numpy()


def captured(folder: Path, is_on_device: bool, dtype: str, config: RatesConfig | None) -> Any:
    models = [Model(n, 30 - 2 * n, is_on_device) for n in (0, 1)]
    settings = CaptureSettings(num_tokens=0, dtype=dtype, pad=True)
    capture(PROMPTS, *models, folder, settings, rates=config)
    return load_file(folder / "shard-00000.safetensors"), [model.asked for model in models]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_they_are_those_of_arrays(dtype: str, tmp_path: Path) -> None:
    there, asked = captured(tmp_path / "there", True, dtype, CONFIG)
    here, other = captured(tmp_path / "here", False, dtype, CONFIG)
    assert asked == [{"arrays": 0, "tensors": 3}] * 2
    assert other == [{"arrays": 3, "tensors": 0}] * 2
    assert there.keys() == here.keys()
    for name in here:
        np.testing.assert_allclose(there[name], here[name], rtol=0, atol=1e-12)
    # logits that are kept are brought to the host
    _, kept = captured(tmp_path / "kept", True, "float32", None)
    assert kept == [{"arrays": 3, "tensors": 0}] * 2


def test_logits_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    models = [Model(n, 30, True) for n in (0, 1)]
    models[1].table[6] = torch.nan
    with pytest.raises(InvalidDistribution, match="prompt 2: the draft gives logits that are NaN"):
        capture(PROMPTS, *models, tmp_path, CaptureSettings(num_tokens=0), rates=CONFIG)
