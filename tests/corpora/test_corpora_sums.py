"""Shards are held against the sums in their manifest, once in a run, by whoever reads them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.corpora import (
    RUN,
    finish,
    flip_a_byte,
    results,
    start,
    write_corpus,
    write_manifest,
)

from mdsd_opt import errors
from mdsd_opt.base.files import file_sha256
from mdsd_opt.base.files.arrays import read_safetensors
from mdsd_opt.corpora import RatesConfig, corpus_rates, open_corpus, score_shard
from mdsd_opt.corpora.reproduce import CapturedLogits, reproduce
from mdsd_opt.corpora.shards import load_manifest

CONFIG = RatesConfig(("with_replacement",), ("optimal",), (2,))
OPTIONS = ("--schemes", "with_replacement", "--verifiers", "optimal", "-k", "2", "--json")


@pytest.fixture
def corpus(tmp_path):
    return write_manifest(write_corpus(tmp_path / "corpus"))


@pytest.fixture
def hashed(monkeypatch):
    """Names of the shards whose bytes were summed up in this process, in order."""
    names = []

    def noted(path):
        names.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr("mdsd_opt.corpora.shards.file_sha256", noted)
    return names


def damaged(corpus, number=2, **options):
    shard = open_corpus(corpus).shards[number]
    return shard, *flip_a_byte(shard, **options)


def test_a_flipped_byte_is_an_error_with_both_sums(corpus):
    shard, expected, found = damaged(corpus)
    with pytest.raises(errors.UnreadableFile) as caught:
        corpus_rates(corpus, CONFIG)
    said = str(caught.value)
    for part in (str(shard), expected, found, "same capture", "verify=False (--no-verify)"):
        assert part in said
    assert "\n" not in said
    assert len(results(corpus / f"rates-{CONFIG.digest}")) == 2  # those before it are kept
    assert corpus_rates(corpus, CONFIG, verify=False).num_positions == 80


@pytest.mark.parametrize("options", [[], ["--workers", "2"], ["--executor", "torchrun"]])
def test_every_executor_ends_in_one_line(corpus, tmp_path, options):
    _, expected, found = damaged(corpus)
    out = tmp_path / "out"
    arguments = [*RUN, "rates", str(corpus), *OPTIONS, "--out", str(out), *options]
    process = start(arguments, RANK="0", WORLD_SIZE="1")
    output, message = process.communicate(timeout=240)
    assert (process.returncode, output) == (2, ""), message
    assert message.startswith("mdsd-opt: error: ")
    assert message.count("\n") == 1
    assert expected in message
    assert found in message
    assert "shard-00002.safetensors.rates.safetensors" not in results(out)
    assert not list(out.glob(".*.tmp"))  # nothing half-written
    finish([*arguments, "--no-verify"], RANK="0", WORLD_SIZE="1")


def test_rates_of_unverified_shards_do_not_pass_for_verified_ones(corpus):
    damaged(corpus, keep_time=True)
    summary = corpus_rates(corpus, CONFIG, verify=False)
    assert corpus_rates(corpus, CONFIG, verify=False).num_reused == 4
    with pytest.raises(errors.UnreadableFile, match="not as it was captured"):
        corpus_rates(corpus, CONFIG)
    assert corpus_rates(corpus, CONFIG, verify=False).rows == summary.rows


def test_a_result_notes_the_sum_it_was_computed_from(corpus, tmp_path):
    shard = open_corpus(corpus).shards[0]
    out = tmp_path / "out.safetensors"
    assert score_shard(shard, out, CONFIG, sha256=file_sha256(shard))
    assert read_safetensors(out)[1]["sha256"] == file_sha256(shard)
    assert not score_shard(shard, out, CONFIG, sha256=file_sha256(shard))
    assert not score_shard(shard, out, CONFIG)
    with pytest.raises(errors.UnreadableFile, match="0000"):
        score_shard(shard, out, CONFIG, sha256="0" * 64)


def test_a_shard_is_summed_up_once_in_a_run(corpus, hashed):
    corpus_rates(corpus, CONFIG)
    names = [shard.name for shard in open_corpus(corpus).shards]
    assert hashed == names
    corpus_rates(corpus, CONFIG)  # reads results, no shard
    assert hashed == names
    corpus_rates(corpus, replace(CONFIG, num_drafts=(3,)))  # another run
    assert hashed == 2 * names
    corpus_rates(corpus, replace(CONFIG, num_drafts=(4,)), verify=False)
    assert hashed == 2 * names


@pytest.mark.parametrize("workers", [None, 2])
def test_an_experiment_sums_up_once_though_it_scores_and_reads_again(corpus, hashed, workers):
    logits = CapturedLogits(corpus, workers=workers)
    small = {"temperatures": (0.6, 1.0)}
    reproduce("spechub", logits, **small)
    assert sorted(set(hashed)) == ([] if workers else [s.name for s in open_corpus(corpus).shards])
    assert len(hashed) == len(set(hashed))
    flip_a_byte(open_corpus(corpus).shards[1])  # in the middle of the run: seen all the same
    with pytest.raises(errors.UnreadableFile, match="shard-00001"):
        logits.score(CONFIG)


def test_experiments_read_no_logits_unverified(corpus, run_cli):
    damaged(corpus, 0)
    with pytest.raises(errors.UnreadableFile, match=r"shard-00000.*not as it was captured"):
        CapturedLogits(corpus).models()
    with pytest.raises(errors.UnreadableFile, match=r"shard-00000.*not as it was captured"):
        reproduce("spechub", CapturedLogits(corpus), temperatures=(1.0,))
    assert CapturedLogits(corpus, verify=False).models()
    assert "not as it was captured" in run_cli.refusal("reproduce", "spechub", corpus)


def test_shards_without_a_sum_are_read_and_counted(corpus, run_cli):
    path = corpus / "manifest.json"
    document = json.loads(path.read_text())
    del document["shards"][1]["sha256"]
    document["shards"][2]["sha256"] = ""
    path.write_text(json.dumps(document))
    assert len(open_corpus(corpus).sums) == 2
    done = run_cli("rates", str(corpus), *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert "2 of 4 shards have no sum in the manifest to verify" in done.stderr
    quiet = run_cli("rates", str(corpus), *OPTIONS, "--no-verify")
    assert "no sum" not in quiet.stderr
    damaged(corpus, 0)
    assert run_cli("rates", str(corpus), *OPTIONS).returncode == 2


def test_a_missing_shard_says_what_to_do(corpus):
    open_corpus(corpus).shards[3].unlink()
    assert load_manifest(corpus) is not None
    with pytest.raises(errors.UnreadableFile, match=r"shard-00003.*run the same capture again"):
        corpus_rates(corpus, CONFIG)
