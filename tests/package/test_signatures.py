"""Signatures: few parameters, options once, one word for random numbers."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.faces import public_functions

import mdsd_opt as mo
from mdsd_opt import cddlib_checks
from mdsd_opt.base.checked import drawn_seed, generator_of, seed_of
from mdsd_opt.base.logits import LogitsKeywords
from mdsd_opt.batch import verify_batch
from mdsd_opt.errors import InvalidInput

PACKAGE = Path(mo.__file__).parent

MOST_PARAMETERS = 12

#: With more: the record of options itself, and what transformers calls by names of its own.
WITH_MORE = {"Logits.__init__", "custom_generate"}

#: Decorators of functions that take scalars and arrays to work in, because no compiler takes
#: records.
NOT_COUNTED = ("kernel", "triton.jit")


def is_verb(node: Any) -> bool:
    """Whether parameters are options of a command, some of which a public function gives."""
    defaults = [*node.args.defaults, *node.args.kw_defaults]
    return any(isinstance(x, ast.Call) and ast.unparse(x.func) == "given" for x in defaults)


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Any]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inside + node.name, node
            yield from functions(node, f"{inside}{node.name}.")
        else:
            yield from functions(node, inside)


def number_of_parameters(node: Any) -> int:
    """Parameters of a function, without itself; keywords of one record are one mechanism."""
    given = node.args
    names = [x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"])) + (given.vararg is not None)


def with_too_many(source: str) -> set[str]:
    return {
        name
        for name, node in functions(ast.parse(source))
        if number_of_parameters(node) > MOST_PARAMETERS
        and not is_verb(node)
        and not any(ast.unparse(x).startswith(NOT_COUNTED) for x in node.decorator_list)
    }


def test_no_function_has_more_than_twelve_parameters() -> None:
    found = {
        name for path in PACKAGE.rglob("*.py")
        for name in with_too_many(path.read_text(encoding="utf-8"))
    }  # fmt: skip
    assert found == WITH_MORE


def test_one_more_is_noticed() -> None:
    names = ", ".join(f"x{n}" for n in range(MOST_PARAMETERS + 1))
    assert with_too_many(f"class A:\n    def f(self, {names}): pass\n") == {"A.f"}
    assert with_too_many(f"@kernel(inner=True)\ndef f({names}): pass\n") == set()
    assert with_too_many(f"def f({names}, *, y=given('a:b', 'y')): pass\n") == set()
    assert with_too_many(f"def f({names[:-5]}, **options): pass\n") == set()


PUBLIC = public_functions()

OF_LOGITS = [
    name for name, x in PUBLIC.items()
    if {"target_logits", "draft_logits"} <= inspect.signature(x).parameters.keys()
]  # fmt: skip


@pytest.mark.parametrize("name", OF_LOGITS)
def test_options_of_a_pair_are_keywords_of_what_takes_one(name: str) -> None:
    parameters = inspect.signature(PUBLIC[name]).parameters
    of_pair = inspect.signature(mo.Logits).parameters
    for option in LogitsKeywords.__annotations__:
        assert parameters[option].default == of_pair[option].default
    assert "mdsd_opt.Logits" in (PUBLIC[name].__doc__ or "")
    with pytest.raises(TypeError, match=f"{name}.*unheard_of"):
        PUBLIC[name]([[0.0, 1.0]], [[1.0, 0.0]], unheard_of=1)


def test_all_of_them_are_found() -> None:
    asked = {"acceptance_rates", "verify_batch", "relaxed_rates", "advise", "best_draft_filter",
             "best_draft_temperature", "compare_draft_schemes", "place_rates"}  # fmt: skip
    assert asked <= {*OF_LOGITS}


def test_keywords_and_record_are_the_same() -> None:
    assert LogitsKeywords.__annotations__.keys() == (
        inspect.signature(mo.Logits).parameters.keys() - {"target", "draft"}
    )


# --- random numbers ---


def test_random_numbers_are_called_rng_and_begin_with_seed_0() -> None:
    signatures = {name: inspect.signature(x).parameters for name, x in PUBLIC.items()}
    assert [name for name, x in signatures.items() if "seed" in x] == []
    given = {name: x["rng"].default for name, x in signatures.items() if "rng" in x}
    assert {"audit", "audit_chain", "audit_tree", "audit_text", "audit_tokens", "acceptance_rates",
            "verify_batch", "generate", "search_laws"} <= given.keys()  # fmt: skip
    assert {name: x for name, x in given.items() if x != 0} == {}


P, Q = np.random.default_rng(1).standard_normal((2, 4, 300))
DRAFTS = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])

DRAWING: dict[str, Callable[..., Any]] = {
    "acceptance_rates": lambda **given: mo.acceptance_rates(
        P, Q, 4, "without_replacement", "rrs", **given
    ),
    "verify_batch": lambda **given: verify_batch(P, Q, DRAFTS, **given).tokens,
    "search_laws": lambda **given: cddlib_checks.search_laws(
        lambda p, q: p[0] - q[0], 3, trials=5, **given
    ),
}


@pytest.mark.parametrize("name", DRAWING)
def test_rng_is_none_a_seed_or_a_generator_and_seed_warns(name: str) -> None:
    draw = DRAWING[name]
    np.testing.assert_array_equal(draw(), draw(rng=None))
    np.testing.assert_array_equal(draw(), draw(rng=np.int64(0)))
    with pytest.warns(DeprecationWarning, match=f"seed of {name} is rng"):
        np.testing.assert_array_equal(draw(seed=3), draw(rng=3))
    first, again = (draw(rng=np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    for bad in (-1, 0.5, "0", True):
        with pytest.raises(InvalidInput, match="seed is"):
            draw(rng=bad)
    with pytest.raises(InvalidInput, match="give rng alone"):
        draw(rng=1, seed=1)


def test_a_generator_goes_on_and_has_no_seed() -> None:
    rng = np.random.default_rng(2)
    assert generator_of(rng) is rng
    assert seed_of(rng) is None
    assert drawn_seed(rng) != drawn_seed(rng)
    assert generator_of(None).random() == generator_of(0).random()
