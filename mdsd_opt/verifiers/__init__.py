"""Verification algorithms, one file each, behind one interface.

- `base`: the interface, how one decides, and algorithms by name; `verdicts`: what they answer
- `single_draft`, `rrs`, `kseq`, `spechub`, `greedy`, `naive_target`, `importance_sampling`, `lp`,
  `ratio_hull`: rules of their names; `rejection`: what most of them are made of
- `gumbel`, `race`: drafts and output on one clock, by `shared_noise`
- `optimal`: accepts as often as any lossless rule can; its docstring says what its files do
- `worst_case`: what a rule can lose at most
"""

import lazy_loader

__all__ = [
    "BatchRates", "BatchVerdict", "Decision", "RelaxedVerdict", "Uniforms", "Verdict",
    "Verifier", "get", "names", "register",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
