"""Options that stand for several: a dataclass is one parameter of a verb, and options to Typer."""

from __future__ import annotations

import inspect
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import mdsd_opt as mo
from mdsd_opt.cli.app import _VERBS
from mdsd_opt.cli.app import app as program
from mdsd_opt.cli.options import SamplingOptions, gathers_options, parse_schemes, parse_verifiers

runner = CliRunner()


@pytest.fixture
def verb():
    """A verb that prints what it was given, with an option of its own that is also a field."""
    app = typer.Typer()

    @app.command()
    @gathers_options(top_k="A word of this verb.")
    def show(
        first: int = 1,
        *,
        temperature: Annotated[float, typer.Option(help="Of the verb.")] = 0.5,
        sampling: SamplingOptions,
        last: int = 2,
    ) -> None:
        print(first, temperature, asdict(sampling), last)

    return app


def test_fields_are_options_in_the_place_of_their_dataclass(verb):
    told = runner.invoke(verb, ["--help"], env={"COLUMNS": "200"}).stdout
    names = ["--first", "--temperature", "--draft-temperature", "--top-k", "--min-p", "--last"]
    places = [told.index(name) for name in names]
    assert places == sorted(places)
    assert told.count("--temperature") == 1
    assert "Of the verb." in told
    assert "A word of this verb." in told
    assert "Top-k filter" not in told
    assert "--sampling" not in told


def test_the_verb_gets_one_value_and_its_own_option_twice(verb):
    told = runner.invoke(verb, ["--temperature", "0.25", "--top-k", "3", "--first", "7"]).stdout
    given = SamplingOptions(0.25, None, 3)
    assert told == f"7 0.25 {asdict(given)} 2\n"
    assert runner.invoke(verb, []).stdout == f"1 0.5 {asdict(SamplingOptions(0.5))} 2\n"


@pytest.mark.parametrize("name", ["rates", "relax", "plan", "decode", "audit chain", "capture"])
def test_all_verbs_that_take_logits_sample_alike(name):
    command = get_command(program)
    for word in name.split():
        command = command.commands[word]
    options = [option for x in command.params for option in x.opts]
    for field in asdict(SamplingOptions()):
        assert options.count(f"--{field.replace('_', '-')}") == 1


def test_a_name_that_is_given_twice_is_asked_once():
    assert parse_schemes("top-k,greedy,top_k") == ["top_k", "greedy"]
    assert parse_verifiers("rrs,rrs") == ["rrs"]


def test_a_text_is_the_help_of_an_option_and_makes_a_bool_a_flag():
    app = typer.Typer()

    @app.command()
    @gathers_options()
    def show(
        size: Annotated[int, "How large."] = 1,
        is_loud: Annotated[bool, "Whether it cries."] = False,
        progress: Annotated[bool | None, "A bar."] = None,
        num_drafts: Annotated[str, "How many."] = "1-8",
    ) -> None:
        print(size, is_loud, progress, num_drafts)

    told = runner.invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    for text in ("How large.", "Whether it cries.", "A bar.", "How many."):
        assert text in told
    assert "--no-is-loud" not in told
    assert "--no-progress" in told
    given = ["--size", "3", "--is-loud", "--no-progress", "-k", "2"]
    assert runner.invoke(app, given).stdout == "3 True False 2\n"
    assert runner.invoke(app, ["--num-drafts", "4"]).stdout == "1 False None 4\n"
    assert runner.invoke(app, ["--no-is-loud"]).exit_code == 2


#: What each verb is given beside an option that is a number, enough to get to it.
ARGUMENTS = {
    "advise": ["logits.npz"],
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
}

#: The same for options that go with others.
WITH = {
    ("advise", "speedup"): ["--accepted", "log.jsonl", "--target-ms", "20", "--draft-ms", "2"],
    ("rates", "rank_timeout"): ["folder", "--executor", "torchrun"],
    **{("audit", name): ["--server", "http://localhost:1"] for name in ("timeout", "tolerance")},
    **{("audit", name): ["--chain", "os:getcwd"] for name in ("temperature", "top_p", "min_p")},
    ("audit", "draft_temperature"): ["--trace", "trace.npz"],
}

#: Options that may be infinite: limits that then are none.
ENDLESS = {("solve", "time_limit"), ("audit", "seconds"), ("rates", "rank_timeout")}

NUMBERS = [
    (verb.__name__, name)
    for verb in _VERBS
    for name, parameter in inspect.signature(verb).parameters.items()
    if "float" in str(getattr(parameter.annotation, "__origin__", parameter.annotation))
]


@pytest.mark.parametrize(("verb", "name"), NUMBERS)
def test_numbers_that_are_none_are_refused(verb, name, run_cli, tmp_path, monkeypatch):
    """One line names the option, what was given, and what to give."""
    monkeypatch.chdir(tmp_path)
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(variable, "1" if variable == "WORLD_SIZE" else "0")
    rng = np.random.default_rng(0)
    np.savez("logits.npz", target=rng.normal(size=(3, 5)), draft=rng.normal(size=(3, 5)))
    law = np.full((4, 3), 1 / 3)
    tokens = np.zeros(4, int)
    np.savez("trace.npz", target=law, draft=law, drafts=tokens[:, None], tokens=tokens)
    mo.save_problem(mo.TransportProblem(law[0], mo.WithReplacement(law[0], 2)), "problem.json")
    Path("log.jsonl").write_text('{"accepted": 1, "depth": 2}\n' * 9)
    Path("p").write_text('{"prompt": "a"}\n')
    Path("folder").mkdir()
    shutil.copy("logits.npz", "folder")
    given = WITH.get((verb, name), ARGUMENTS[verb])
    plot = ["--plot", "picture.png"] if name == "width" else []
    option = name.replace("_", "-")
    for number in ("nan", "inf", "-inf", "-1"):
        if number == "inf" and (verb, name) in ENDLESS:
            continue
        done = run_cli(verb, *given, *plot, f"--{option}={number}")
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1, done.stderr
        words = done.stderr.replace("--", "").replace("-", "_").replace("infinite", "inf")
        assert name.removeprefix("draft_") in words, done.stderr
        assert number.replace("-", "_") in words, done.stderr
        assert "give" in words, done.stderr
        assert not done.stdout
