"""What commands read: a file of each kind, and those that are wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import engine_logs, fake_models

import mdsd_opt as mo
from mdsd_opt.base.files.arrays import write_safetensors

RULES = """
def first(target, draft, drafts, rng):
    return int(drafts[0])

def of_root(root, rng):
    return [int(rng.choice(len(root.target), p=root.target))]

def chain(p, q, drafts):
    return [0]

def biased(text, logits):
    return logits
"""


@pytest.fixture
def logits(tmp_path: Path) -> Path:
    """Six positions of forty tokens, where the draft is near the target."""
    rng = np.random.default_rng(0)
    target = rng.standard_normal((6, 40)).astype(np.float32)
    draft = target + rng.standard_normal((6, 40)).astype(np.float32)
    np.savez(tmp_path / "own.npz", target=target, draft=draft)
    return tmp_path / "own.npz"


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with what verbs read; models are noise, and a run has one rank."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for variable, number in {"RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(variable, number)
    fake_models.install(monkeypatch)
    rng = np.random.default_rng(0)
    law, tokens = np.full((9, 3), 1 / 3), np.arange(9) % 3
    mask, a = np.ones((3, 5), bool), rng.normal(size=(3, 4, 9)).astype(ml_dtypes.bfloat16)
    arrays: dict[str, dict[str, Any]] = {
        "logits": {"target": rng.normal(size=(3, 5)), "draft": rng.normal(size=(3, 5))},
        "trace": {"target": law, "draft": law, "drafts": tokens[:, None], "tokens": tokens},
        "names": {"target": law, "drafts": law},
        "uneven": {"target": law, "draft": law[:2]},
        "nan": {"target": law * np.nan, "draft": -law},
        "narrow": {"target": np.zeros((2, 12)), "draft": np.zeros((2, 10))},
    }
    for name, each in arrays.items():
        np.savez(tmp_path / f"{name}.npz", **each)
    for name, array in {"mask": mask, "lift": rng.random(5), "short": mask[:2]}.items():
        np.save(tmp_path / f"{name}.npy", array)
    for name, each in {
        "target": {"x": a}, "a": {"x": a}, "short": {"x": a[:, :3].copy()},
        "two": {"x": a, "y": a}, "nan": {"x": np.where(a > 1, a * np.nan, a)},
    }.items():  # fmt: skip
        write_safetensors(tmp_path / f"{name}.safetensors", each)
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-100])
    drafts = mo.WithReplacement([0.5, 0.3, 0.2], 2)
    mo.save_problem(mo.TransportProblem(law[0], drafts), "problem.json")
    served = engine_logs.Served()
    run, plain = (served.log(drafts) for drafts in (True, False))
    problem = (tmp_path / "problem.json").read_text()
    texts = {
        "rules.py": RULES,
        "log.jsonl": '{"accepted": 1, "depth": 2}\n' * 9,
        "run.log": run,
        "plain.log": plain,
        "cut.log": run[:-80],
        "hello.log": "INFO hello\n",
        "told.log": f"INFO num_speculative_tokens=3\n{plain}",
        "config.log": f"SpeculativeConfig(num_spec_tokens=3)\n{plain}",
        "empty.log": "",
        "empty.npz": "",
        "broken.npz": "PK\x03\x04broken",
        "text.npz": "not an archive at all",
        "p": '{"prompt": "a"}\n',
        "nested.json": 100_000 * "[" + 100_000 * "]",
        "many.json": problem.replace('"num_drafts": 2', f'"num_drafts": {10**30}'),
        "locked.json": problem,
        "unknown.toml": "topk = 40",
        "table.toml": "[top-k]\na = 1",
        "half.toml": "top-k = ",
        "words.toml": 'top-k = "many"',
        "below.toml": "temperature = -1.0",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "locked.json").chmod(0)
    for name in ("folder", "nothing", "folder.json", "folder.png"):
        (tmp_path / name).mkdir()
    os.link(tmp_path / "logits.npz", tmp_path / "folder" / "logits.npz")
    return tmp_path
