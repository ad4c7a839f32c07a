"""mdsd-opt audit trace: steps that an engine recorded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from mdsd_opt.cli.audits.common import Audited, FalseAlarm, Scheme, Seed
from mdsd_opt.cli.options import SamplingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Recorded steps, and how their drafts and laws were made."""

    trace: Annotated[
        Path,
        "Recorded steps: a .npz or .safetensors file with arrays target, draft, drafts, tokens; "
        "with parents where drafts are a tree.",
    ]
    scheme: Scheme = "with_replacement"
    sampling: SamplingOptions
    false_alarm: FalseAlarm = 1e-6
    seed: Seed = 0


def run(options: Options) -> Audited:
    """Audit of recorded steps, whose own words on the scheme come first."""
    from mdsd_opt.auditing import audit_trace, load_trace

    steps = load_trace(options.trace)
    report = audit_trace(
        steps.target,
        steps.draft,
        steps.drafts,
        steps.tokens,
        scheme=str(steps.metadata.get("scheme", options.scheme)),
        parents=steps.parents,
        logits=steps.holds_logits,
        false_alarm=options.false_alarm,
        rng=options.seed,
        **asdict(options.sampling),
    )
    return Audited.of(report, f"{options.trace}: {report.num_trials:,} recorded tokens")
