"""Public names that left: whoever asks for one is told what to use, and so is the changelog."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from support.api_names import RELEASED

import mdsd_opt
from mdsd_opt._gone import GONE, line_of

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def reach(name: str) -> None:
    """Import as much of a dotted name as modules go, and ask for the rest."""
    parts = name.split(".")
    for n in range(1, len(parts) + 1):
        try:
            thing = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            for part in parts[n - 1 :]:
                thing = getattr(thing, part)
            return


def refusal(name: str) -> str:
    """What is said where a name cannot be reached; nothing where it can."""
    try:
        reach(name)
    except (AttributeError, ImportError) as error:
        return str(error) or name
    return ""


def named() -> set[str]:
    """Words of code in the first section of the changelog."""
    section = CHANGELOG.read_text().split("\n## [")[1]
    return {*re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", section)))}


def test_every_name_of_the_last_release_is_there_or_says_what_to_use() -> None:
    released = RELEASED.read_text().splitlines()
    assert len(released) > 200
    told = {name: refusal(name) for name in released}
    lost = [name for name, line in told.items() if line and " left in this release: " not in line]
    assert not lost, f"{lost} are gone: say what to use in mdsd_opt/_gone.py, and in CHANGELOG.md"
    assert any(told.values()) == bool(GONE)


@pytest.mark.parametrize("name", GONE)
def test_a_name_that_left_is_refused_in_every_way(name: str) -> None:
    room, _, word = name.rpartition(".")
    assert word not in dir(importlib.import_module(room))
    with pytest.raises(AttributeError) as asked:
        getattr(importlib.import_module(room), word)
    for statement in (f"from {room} import {word}", f"import {name}"):
        with pytest.raises(ImportError) as imported:
            exec(statement, {})
        assert str(imported.value) == str(asked.value) == line_of(name)


def test_the_changelog_names_all_that_left() -> None:
    """What left since the last release, with what to use: empty again after the next one."""
    missing = {name.rpartition(".")[2] for name in GONE} - named()
    assert not missing, f"say in CHANGELOG.md what to use instead of {sorted(missing)}"


def test_a_name_that_nobody_knew_is_no_name_that_left() -> None:
    with pytest.raises(AttributeError, match="no_such_name") as asked:
        mdsd_opt.no_such_name  # noqa: B018
    assert "left" not in str(asked.value)
