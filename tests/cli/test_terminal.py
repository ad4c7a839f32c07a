"""What every verb shows on a terminal of 80 columns: nothing cut, and what to conclude."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.terminal import WIDTH, on_a_terminal

VERBS = {
    "rates LOGITS --verifiers all -k 1-3": "take K = 3 (with",
    "rates LOGITS --schemes all -k 2": "K = 2 (without",
    "solve PROBLEM": "the optimum is 0.790000000, proven by the certificate of",
    "audit --verifier rrs --trials 500 --detect 1": "PASS: no deviation on 11 kinds of laws",
    "check": "each is settled at one size:",
    "check vertex_counts --vocab-size 3": "claimed vertices",
    "advise LOGITS --rows-ms 1:20,32:24 --max-drafts 6": "intervals over 5 positions",
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


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_cut_and_the_end_concludes(verb: str, files: dict[str, str]) -> None:
    code, text, said = on_a_terminal(*(files.get(word, word) for word in verb.split()))
    assert code == 0, said
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # bold and italic
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= WIDTH
    assert VERBS[verb] in " ".join(text.split()[-60:])
