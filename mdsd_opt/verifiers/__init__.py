"""Verification algorithms, one file each, behind one interface.

Which draft the optimal one accepts stands in `optimal/acceptance_rule`.
"""

from __future__ import annotations

from mdsd_opt.prefix_search.batch_rates import BatchRates
from mdsd_opt.verifiers.base import Verifier
from mdsd_opt.verifiers.registry import get, names, register
from mdsd_opt.verifiers.verdicts import BatchVerdict, Decision, RelaxedVerdict, Uniforms, Verdict

__all__ = [
    "BatchRates",
    "BatchVerdict",
    "Decision",
    "RelaxedVerdict",
    "Uniforms",
    "Verdict",
    "Verifier",
    "get",
    "names",
    "register",
]
