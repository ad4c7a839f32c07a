"""Tensors from the files that PyTorch saves: mapped, and never code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.files import file_size
from mdsd_opt.errors import MissingExtra, UnreadableFile


def read_torch(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a .pt file that holds a dictionary of tensors.

    Raises
    ------
    UnreadableFile
        Missing, truncated, no dictionary of tensors, or a pickle of anything but tensors.
    MissingExtra
        PyTorch is not installed.
    """
    content = _loaded(path)
    if not isinstance(content, Mapping):
        raise UnreadableFile(
            f"{path} holds a {type(content).__name__}: save a dictionary with tensors 'target' and "
            "'draft', or give one file for each"
        )
    return {str(name): _array(tensor, path) for name, tensor in content.items()}


def only_tensor(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a .pt file that holds one tensor.

    Raises
    ------
    UnreadableFile, MissingExtra
        As `read_torch`; or it holds something else.
    """
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
        reason = str(error).partition("\n")[0][:200]
        raise UnreadableFile(
            f"{path} is no file of tensors that torch.save wrote, or truncated: {reason}"
        ) from error


def _array(tensor: Any, path: str | os.PathLike[str]) -> NDArray[Any]:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise UnreadableFile(f"{path} holds a {type(tensor).__name__} where a tensor should be")
    return np.asarray(to_numpy(tensor, str(path)))
