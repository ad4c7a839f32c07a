"""The papers' experiments, in small versions."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from support.corpora import write_corpus

import mdsd_opt as mo
from mdsd_opt import errors, plots
from mdsd_opt.base.files.logits import load_logits
from mdsd_opt.corpora import Agreement, RatesConfig
from mdsd_opt.corpora.reproduce import (
    EXPERIMENTS,
    CapturedLogits,
    compared,
    khisti2025,
    measured_range,
    reproduce,
)
from mdsd_opt.data import sample_logits_path
from mdsd_opt.evidence import MeanInterval, mean_interval

SMALL = {
    "hu2025": {"temperatures": (0.0, 1.0), "numbers": (1, 2)},
    "khisti2025": {"draft_temperatures": (1.2, 2.0), "numbers": (2, 4)},
    "spechub": {"temperatures": (0.6,)},
}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Twelve positions of four prompts of the bundled real logits."""
    sample = load_logits(sample_logits_path())
    path = tmp_path_factory.mktemp("few") / "few.npz"
    np.savez(
        path,
        target=sample.target[:12],
        draft=sample.draft[:12],
        sequence=sample.sequence[:12],
        metadata=np.array(json.dumps(dict(sample.metadata))),
    )
    return path


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_one_text_has_no_intervals_and_no_nan(name, tmp_path):
    sides = (np.random.default_rng(n).normal(size=(1, 6)) for n in range(2))
    np.savez(tmp_path / "one.npz", **dict(zip(("target", "draft"), sides, strict=True)))
    result = reproduce(name, CapturedLogits(tmp_path / "one.npz"), **SMALL[name])
    assert "nan" not in json.dumps(result.to_dict(), allow_nan=False).lower()
    measured = [published for published in result.published if published.quote]
    assert all(published.outcome is Agreement.OPEN for published in measured)


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus", num_shards=2)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_on_real_logits(few, name):
    result = reproduce(name, CapturedLogits(few), **SMALL[name])
    assert (result.num_positions, result.num_groups) == (12, 4)
    assert "SmolLM2-135M-Instruct" in result.models
    assert result.published
    assert result.differences
    json.dumps(result.to_dict(), allow_nan=False)
    for table in result.measured:
        assert all(len(row) == len(table.columns) for row in table.rows)
        for row in table.rows:
            for cell in row:
                assert not isinstance(cell, MeanInterval) or -0.5 < cell.mean <= 1 + 1e-9


def test_hu2025_is_what_acceptance_rates_gives(few):
    result = reproduce("hu2025", CapturedLogits(few), **SMALL["hu2025"])
    sample = load_logits(few)
    overview = result.measured[0]
    for row, scheme in zip(
        overview.rows, ("with_replacement", "without_replacement", "greedy"), strict=True
    ):
        rates = mo.acceptance_rates(
            sample.target, sample.draft, num_drafts=3, drafts=scheme, temperature=0.7
        )
        expected = mean_interval(np.asarray(rates), sample.sequence).within(0.0, 1.0)
        assert row[1].mean == pytest.approx(expected.mean, abs=1e-12)
        assert row[1].half_width == pytest.approx(expected.half_width, abs=1e-12)
    gap = overview.rows[0][5]
    assert gap.mean == pytest.approx(overview.rows[0][1].mean - overview.rows[0][2].mean)


def test_khisti2025_encloses_the_optimum_of_equal_temperatures(few):
    result = reproduce("khisti2025", CapturedLogits(few), **SMALL["khisti2025"])
    one_model, two_models, *_ = result.measured
    lower, upper = two_models.rows[0][1], two_models.rows[0][2]  # 1.2 and 1.2: the same draft
    optimum = next(row[2] for row in one_model.rows if row[:2] == (1.2, "2"))
    assert lower.mean <= optimum.mean + 1e-9
    assert optimum.mean <= upper.mean + 1e-9
    for row in one_model.rows:
        assert all(cell.mean <= row[2].mean + 1e-9 for cell in row[3:])


def test_figures_stand_beside_the_values_read_off_them(few, monkeypatch):
    result = reproduce("khisti2025", CapturedLogits(few), **SMALL["khisti2025"])
    *_, left, right = result.published
    assert left.outcome is right.outcome is Agreement.AGREES
    assert "15 differences" in left.here
    assert "x = 1/50: 0.9089, 0.8258, 0.7911" in left.stated
    table = result.measured[-2]
    for name, points in table.points.items():
        rates = {row[0]: row[table.columns.index(name)].mean for row in table.rows}
        assert all(rates[x] == pytest.approx(y, abs=5.001e-5) for x, y in points)
    quoted = {"3/5": ("0.9556", "0.8589", "0.8222")}
    monkeypatch.setitem(khisti2025.FIGURE_2, "left", (khisti2025.FIGURE_2["left"][0], quoted))
    other = khisti2025._held_against_figure_2("left")
    assert other.outcome is Agreement.DISAGREES


def test_a_quantity_has_one_colour_and_a_short_title(few):
    pytest.importorskip("matplotlib")
    for name in EXPERIMENTS:
        result = reproduce(name, CapturedLogits(few), **SMALL[name])
        figure = plots.reproduction_figure(result)
        entries = [text.get_text() for text in figure.legends[0].get_texts()]
        assert len(entries) == len(set(entries))
        assert "optimum" not in entries
        for axes in figure.axes:
            assert len(axes.get_title()) <= 30
            heights = [y for line in axes.lines for y in line.get_ydata()]
            if heights and not axes.patches:
                low, high = axes.get_ylim()
                assert max(heights) - min(heights) > 0.25 * (high - low)


def test_a_corpus_is_scored_once_and_kept(corpus, tmp_path):
    out = tmp_path / "rates"
    first = reproduce("spechub", CapturedLogits(corpus, out=out), temperatures=(0.6, 1.0))
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert len(kept) == 4
    second = reproduce("spechub", CapturedLogits(corpus, out=out), temperatures=(0.6, 1.0))
    assert second.to_dict() == first.to_dict()
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == kept
    assert first.num_groups == 8


def test_gains_are_paired(corpus):
    scored = CapturedLogits(corpus).score(
        RatesConfig(("with_replacement",), ("optimal", "rrs"), (2,))
    )
    best, other = scored.columns.values()
    gain = scored.gain(("with_replacement", "optimal", 2), ("with_replacement", "rrs", 2))
    expected = mean_interval(best - other, scored.groups)
    assert gain == expected


def test_what_the_intervals_leave_open():
    clear, open_, against, alone = (
        MeanInterval(0.1, 0.05, 0.15, 9),
        MeanInterval(0.1, -0.05, 0.25, 9),
        MeanInterval(-0.1, -0.15, -0.05, 9),
        MeanInterval(0.1, np.nan, np.nan, 1),
    )
    assert compared([clear, clear]) is Agreement.AGREES
    assert compared([clear, open_]) is Agreement.OPEN
    assert compared([clear, alone]) is Agreement.OPEN
    assert compared([clear, open_, against]) is Agreement.DISAGREES
    nothing = MeanInterval(-1e-17, -1e-17, 1e-17, 9)
    assert measured_range([nothing, clear]) == (
        "+0.0000 [+0.0000, +0.0000] to +0.1000 [+0.0500, +0.1500]"
    )


@pytest.mark.parametrize(
    ("stated", "outcome"),
    [
        ((0.05, 0.15), "agrees"),
        ((0.0, 0.3), "agrees"),
        ((0.2, 0.3), "same direction, other size"),
        ((0.01, 0.04), "same direction, other size"),
        ((0.1, 0.3), "open"),
        ((0.1, 0.1), "open"),
    ],
)
def test_sizes_are_held_against_the_range_stated(stated, outcome):
    """A gain of 0.1 in [0.05, 0.15]: the sign alone would agree with all of them."""
    gain = MeanInterval(0.1, 0.05, 0.15, 9)
    assert compared([gain, gain], stated) == outcome
    assert compared([MeanInterval(-0.1, -0.15, -0.05, 9), gain], stated) is Agreement.DISAGREES
    assert compared([MeanInterval(0.1, -0.1, 0.3, 9), gain], stated) is Agreement.OPEN


def test_a_range_stated_stands_beside_the_intervals_measured(corpus):
    first = reproduce("spechub", CapturedLogits(corpus), temperatures=(0.6,)).published[0]
    assert first.stated == "+0.05 to +0.27 tokens"
    assert "[" in first.here


def test_the_command(corpus, tmp_path, run_cli):
    listed = run_cli.shown("reproduce")
    assert all(name in listed for name in EXPERIMENTS)
    report = tmp_path / "report.md"
    shown = run_cli.shown("reproduce", "spechub", corpus, "--out", report)
    assert "Spechub consistently generates" in shown
    text = report.read_text()
    assert text.startswith("# spechub: Sun et al.")
    for item in reproduce("spechub", CapturedLogits(corpus)).published:
        assert (f'"{item.quote}"' if item.quote else "values") in text
    document = run_cli.document("reproduce", "spechub", corpus)
    assert document["num_positions"] == 40
    assert len(document["tables"][0]["rows"]) == 3


def test_logits_without_a_position(tmp_path):
    path = tmp_path / "none.npz"
    np.savez(path, target=np.empty((0, 5)), draft=np.empty((0, 5)))
    with pytest.raises(errors.InvalidInput, match="no position"):
        reproduce("spechub", CapturedLogits(path))


def test_import_stays_light():
    code = "import sys, mdsd_opt.corpora.reproduce.hu2025, mdsd_opt.corpora; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"scipy", "numba", "cvxpy", "rich", "typer", "torch", "distributed", "ray"}
