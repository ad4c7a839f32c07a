"""Options of a verb from a file, and into one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.commands import commands

from mdsd_opt.cli.commands import as_toml

ASKED = ("rates", "-k", "1-2", "--schemes", "with_replacement", "--top-k", "40", "--temperature",
         "1e-1", "--no-progress")  # fmt: skip


def test_what_was_given_is_written_and_taken_again(run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    first = run_cli(*ASKED, "--json", "--save-config", path)
    assert first.returncode == 0, first.stderr
    assert tomllib.loads(path.read_text()) == {
        "schemes": "with_replacement", "num-drafts": "1-2", "top-k": 40, "temperature": 0.1,
        "json": True, "progress": False,
    }  # fmt: skip
    again = run_cli("rates", "--config", path)
    assert json.loads(again.stdout) == json.loads(first.stdout)
    both = run_cli("rates", "--config", path, "-k", "3", "--save-config", tmp_path / "both.toml")
    assert {row["num_drafts"] for row in json.loads(both.stdout)["rows"]} == {3}
    saved = tomllib.loads((tmp_path / "both.toml").read_text())
    assert (saved["num-drafts"], saved["top-k"]) == ("3", 40)


def test_arguments_and_lists(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text('subject = "rrs"\nnum-drafts = 2\n')
    path = tmp_path / "saved.toml"
    done = run_cli("bench", "solvers", "--quick", "--rounds", "1", "--methods", "subset_selection",
                   "-V", "8", "--out", tmp_path / "a b.json", "--save-config", path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    saved = tomllib.loads(path.read_text())
    assert saved["names"] == ["solvers"]
    assert saved["out"] == [str(tmp_path / "a b.json")]
    (tmp_path / "a b.json").unlink()
    assert run_cli("bench", "--config", path).returncode == 0
    assert (tmp_path / "a b.json").exists()


def test_numbers_of_every_size_are_writtenas_toml_has_them(tmp_path: Path) -> None:
    given = [0.1, 1e-7, 1e300, 20.0, float("inf"), True, 3, 'a"b\\ü\n']
    text = f"x = {as_toml(given)}\ny = {as_toml(float('nan'))}"
    found = tomllib.loads(text)
    assert found["x"] == given
    assert found["y"] != found["y"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topk = 40", "has 'topk'; this verb takes"),
        ("[top-k]\na = 1", "has a table 'top-k'"),
        ("top-k = ", "cannot be read as TOML"),
        ('top-k = "many"', "invalid value for '--top-k'"),
        ("temperature = -1.0", "temperature"),
    ],
)
def test_what_a_file_may_not_say(run_cli: Any, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    refused = run_cli("rates", "--config", tmp_path / "bad.toml")
    assert refused.returncode == 2
    assert told in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_done(run_cli: Any) -> None:
    refused = run_cli("rates", "--save-config", "/nowhere/run.toml")
    assert refused.returncode == 2
    assert "cannot write" in " ".join(refused.stderr.split())
    assert refused.stdout == ""


def test_every_verb_takes_a_file() -> None:
    for name, command in commands().items():
        with command.make_context(name, [], resilient_parsing=True) as context:
            words = {word for x in command.get_params(context) for word in x.opts}
        assert {"--config", "--save-config"} <= words, name
