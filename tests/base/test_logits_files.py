"""Logits in files: every format and dtype, and one clear line for every broken file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import mdsd_opt as mo
from mdsd_opt import softmax
from mdsd_opt.base.files.arrays import read_npy
from mdsd_opt.base.files.logits import LogitsSample, load_logits
from mdsd_opt.errors import InvalidInput, MdsdError, MissingExtra, UnreadableFile

RNG = np.random.default_rng(4)
TARGET, DRAFT = RNG.normal(size=(2, 2, 3, 7)).astype(np.float32)
IDS = {
    "sequence": np.array([[0, 0, 0], [1, 1, 1]]),
    "position": np.array([[0, 1, 2], [0, 1, 2]], np.int32),
    "tokens": np.array([[4, 5, 6], [0, 1, 2]], np.uint16),
}


def write(folder: Path, suffix: str, metadata: str | None = None, **arrays: np.ndarray) -> object:
    """Write arrays in one of the three formats; gives what `load_logits` takes."""
    if suffix == ".npz":
        named = arrays if metadata is None else {**arrays, "metadata": np.array(metadata)}
        np.savez_compressed(folder / "x.npz", **named)
        return folder / "x.npz"
    if suffix == ".safetensors":
        save_file(
            {name: np.array(x, order="C") for name, x in arrays.items()},
            folder / "x.safetensors",
            None if metadata is None else {"metadata": metadata},
        )
        return str(folder / "x.safetensors")
    for name in ("target", "draft"):
        if name in arrays:
            np.save(folder / f"{name}.npy", arrays[name])
    return folder / "target.npy", folder / "draft.npy"


FORMATS = [".npz", ".safetensors", ".npy"]


class TestReading:
    @pytest.mark.parametrize("suffix", FORMATS)
    @pytest.mark.parametrize(
        "dtype", [np.float16, np.float32, np.float64, np.int32, np.int8, np.uint8]
    )
    def test_dtype_and_values_are_kept(self, dtype: type, suffix: str, tmp_path: Path) -> None:
        target, draft = (10 * TARGET).astype(dtype), (9 * DRAFT).astype(dtype)
        sample = load_logits(write(tmp_path, suffix, target=target, draft=draft))
        assert isinstance(sample, LogitsSample)
        for found, expected in [(sample.target, target), (sample.draft, draft)]:
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected)
        assert (sample.num_positions, sample.vocab_size) == (6, 7)
        assert sample.sequence is sample.position is sample.tokens is None
        assert sample.metadata == {}

    @pytest.mark.parametrize(
        "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
    )
    def test_short_floats_of_safetensors(self, dtype: type, tmp_path: Path) -> None:
        target, draft = TARGET.astype(dtype), DRAFT.astype(dtype)
        header = {
            ml_dtypes.bfloat16: "BF16",
            ml_dtypes.float8_e4m3fn: "F8_E4M3",
            ml_dtypes.float8_e5m2: "F8_E5M2",
        }[dtype]
        path = write(tmp_path, ".safetensors", target=target, draft=draft)
        assert f'"{header}"'.encode() in Path(str(path)).read_bytes()
        sample = load_logits(path)
        assert sample.target.dtype == dtype
        assert sample.target.tobytes() == target.tobytes()
        np.testing.assert_array_equal(softmax(sample.draft), softmax(draft.astype(np.float64)))

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_ids_and_metadata(self, suffix: str, tmp_path: Path) -> None:
        source = write(
            tmp_path, suffix, '{"model": "small", "layers": 4}', target=TARGET, draft=DRAFT, **IDS
        )
        sample = load_logits(source)
        for name, expected in IDS.items():
            found = getattr(sample, name)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, expected)
        assert sample.metadata == {"model": "small", "layers": 4}
        assert sample.source == str(source)

    @pytest.mark.parametrize("text", ["made by hand", "[1, 2]", "{broken"])
    def test_metadata_that_is_only_text(self, text: str, tmp_path: Path) -> None:
        for suffix in (".npz", ".safetensors"):
            sample = load_logits(write(tmp_path, suffix, text, target=TARGET, draft=DRAFT))
            assert sample.metadata == {"text": text}

    def test_plain_safetensors_metadata(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        save_file({"target": TARGET, "draft": DRAFT}, path, {"model": "small"})
        assert load_logits(path).metadata == {"model": "small"}

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_one_position(self, suffix: str, tmp_path: Path) -> None:
        arrays = {"target": TARGET[0, 0], "draft": DRAFT[0, 0]}
        if suffix != ".npy":
            arrays["tokens"] = np.array(3)
        sample = load_logits(write(tmp_path, suffix, **arrays))
        assert sample.target.shape == (7,)
        assert sample.num_positions == 1

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_no_positions(self, suffix: str, tmp_path: Path) -> None:
        source = write(tmp_path, suffix, target=TARGET[:0], draft=DRAFT[:0])
        assert load_logits(source).num_positions == 0

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_vocabularies_may_differ(self, suffix: str, tmp_path: Path) -> None:
        sample = load_logits(write(tmp_path, suffix, target=TARGET, draft=DRAFT[..., :5]))
        assert sample.draft.shape == (2, 3, 5)
        assert sample.vocab_size == 7

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_fortran_order(self, suffix: str, tmp_path: Path) -> None:
        target = np.asfortranarray(TARGET)
        sample = load_logits(write(tmp_path, suffix, target=target, draft=DRAFT))
        np.testing.assert_array_equal(sample.target, TARGET)

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_arrays_are_read_only(self, suffix: str, tmp_path: Path) -> None:
        sample = load_logits(write(tmp_path, suffix, target=TARGET, draft=DRAFT))
        with pytest.raises(ValueError, match="read-only"):
            sample.target[0] = 0.0

    @pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
    def test_files_are_mapped_not_read(self, suffix: str, tmp_path: Path) -> None:
        sample = load_logits(write(tmp_path, suffix, target=TARGET, draft=DRAFT))
        base: object = sample.target
        while not isinstance(base, np.memmap):
            assert isinstance(base, np.ndarray), "no memory map below the array"
            base = base.base

    def test_tensors_that_are_not_aligned(self, tmp_path: Path) -> None:
        """The format packs tensors byte by byte: an odd one shifts all that follow."""
        path = tmp_path / "x.safetensors"
        body = bytes(3) + TARGET.tobytes() + DRAFT.tobytes()
        size = TARGET.nbytes
        header = (
            '{"odd":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},'
            f'"target":{{"dtype":"F32","shape":[2,3,7],"data_offsets":[3,{3 + size}]}},'
            '"draft":{"dtype":"F32","shape":[2,3,7],'
            f'"data_offsets":[{3 + size},{3 + 2 * size}]}}}}'
        ).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + body)
        sample = load_logits(path)
        assert sample.target.flags.aligned
        np.testing.assert_array_equal(sample.draft, DRAFT)

    def test_repr_is_short(self, tmp_path: Path) -> None:
        sample = load_logits(write(tmp_path, ".npz", target=TARGET, draft=DRAFT))
        assert "(2, 3, 7) float32" in repr(sample)


class TestBroken:
    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_missing_arrays_name_those_present(self, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match=r"no array 'draft'. It has: 'logits', 'target'"):
            load_logits(write(tmp_path, suffix, target=TARGET, logits=DRAFT))

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_no_arrays_at_all(self, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match=r"no array 'target'. It has: none"):
            load_logits(write(tmp_path, suffix))

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_shapes_that_do_not_fit(self, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(
            UnreadableFile, match=r"target has shape \(2, 3, 7\) and draft \(3, 7\)"
        ):
            load_logits(write(tmp_path, suffix, target=TARGET, draft=DRAFT[0]))

    @pytest.mark.parametrize(
        "array", [TARGET.astype(complex), TARGET.astype(str), TARGET > 0, TARGET.astype("M8[s]")]
    )
    @pytest.mark.parametrize("suffix", [".npz", ".npy"])
    def test_what_holds_no_logits(self, array: np.ndarray, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match=r"draft has dtype .* holds no logits"):
            load_logits(write(tmp_path, suffix, target=TARGET, draft=array))

    @pytest.mark.parametrize("suffix", [".npz", ".npy"])
    def test_objects_are_never_unpickled(self, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match="holds Python objects"):
            load_logits(write(tmp_path, suffix, target=TARGET, draft=TARGET.astype(object)))

    @pytest.mark.parametrize("suffix", [".npz", ".npy"])
    def test_bfloat16_does_not_survive_numpy(self, suffix: str, tmp_path: Path) -> None:
        bf16 = TARGET.astype(ml_dtypes.bfloat16)
        with pytest.raises(
            UnreadableFile, match=r"cannot name bfloat16 .*: save them in \.safetensors"
        ):
            load_logits(write(tmp_path, suffix, target=bf16, draft=bf16))

    @pytest.mark.parametrize("suffix", FORMATS)
    @pytest.mark.parametrize("shape", [(), (2, 0)])
    def test_no_tokens(self, shape: tuple[int, ...], suffix: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match="the last axis must hold the tokens"):
            load_logits(write(tmp_path, suffix, target=np.zeros(shape), draft=np.zeros(shape)))

    @pytest.mark.parametrize(
        "ids", [np.zeros((2, 3)), np.zeros(3, int), np.zeros((2, 3), bool), np.zeros((2, 3), "U1")]
    )
    def test_ids_are_integers_for_each_row(self, ids: np.ndarray, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match=r"tokens has shape .* shape \(2, 3\)"):
            load_logits(write(tmp_path, ".npz", target=TARGET, draft=DRAFT, tokens=ids))

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_missing_file(self, suffix: str, tmp_path: Path) -> None:
        with pytest.raises(UnreadableFile, match="does not exist"):
            load_logits(tmp_path / f"absent{suffix}")

    def test_missing_half_of_a_pair(self, tmp_path: Path) -> None:
        source = write(tmp_path, ".npy", target=TARGET)
        with pytest.raises(UnreadableFile, match=r"draft.npy does not exist"):
            load_logits(source)

    def test_one_npy_is_not_enough(self, tmp_path: Path) -> None:
        write(tmp_path, ".npy", target=TARGET)
        with pytest.raises(InvalidInput, match=r"holds one array: give two \.npy files"):
            load_logits(tmp_path / "target.npy")

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_a_pair_is_two(self, count: int) -> None:
        with pytest.raises(InvalidInput, match=f"{count} files given"):
            load_logits(["a.npy"] * count)

    def test_a_pair_is_of_npy_files(self, tmp_path: Path) -> None:
        path = write(tmp_path, ".npz", target=TARGET, draft=DRAFT)
        with pytest.raises(UnreadableFile, match=r"suffix '\.npz'. Known: \.npy"):
            load_logits([path, path])

    def test_unknown_suffix(self) -> None:
        with pytest.raises(
            UnreadableFile, match=r"suffix '\.bin'. Known: \.npz.*\.safetensors.*\.pt.*\.npy"
        ):
            load_logits("logits.bin")

    def test_memory_limit(self, tmp_path: Path) -> None:
        source = write(tmp_path, ".npz", target=TARGET, draft=DRAFT)
        assert load_logits(source, max_bytes=10_000).num_positions == 6
        with pytest.raises(UnreadableFile, match="over the limit"):
            load_logits(source, max_bytes=500)

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_every_truncation(self, suffix: str, tmp_path: Path) -> None:
        source = write(tmp_path, suffix, target=TARGET, draft=DRAFT)
        path = Path(source[1] if isinstance(source, tuple) else source)  # type: ignore[arg-type]
        whole = path.read_bytes()
        for length in range(0, len(whole), 9):
            path.write_bytes(whole[:length])
            with pytest.raises(UnreadableFile):
                load_logits(source)  # type: ignore[arg-type]

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_flipped_bytes_never_escape(self, suffix: str, tmp_path: Path) -> None:
        source = write(tmp_path, suffix, '{"a": 1}', target=TARGET, draft=DRAFT, **IDS)
        path = Path(source[1] if isinstance(source, tuple) else source)  # type: ignore[arg-type]
        whole = path.read_bytes()
        rng = np.random.default_rng(5)
        headers = len(whole) if suffix == ".npz" else 250  # the rest is numbers: all are legal
        refused = 0
        for _ in range(300):
            damaged = bytearray(whole)
            damaged[rng.integers(headers)] = rng.integers(256)
            path.write_bytes(damaged)
            try:
                load_logits(source)  # type: ignore[arg-type]
            except MdsdError:
                refused += 1
        assert refused > 50

    def test_a_huge_header_is_not_evaluated(self, tmp_path: Path) -> None:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1, " * 50_000 + b")}\n"
        path = tmp_path / "x.npy"
        path.write_bytes(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header)
        with pytest.raises(UnreadableFile, match=r"not a \.npy array") as caught:
            read_npy(path)
        assert "\n" not in str(caught.value)

    def test_records_are_no_numbers(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.zeros(3, dtype=[("a", "f4")]))
        with pytest.raises(UnreadableFile, match="which is not a number"):
            read_npy(tmp_path / "x.npy")


class TestTexts:
    def test_the_first_of_several_axes_are_the_texts(self, tmp_path: Path) -> None:
        sample = load_logits(write(tmp_path, ".npz", target=TARGET, draft=DRAFT))
        assert sample.texts is not None
        assert sample.texts.tolist() == [0, 0, 0, 1, 1, 1]
        flat = {"target": TARGET.reshape(6, -1), "draft": DRAFT.reshape(6, -1)}
        assert load_logits(write(tmp_path, ".npz", **flat)).texts is None
        named = load_logits(
            write(tmp_path, ".npz", target=TARGET, draft=DRAFT, sequence=[[7, 7, 8], [8, 9, 9]])
        )
        assert named.texts is not None
        assert named.texts.tolist() == [7, 7, 8, 8, 9, 9]

    def test_intervals_are_over_them(self, run_cli: Any, tmp_path: Path) -> None:
        source = write(tmp_path, ".npz", target=TARGET, draft=DRAFT)
        done = run_cli("rates", source, "--json", "-k", "2")
        document = json.loads(done.stdout)
        assert document["interval_over"] == "sequences"
        assert {row["num_groups"] for row in document["rows"]} == {2}
        compared = mo.compare_draft_schemes(TARGET, DRAFT, 2, schemes=["greedy"])
        assert compared.rates[0].acceptance.num_groups == 2


class TestParts:
    """Large files are worked through in parts, with the numbers of the whole."""

    @pytest.mark.parametrize("suffix", FORMATS)
    @pytest.mark.parametrize("kind", [None, "probs", "logprobs"])
    def test_of_any_size(
        self, suffix: str, kind: str | None, run_cli: Any, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        p, q = (mo.softmax(side) for side in (TARGET, DRAFT))
        sides = (p, q) if kind == "probs" else (np.log(p), np.log(q))
        source = write(tmp_path, suffix, target=sides[0], draft=sides[1])
        files = [*source] if isinstance(source, tuple) else [source]
        arguments = ["rates", *files, "--csv", "-k", "2", *(["--kind", kind] if kind else [])]
        expected = run_cli(*arguments)
        monkeypatch.setattr("mdsd_opt.base.files.logits.CHUNK_BYTES", 2 * 2 * 7 * 8)
        sample = load_logits(source)
        assert [start for start, _ in sample.parts(kind)] == [0, 2, 4]
        found = run_cli(*arguments, "--progress")
        assert found.returncode == 0, found.stderr
        assert found.stdout == expected.stdout
        assert "acceptance rates" in found.stderr

    def test_a_bad_row_is_named_with_its_part(
        self, run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = TARGET.reshape(6, 7).copy()
        target[3, 0] = np.nan
        source = write(tmp_path, ".npz", target=target, draft=DRAFT.reshape(6, 7))
        monkeypatch.setattr("mdsd_opt.base.files.logits.CHUNK_BYTES", 2 * 2 * 7 * 4)
        assert "begins with position 2: target_logits row 1 has a NaN" in run_cli.refusal(
            "rates", source, "-k", "2"
        )

    @pytest.mark.skipif(sys.platform != "linux", reason="the peak in /proc is Linux's")
    def test_memory_does_not_grow_with_the_file(self, tmp_path: Path) -> None:
        """Two sparse files of 1 GB: all their zeros are read, and a fraction is ever resident."""
        header = {"descr": "<f2", "fortran_order": False, "shape": (1 << 10, 1 << 19)}
        files = []
        for name in ("target", "draft"):
            files.append(tmp_path / f"{name}.npy")
            with files[-1].open("wb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                file.truncate(file.tell() + (1 << 30))
        program = (
            "import re, sys\n"
            "from mdsd_opt.cli import main\n"
            "try:\n    main()\nfinally:\n"
            "    status = open('/proc/self/status').read()\n"
            "    print(re.search(r'VmHWM:\\s*(\\d+)', status)[1])\n"
        )
        options = ["-k", "1", "--schemes", "top_k", "--verifiers", "optimal", "--csv"]
        done = subprocess.run(
            [sys.executable, "-c", program, "rates", *map(str, files), *options],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[-1]) < 600 << 10
        assert f"top_k,1,optimal,{1 / (1 << 19)}" in done.stdout


class TestTorchFiles:
    def test_without_torch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        (tmp_path / "x.pt").write_bytes(b"PK")
        with pytest.raises(MissingExtra, match=r"PyTorch.*pip install"):
            load_logits(tmp_path / "x.pt")
