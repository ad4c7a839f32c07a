"""Corpora: idempotent shards, the same numbers from every executor, and runs that are killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from scipy import special
from support.corpora import (
    command,
    descendants,
    finish,
    is_alive,
    kill_one,
    results,
    slow_corpus,
    start,
    wait_for_results,
    write_corpus,
)
from support.until import until

import mdsd_opt as mo
from mdsd_opt import errors
from mdsd_opt.base.files.arrays import read_safetensors, write_safetensors
from mdsd_opt.base.files.logits import LogitsSample, load_logits
from mdsd_opt.corpora import (
    RatesConfig,
    corpus_rates,
    executors,
    open_corpus,
    rate_rows,
    score_shard,
)
from mdsd_opt.corpora.reproduce import CapturedLogits
from mdsd_opt.corpora.shards import Manifest, ShardEntry
from mdsd_opt.corpora.sums import NUM_BINS, RunningSummary
from mdsd_opt.evidence import mean_interval, students_quantile

CONFIG = RatesConfig(
    verifiers=("optimal", "rrs", "kseq", "spechub"), num_drafts=(1, 2, 3), temperature=0.8
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


def as_one_sample(folder):
    shards = [load_logits(path) for path in open_corpus(folder).shards]
    return LogitsSample(
        np.concatenate([shard.target for shard in shards]),
        np.concatenate([shard.draft for shard in shards]),
        sequence=np.concatenate([shard.sequence for shard in shards]),
    )


def test_shards_of_other_models_are_no_corpus(corpus):
    write_corpus(corpus / "other", num_shards=1, vocab_size=61)
    (other,) = open_corpus(corpus / "other").shards
    other.rename(corpus / f"z{other.suffix}")
    told = r"z\.\w+ has 61 tokens, and the shards before it have 60"
    config = RatesConfig(("greedy",), ("optimal",), (1,))
    with pytest.raises(errors.InvalidInput, match=told):
        corpus_rates(corpus, config)
    with pytest.raises(errors.InvalidInput, match=told):
        CapturedLogits(corpus).score(config)
    with pytest.raises(errors.InvalidInput, match=told):
        mo.advise(corpus, schemes=("greedy",), max_drafts=1)


# --- numbers ------------------------------------------------------------------------------------


def test_a_corpus_gives_the_rows_of_one_large_array(corpus):
    summary = corpus_rates(corpus, CONFIG)
    rows = rate_rows(
        as_one_sample(corpus), CONFIG.schemes, CONFIG.num_drafts, CONFIG.verifiers, temperature=0.8
    )
    assert summary.num_positions == 80
    assert summary.interval_over == "sequences"
    for ours, theirs in zip(summary.rows, rows, strict=True):
        assert (ours.scheme, ours.verifier, ours.num_drafts) == (
            theirs.scheme,
            theirs.verifier,
            theirs.num_drafts,
        )
        assert ours.acceptance.num_groups == theirs.acceptance.num_groups == 16
        assert ours.acceptance.mean == pytest.approx(theirs.acceptance.mean, abs=1e-14)
        assert ours.acceptance.low == pytest.approx(theirs.acceptance.low, abs=1e-13)
        assert ours.gap_closed == pytest.approx(theirs.gap_closed, abs=1e-9)


def test_chunks_do_not_change_a_rate(corpus, tmp_path, monkeypatch):
    shard = open_corpus(corpus).shards[0]
    score_shard(shard, tmp_path / "whole.safetensors", CONFIG)
    monkeypatch.setattr("mdsd_opt.base.files.logits.CHUNK_BYTES", 3 * 2 * 60 * 2)
    seen = []
    score_shard(shard, tmp_path / "chunks.safetensors", CONFIG, progress=seen.append)
    assert seen == [3] * 6 + [2]
    whole, _ = read_safetensors(tmp_path / "whole.safetensors")
    chunks, _ = read_safetensors(tmp_path / "chunks.safetensors")
    np.testing.assert_array_equal(whole["rates"], chunks["rates"])


def test_running_summary_is_that_of_all_values_at_once():
    rng = np.random.default_rng(3)
    values = rng.beta(2, 1, (1000, 3))
    values[:, 2] = 1.0
    groups = np.sort(rng.integers(0, 40, 1000)) * 7919 - 100_000
    summary = RunningSummary(3)
    for part in np.split(np.arange(1000), [1, 300, 302, 900]):
        summary.add(values[part], groups[part])
    levels = (0.0, 0.05, 0.5, 0.95, 1.0)
    for column, interval in enumerate(summary.intervals(0.9)):
        expected = mean_interval(values[:, column], groups, 0.9)
        assert interval.num_groups == expected.num_groups == 40
        assert interval.mean == pytest.approx(expected.mean, abs=1e-14)
        assert interval.low == pytest.approx(expected.low, abs=1e-13)
        exact = np.quantile(values[:, column], levels, method="inverted_cdf")
        np.testing.assert_allclose(summary.quantiles(levels)[column], exact, atol=1 / NUM_BINS)


def test_rows_without_prompts_count_for_themselves():
    values = np.random.default_rng(4).random((50, 1))
    summary = RunningSummary(1)
    summary.add(values[:20])
    summary.add(values[20:])
    expected = mean_interval(values[:, 0])
    assert summary.intervals()[0].num_groups == 50
    assert summary.intervals()[0].low == pytest.approx(expected.low, abs=1e-14)


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.9, 0.95, 0.999])
def test_students_quantile_is_scipys(confidence: float) -> None:
    for degrees in [*range(1, 41), 99, 150, 199, 200, 201, 1000]:
        expected = special.stdtrit(degrees, 0.5 + confidence / 2)
        assert students_quantile(degrees, confidence) == pytest.approx(expected, rel=1e-12)
    assert students_quantile(3, 1.0) == np.inf


def test_intervals_stay_valid_when_prompts_are_pooled():
    """Of 400 90 % intervals from 16 pools, fewer than 340 or more than 380 would miss.

    Under the nominal level the count is binomial with standard deviation 6: 3.3 of them.
    """
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        prompts = rng.random((200, 1))
        values = np.repeat(prompts, 3, axis=0)
        summary = RunningSummary(1, max_groups=16)
        summary.add(values, np.repeat(np.arange(200), 3))
        interval = summary.intervals(0.9)[0]
        assert interval.num_groups == 16
        covered += interval.low <= 0.5 <= interval.high
    assert 340 <= covered <= 380


def write_zeros(path, rows, vocab_size):
    """A sparse shard of zeros, uniform laws, that takes no room on the disk."""
    size = rows * vocab_size * 2
    shape = [rows, vocab_size]
    header = {
        "target": {"dtype": "F16", "shape": shape, "data_offsets": [0, size]},
        "draft": {"dtype": "F16", "shape": shape, "data_offsets": [size, 2 * size]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + 2 * size)


def test_memory_is_bounded_by_a_chunk(tmp_path):
    """1.2 GB of logits take less than 300 MB more than 2 MB of them."""
    rows, vocab_size = 3000, 100_000
    write_zeros(tmp_path / "small.safetensors", 5, vocab_size)
    write_zeros(tmp_path / "large.safetensors", rows, vocab_size)
    code = (
        "import resource, sys; from mdsd_opt.corpora import *\n"
        "for name in ('small', 'large'):\n"
        "    path = sys.argv[1] + '/' + name + '.safetensors'\n"
        "    score_shard(path, path + '.out', RatesConfig(('top_k',), ('optimal',), (1,)), 1)\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert after - before < 300
    rates, _ = read_safetensors(tmp_path / "large.safetensors.out")
    np.testing.assert_allclose(rates["rates"], np.full((rows, 1), 1 / vocab_size))


# --- shards are scored once ---------------------------------------------------------------------


def test_a_shard_is_scored_once(corpus, tmp_path):
    shard, out = open_corpus(corpus).shards[0], tmp_path / "out.safetensors"
    assert score_shard(shard, out, CONFIG)
    before = out.stat()
    assert not score_shard(shard, out, CONFIG)
    assert out.stat().st_mtime_ns == before.st_mtime_ns
    other = RatesConfig(num_drafts=(2,))
    assert score_shard(shard, out, other)
    arrays, metadata = read_safetensors(out)
    assert arrays["rates"].shape == (20, len(other.columns))
    assert metadata["config"] == other.digest


def test_a_shard_that_changed_is_scored_again(corpus, tmp_path):
    shard, out = open_corpus(corpus).shards[0], tmp_path / "out.safetensors"
    score_shard(shard, out, CONFIG)
    arrays, _ = read_safetensors(shard)
    write_safetensors(shard, {"target": np.array(arrays["draft"]), "draft": arrays["target"]})
    assert score_shard(shard, out, CONFIG)
    rates, _ = read_safetensors(out)
    assert "sequence" not in rates


@pytest.mark.parametrize("damage", ["truncate", "garbage", "empty"])
def test_a_broken_result_is_made_again(corpus, tmp_path, damage):
    shard, out = open_corpus(corpus).shards[0], tmp_path / "out.safetensors"
    score_shard(shard, out, CONFIG)
    good = out.read_bytes()
    out.write_bytes({"truncate": good[:-8], "garbage": b"x" * 100, "empty": b""}[damage])
    assert score_shard(shard, out, CONFIG)
    assert out.read_bytes() == good


def test_a_second_run_scores_only_what_is_new(corpus):
    assert corpus_rates(corpus, CONFIG).num_reused == 0
    first = corpus_rates(corpus, CONFIG)
    assert first.num_reused == 4
    write_corpus(corpus.parent / "more", num_shards=1, seed=9)
    (corpus.parent / "more" / "shard-00000.safetensors").rename(corpus / "zzz.safetensors")
    second = corpus_rates(corpus, CONFIG)
    assert (second.num_reused, second.num_positions) == (4, 100)


def test_configs_differ_by_everything_that_changes_a_number():
    digests = {
        RatesConfig(**change).digest
        for change in (
            {},
            {"temperature": 0.5},
            {"draft_temperature": 0.5},
            {"top_k": 3},
            {"top_p": 0.5},
            {"min_p": 0.5},
            {"pad": True},
            {"seed": 1},
            {"num_drafts": (1, 2)},
            {"verifiers": ("rrs",)},
            {"schemes": ("greedy",)},
        )
    }
    assert len(digests) == 11


# --- executors, and what is killed under way ------------------------------------------------------


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A slow corpus, and what a run that nobody disturbs says of it."""
    folder = slow_corpus(tmp_path_factory.mktemp("slow") / "corpus")
    return folder, finish(command(folder, folder.parent / "undisturbed"))


def assert_kept(before, out):
    after = results(out)
    assert {name: after[name] for name in before} == before, "a finished shard was scored twice"
    assert len(after) == 12


def test_processes_give_the_same_numbers(slow, tmp_path):
    folder, expected = slow
    assert finish(command(folder, tmp_path, "--workers", "2")) == expected


@linux
def test_a_killed_worker_costs_its_shard_only(slow, tmp_path):
    folder, expected = slow
    process = start(command(folder, tmp_path, "--workers", "2"))
    wait_for_results(process, tmp_path, 2)
    kill_one(process.pid, b"LokyProcess")
    output, message = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, "")
    assert "a worker process died" in message
    assert "Traceback" not in message
    before = results(tmp_path)
    assert 2 <= len(before) < 12
    assert finish(command(folder, tmp_path, "--workers", "2")) == expected
    assert_kept(before, tmp_path)


@linux
def test_a_killed_run_goes_on_where_it_was(slow, tmp_path):
    folder, expected = slow
    process = start(command(folder, tmp_path, "--workers", "2"))
    wait_for_results(process, tmp_path, 2)
    workers = descendants(process.pid)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not any(map(is_alive, workers)))  # none outlives the run that started it
    before = results(tmp_path)
    assert len(before) < 12
    assert finish(command(folder, tmp_path)) == expected
    assert_kept(before, tmp_path)


@linux
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_keeps_what_is_done(slow, tmp_path, workers):
    folder, expected = slow
    process = start(command(folder, tmp_path, "--workers", workers))
    wait_for_results(process, tmp_path)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert message.strip().splitlines()[-1] == "mdsd-opt: interrupted"
    assert "Traceback" not in message
    assert not list(tmp_path.glob(".*.tmp"))
    before = results(tmp_path)
    assert finish(command(folder, tmp_path)) == expected
    assert_kept(before, tmp_path)


def test_ranks_of_torchrun_share_the_shards(slow, tmp_path):
    folder, expected = slow
    arguments = command(folder, tmp_path, "--executor", "torchrun")
    ranks = [start(arguments, RANK=str(rank), WORLD_SIZE="3") for rank in range(3)]
    output = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], output
    assert [text for text, _ in output] == [expected, "", ""]


@linux
def test_a_killed_rank_leaves_its_shards_to_the_next_run(slow, tmp_path):
    folder, expected = slow
    arguments = command(folder, tmp_path, "--executor", "torchrun")
    ranks = [start(arguments, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    wait_for_results(ranks[0], tmp_path)
    ranks[1].kill()
    wait_for_results(ranks[0], tmp_path, 6)
    assert ranks[0].poll() is None  # waits for the other, until torchrun ends it
    ranks[0].terminate()
    for rank in ranks:
        rank.communicate(timeout=60)
    before = results(tmp_path)
    assert len(before) < 12
    assert finish(arguments, RANK="0", WORLD_SIZE="1") == expected
    assert_kept(before, tmp_path)


def torchrun(folder, out, *options):
    return command(folder, out, "--executor", "torchrun", *options)


def test_a_rank_that_ends_with_an_error_leaves_its_shards(tmp_path):
    """The other one finishes its own shards, and says what is missing."""
    folder, out = write_corpus(tmp_path / "corpus", num_shards=6), tmp_path / "out"
    bad = folder / "shard-00001.safetensors"
    bad.write_bytes(bad.read_bytes()[:-100])
    arguments = torchrun(folder, out, "--rank-timeout", "10")
    first = start(arguments, RANK="0", WORLD_SIZE="2")
    second = start(arguments, RANK="1", WORLD_SIZE="2")
    output, message = first.communicate(timeout=240)
    assert (first.returncode, output) == (2, "")
    assert message.startswith("mdsd-opt: error: ")
    assert message.count("\n") == 1
    for part in ("shards of ranks 1 are missing", "3 of 6 shards", "same command"):
        assert part in message
    _, message = second.communicate(timeout=240)
    assert second.returncode == 2
    assert "shard-00001" in message
    assert "truncated" in message
    assert len(results(out)) == 3


class Looks:
    """In place of `time` where a rank waits: a second passes with each look at the others."""

    def __init__(self, meanwhile):
        self.now, self.meanwhile = 0.0, meanwhile

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += 1.0
        self.meanwhile(self.now)


@pytest.mark.parametrize("comes_at", [(), (8,), (8, 16)])
def test_ranks_are_waited_for_while_results_come(corpus, tmp_path, monkeypatch, comes_at):
    """Ten seconds after each; the second of two comes long after the first of them began."""
    expected, out = corpus_rates(corpus, CONFIG, out=tmp_path / "undisturbed"), tmp_path / "out"
    theirs = open_corpus(corpus).shards[1::2]

    def meanwhile(now):
        for shard, at in zip(theirs, comes_at, strict=False):
            if now == at:
                score_shard(shard, out / f"{shard.name}.rates.safetensors", CONFIG)

    monkeypatch.setattr(executors, "time", Looks(meanwhile))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = partial(corpus_rates, corpus, CONFIG, "torchrun", out=out, rank_timeout=10.0)
    if len(comes_at) == len(theirs):
        assert run().rows == expected.rows
        return
    done = 2 + len(comes_at)
    with pytest.raises(errors.WorkerDied, match=f"of ranks 1 are missing.* {done} of 4 shards"):
        run()
    before = results(out)
    assert len(before) == done
    assert not list(out.glob(".*.tmp"))
    assert corpus_rates(corpus, CONFIG, out=out).rows == expected.rows
    assert {name: results(out)[name] for name in before} == before


def test_torchrun_needs_its_environment(corpus, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(errors.InvalidInput, match="torchrun --nproc-per-node"):
        corpus_rates(corpus, CONFIG, "torchrun")
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(errors.InvalidInput, match="ranks count from 0"):
        corpus_rates(corpus, CONFIG, "torchrun")


@pytest.mark.parametrize("executor", ["dask", "ray"])
def test_a_cluster_that_is_not_installed_names_the_extra(corpus, monkeypatch, executor):
    monkeypatch.setitem(sys.modules, {"dask": "distributed"}.get(executor, executor), None)
    library = "distributed" if executor == "dask" else executor
    with pytest.raises(errors.MissingExtra, match=f"pip install .*{library}"):
        corpus_rates(corpus, CONFIG, executor)


# --- bad input ----------------------------------------------------------------------------------


def with_arrays(corpus, number, **changed):
    """Other arrays in a shard; one that is None goes."""
    shard = open_corpus(corpus).shards[number]
    arrays = {name: np.array(x) for name, x in read_safetensors(shard)[0].items()} | changed
    write_safetensors(shard, {name: x for name, x in arrays.items() if x is not None})


def truncated(corpus, number):
    shard = open_corpus(corpus).shards[number]
    shard.write_bytes(shard.read_bytes()[:-100])


def listed(corpus, count, *names):
    """A manifest of so many shards."""
    entries = (ShardEntry(name, 20, 4 * i, 4, "") for i, name in enumerate(names))
    Manifest({}, count, tuple(entries)).save(corpus)


NAMES = [f"shard-{i:05d}.safetensors" for i in range(5)]
NAN = np.where(np.arange(20 * 60).reshape(20, 60) == 7 * 60 + 3, np.nan, 0.0)
UNFINISHED = '{"format": "mdsd-opt corpus 1", "settings": {}, "num_shards": 1}'

#: What is done to a corpus of four shards, what is said then, and how many rates are kept.
BAD = {
    "a bad row": (lambda c: with_arrays(c, 2, target=NAN), r"shard-00002.*row 7 has a NaN", 2),
    "no prompts": (lambda c: with_arrays(c, 3, sequence=None), "does not name", 4),
    "a cut shard": (lambda c: truncated(c, 1), r"shard-00001.*truncated", 1),
    "a shard less": (lambda c: listed(c, 5, *NAMES), r"lacks 1 of the 5 .*shard-00004", 0),
    "another folder": (lambda c: listed(c, 1, "../x.safetensors"), "not a file name", 0),
    "no folder": (shutil.rmtree, "does not exist", 0),
    "no shard": (lambda c: [x.unlink() for x in c.iterdir()], "holds no shard", 0),
    **{
        f"manifest {text:.12}": (
            lambda c, text=text: (c / "manifest.json").write_text(text), "manifest", 0
        )
        for text in ("{}", "[", UNFINISHED)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_corpus_that_is_wrong_is_told_and_what_is_done_is_kept(corpus, name):
    change, said, kept = BAD[name]
    change(corpus)
    with pytest.raises(errors.MdsdError, match=said):
        corpus_rates(corpus, CONFIG)
    assert len(results(corpus / f"rates-{CONFIG.digest}")) == kept


def test_a_full_disk_is_one_line(corpus, tmp_path):
    """A limit on the size of files stands in for it, set once everything is compiled."""
    code = (
        "import resource, sys; from mdsd_opt.cli import main; from mdsd_opt.corpora import *;"
        "config = RatesConfig(('top_k',), num_drafts=(1,));"
        "score_shard(open_corpus(sys.argv[2]).shards[0], sys.argv.pop(), config);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); main()"
    )
    rates = ["rates", str(corpus), "-k", "1-8", "--schemes", "top_k", "--verifiers", "optimal"]
    done = subprocess.run(
        [sys.executable, "-c", code, *rates, str(tmp_path / "warm.safetensors")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("mdsd-opt: error: cannot write")
    assert done.stderr.count("\n") == 1
    assert "Make room" in done.stderr
    assert sum(path.is_file() for path in corpus.rglob("*")) == 4


def test_written_safetensors_are_read_by_others(tmp_path):
    from safetensors.numpy import load_file

    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "none": np.empty((0, 4), np.float16),
        "b": np.arange(5, dtype=np.int64)[::-1],
    }
    path = tmp_path / "x.safetensors"
    write_safetensors(path, arrays, {"note": "ä"})
    found = load_file(path)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert read_safetensors(path)[1] == {"note": "ä"}


def test_an_executor_is_a_name(corpus):
    with ThreadPoolExecutor(1) as pool, pytest.raises(errors.InvalidInput, match="workers=2"):
        corpus_rates(corpus, CONFIG, pool)
    with pytest.raises(errors.UnknownName, match="torchrun"):
        corpus_rates(corpus, CONFIG, "spark")


@pytest.mark.parametrize("fails", [False, True])
def test_a_pool_of_the_caller_stays_open(corpus, tmp_path, fails):
    """A run ends its own processes, whether it is finished or not, and no other's."""
    pool = get_reusable_executor(2)
    if fails:
        open_corpus(corpus).shards[-1].write_bytes(b"no logits")
    with pytest.raises(errors.MdsdError) if fails else nullcontext():
        corpus_rates(corpus, CONFIG, out=tmp_path / "out", workers=2)
    assert get_reusable_executor(2) is pool
    assert pool.submit(len, "ab").result() == 2
    pool.shutdown()


def test_workers_know_the_verifiers_that_their_caller_registered(corpus, tmp_path):
    code = """
import sys
import mdsd_opt as mo
from mdsd_opt.corpora import RatesConfig, corpus_rates
from mdsd_opt.verifiers.single_draft import SingleDraft
class Mine(SingleDraft):
    name = "of_this_script"
mo.verifiers.register(Mine())
config = RatesConfig(("with_replacement",), ("of_this_script",), (1,))
for workers in (1, 2):
    found = corpus_rates(sys.argv[1], config, out=f"{sys.argv[2]}/{workers}", workers=workers)
    print(found.rows[0].acceptance.mean)
"""
    arguments = [sys.executable, "-c", code, str(corpus), str(tmp_path)]
    one, two = finish(arguments).split()
    assert one == two
