"""How far texts may change: the bounds against moves of logits, by enumeration and by chance."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsd_opt as mo
from mdsd_opt import plots
from mdsd_opt.errors import InvalidDistribution, InvalidInput

CORNERS = [np.array(signs) for signs in product((-1.0, 1.0), repeat=4)]


def moved_laws(row, delta, temperature=1.0):
    """Laws of a row whose logits have moved by delta, each up or down."""
    return [mo.softmax(row + delta * corner, temperature) for corner in CORNERS]


@given(
    st.lists(st.integers(-6, 6), min_size=4, max_size=4),
    st.integers(0, 6).map(lambda n: n / 2),
)
def test_a_greedy_token_can_change_exactly_where_it_is_said_to(logits, delta):
    """The corners of the cube of moves hold the worst one; integers and halves are exact."""
    row = np.array(logits, float)
    found = mo.text_stability(row, delta, kind="logits")
    ends = [row + delta * corner for corner in CORNERS]
    best = {int(n) for end in ends for n in np.flatnonzero(end == end.max())}
    assert bool(found.rows[0].may_change.mean) == (len(best) > 1)
    half = mo.text_stability(row, delta / 2, kind="logits")  # a bound of delta, not of twice it
    if delta < found.margins[0] <= 2 * delta:
        assert half.rows[0].may_change.mean == 0
        assert len(best) > 1


@given(st.lists(st.integers(1, 9), min_size=4, max_size=4), st.sampled_from([0.1, 0.5, 2.0]))
def test_the_law_of_a_token_moves_by_a_tangent_at_most(weights, delta):
    row = np.log(np.array(weights, float))
    for temperature in (0.5, 1.0):
        p = mo.softmax(row, temperature)
        away = [abs(p - law).sum() / 2 for law in moved_laws(row, delta, temperature)]
        assert max(away) <= math.tanh(delta / (2 * temperature)) + 1e-12
    # two tokens whose weights are one to e^delta reach it
    pair = mo.softmax([0.0, delta]), mo.softmax([delta, 0.0])
    assert abs(pair[0] - pair[1]).sum() / 2 == pytest.approx(math.tanh(delta / 2))


def test_the_chance_under_gumbel_noise_is_that_of_a_small_margin():
    """Against noise that is drawn: an interval of five standard deviations, and no other factor."""
    rng = np.random.default_rng(0)
    row, delta, temperature, count = np.array([1.0, 0.4, 0.0, -1.0]), 0.1, 0.7, 400_000
    noisy = row / temperature + rng.gumbel(size=(count, 4))
    first, second = np.sort(noisy, axis=1)[:, :-3:-1].T
    drawn = noisy.argmax(axis=1)
    close = first - second <= 2 * delta / temperature
    chance = mo.text_stability(row, delta, temperature=temperature).rows[0].may_change.mean
    error = 5 * math.sqrt(chance / count)
    assert close.mean() == pytest.approx(chance, abs=error)
    assert abs((first - second <= delta / temperature).mean() - chance) > error
    for token in range(4):
        found = mo.text_stability(row[None, None], delta, temperature=temperature, tokens=[[token]])
        share = 1 - close[drawn == token].mean()
        assert found.rows[0].unmoved[0] == pytest.approx(share, abs=0.01)


@given(st.lists(st.integers(1, 9), min_size=4, max_size=4), st.sampled_from([0.01, 0.3, 3.0]))
def test_the_chance_is_between_the_distance_and_its_bound(weights, delta):
    """No coupling can differ less often than the laws do; none of these more than 1 - e^-2delta."""
    row = np.log(np.array(weights, float))
    chance = mo.text_stability(row, delta, temperature=1.0).rows[0].may_change.mean
    p = mo.softmax(row)
    assert max(abs(p - law).sum() / 2 for law in moved_laws(row, delta)) <= chance + 1e-12
    assert chance <= 1 - math.exp(-2 * delta) + 1e-12


def test_one_uniform_number_for_both_passes_has_no_such_bound():
    """A thousand tokens alike, half of them moved by .01 each way: almost none is drawn again."""
    n, delta = 1000, 0.01
    p, moved = (mo.softmax(np.repeat([x, -x], n // 2)) for x in (0.0, delta))
    u = (np.arange(100_000) + 0.5) / 100_000
    drawn = [np.searchsorted(np.cumsum(law), u) for law in (p, moved)]
    assert (drawn[0] != drawn[1]).mean() > 0.7
    chance = (
        mo.text_stability(np.log(p), delta, temperature=1.0, kind="logits").rows[0].may_change.mean
    )
    assert chance < 0.02


def test_tokens_that_stay_are_counted_from_the_start_of_each_text():
    margins = np.array([[3.0, 1.0, 5.0, 0.1], [0.0, 9.0, 9.0, 9.0], [4.0, 4.0, 4.0, 4.0]])
    logits = np.stack([margins, np.zeros((3, 4)), np.full((3, 4), -np.inf)], axis=-1)
    found = mo.text_stability(logits, (0.0, 0.5, 2.0))
    np.testing.assert_array_equal(found.margins, margins.ravel())
    assert [row.unmoved.tolist() for row in found.rows] == [[4, 0, 4], [1, 0, 4], [0, 0, 0]]
    assert [row.whole_texts for row in found.rows] == [2, 1, 0]
    assert found.rows[1].may_change.mean == 3 / 12
    # the same as rows in another order, with the places of the texts
    order = np.random.default_rng(0).permutation(12)
    rows, sequence, position = logits.reshape(12, 3), np.arange(12) // 4, np.arange(12) % 4
    options = {"sequence": sequence[order], "position": position[order]}
    again = mo.text_stability(rows[order], (0.0, 0.5, 2.0), **options)
    assert [row.unmoved.tolist() for row in again.rows] == [[4, 0, 4], [1, 0, 4], [0, 0, 0]]
    options["position"] = 3 * position[order]  # places are left out: nothing is known of them
    assert mo.text_stability(rows[order], 0.1, **options).rows[0].unmoved is None
    assert mo.text_stability(rows, 0.1).rows[0].unmoved is None  # no texts


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_numbers_of_every_precision_and_exact_ties(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    rows = np.array([[256.0, 257.0, 0.0], [1.0, 1.0, 0.0], [-np.inf, 0.0, -np.inf]]).astype(kind)
    found = mo.text_stability(rows, 0.0)
    tie = dtype == "bfloat16"  # there 256 and 257 are one number
    assert found.margins.tolist() == [0.0 if tie else 1.0, 0.0, np.inf]
    assert found.rows[0].may_change.mean == pytest.approx((1 + tie) / 3)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["margins"][2] is None
    assert mo.text_stability(rows, 1e300, temperature=1e-3).rows[0].may_change.mean <= 1


def test_another_run_is_measured_up_to_what_all_logits_share():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(2, 50, 30)).astype(np.float32)
    noise = rng.uniform(-0.2, 0.2, size=one.shape).astype(np.float32)
    other = one + noise + rng.normal(size=(2, 50, 1)).astype(np.float32)  # the last changes nothing
    found = mo.text_stability(one, other=other)
    np.testing.assert_allclose(found.moved, np.ptp(noise, axis=-1).ravel() / 2, atol=1e-5)
    changed = one.argmax(-1) != other.argmax(-1)
    assert found.changed == changed.sum() > 0
    could = found.margins <= 2 * found.moved
    assert not (changed.ravel() & ~could).any()
    assert found.rows[0].may_change.mean == could.mean()
    assert found.rows[0].delta == found.moved.max()
    same = mo.text_stability(one, other=one + np.float32(0.5))
    assert same.changed == 0
    assert same.rows[0].delta < 1e-6


def test_what_cannot_be_is_one_clear_error():
    rows = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, -np.inf]])
    for options in ({}, {"delta": 0.1, "other": rows}):
        with pytest.raises(InvalidInput, match="one of them"):
            mo.text_stability(rows, **options)
    with pytest.raises(InvalidInput, match="delta is -1"):
        mo.text_stability(rows, -1)
    with pytest.raises(InvalidInput, match="delta is empty"):
        mo.text_stability(rows, [])
    with pytest.raises(InvalidInput, match="other has shape"):
        mo.text_stability(rows, other=rows[:1])
    with pytest.raises(InvalidInput, match="token 2 of position 1"):
        mo.text_stability(rows, other=np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match="one integer a position"):
        mo.text_stability(rows, 0.1, sequence=[0])
    with pytest.raises(InvalidInput, match="ids from 0 to 3"):
        mo.text_stability(rows, 0.1, tokens=[0, 3])
    with pytest.raises(InvalidInput, match="temperature"):
        mo.text_stability(rows, 0.1, temperature=-1)
    with pytest.raises(InvalidInput, match=r"confidence is 1\.5"):
        mo.text_stability(rows, 0.1, confidence=1.5)
    with pytest.raises(InvalidDistribution, match="row 1 has a NaN"):
        mo.text_stability([[0.0, 1.0], [np.nan, 0.0]], 0.1)
    with pytest.raises(InvalidInput, match="'probs'"):
        mo.text_stability([[0.5, 0.5]], 0.1)


def test_the_verb_says_what_the_function_does(run_cli, tmp_path):
    rng = np.random.default_rng(0)
    texts, sequence = rng.normal(size=(3, 5, 9)), np.repeat(np.arange(3), 5)
    other = texts + rng.uniform(-0.3, 0.3, texts.shape)
    np.save(tmp_path / "one.npy", texts)
    np.save(tmp_path / "two.npy", other)
    rows = texts.reshape(15, 9)
    np.savez(tmp_path / "rows.npz", target=rows, draft=rows, sequence=sequence)
    for name in ("one.npy", "rows.npz"):
        done = run_cli("stability", tmp_path / name, "--delta", "0.1,0.2", "--json")
        document = json.loads(done.stdout)
        expected = mo.text_stability(texts, (0.1, 0.2))
        assert document["rows"] == [row.to_dict() for row in expected.rows]
        assert document["interval_over"] == "texts"
    done = run_cli("stability", tmp_path / "one.npy", tmp_path / "two.npy", "--json")
    assert json.loads(done.stdout)["changed"] == mo.text_stability(texts, other=other).changed
    shown = run_cli("stability", tmp_path / "one.npy", "--plot", tmp_path / "picture.svg").stdout
    assert "may change" in shown
    assert "tokens of a text" in shown
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")
    for wrong in (
        ("one.npy", "two.npy", "--delta", "1"), ("one.npy", "--delta", "-1"),
        ("one.npy", "--delta", "a"), ("one.npy", "--confidence", "2"),
        ("one.npy", "two.npy", "rows.npz"), ("three.npy",),
    ):  # fmt: skip
        files = [tmp_path / x if "." in x and x[-1] != "1" else x for x in wrong]
        done = run_cli("stability", *files)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_the_picture_has_the_share_at_every_distance():
    pytest.importorskip("matplotlib")
    found = mo.text_stability(np.random.default_rng(0).normal(size=(8, 5)), (0.05, 0.5))
    curve = plots.stability(found).lines[0]
    for distance, share in zip(*curve.get_data(), strict=True):
        assert (found.margins / 2 <= distance).mean() == share
    points = plots.stability(found).containers[0][0].get_data()
    assert points[1].tolist() == [row.may_change.mean for row in found.rows]
