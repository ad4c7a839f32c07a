"""Ranks that torchrun itself starts, on this machine."""

from __future__ import annotations

import sys

from support.corpora import RUN, finish, start, write_corpus

OPTIONS = ("--schemes", "top_k", "--verifiers", "optimal", "-k", "1", "--json")


def torchrun(folder, out):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    rates = [*RUN, "rates", str(folder), "--out", str(out), *OPTIONS, "--executor", "torchrun"]
    return [*launch, "--no-python", *rates]


def test_ranks_of_torchrun_give_the_numbers_of_one_process(tmp_path):
    folder = write_corpus(tmp_path / "corpus")
    expected = finish([*RUN, "rates", str(folder), "--out", str(tmp_path / "one"), *OPTIONS])
    assert finish(torchrun(folder, tmp_path / "two")) == expected
    assert not list((tmp_path / "two").glob(".*"))


def test_a_rank_that_fails_ends_them_all_and_a_rerun_goes_on(tmp_path):
    folder, out = write_corpus(tmp_path / "corpus"), tmp_path / "out"
    bad = folder / "shard-00003.safetensors"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-100])
    process = start(torchrun(folder, out))
    output, message = process.communicate(timeout=240)
    assert process.returncode != 0
    assert output == ""
    assert "mdsd-opt: error: array 'sequence' of" in message
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("*.rates.safetensors")}
    assert "shard-00001.safetensors.rates.safetensors" in kept
    bad.write_bytes(whole)
    finish(torchrun(folder, out))
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("*.rates.safetensors")}
    assert len(after) == 4
    assert {name: after[name] for name in kept} == kept
