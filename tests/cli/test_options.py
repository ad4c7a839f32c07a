"""Options that stand for several: a dataclass is one parameter of a verb, and options to Typer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from mdsd_opt.cli.app import app as program
from mdsd_opt.cli.options import SamplingOptions, gathers_options

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


@pytest.mark.parametrize("name", ["rates", "relax", "plan", "decode", "audit", "capture"])
def test_all_verbs_that_take_logits_sample_alike(name):
    options = [option for x in get_command(program).commands[name].params for option in x.opts]
    for field in asdict(SamplingOptions()):
        assert options.count(f"--{field.replace('_', '-')}") == 1


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
