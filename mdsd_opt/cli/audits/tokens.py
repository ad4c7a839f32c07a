"""mdsd-opt audit tokens: answers with log-probabilities that a server has given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mdsd_opt.cli.audits.common import Answers, Audited


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Answers, and others of the same server without speculation."""

    recorded: Annotated[
        Path,
        "Answers with log-probabilities as JSON lines (vLLM, SGLang, llama.cpp, OpenAI), or a log.",
    ]
    control: Annotated[Path | None, "Answers of the same server without speculation."] = None
    answers: Answers


def run(options: Options) -> Audited:
    """Audit of answers that stand in a file."""
    from mdsd_opt.servers import audit_tokens

    report = audit_tokens(options.recorded, control=options.control, **options.answers.given())
    return Audited.of(report, f"{options.recorded}: {report.tokens:,} tokens after the first ones")
