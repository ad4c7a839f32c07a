"""Small corpora, and runs of the command line that are killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from support.until import until

from mdsd_opt.base.files import file_sha256
from mdsd_opt.base.files.arrays import read_safetensors, write_safetensors
from mdsd_opt.corpora.shards import Manifest, ShardEntry

RUN = [sys.executable, "-c", "from mdsd_opt.cli import main; main()"]

#: About a millisecond for a position of 2,000 tokens, so that there is time to kill somebody.
SLOW = ("--schemes", "without_replacement", "--verifiers", "rrs", "-k", "4", "--json")


def write_corpus(folder, num_shards=4, rows=20, vocab_size=60, prompt_length=5, seed=0):
    """Shards of random logits; a prompt may begin in one shard and end in the next."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(num_shards):
        target = 2 * rng.standard_normal((rows, vocab_size))
        draft = target + rng.standard_normal((rows, vocab_size))
        write_safetensors(
            folder / f"shard-{i:05d}.safetensors",
            {
                "target": target.astype(ml_dtypes.bfloat16),
                "draft": draft.astype(ml_dtypes.bfloat16),
                "sequence": (i * rows + np.arange(rows)) // prompt_length,
            },
        )
    return folder


def slow_corpus(folder):
    """A twelfth of a second a shard."""
    return write_corpus(folder, num_shards=12, rows=80, vocab_size=2000)


def command(folder, out, *options):
    """Arguments of a run over a slow corpus."""
    return [*RUN, "rates", str(folder), "--out", str(out), *SLOW, *options]


def start(arguments, **environment):
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def finish(arguments, **environment):
    """Standard output of a run that must succeed."""
    process = start(arguments, **environment)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output


def wait_for_results(process, out, count=1):
    """Names and times of the results that are there once `count` of them are, mid-run."""

    def look():
        assert process.poll() is None, f"ended too early: {process.communicate()}"
        done = results(out)
        return len(done) >= count and done

    return until(look)


def results(out):
    return {path.name: path.stat().st_mtime_ns for path in Path(out).glob("*.rates.safetensors")}


def descendants(pid):
    """Process ids and command lines of the children of a process and of theirs."""
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            found |= descendants(child)
    return found


def kill_one(pid, marker):
    """SIGKILL a descendant whose command line holds `marker`, once there is one; return its id."""
    found = until(lambda: [child for child, line in descendants(pid).items() if marker in line])
    os.kill(found[0], signal.SIGKILL)
    return found[0]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def write_manifest(folder):
    """A manifest with the sums of the shards in a folder, as a capture leaves it."""
    entries = tuple(
        ShardEntry(path.name, len(read_safetensors(path)[0]["target"]), i, 1, file_sha256(path))
        for i, path in enumerate(sorted(folder.glob("*.safetensors")))
    )
    Manifest({}, len(entries), entries).save(folder)
    return folder


def flip_a_byte(path, keep_time=False):
    """Change one byte in the middle of a file; return its sums before and after."""
    before = file_sha256(path)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    if keep_time:
        os.utime(path, ns=times)
    return before, file_sha256(path)
