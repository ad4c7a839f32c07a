"""Options that stand for several: a dataclass is one parameter of a verb, and options to Typer."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import typer
from support.commands import commands
from typer.testing import CliRunner

from mdsd_opt.cli.commands import Configured
from mdsd_opt.cli.options import parse_schemes, parse_verifiers
from mdsd_opt.cli.signatures import Given, command_of, given

runner = CliRunner()


@dataclass(frozen=True)
class Looks:
    """Options of several verbs."""

    PANEL: ClassVar[str] = "Looks"

    size: Annotated[int, "How large."] = 1
    is_loud: Annotated[bool, "Whether it cries."] = False


def shown(
    name: Annotated[str | None, "Of the thing."] = None,
    *,
    sampling: Given = given("base.logits:Logits", "temperature=heat top_k joint"),
    looks: Looks,
    progress: Annotated[bool | None, "A bar."] = None,
    num_drafts: Annotated[str, "How many."] = "1-8",
    asked: Given = given("auditing:audit_chain", "vocab_sizes promise rng=seed", "Asked", rng=3),
) -> None:
    """Print what it was given."""
    print(name, sampling, looks, progress, num_drafts, asked)


@pytest.fixture
def verb() -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=Configured)(command_of(shown))
    return app


def test_options_are_those_of_signatures_in_their_order(verb: typer.Typer) -> None:
    told = runner.invoke(verb, ["--help"], env={"COLUMNS": "200"}).stdout
    options = ["[NAME]", "--heat", "--top-k", "--joint", "--progress", "--num-drafts"]
    places = [told.index(name) for name in options]
    assert places == sorted(places)
    looks = told.index("Looks:")
    assert looks < told.index("--size") < told.index("--is-loud")
    for text in ("Of the thing.", "How large.", "Whether it cries.", "A bar.", "How many."):
        assert text in told
    for text in ("Of the target;", "Top-k filter, on each side; 0 for none.", "module:function"):
        assert text in told
    assert "--sampling" not in told
    assert "--no-is-loud" not in told
    assert "--no-joint" not in told
    assert "--no-progress" in told


def test_a_public_function_gives_types_defaults_and_names(verb: typer.Typer) -> None:
    usual = runner.invoke(verb, []).stdout
    looks = Looks()
    assert usual == f"None {{'temperature': 1.0, 'joint': False}} {looks} None 1-8 {{'rng': 3}}\n"
    words = ["x", "--heat", "0.25", "--top-k", "3", "--joint", "--size", "3", "--is-loud",
             "--no-progress", "-k", "2", "--vocab-sizes", "4,6-8", "--seed", "5", "--promise",
             "math:sqrt"]  # fmt: skip
    told = runner.invoke(verb, words).stdout
    sampling = {"temperature": 0.25, "top_k": 3, "joint": True}
    asked = {"vocab_sizes": [4, 6, 7, 8], "promise": math.sqrt, "rng": 5}
    assert told == f"x {sampling} {Looks(3, True)} False 2 {asked}\n"
    for bad in (["--no-is-loud"], ["--seed", "-1"], ["--heat", "hot"], ["--top-k", "1.5"]):
        assert runner.invoke(verb, bad).exit_code == 2


def test_nothing_of_a_public_function_is_said_twice() -> None:
    """What `given` takes is there, with a help of its own."""
    for words, command in commands().items():
        options = [option for x in command.params for option in x.opts]
        assert len(options) == len({*options}), words
        for x in command.params:
            assert x.hidden or getattr(x, "help", None), (words, x.name)


@pytest.mark.parametrize("name", ["rates", "relax", "plan", "decode", "audit chain", "capture"])
def test_all_verbs_that_take_logits_sample_alike(name):
    options = [option for x in commands()[name].params for option in x.opts]
    for field in ("temperature", "draft-temperature", "top-k", "top-p", "min-p", "joint"):
        assert options.count(f"--{field}") == 1


def test_a_name_that_is_given_twice_is_asked_once():
    assert parse_schemes("top-k,greedy,top_k") == ["top_k", "greedy"]
    assert parse_verifiers("rrs,rrs") == ["rrs"]


#: What each verb is given beside an option that is a number, enough to get to it.
ARGUMENTS = {
    "advise logits": ["logits.npz"],
    "advise log": ["log.jsonl", "--target-ms", "20", "--draft-ms", "2"],
    "rates": ["logits.npz", "-k", "1"],
    "solve": ["problem.json"],
    "audit": ["--verifier", "rrs", "--vocab-size", "3", "--trials", "200"],
    "check": ["acceptance_one", "--vocab-size", "3", "-k", "2"],
    "condition": ["p0 >= 1/27", "--vocab-size", "3"],
    "bench": ["solvers", "--quick"],
    "capture": ["--target", "t", "--draft", "d", "--out", "o", "--prompts", "p", "--rates-only"],
    "decode": ["--target", "t", "--draft", "d", "--prompt", "p"],
    "plan": ["logits.npz"],
    "prove": ["p0 >= 0", "--vocab-size", "2"],
    "relax": ["logits.npz"],
    "reproduce": ["khisti2025", "logits.npz"],
    "search": ["p0 >= 0", "--vocab-size", "2"],
}

#: The same for options that go with others.
WITH = {
    ("advise log", "watch"): ["log.jsonl"],
    ("rates", "rank_timeout"): ["folder", "--executor", "torchrun"],
    **{("audit", name): ["--server", "http://localhost:1"] for name in ("timeout", "tolerance")},
    **{("audit", name): ["--chain", "os:getcwd"] for name in ("temperature", "top_p", "min_p")},
    ("audit", "draft_temperature"): ["--trace", "trace.npz"],
}

#: Options that may be infinite: limits that then are none.
ENDLESS = {("solve", "time_limit"), ("audit", "seconds"), ("rates", "rank_timeout")}

NUMBERS = [
    (verb, name)
    for verb, command in commands().items()
    for name, parameter in inspect.signature(command.callback).parameters.items()
    if "float" in str(getattr(parameter.annotation, "__origin__", parameter.annotation))
    and verb.split()[0] not in ("audit", *(["advise"] if verb == "advise models" else []))
]


@pytest.mark.parametrize(("verb", "name"), NUMBERS)
def test_numbers_that_are_none_are_refused(verb, name, run_cli, inputs):
    """One line names the option, what was given, and what to give."""
    given = WITH.get((verb, name), ARGUMENTS[verb])
    plot = ["--plot", "picture.png"] if name == "width" else []
    option = name.replace("_", "-")
    for number in ("nan", "inf", "-inf", "-1"):
        if number == "inf" and (verb, name) in ENDLESS:
            continue
        line = run_cli.refusal(*verb.split(), *given, *plot, f"--{option}={number}")
        words = line.replace("--", "").replace("-", "_").replace("infinite", "inf")
        assert name.removeprefix("draft_") in words, line
        assert number.replace("-", "_") in words, line
        assert "give" in words, line
