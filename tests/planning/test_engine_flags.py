"""Flags of engines: parsed back as the engines do, and what they leave out."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise

import pytest

import mdsd_opt as mo
from mdsd_opt.errors import UnknownName
from mdsd_opt.planning import engine_flags
from mdsd_opt.planning.engine_flags import ENGINES

BY_BATCH = {
    "target_ms": {1: 30.0, 32: 40.0, 64: 55.0, 256: 160.0},
    "draft_ms": {1: 3.0, 32: 12.0, 256: 40.0},
}
COUNTS = {"by_position": ([720, 500, 340], 1000)}


def advised(**costs):
    return mo.advise_from_counts(**COUNTS, **costs)


ONE = advised(target_ms=20.0, draft_ms=2.0, rows_ms={1: 20.0, 17: 24.0})
MANY = advised(**BY_BATCH)


def after(words, flag):
    return words[words.index(flag) + 1]


def test_vllm():
    (line,) = engine_flags(ONE, "vllm").lines
    config = json.loads(after(shlex.split(line), "--speculative-config"))
    assert config == {"num_speculative_tokens": ONE.depth}
    (line,) = engine_flags(MANY, "vllm").lines
    config = json.loads(after(shlex.split(line), "--speculative-config"))
    schedule = config["num_speculative_tokens_per_batch_size"]
    assert schedule[0][0] == 1
    assert schedule[-1][1:] == [256, 0]
    assert all(a[1] + 1 == b[0] for a, b in pairwise(schedule))
    assert config["num_speculative_tokens"] == max(k for *_, k in schedule)


def test_sglang():
    words = shlex.split(engine_flags(ONE, "sglang").lines[0])
    assert int(after(words, "--speculative-num-steps")) == ONE.depth
    assert int(after(words, "--speculative-num-draft-tokens")) == ONE.depth + 1
    assert after(words, "--speculative-eagle-topk") == "1"
    *_, config = engine_flags(MANY, "sglang").lines
    slots = json.loads(config)
    assert {int(low): x["candidate_steps"] for low, x in slots.items()} == {
        low: [k] for low, _, k in MANY.lengths_by_batch
    }


def test_trtllm():
    assert engine_flags(ONE, "trtllm").lines == (
        "speculative_config:",
        f"  max_draft_len: {ONE.depth}",
    )
    *_, last = engine_flags(MANY, "trtllm").lines
    assert last == f"  max_concurrency: {MANY.lengths_by_batch[-1][0] - 1}"


def test_llamacpp():
    found = engine_flags(ONE, "llamacpp")
    words = shlex.split(found.lines[0])
    assert int(after(words, "--spec-draft-n-max")) == ONE.depth
    stop = next(x for x in ONE.policies if x.name == "by confidence").thresholds["p_min"]
    assert float(after(words, "--spec-draft-p-min")) == pytest.approx(stop, abs=0.005)
    assert any("no length by batch" in x for x in engine_flags(MANY, "llamacpp").remarks)
    stopped = mo.advise_from_counts(
        179, 297, depth=5, steps=149, target_ms=20.0, draft_ms=2.0, rows_ms={1: 20.0, 9: 22.0}
    )
    kept = engine_flags(stopped, "llamacpp")
    assert "p-min" not in kept.lines[0]
    assert any("Leave p-min" in x for x in kept.remarks)


@pytest.mark.parametrize("engine", ENGINES)
def test_drafts_that_do_not_pay_have_no_flags(engine):
    off = engine_flags(advised(target_ms=20.0, draft_ms=50.0), engine)
    assert off.lines == ()
    assert "start it without speculative decoding" in off.remarks[0]
    open_ = engine_flags(advised(target_ms=20.0, draft_ms=2.0), engine)
    assert "not settled" in open_.remarks[-1]


def test_another_engine_is_told():
    with pytest.raises(UnknownName, match="Did you mean 'vllm'"):
        engine_flags(ONE, "vlm")
