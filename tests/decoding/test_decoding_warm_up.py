"""What is timed has been loaded and compiled before: in processes of their own, which know nothing.

Compiled code that lies on disk is loaded, which counts just as well: it takes time too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


def in_a_process(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r})\n{code}"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


DECODING = """
import numpy as np
from mdsd_opt.decoding import generate
from mdsd_opt.decoding.comparison import warm_up
from support.kernels import compiled_forms
how = {"rule": RULE, "scheme": SCHEME, "tree": "3x2"}
warm_up(vocab_size=5000, **how)
known = compiled_forms()
assert known, "the test sees no kernel"
for spread in (0.3, 1.0, 3.0):
    rng = np.random.default_rng(1)
    draft = 3.0 * rng.standard_normal((11, 5000)).astype("f4")
    target = draft + spread * rng.standard_normal(draft.shape)
    generate(
        lambda ids: target[sum(ids) % 11], lambda ids: draft[sum(ids) % 11], [1],
        max_new_tokens=60, rng=2, **how,
    )
    assert compiled_forms() == known, compiled_forms() - known
"""


@pytest.mark.parametrize(
    ("rule", "scheme"),
    [
        ("optimal", "with_replacement"),
        ("optimal", "without_replacement"),
        ("optimal", "greedy"),
        ("level_sequential", "without_replacement"),
    ],
)
def test_after_a_warm_up_no_rule_loads_a_kernel(rule, scheme):
    code = DECODING.replace("RULE", repr(rule)).replace("SCHEME", repr(scheme))
    assert in_a_process(code) == ""
