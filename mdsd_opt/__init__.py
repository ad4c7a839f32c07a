"""mdsd_opt: the transport problem of multi-draft speculative decoding, solved and certified.

p is always the target, q the draft. The rooms, each above all that it imports:
front: cli, plots, bench | questions: planning, corpora, decoding, auditing
machines: serving, trees, batch, gpu
answers: cddlib_checks, verifiers, solvers | mathematics: problem, drafts, prefix_search
tools: servers, evidence, formats, base. Logits walk up from the tools to a problem, its solution
and a certificate, then to tokens, and in batches or trees to rates, audits and pages.

Public names stand in the stub beside this file, those of a room in its own; each is imported when
it is first asked for, so that `import mdsd_opt` stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

import lazy_loader

from mdsd_opt._gone import telling
from mdsd_opt._version import __version__

_named, _, _names = lazy_loader.attach_stub(__name__, __file__)

_MODULES = (
    *("batch", "cddlib_checks", "corpora", "decoding", "drafts", "engines", "gpu", "serving"),
    *("plots", "solvers", "trees", "verifiers"),
)

__all__ = ["__version__", *(name for name in _names if name not in _MODULES)]


def _module_or_name(name: str) -> Any:
    return importlib.import_module(f"mdsd_opt.{name}") if name in _MODULES else _named(name)


__getattr__ = telling(__name__, _module_or_name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
