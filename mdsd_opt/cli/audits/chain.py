"""mdsd-opt audit chain: a function of both models' laws and the drafts of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mdsd_opt.base.installed import loaded
from mdsd_opt.cli.audits.common import Audited, Laws, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A function, and how it is called."""

    chain: Annotated[
        str,
        "module:function with (p [n+1, V], q [n, V], drafts [n]) -> tokens, on laws of all kinds.",
    ]
    takes: Annotated[str, "probabilities, logits or log_probabilities."] = "probabilities"
    batch: Annotated[
        int,
        "Rows of a batch; 1 for a leading axis of one, from 2 on rows of different laws and "
        "lengths, 0 for no such axis.",
    ] = 0
    library: Annotated[
        str | None, "numpy or torch; else PyTorch tensors are tried where arrays raise."
    ] = None
    num_drafts: Annotated[int, "Drafts of a chain."] = 2
    laws: Laws
    draft_promise: Annotated[str | None, "As --promise, of the draft's logits."] = None
    limits: Limits


def run(options: Options) -> Audited:
    """Audit of the function on laws of all kinds, or on those of a file."""
    from mdsd_opt.auditing import audit_chain

    report = audit_chain(
        loaded(options.chain),
        options.limits.seed,
        takes=options.takes,
        batch=bool(options.batch) if options.batch < 2 else options.batch,
        library=options.library,
        num_drafts=options.num_drafts,
        **options.laws.given(draft_promise=options.draft_promise),
        **options.limits.given(),
    )
    return Audited.of(report, f"{options.chain}: chains of {options.num_drafts} drafts")
