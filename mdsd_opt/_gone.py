"""Names that left in this release, and what to use: the next release does not know them.

The line comes as `AttributeError` where a name is asked of its module, and as `ImportError` where
it is imported, which would swallow the other one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_STREAMS = "paste examples/shared_streams.py"
_STABILITY = "take the bounds of docs/corpora.md on your logits"
_SERVERS = "give the log of a run without drafts, too"
_RANKING = "mdsd_opt.planning.ranking has it"
_PLANNED = "take PlannedTree (planned16)"
_RATES = "take mdsd_opt.decoding.place_rates"
_PARALLEL = "paste benchmarks/parallel_trees.py"
_SHARED = "paste benchmarks/shared_laws.py"

GONE = {
    "mdsd_opt.audit_streams": _STREAMS,
    "mdsd_opt.StreamReport": _STREAMS,
    "mdsd_opt.StreamRequest": _STREAMS,
    "mdsd_opt.text_stability": _STABILITY,
    "mdsd_opt.TextStability": _STABILITY,
    "mdsd_opt.corpora.stability": _STABILITY,
    "mdsd_opt.plots.stability": _STABILITY,
    "mdsd_opt.capture": "import mdsd_opt.corpora.capture",
    "mdsd_opt.certificate": "import mdsd_opt.problem.certificate",
    "mdsd_opt.draft_choice": "import mdsd_opt.planning.ranking",
    "mdsd_opt.frontier": "import mdsd_opt.solvers.frontier",
    "mdsd_opt.models": "import mdsd_opt.decoding.loading",
    "mdsd_opt.reproduce": "import mdsd_opt.corpora.reproduce",
    "mdsd_opt.solution": "import mdsd_opt.problem.solution",
    "mdsd_opt.tree_audit": "import mdsd_opt.auditing.trees",
    "mdsd_opt.planning.cost_measurements": "take mdsd_opt.planning.time_model",
    "mdsd_opt.planning.draft_choice": _RANKING,
    "mdsd_opt.planning.draft_comparison": _RANKING,
    "mdsd_opt.planning.draft_filter": _RANKING,
    "mdsd_opt.planning.policies": "give mo.advise_from_counts a batch",
    "mdsd_opt.planning.Policy": "give mo.advise_from_counts a batch",
    "mdsd_opt.planning.EngineFlags": "take CountAdvice.flags",
    "mdsd_opt.planning.engine_flags": "take CountAdvice.flags",
    "mdsd_opt.planning.time_server": _SERVERS,
    "mdsd_opt.planning.time_llamacpp": _SERVERS,
    "mdsd_opt.planning.time_any_server": _SERVERS,
    "mdsd_opt.bench.geometric_means": "take mdsd_opt.bench.means",
    "mdsd_opt.decoding.models": "import mdsd_opt.decoding.loading, passes or tree_pass",
    "mdsd_opt.decoding.AutoTree": _PLANNED,
    "mdsd_opt.trees.AutoTree": _PLANNED,
    "mdsd_opt.decoding.ConfidenceRates": _RATES,
    "mdsd_opt.decoding.confidence_rates": _RATES,
    "mdsd_opt.decoding.best_first": _PARALLEL,
    "mdsd_opt.decoding.by_position": _PARALLEL,
    "mdsd_opt.decoding.SharedLaw": _SHARED,
    "mdsd_opt.decoding.shared_law": _SHARED,
    "mdsd_opt.decoding.blind_bound": _SHARED,
}


def line_of(name: str) -> str:
    """What is said to who asks for a full name that left."""
    return f"{name} left in this release: {GONE[name]}"


def telling(room: str, named: Callable[[str], Any]) -> Callable[[str], Any]:
    """`__getattr__` of a room that tells of names that left it; `named` gives the others."""

    def attribute(name: str) -> Any:
        if (full := f"{room}.{name}") in GONE:
            raise AttributeError(line_of(full))
        return named(name)

    return attribute


class _Finder:
    """Finder without a base: importing `importlib.abc` takes longer than the rest."""

    def find_spec(self, fullname: str, *where: Any) -> None:
        if fullname in GONE:
            raise ImportError(line_of(fullname), name=fullname)


sys.meta_path.append(_Finder())
