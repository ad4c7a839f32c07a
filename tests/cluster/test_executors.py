"""Dask and Ray on two local workers: the numbers of one process, also when a worker is killed."""

from __future__ import annotations

import subprocess
import time

import pytest
from support.corpora import (
    RUN,
    SLOW,
    command,
    finish,
    flip_a_byte,
    kill_one,
    results,
    slow_corpus,
    start,
    wait_for_results,
    write_corpus,
    write_manifest,
)

#: What the command line of a worker process holds.
WORKERS = {"dask": b"spawn_main", "ray": b"ray::PoolActor"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A slow corpus, and what one process says of it."""
    folder = slow_corpus(tmp_path_factory.mktemp("slow") / "corpus")
    return folder, finish(command(folder, folder.parent / "undisturbed"))


@pytest.mark.parametrize("executor", WORKERS)
def test_two_workers_give_the_same_numbers(slow, tmp_path, executor):
    folder, expected = slow
    assert finish(command(folder, tmp_path, "--executor", executor, "--workers", "2")) == expected


@pytest.mark.parametrize("executor", WORKERS)
def test_a_killed_worker_is_made_good_or_said(slow, tmp_path, executor):
    """Dask scores its shard again; of Ray one line says it, and the next run does."""
    folder, expected = slow
    arguments = command(folder, tmp_path, "--executor", executor, "--workers", "2")
    process = start(arguments)
    before = wait_for_results(process, tmp_path, 2)
    kill_one(process.pid, WORKERS[executor])
    output, message = process.communicate(timeout=240)
    if executor == "ray":
        assert (process.returncode, output) == (2, ""), message
        assert "a worker process died" in message
        assert "Traceback" not in message
        output = finish(arguments)
    else:
        assert process.returncode == 0, message
    assert output == expected
    after = results(tmp_path)
    assert len(after) == 12
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("executor", WORKERS)
def test_a_killed_run_goes_on_where_it_was(slow, tmp_path, executor):
    folder, expected = slow
    process = start(command(folder, tmp_path, "--executor", executor, "--workers", "2"))
    wait_for_results(process, tmp_path, 2)
    process.kill()
    process.wait(60)
    process.stdout.close()
    process.stderr.close()
    time.sleep(1)  # what a worker has begun it may still finish
    before = results(tmp_path)
    assert len(before) < 12
    assert finish(command(folder, tmp_path, "--executor", executor, "--workers", "2")) == expected
    after = results(tmp_path)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("executor", WORKERS)
def test_a_broken_shard_is_one_line(tmp_path, executor):
    corpus = write_corpus(tmp_path / "corpus")
    shard = corpus / "shard-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    process = start([*RUN, "rates", str(corpus), *SLOW, "--executor", executor, "--workers", "2"])
    _, message = process.communicate(timeout=240)
    assert process.returncode == 2, message
    assert message.splitlines()[-1].startswith("mdsd-opt: error:")
    assert "shard-00001" in message
    assert "Traceback" not in message


@pytest.mark.parametrize("executor", WORKERS)
def test_a_flipped_byte_is_one_line(tmp_path, executor):
    corpus = write_manifest(write_corpus(tmp_path / "corpus"))
    expected, found = flip_a_byte(corpus / "shard-00001.safetensors")
    process = start([*RUN, "rates", str(corpus), *SLOW, "--executor", executor, "--workers", "2"])
    output, message = process.communicate(timeout=240)
    assert (process.returncode, output) == (2, ""), message
    assert message.splitlines()[-1].startswith("mdsd-opt: error:")
    assert expected in message
    assert found in message
    assert "Traceback" not in message


def test_a_dask_cluster_that_runs_already(slow, tmp_path):
    from distributed import LocalCluster

    folder, expected = slow
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        arguments = command(folder, tmp_path, "--executor", "dask", "--address", address)
        assert finish(arguments) == expected


@pytest.mark.parametrize(
    ("executor", "address"), [("dask", "tcp://127.0.0.1:9"), ("ray", "127.0.0.1:9")]
)
def test_nobody_at_the_address(tmp_path, executor, address):
    corpus = write_corpus(tmp_path / "corpus", num_shards=1)
    done = subprocess.run(
        [*RUN, "rates", str(corpus), "--executor", executor, "--address", address],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2, done.stderr
    assert f"answers at {address}" in done.stderr
    assert "Traceback" not in done.stderr
