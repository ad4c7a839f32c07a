"""mdsd-opt audit streams: a sampler, and which of its draws share random numbers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from mdsd_opt.base.installed import loaded
from mdsd_opt.cli.audits.common import Audited, FalseAlarm, Seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A sampler, and what it is asked for."""

    streams: Annotated[
        str,
        "module:function with (requests) -> tokens: a batch of draws, each with seed, position, "
        "role and logits.",
    ]
    roles: Annotated[str, "Roles that it knows, with commas."] = "draft,accept,residual,target"
    requests: Annotated[str, "Requests that are asked for: seeded, unseeded or both."] = "both"
    wide: Annotated[int, "Tokens of the wide law; 0 for none."] = 129_280
    trials: Annotated[int | None, "Requests of each kind; 24,000 by default."] = None
    seconds: Annotated[float | None, "Limit of time, named where it is reached."] = None
    false_alarm: FalseAlarm = 1e-6
    seed: Seed = 0


def run(options: Options) -> Audited:
    """Audit of the draws of the sampler."""
    from mdsd_opt.auditing import audit_streams

    report = audit_streams(
        loaded(options.streams),
        options.seed,
        roles=options.roles.split(","),
        requests=options.requests,
        vocab_size=options.wide,
        num_trials=options.trials,
        seconds=options.seconds,
        false_alarm=options.false_alarm,
        progress=sys.stderr.isatty(),
    )
    return Audited.of(report, f"{options.streams}: draws of two requests")
