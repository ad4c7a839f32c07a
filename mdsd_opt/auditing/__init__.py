"""Audits: whether a verifier is lossless, its drafts follow their law, and how good it is.

Data flows: `verifier_audit`, `trees`, `chains`, `on_laws`, `texts`, `draft_audit` and `trace_audit`
are the doors. A function, wrapped by `subject`, `chain_calls` or `tree_rule`, is put to `laws`.
`pace` makes its calls, which draw from `randomness`; `driving` finds its law exactly, each call
answered by a `tape`, and `driven_laws` adds that up. `checks` look at samples, `seen_texts` at
texts; `edges`, `replay` and `causes` look closer. `findings` decides, and `evidence` has the words.
`engines` are functions that packages ship, and `conformance` has the checks for your own tests.
"""

import lazy_loader

__all__ = [
    "AuditOptions", "AuditReport", "Check", "Coverage", "Interval", "Level", "Standing",
    "TokenDeviation", "Trace", "Violation", "audit", "audit_drafts", "audit_trace",
    "load_definitions", "load_trace", "load_verifier", "served",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
