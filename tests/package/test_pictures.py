"""Every picture of the documentation is what its command, or its file, draws today."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot")

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = DOCS / "images"

#: Beside this the measurement takes minutes: python benchmarks/different_drafts.py --plot FILE.
MEASURED_ANEW = {"different-drafts.png"}

#: Parts of a picture, along its longer side, that are compared.
_PARTS = 80


def commands() -> dict[str, str]:
    """Picture -> the command that a page gives for it, just above."""
    found: dict[str, str] = {}
    for page in sorted(DOCS.rglob("*.md")):
        if "_build" in page.parts:
            continue
        pattern = r"^    (mdsd-opt .*--plot (\S+\.png).*)\n\n!\[[^]]*\]\((?:\.\./)*images/(\S+)\)"
        for command, plotted, shown in re.findall(pattern, page.read_text(), re.MULTILINE):
            assert plotted == shown
            found[shown] = command
    return found


SCRIPTS = {
    name: path
    for path in sorted((DOCS / "pictures").glob("*.py"))
    for name in re.findall(r"docs/images/(\S+\.png)", path.read_text())
}
REPORTS = {
    f"bench-{path.stem}.png": path
    for path in (DOCS / "benchmarks" / "measured").glob("*.json")
    if (IMAGES / f"bench-{path.stem}.png").exists()
}


def parts(path: Path) -> Any:
    """Mean brightness of the parts of a picture, which fonts of another version hardly change."""
    pixels = plt.imread(path)[..., :3].mean(-1)
    size = max(pixels.shape) / _PARTS
    rows, columns = (np.arange(n) // size for n in pixels.shape)
    shape = int(rows[-1]) + 1, int(columns[-1]) + 1
    place = (rows[:, None] * shape[1] + columns[None, :]).astype(int).ravel()
    counts = np.bincount(place, minlength=shape[0] * shape[1])
    return (np.bincount(place, pixels.ravel()) / counts).reshape(shape)


def difference(one: Path, other: Path) -> float:
    """Of two pictures, the mean over their parts; 1 where they differ in shape."""
    first, second = parts(one), parts(other)
    return float(abs(first - second).mean()) if first.shape == second.shape else 1.0


def test_every_picture_has_a_command_or_a_file() -> None:
    known = {*commands(), *SCRIPTS, *REPORTS, *MEASURED_ANEW}
    assert {path.name for path in IMAGES.glob("*.png")} == known


@pytest.mark.parametrize("name", sorted(commands()))
def test_commands_draw_the_pictures_of_the_pages(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli(*shlex.split(commands()[name])[1:])
    assert done.returncode == 0, done.stderr
    assert difference(tmp_path / name, IMAGES / name) < 0.01


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_files_draw_the_pictures_of_the_pages(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("picture", SCRIPTS[name])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "IMAGES", tmp_path)
    if hasattr(module, "TRIALS"):  # fewer look alike, as closely as is asked here
        monkeypatch.setattr(module, "TRIALS", 60)
    module.main()
    assert difference(tmp_path / name, IMAGES / name) < 0.01


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_measurements_draw_the_pictures_of_the_pages(name: str, tmp_path: Path) -> None:
    from mdsd_opt.bench import load_report
    from mdsd_opt.plots import bench_figure

    bench_figure(load_report(REPORTS[name])).savefig(tmp_path / name, dpi=300)
    assert difference(tmp_path / name, IMAGES / name) < 0.01


def test_other_pictures_differ() -> None:
    names = ("acceptance.png", "frontier.png", "plan.png", "advice.png")
    for one in names:
        assert difference(IMAGES / one, IMAGES / one) == 0.0
        for other in names:
            assert one == other or difference(IMAGES / one, IMAGES / other) > 0.02
