"""mdsd-opt audit KIND SUBJECT: a kind has its own options, and says what the flat form says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.commands import commands
from typer.testing import CliRunner

from mdsd_opt.cli.verbs import app

KINDS: dict[str, Any] = {
    words.split()[1]: x for words, x in commands().items() if words.startswith("audit ")
}


def test_help_lists_the_kinds_and_none_of_their_options(run_cli: Any) -> None:
    told = run_cli("audit", "--help").stdout
    listed = [line.split()[0] for line in told.partition("Commands:\n")[2].splitlines()]
    assert listed == [*KINDS]
    assert len(told.splitlines()) <= 24  # a screen
    assert "--seed" not in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_its_subject_and_options_in_panels(kind: str) -> None:
    told = CliRunner().invoke(app, ["audit", kind, "--help"]).stdout
    panels = [line for line in told.splitlines() if line.endswith(":") and line[0] != " "]
    assert panels[:2] == ["Arguments:", "Options:"]
    assert panels[-1] == "Verdict:"
    first, *others = KINDS[kind].params
    assert first.param_type_name == "argument"
    assert first.required
    for option in others:
        assert option.opts[0] in told, option.opts


CASES = [
    ("trace", "--trace", "trace.npz", "--false-alarm", "0.01"),
    ("verifier", "--verifier", "rules:first", "--problem", "problem.json", "--trials", "300"),
    ("verifier", "--verifier", "rrs", "--vocab-size", "3", "-k", "2", "--trials", "300"),
    ("tree", "--tree", "rules:of_root", "--shape", "2x1", "--trials", "50", "--method", "sampling"),
    ("engine", "--engine", "nobody"),
    ("server", "--server", "http://127.0.0.1:1", "--seconds", "1"),
    ("tokens", "--recorded", "nowhere.jsonl"),
    ("chain", "--chain", "rules:nothing"),
    ("text", "--text", "rules:nothing"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_a_kind_says_what_the_flat_form_says(
    case: tuple[str, ...], inputs: Path, run_cli: Any
) -> None:
    kind, option, subject, *others = case
    of_kind = run_cli("audit", kind, subject, *others, "--json", "--junit", "kind.xml")
    flat = run_cli("audit", option, subject, *others, "--json", "--junit", "flat.xml")
    seconds = r'"seconds": [0-9.e-]+'
    assert re.sub(seconds, "", of_kind.stdout) == re.sub(seconds, "", flat.stdout)
    assert of_kind.returncode == flat.returncode
    assert of_kind.stderr == flat.stderr
    assert Path("kind.xml").read_text() == Path("flat.xml").read_text()
    assert bool(flat.stdout) == (flat.returncode != 2)


def test_the_flat_form_takes_its_subject_from_anywhere(inputs: Path, run_cli: Any) -> None:
    Path("own.toml").write_text("false-alarm = 0.01\n")
    told = [run_cli("audit", *given, "--json").stdout.partition('"seconds"')[0] for given in (
        ["trace", "trace.npz", "--false-alarm", "0.01"],
        ["--false-alarm", "0.01", "--trace=trace.npz"],
        ["--config", "own.toml", "--trace", "trace.npz"],
    )]  # fmt: skip
    assert told[0]
    assert told == told[:1] * 3


def test_a_rule_for_trees_that_takes_no_draft_is_not_accused(inputs: Path, run_cli: Any) -> None:
    done = run_cli("audit", "tree", "rules:of_root", "--shape", "2x1", "--trials", "300")
    assert done.returncode in (0, 3), done
    assert "rules:of_root: trees 2x1" in done.stdout
