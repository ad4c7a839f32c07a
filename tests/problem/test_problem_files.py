"""Problems in files: exact round trips, and one clear line for every way a file can be broken."""

from __future__ import annotations

import io
import json
import os
import pickle
import tempfile
import zipfile
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from support import oracles
from support.strategies import Case, cases, distributions

from mdsd_opt import (
    TransportProblem,
    WithoutReplacement,
    WithReplacement,
    load_problem,
    save_problem,
)
from mdsd_opt.base.files import atomic_write, read_json
from mdsd_opt.base.files.arrays import read_safetensors
from mdsd_opt.drafts import (
    DraftScheme,
    DraftSetLaw,
    FixedPlusDrafts,
    GreedyDrafts,
    IndependentDrafts,
    MixtureDrafts,
    TopKDrafts,
)
from mdsd_opt.errors import InvalidInput, MdsdError, UnknownName, UnreadableFile, UnsupportedScheme

SUFFIXES = [".json", ".npz", ".safetensors"]

SMALL = {
    "target": ["309/500", "177/500", "7/250"],
    "drafts": {"scheme": "with_replacement", "q": [0.25, 0.25, 0.5], "num_drafts": 2},
}


def assert_same(one: TransportProblem, other: TransportProblem) -> None:
    """Same numbers to the last bit, in floating point and exactly."""
    assert one.target.tobytes() == other.target.tobytes()
    assert one.exact_target == other.exact_target
    assert type(one.drafts) is type(other.drafts)
    assert one.drafts.num_drafts == other.drafts.num_drafts
    law, reread = (x.drafts.law(True).support_law().masses() for x in (one, other))
    assert list(law.items()) == list(reread.items())  # in the same order
    if one.drafts.count_tuples() < 1000:
        assert oracles.listed(one.drafts) == oracles.listed(other.drafts)
    assert one.drafts.support_law().mass.tobytes() == other.drafts.support_law().mass.tobytes()


def float_problems() -> dict[str, TransportProblem]:
    """Every scheme with floats that are no short decimals."""
    rng = np.random.default_rng(2)
    p, q, other = (x / x.sum() * (1 + 1e-5) for x in rng.random((3, 5)))
    schemes: list[DraftScheme] = [
        WithReplacement(q, 3),
        WithoutReplacement(q, 2),
        GreedyDrafts(q, 2),
        TopKDrafts(q, 2),
        IndependentDrafts([q, other]),
        DraftSetLaw(5, {(0, 3): 0.1, (): 0.2, (1, 2, 4): 0.7}),
        MixtureDrafts([(0.1, WithReplacement(q, 1)), (0.9, WithoutReplacement(q, 3))]),
        FixedPlusDrafts([3, 0], WithReplacement(q, 2)),
    ]
    return {drafts.scheme: TransportProblem(p, drafts) for drafts in schemes}


class TestRoundTrip:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    @pytest.mark.parametrize("scheme", float_problems())
    def test_floats(self, scheme: str, suffix: str, tmp_path: Path) -> None:
        problem = float_problems()[scheme]
        save_problem(problem, tmp_path / f"problem{suffix}")
        assert_same(problem, load_problem(tmp_path / f"problem{suffix}"))

    @given(cases(), distributions(4))
    def test_fractions(self, case: Case, p: list[Fraction]) -> None:
        """Of target and draft, or of the target alone."""
        mixed = TransportProblem(p, WithReplacement([0.1, 0.2, 0.3, 0.4], 2))
        with tempfile.TemporaryDirectory() as folder:
            for suffix, problem in product(SUFFIXES, (case.problem, mixed)):
                path = Path(folder) / f"problem{suffix}"
                save_problem(problem, path)
                loaded = load_problem(path)
                assert_same(problem, loaded)
        assert not loaded.drafts.model.is_rational  # type: ignore[attr-defined]

    def test_long_fractions(self, tmp_path: Path) -> None:
        p = [Fraction(1, 3**900), 1 - Fraction(1, 3**900)]
        with pytest.raises(MdsdError, match="too small"):
            TransportProblem(p, WithReplacement(p, 2))
        p = [Fraction(3**900 - 1, 2 * 3**900), Fraction(3**900 + 1, 2 * 3**900)]
        problem = TransportProblem(p, WithReplacement(p, 2))
        save_problem(problem, tmp_path / "long.json")
        assert_same(problem, load_problem(tmp_path / "long.json"))

    def test_fractions_too_long_to_write(self, tmp_path: Path) -> None:
        p = [Fraction(10**5000 - 1, 2 * 10**5000), Fraction(10**5000 + 1, 2 * 10**5000)]
        with pytest.raises(InvalidInput, match="too long to write"):
            save_problem(TransportProblem(p, WithReplacement([0.5, 0.5], 2)), tmp_path / "x.json")
        assert list(tmp_path.iterdir()) == []

    def test_the_suffix_may_be_upper_case(self, tmp_path: Path) -> None:
        problem = float_problems()["greedy"]
        save_problem(problem, tmp_path / "problem.JSON")
        assert_same(problem, load_problem(tmp_path / "problem.JSON"))


def write(folder: Path, content: object, name: str = "problem.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


class TestReading:
    def test_numbers_and_strings(self, tmp_path: Path) -> None:
        problem = load_problem(write(tmp_path, SMALL))
        assert problem.exact_target[0] == Fraction(309, 500)
        assert problem.drafts.containment([True, True, False]) == 0.25

    def test_decimals_in_strings_are_exact(self, tmp_path: Path) -> None:
        content = SMALL | {"target": ["0.1", "2e-1", "+.7"]}
        exact = load_problem(write(tmp_path, content)).exact_target
        assert exact == (Fraction(1, 10), Fraction(1, 5), Fraction(7, 10))

    def test_floats_are_their_dyadics(self, tmp_path: Path) -> None:
        content = SMALL | {"target": [0.5, 0.1, 0.4]}
        total = Fraction(0.5) + Fraction(0.1) + Fraction(0.4)
        assert load_problem(write(tmp_path, content)).exact_target[1] == Fraction(0.1) / total

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            (SMALL | {"name": "a small one"}, "the problem has an unknown entry 'name'"),
            (SMALL | {"taget": [1]}, "unknown entry 'taget'. Did you mean 'target'"),
            *(
                ({"target": [1], "drafts": {"scheme": scheme, "num_draft": 5}},
                 "drafts has an unknown entry 'num_draft'. Did you mean 'num_drafts'")
                for scheme in ("with_replacement", "without_replacement", "greedy", "top_k")
            ),
            ({"target": [1], "drafts": {"scheme": "independent", "q": [[1]], "num_drafts": 2}},
             "drafts has an unknown entry 'num_drafts'"),
            ({"target": [1], "drafts": {"scheme": "set_law", "set": [[0]]}}, "mean 'sets'"),
            ({"target": [1], "drafts": {"scheme": "mixture", "mass": [1]}}, "mean 'masses'"),
            ({"target": [1], "drafts": {"scheme": "fixed_plus", "token": [1]}}, "mean 'tokens'"),
            ({"target": [1], "drafts": {"scheme": "mixture", "masses": [1], "components": [
                {"scheme": "fixed_plus", "tokens": [0], "drafts": {
                    "scheme": "independent", "q": [[1]], "seed": 0}}]}},
             r"drafts.components\[0\].drafts has an unknown entry 'seed'"),
        ],
    )  # fmt: skip
    def test_unknown_entries_are_refused_by_name(
        self, document: Any, message: str, tmp_path: Path
    ) -> None:
        with pytest.raises(UnreadableFile, match=message):
            load_problem(write(tmp_path, document))

    def test_set_law(self, tmp_path: Path) -> None:
        drafts = {"scheme": "set_law", "vocab_size": 3, "sets": [[0, 2], [1]]}
        problem = load_problem(
            write(tmp_path, {"target": [1, 0, 0], "drafts": drafts | {"masses": ["1/4", "3/4"]}})
        )
        assert problem.drafts.law(True).support_law().masses() == {
            (0, 2): Fraction(1, 4),
            (1,): Fraction(3, 4),
        }

    def test_independent(self, tmp_path: Path) -> None:
        drafts = {"scheme": "independent", "q": [["1/2", "1/2"], [0.25, 0.75]]}
        problem = load_problem(write(tmp_path, {"target": [0.5, 0.5], "drafts": drafts}))
        assert problem.drafts.law(True).containment([True, False]) == Fraction(1, 8)

    def test_a_byte_order_mark(self, tmp_path: Path) -> None:
        path = tmp_path / "problem.json"
        path.write_bytes(b"\xef\xbb\xbf" + json.dumps(SMALL).encode())
        assert load_problem(path).vocab_size == 3

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
    def test_arrays_made_elsewhere(self, dtype: type, tmp_path: Path) -> None:
        p, q = np.array([1, 0], dtype), np.array([[0, 1], [1, 0]], dtype)
        document = '{"drafts": {"scheme": "independent"}}'
        np.savez(tmp_path / "x.npz", **{"target": p, "drafts.q": q, "problem": document})
        assert load_problem(tmp_path / "x.npz").drafts.num_drafts == 2

    def test_bfloat16_from_safetensors(self, tmp_path: Path) -> None:
        import ml_dtypes
        from safetensors.numpy import save_file

        document = '{"drafts": {"scheme": "top_k", "num_drafts": 1}}'
        arrays = {"target": np.array([1.0, 0.0]), "drafts.q": np.array([0.25, 0.75])}
        arrays["drafts.q"] = arrays["drafts.q"].astype(ml_dtypes.bfloat16)
        save_file(arrays, tmp_path / "x.safetensors", {"problem": document})
        assert load_problem(tmp_path / "x.safetensors").drafts.law(True).support_law().masses() == {
            (1,): 1
        }


def altered(**changes: object) -> dict[str, Any]:
    """SMALL with other drafts."""
    return {"target": SMALL["target"], "drafts": {**SMALL["drafts"], **changes}}  # type: ignore[dict-item]


def without(name: str) -> dict[str, Any]:
    drafts = {key: x for key, x in SMALL["drafts"].items() if key != name}  # type: ignore[attr-defined]
    return {"target": SMALL["target"], "drafts": drafts}


SET_LAW = {"scheme": "set_law", "vocab_size": 3, "sets": [[0, 2], [1]], "masses": [0.25, 0.75]}

BROKEN = {
    "empty": ("", "is empty"),
    "blank": (" \n", "is empty"),
    "not json": ('{"target": [1,\n 2,, 3]}', r"not JSON: line 2, column 4"),
    "truncated": ('{"target": [1, 2', r"not JSON: line 1, column 17"),
    "nan": ('{"target": [NaN], "drafts": {}}', "NaN is not a number that JSON knows"),
    "infinity": ('{"target": [-Infinity]}', "-Infinity is not a number"),
    "repeated key": ('{"target": [1], "target": [2]}', "the key 'target' appears twice"),
    "too many digits": (f'{{"target": [{"1" * 5000}]}}', "5000 digits|too large"),
    "too large": (f'{{"target": [{"1" * 400}], "drafts": 0}}', r"target\[0\] is too large"),
    "nested": ("[" * 100_000, "nested too deeply"),
    "a list": ([1, 2], "the problem is a list, not an object"),
    "a number": (3, "the problem is 3, not an object"),
    "no target": ({"drafts": SMALL["drafts"]}, "no entry 'target'. It has: 'drafts'"),
    "no drafts": ({"target": [1.0]}, "no entry 'drafts'. It has: 'target'"),
    "drafts are a list": (SMALL | {"drafts": []}, "drafts is a list, not an object"),
    "no scheme": (without("scheme"), "drafts has no entry 'scheme'"),
    "no q": (without("q"), "drafts has no entry 'q'. It has: 'scheme', 'num_drafts'"),
    "no K": (without("num_drafts"), "drafts has no entry 'num_drafts'"),
    "K is a string": (altered(num_drafts="2"), "drafts.num_drafts is a string, not an integer"),
    "K is a float": (altered(num_drafts=2.5), "drafts.num_drafts is 2.5, not an integer"),
    "K is true": (altered(num_drafts=True), "drafts.num_drafts is true or false"),
    "K is zero": (altered(num_drafts=0), "num_drafts is 0: give an integer of at least 1"),
    "q is a number": (altered(q=1.0), "drafts.q is 1.0, not a list"),
    "q holds null": (altered(q=[None, 1, 0]), r"drafts.q\[0\] is null, not a number"),
    "q holds a list": (altered(q=[[1], 0, 0]), r"drafts.q\[0\] is a list, not a number"),
    "q holds true": (altered(q=[True, 0, 0]), r"drafts.q\[0\] is true or false, not a number"),
    "q is short": (altered(q=[0.5, 0.5]), "target has 3 tokens and the drafts have 2"),
    "q is empty": (altered(q=[]), r"drafts.q has shape \(0,\)"),
    "q sums to 2": (altered(q=[1, 1, 0]), "drafts.q sums to 2, not 1"),
    "q is negative": (altered(q=["-1/2", 1, "1/2"]), r"drafts.q\[0\] is -0.5, negative"),
    "words": (altered(q=["half", 0, 0]), r"drafts.q\[0\] is 'half': write numbers like '3/8'"),
    "no denominator": (altered(q=["1/0", 0, 0]), r"'1/0', which has denominator 0"),
    "endless exponent": (altered(q=["1e999999999", 0, 0]), r"'1e999999999': write numbers"),
    "endless digits": (
        altered(q=["1" * 9999, 0, 0]),
        r"drafts.q\[0\] is '1+...', which is too long",
    ),
    "other digits": (altered(q=["\u0661", 0, 0]), "write numbers like"),
    "spaced": (altered(q=[" 1 ", 0, 0]), "write numbers like"),
    "sets and masses": (SMALL | {"drafts": SET_LAW | {"masses": [1]}}, "2 sets and 1 masses"),
    "a set twice": (SMALL | {"drafts": SET_LAW | {"sets": [[1], [1]]}}, "lists one set twice"),
    "no set": (
        SMALL | {"drafts": SET_LAW | {"sets": [0, 1]}},
        r"drafts.sets\[0\] is 0, not a list",
    ),
    "token": (SMALL | {"drafts": SET_LAW | {"sets": [["0"], [1]]}}, r"sets\[0\]\[0\] is a string"),
    "token 3": (SMALL | {"drafts": SET_LAW | {"sets": [[3], [1]]}}, "a token outside 0..2"),
    "V": (SMALL | {"drafts": SET_LAW | {"vocab_size": 0}}, "vocab_size is 0"),
    "no models": (SMALL | {"drafts": {"scheme": "independent", "q": []}}, "no draft distribution"),
    "flat models": (
        SMALL | {"drafts": {"scheme": "independent", "q": [0.5, 0.5]}},
        r"drafts.q\[0\] is 0.5, not a list",
    ),
    "mixture": (
        SMALL | {"drafts": {"scheme": "mixture", "masses": [1], "components": []}},
        "0 components and 1 masses",
    ),
    "mixture of two vocabularies": (
        SMALL
        | {
            "drafts": {
                "scheme": "mixture",
                "masses": [0.5, 0.5],
                "components": [
                    altered()["drafts"],
                    {"scheme": "with_replacement", "q": [1], "num_drafts": 1},
                ],
            }
        },
        "must share a vocabulary",
    ),
    "fixed": (
        SMALL | {"drafts": {"scheme": "fixed_plus", "tokens": [7], "drafts": SMALL["drafts"]}},
        "not all in 0..2",
    ),
}


class TestBroken:
    @pytest.mark.parametrize("case", BROKEN)
    def test_json(self, case: str, tmp_path: Path) -> None:
        content, message = BROKEN[case]
        path = write(tmp_path, content)
        with pytest.raises(UnreadableFile, match=message) as caught:
            load_problem(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("scheme", ["with_replacment", "", 3, None, ["greedy"], "DraftSetLaw"])
    def test_unknown_schemes_are_listed(self, scheme: object, tmp_path: Path) -> None:
        # Between them may stand what other tests have asked for by "module:attribute".
        known = "fixed_plus, greedy, independent, mixture, set_law,.* top_k, with_re.*, without_rep"
        with pytest.raises(UnknownName, match=known):
            load_problem(write(tmp_path, altered(scheme=scheme)))

    def test_a_misspelt_scheme_is_guessed(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownName, match="Did you mean 'with_replacement'"):
            load_problem(write(tmp_path, altered(scheme="with_replacment")))

    def test_not_text(self, tmp_path: Path) -> None:
        path = tmp_path / "problem.json"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(UnreadableFile, match="byte 0 is not UTF-8"):
            load_problem(path)

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_missing(self, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match=f"absent{suffix} does not exist"):
            load_problem(tmp_path / f"absent{suffix}")

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_a_folder(self, suffix: str, tmp_path: Path) -> None:
        (tmp_path / f"folder{suffix}").mkdir()
        with pytest.raises(UnreadableFile, match="is a folder"):
            load_problem(tmp_path / f"folder{suffix}")

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_no_regular_file(self, suffix: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / f"pipe{suffix}")  # reading it would wait for ever
        with pytest.raises(UnreadableFile, match="not a regular file"):
            load_problem(tmp_path / f"pipe{suffix}")

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_empty(self, suffix: str, tmp_path: Path) -> None:
        path = tmp_path / f"empty{suffix}"
        path.touch()
        with pytest.raises(UnreadableFile, match=r"empty|truncated"):
            load_problem(path)

    @pytest.mark.parametrize("name", ["problem.txt", "problem", "problem.json.gz", "problem.pt"])
    def test_other_suffixes(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match=r"Known: \.json.*\.npz.*\.safetensors"):
            load_problem(write(tmp_path, SMALL, name))

    def test_a_null_in_the_name(self) -> None:
        with pytest.raises(UnreadableFile, match="cannot read"):
            load_problem("a\0b.json")

    def test_without_the_string(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", target=np.ones(1), q=np.ones(1))
        with pytest.raises(UnreadableFile, match=r"no array 'problem'. It has: 'q', 'target'"):
            load_problem(tmp_path / "x.npz")

    def test_logits_are_no_problem(self, tmp_path: Path) -> None:
        from safetensors.numpy import save_file

        logits = {"target": np.ones(2), "draft": np.ones(2)}
        np.savez(tmp_path / "x.npz", **logits)
        save_file(logits, tmp_path / "x.safetensors")
        for suffix in (".npz", ".safetensors"):
            with pytest.raises(UnreadableFile, match=r"holds logits.*\.from_logits"):
                load_problem(tmp_path / f"x{suffix}")

    def test_arrays_without_a_place(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", **{"problem": json.dumps(SMALL), "drafts.q.7": np.ones(1)})
        with pytest.raises(UnreadableFile, match=r"'drafts\.q\.7' that has no place"):
            load_problem(tmp_path / "x.npz")

    def test_arrays_of_text(self, tmp_path: Path) -> None:
        document = '{"drafts": {"scheme": "top_k", "num_drafts": 1, "q": [1]}}'
        np.savez(tmp_path / "x.npz", problem=document, target=np.array(["a"]))
        with pytest.raises(UnreadableFile, match="target has dtype <U1, not numbers"):
            load_problem(tmp_path / "x.npz")

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_every_truncation(self, suffix: str, tmp_path: Path) -> None:
        path = tmp_path / f"problem{suffix}"
        save_problem(float_problems()["independent"], path)
        whole = path.read_bytes()
        for length in range(0, len(whole) - 2, 7):
            path.write_bytes(whole[:length])
            with pytest.raises(UnreadableFile) as caught:
                load_problem(path)
            assert "\n" not in str(caught.value)


class Evil:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.path), "w"))


class TestHostile:
    def test_pickles_are_never_loaded(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        np.savez(tmp_path / "x.npz", problem=np.array([Evil(mark)], dtype=object))
        with pytest.raises(UnreadableFile, match="Python objects, which only pickle can read"):
            load_problem(tmp_path / "x.npz")
        (tmp_path / "y.npz").write_bytes(pickle.dumps(Evil(mark)))
        with pytest.raises(UnreadableFile, match=r"not a \.npz file"):
            load_problem(tmp_path / "y.npz")
        assert not mark.exists()

    def test_a_header_that_claims_more_than_is_there(self, tmp_path: Path) -> None:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
        )
        path = tmp_path / "x.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("target.npy", header.getvalue() + bytes(64))
        with pytest.raises(UnreadableFile, match=r"truncated.*takes 8,000,000,000,000,000 bytes"):
            load_problem(path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"\xff" * 8, "announces a header of"),
            ((10**9).to_bytes(8, "little") + b"{}", "announces a header of 1,000,000,000"),
            ((2).to_bytes(8, "little") + b"[]", "not a JSON object"),
            ((1).to_bytes(8, "little") + b"{", "not JSON"),
        ],
    )
    def test_safetensors_headers(self, content: bytes, message: str, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        path.write_bytes(content)
        with pytest.raises(UnreadableFile, match=message):
            load_problem(path)

    def test_a_safetensors_header_over_the_limit_of_the_format(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        with path.open("wb") as file:
            file.write((10**8 + 1).to_bytes(8, "little"))
            file.truncate(2 * 10**8)  # a sparse file: the bytes are "there"
        with pytest.raises(UnreadableFile, match="over the format's limit"):
            load_problem(path)

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ({"dtype": "F64", "shape": [2]}, "needs dtype, shape and data_offsets"),
            (3, "needs dtype, shape and data_offsets"),
            ({"dtype": "F64", "shape": [2], "data_offsets": [0]}, "needs dtype, shape"),
            ({"dtype": "Q4", "shape": [2], "data_offsets": [0, 16]}, "dtype 'Q4'.*among F64"),
            ({"dtype": "F64", "shape": [-2], "data_offsets": [0, 16]}, "at least 0"),
            ({"dtype": "F64", "shape": [2.0], "data_offsets": [0, 16]}, "not integers"),
            ({"dtype": "F64", "shape": [2], "data_offsets": [0, 99]}, "truncated: it ends at"),
            ({"dtype": "F64", "shape": [2], "data_offsets": [16, 0]}, "truncated"),
            ({"dtype": "F64", "shape": [3], "data_offsets": [0, 16]}, "do not make shape"),
            ({"dtype": ["F64"], "shape": [2], "data_offsets": [0, 16]}, "dtype"),
        ],
    )
    def test_safetensors_entries(self, entry: object, message: str, tmp_path: Path) -> None:
        header = json.dumps({"x": entry}).encode()
        path = tmp_path / "x.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
        with pytest.raises(UnreadableFile, match=message):
            read_safetensors(path)

    def test_safetensors_metadata_are_strings(self, tmp_path: Path) -> None:
        header = b'{"__metadata__": {"a": 1}}'
        path = tmp_path / "x.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(UnreadableFile, match="metadata that do not map names to strings"):
            read_safetensors(path)


class TestWriting:
    def test_unknown_suffix(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match=r"suffix '.pkl'. Known: \.json"):
            save_problem(float_problems()["top_k"], tmp_path / "x.pkl")

    def test_unknown_scheme(self, tmp_path: Path) -> None:
        class Mine(DraftScheme):
            pass

        Mine.__abstractmethods__ = frozenset()
        drafts = Mine()
        drafts.scheme, drafts.vocab_size, drafts.num_drafts = "mine", 1, 1
        with pytest.raises(UnsupportedScheme, match="type Mine have no file format"):
            save_problem(TransportProblem([1.0], drafts), tmp_path / "x.json")

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_no_such_folder(self, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match=r"cannot write .*No such file or directory"):
            save_problem(float_problems()["top_k"], tmp_path / "absent" / f"x{suffix}")

    def test_the_folder_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(InvalidInput, match="cannot write"):
            save_problem(float_problems()["top_k"], tmp_path / "file" / "x.json")

    def test_the_file_is_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").mkdir()
        with pytest.raises(InvalidInput, match="it is a folder"):
            save_problem(float_problems()["top_k"], tmp_path / "x.json")

    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"old")

        def fail_half_way() -> None:
            with atomic_write(path) as file:
                file.write(b"half of the n")
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail_half_way()
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_the_old_file_stays_until_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"old")
        with atomic_write(path) as file:
            file.write(b"new")
            file.flush()
            assert path.read_bytes() == b"old"
        assert path.read_bytes() == b"new"
        assert list(tmp_path.iterdir()) == [path]

    def test_links_are_written_through(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "real")
        with atomic_write(tmp_path / "link") as file:
            file.write(b"x")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == b"x"

    def test_usual_permissions(self, tmp_path: Path) -> None:
        with atomic_write(tmp_path / "atomic"):
            pass
        (tmp_path / "plain").touch()
        assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_read_json_gives_plain_values(tmp_path: Path) -> None:
    assert read_json(write(tmp_path, {"a": [1, 2.5, None]})) == {"a": [1, 2.5, None]}
