"""What every verb shows on a terminal of 80 columns: nothing cut, and what to conclude."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pty = pytest.importorskip("pty")

WIDTH = 80

VERBS = {
    "rates LOGITS --verifiers all -k 1-3": "at K = 3: ",
    "rates LOGITS --schemes all -k 2": "at K = 2: ",
    "solve PROBLEM": "the optimum is 0.790000000, proven by the certificate of",
    "audit --verifier rrs --trials 2000": "verdict: the stated law is lossless",
    "check": "each is settled at one size:",
    "check vertex_counts --vocab-size 3": "claimed vertices",
    "plan LOGITS --nodes 6": "planned6 is forecast to accept",
    "relax LOGITS -k 1,2": "at K = 2: lossless",
    "reproduce": "[SpecHub] two drafts",
    "reproduce spechub LOGITS": "of 2 published statements:",
    "bench decisions --quick": "decisions: at V = ",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(4)
    target = 2 * rng.standard_normal((5, 30))
    draft = target + rng.standard_normal((5, 30))
    np.savez(folder / "logits.npz", target=target, draft=draft)
    (folder / "problem.json").write_text(
        '{"target": ["2/5", "3/10", "1/5", "1/10"], "drafts": {"scheme": "with_replacement", '
        '"q": ["1/10", "1/5", "3/10", "2/5"], "num_drafts": 2}}'
    )
    return {"LOGITS": str(folder / "logits.npz"), "PROBLEM": str(folder / "problem.json")}


def on_a_terminal(*arguments: str) -> str:
    """What the command line prints to a terminal."""
    import fcntl
    import struct
    import termios

    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "mdsd_opt", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=known | {"TERM": "xterm", "NO_COLOR": "1"},
        cwd=Path(__file__).parents[1],
    ) as process:
        os.close(terminal)
        parts = []
        while True:
            try:
                part = os.read(reader, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            parts.append(part)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    os.close(reader)
    assert process.returncode == 0, said
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_cut_and_the_end_concludes(verb: str, files: dict[str, str]) -> None:
    text = on_a_terminal(*(files.get(word, word) for word in verb.split()))
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # bold and italic
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= WIDTH
    assert VERBS[verb] in " ".join(text.split()[-60:])
