"""Installed versions, for bug reports and measurements, and objects that users name."""

from __future__ import annotations

import functools
import importlib
import os
import platform
import sys
from typing import Any, TextIO

from mdsd_opt._version import __version__
from mdsd_opt.base.foreign import foreign

#: Dependencies by the name they are imported by or known by.
_DEPENDENCIES = (
    "numpy", "scipy", "numba", "highspy", "cvxpy", "safetensors", "ml_dtypes", "joblib", "rich",
    "typer", "pycddlib", "pplpy", "normaliz", "ortools", "igraph", "pot", "matplotlib", "torch",
    "transformers", "jax", "dask", "ray", "cupy",
)  # fmt: skip

#: Distributions of another name that provide a dependency.
_PROVIDERS = {"normaliz": ["pynormaliz"], "cupy": ["cupy", "cupy-cuda12x", "cupy-cuda13x"]}


def versions() -> dict[str, str]:
    """Python, platform, CPUs, mdsd_opt and every dependency, by name; nothing is imported."""
    result = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": str(os.cpu_count()),
        "mdsd_opt": __version__,
    }
    for name in _DEPENDENCIES:
        candidates = (_installed(distribution) for distribution in _PROVIDERS.get(name, [name]))
        result[name] = next((version for version in candidates if version), "not installed")
    return result


def _installed(distribution: str) -> str | None:
    from importlib import metadata  # 18 ms, of which verifiers, who use this file, need nothing

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def show_versions(file: TextIO | None = None) -> None:
    """Print `versions`, one per line.

    Parameters
    ----------
    file : text file, optional
        Destination; standard output unless given.
    """
    known = versions()
    width = max(map(len, known))
    for name, version in known.items():
        print(f"{name:<{width}}  {version}", file=file or sys.stdout)


@functools.cache
def plugged_in(group: str) -> dict[str, str]:
    """``"module:attribute"`` by name, of the entry points that installed packages have in a group.

    Groups are ``mdsd_opt.solvers``, ``mdsd_opt.verifiers``, ``mdsd_opt.draft_schemes``,
    ``mdsd_opt.tree_rules``, ``mdsd_opt.engines`` and ``mdsd_opt.server_apis``.
    """
    from importlib import metadata

    return {point.name: point.value for point in metadata.entry_points(group=group)}


def loaded(spec: str) -> Any:
    """Object of ``"module:attribute"``; `InvalidInput` if there is no such module or attribute."""
    module, _, attribute = spec.partition(":")
    with foreign(repr(spec), f"cannot load {spec!r}:"):
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    return value
