"""Verification algorithms, one file each, behind one interface.

Which draft the optimal one accepts stands in `optimal/acceptance_rule`.
"""

import lazy_loader

__all__ = [
    "BatchRates", "BatchVerdict", "Decision", "RelaxedVerdict", "Uniforms", "Verdict",
    "Verifier", "get", "names", "register",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
