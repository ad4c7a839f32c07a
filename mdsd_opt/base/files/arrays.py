"""Arrays from files that may be broken or hostile: .npy, .npz, .safetensors, .pt; never code.

Every size that a header claims is held against the bytes that are there before memory is taken.
All but those of .npz files are memory maps.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import frozen, to_numpy
from mdsd_opt.base.files import atomic_write, file_size, parse_json, path_of, unreadable
from mdsd_opt.errors import MdsdError, MissingExtra, UnreadableFile

Arrays = dict[str, NDArray[Any]]

#: Most bytes that the arrays of one compressed file may take in memory.
MAX_UNPACKED_BYTES = 4 * 1024**3

# Read here and not by `safetensors.safe_open`, which as of 0.8.0 reads a tensor into memory as a
# whole and twice, has no 8-bit floats for NumPy, and does not mind two tensors of one name.

#: Most bytes of the header of a .safetensors file (the format's own limit).
_MAX_SAFETENSORS_HEADER = 100_000_000

_SAFETENSORS_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Memory-map the array of a .npy file.

    Raises `UnreadableFile` if it is missing, truncated, not a .npy file, or of Python objects.
    """
    size = file_size(path)
    try:
        with Path(path).open("rb") as file:
            shape, fortran, dtype = _npy_header(file, str(path))
            offset = file.tell()
    except OSError as error:
        raise unreadable(path, error) from error
    _require_bytes(str(path), shape, dtype, size - offset)
    if prod(shape) == 0:
        return frozen(np.empty(shape, dtype))
    order: Any = "F" if fortran else "C"
    return np.asarray(np.memmap(path, dtype, "r", offset, shape, order))


def read_npz(path: str | os.PathLike[str], max_bytes: int = MAX_UNPACKED_BYTES) -> Arrays:
    """Read every array of a .npz file.

    Raises `UnreadableFile` if it is missing, truncated, not a .npz file, has arrays of Python
    objects, or a directory that announces more than `max_bytes`.
    """
    file_size(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            announced = sum(member.file_size for member in members)
            if announced > max_bytes:
                raise UnreadableFile(
                    f"{path} unpacks to {announced / 1e9:.3g} GB, over the limit of "
                    f"{max_bytes / 1e9:.3g} GB. Store it in parts, or uncompressed as .npy or "
                    ".safetensors, which are not read into memory."
                )
            return {
                member.filename.removesuffix(".npy"): _npz_member(archive, member, str(path))
                for member in members
            }
    except zipfile.BadZipFile as error:
        raise UnreadableFile(f"{path} is not a .npz file, or truncated: {error}") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except UnreadableFile:
        raise
    except (ValueError, EOFError, RuntimeError, zlib.error) as error:
        # RuntimeError: encrypted, or compressed in a way that zipfile does not know
        raise UnreadableFile(f"cannot read {path}: {error}") from error


def _npz_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, source: str) -> NDArray[Any]:
    name = f"array {member.filename.removesuffix('.npy')!r} of {source}"
    with archive.open(member) as file:
        shape, fortran, dtype = _npy_header(file, name)
        _require_bytes(name, shape, dtype, member.file_size - file.tell())
        content = file.read()
    _require_bytes(name, shape, dtype, len(content))
    flat = np.frombuffer(content, dtype, count=prod(shape))
    return flat.reshape(shape, order="F" if fortran else "C")


def _npy_header(file: Any, source: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(file)
        else:  # 2.0 differs in the length field, 3.0 in the encoding of field names only
            header = np.lib.format.read_array_header_2_0(file)
    except OSError:
        raise
    except Exception as error:  # NumPy evaluates the header as Python: anything can go wrong
        reason = str(error).partition("\n")[0]
        raise UnreadableFile(f"{source} is not a .npy array, or truncated: {reason}") from error
    shape, fortran, dtype = header
    if dtype.hasobject:
        raise UnreadableFile(
            f"{source} holds Python objects, which only pickle can read, and a pickle can run any "
            "code. Save an array of numbers."
        )
    if dtype.kind == "V":
        raise UnreadableFile(
            f"{source} has dtype {dtype}, which is not a number. A .npy file cannot name bfloat16 "
            "or 8-bit floats: save them in .safetensors, or as float32."
        )
    return shape, bool(fortran), dtype


def _require_bytes(source: str, shape: tuple[int, ...], dtype: np.dtype[Any], there: int) -> None:
    needed = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or needed > there:
        raise UnreadableFile(
            f"{source} is truncated: shape {shape} of {dtype} takes {needed:,} bytes, "
            f"{there:,} are there"
        )


def read_safetensors(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, str]]:
    """Arrays, memory-mapped, and metadata of a .safetensors file; bfloat16 as `ml_dtypes.bfloat16`.

    Raises `UnreadableFile` if it is missing, truncated, not a .safetensors file, or of a dtype that
    NumPy has not.
    """
    size = file_size(path)
    try:
        with Path(path).open("rb") as file:
            header, start = _safetensors_header(file, size, str(path))
    except OSError as error:
        raise unreadable(path, error) from error
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise UnreadableFile(f"{path} has metadata that do not map names to strings")
    content = np.memmap(path, np.uint8, "r") if size > start else np.empty(0, np.uint8)
    body = np.asarray(content)[start:]
    arrays = {name: _tensor(body, name, entry, str(path)) for name, entry in header.items()}
    return arrays, metadata


def write_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays as a .safetensors file, atomically and without a copy in memory.

    Raises `InvalidInput` where the file cannot be written: no such folder, no permission, no room.
    """
    codes = {name: code for code, name in _SAFETENSORS_DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata or {})}
    offset = 0
    for name, array in arrays.items():
        end = offset + array.nbytes
        header[name] = {
            "dtype": codes[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays are aligned
    with atomic_write(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _safetensors_header(file: BinaryIO, size: int, source: str) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise UnreadableFile(
            f"{source} is not a .safetensors file, or truncated: it announces a header of "
            f"{length:,} bytes and has {max(size - 8, 0):,}"
        )
    if length > _MAX_SAFETENSORS_HEADER:
        raise UnreadableFile(
            f"{source} announces a header of {length:,} bytes, over the format's limit of "
            f"{_MAX_SAFETENSORS_HEADER:,}"
        )
    header = parse_json(file.read(length), f"the header of {source}")
    if not isinstance(header, dict):
        raise UnreadableFile(f"the header of {source} is not a JSON object")
    return header, 8 + length


def _tensor(body: NDArray[np.uint8], name: str, entry: Any, source: str) -> NDArray[Any]:
    where = f"array {name!r} of {source}"
    try:
        code, shape = entry["dtype"], tuple(entry["shape"])
        start, stop = entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise UnreadableFile(
            f"{where} needs dtype, shape and data_offsets in its header"
        ) from error
    if not all(type(x) is int and x >= 0 for x in (*shape, start, stop)):
        raise UnreadableFile(f"{where} has sizes or offsets that are not integers of at least 0")
    if not isinstance(code, str) or code not in _SAFETENSORS_DTYPES:
        known = ", ".join(_SAFETENSORS_DTYPES)
        raise UnreadableFile(f"{where} has dtype {code!r}, which is not among {known}")
    dtype = _dtype(_SAFETENSORS_DTYPES[code])
    if not start <= stop <= body.size:
        raise UnreadableFile(
            f"{where} is truncated: it ends at byte {stop:,}, {body.size:,} are there"
        )
    if stop - start != prod(shape) * dtype.itemsize:
        raise UnreadableFile(
            f"{where} has {stop - start:,} bytes, which do not make shape {shape} of {dtype}"
        )
    raw = body[start:stop]
    if raw.ctypes.data % dtype.alignment:  # the format aligns nothing
        raw = raw.copy()
    return frozen(raw.view(dtype).reshape(shape))


def _dtype(name: str) -> np.dtype[Any]:
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes

        name = getattr(ml_dtypes, name)
    return np.dtype(name)


def text_of(array: NDArray[Any]) -> str | None:
    """String that a 0-d unicode array holds, or None if it is not one."""
    return str(array[()]) if array.ndim == 0 and array.dtype.kind == "U" else None


def missing_array(
    source: str, name: str, arrays: Mapping[str, Any], kind: str = "array"
) -> UnreadableFile:
    """Error that names the arrays, or parts of another kind, that a file has instead."""
    present = ", ".join(repr(x) for x in sorted(arrays)) or "none"
    return UnreadableFile(f"{source} has no {kind} {name!r}. It has: {present}.")


def checked_suffix(
    path: str | os.PathLike[str], known: Mapping[str, str], error: type[MdsdError]
) -> str:
    """Suffix of `path` in lower case, or an error that lists the known ones."""
    suffix = path_of(path).suffix.lower()
    if suffix not in known:
        listed = ", ".join(f"{name} ({kind})" for name, kind in known.items())
        raise error(f"{path} has the suffix {suffix!r}. Known: {listed}.")
    return suffix


def read_torch(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a .pt file that holds a dictionary of tensors.

    Raises `UnreadableFile` if it is missing, truncated, or a pickle of anything else, and
    `MissingExtra` where PyTorch is not installed.
    """
    content = _loaded(path)
    if not isinstance(content, Mapping):
        raise UnreadableFile(
            f"{path} holds a {type(content).__name__}: save a dictionary with tensors 'target' and "
            "'draft', or give one file for each"
        )
    return {str(name): _array(tensor, path) for name, tensor in content.items()}


def only_tensor(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Array of a .pt file that holds one tensor; errors as `read_torch`."""
    return _array(_loaded(path), path)


def _loaded(path: str | os.PathLike[str]) -> Any:
    file_size(path)
    try:
        import torch
    except ImportError as error:
        raise MissingExtra.of("PyTorch", "models", f"reading {path}") from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # zip, pickle, and what PyTorch itself finds wrong
        reason = str(error).partition("\n")[0].partition(". ")[0][:200]  # without ways around it
        raise UnreadableFile(
            f"{path} is no file of tensors alone that torch.save wrote, or truncated: {reason}"
        ) from error


def _array(tensor: Any, path: str | os.PathLike[str]) -> NDArray[Any]:
    import torch

    steps = tensor if isinstance(tensor, (list, tuple)) else [tensor]
    if not steps or not all(isinstance(x, torch.Tensor) for x in steps):
        raise UnreadableFile(f"{path} holds a {type(tensor).__name__} where a tensor should be")
    return np.asarray(to_numpy(tensor, str(path)))
