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


SOLVING = """
from fractions import Fraction
import numpy as np
import mdsd_opt as mo
from mdsd_opt.solvers import methods
from mdsd_opt.solvers.warm_up import tiny_like, warm_up
from support.kernels import compiled_forms
rng = np.random.default_rng(0)
def law(exact=False):
    if exact:
        weights = rng.integers(1, 100, 12).tolist()
        return [Fraction(x, sum(weights)) for x in weights]
    return rng.dirichlet(np.full(12, 0.5))
q, r = law(), law()
problems = {
    "with_replacement": lambda: mo.WithReplacement(q, 2),
    "exact": lambda: mo.WithReplacement(law(exact=True), 2),
    "greedy": lambda: mo.GreedyDrafts(q, 2),
    "independent": lambda: mo.IndependentDrafts([q, r]),
    "mixture of two": lambda: mo.MixtureDrafts([(0.5, mo.WithReplacement(q, 2)),
                                                (0.5, mo.WithReplacement(r, 2))]),
    "set_law": lambda: mo.DraftSetLaw(12, {(0, 3): 0.5, (1,): 0.2, (4, 7): 0.3}),
}
name = NAME
problem = mo.TransportProblem(law(exact=name == "exact"), problems[name]())
tiny = tiny_like(problem)
assert tiny.vocab_size < problem.vocab_size and type(tiny.drafts) is type(problem.drafts)
for method in methods():
    warm_up(problem, method)
    known = compiled_forms()
    try:
        mo.solve(problem, method)
    except mo.errors.MdsdError:
        continue
    assert compiled_forms() == known, (method, compiled_forms() - known)
assert known, "the test sees no kernel"
"""


@pytest.mark.parametrize(
    "name",
    ["with_replacement", "exact", "greedy", "independent", "mixture of two", "set_law"],
)
def test_after_a_warm_up_no_method_loads_a_kernel(name):
    assert in_a_process(SOLVING.replace("NAME", repr(name))) == ""


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
