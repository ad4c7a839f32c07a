"""Options of a verb from a file, and into one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from support.commands import commands

from mdsd_opt.cli.commands import as_toml

ASKED = ("rates", "-k", "1-2", "--schemes", "with_replacement", "--top-k", "40", "--temperature",
         "1e-1", "--no-progress")  # fmt: skip


def test_what_was_given_is_written_and_taken_again(run_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    shown = run_cli.shown(*ASKED, "--json", "--save-config", path)
    assert tomllib.loads(path.read_text()) == {
        "schemes": "with_replacement", "num-drafts": "1-2", "top-k": 40, "temperature": 0.1,
        "json": True, "progress": False,
    }  # fmt: skip
    again = run_cli("rates", "--config", path)
    assert json.loads(again.stdout) == json.loads(shown)
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


def test_every_verb_takes_a_file() -> None:
    for name, command in commands().items():
        with command.make_context(name, [], resilient_parsing=True) as context:
            words = {word for x in command.get_params(context) for word in x.opts}
        assert {"--config", "--save-config"} <= words, name
