"""mdsd-opt audit --server and --recorded: audits of running servers, and of texts they wrote."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.auditing.servers import ServerReport


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of an audit of servers."""

    server: Annotated[
        str | None, "Address of a server that runs, http://HOST:PORT, in whatever language."
    ] = None
    against: Annotated[
        str | None,
        "Of --server: the same without speculation; else requests for one token are the control.",
    ] = None
    draft_server: Annotated[
        str | None, "Of --server: one of the draft model, whose laws decide more, and sooner."
    ] = None
    api: Annotated[
        str,
        "Of --server: auto, openai, llamacpp, openai-completions, openai-chat or module:attribute.",
    ] = "auto"
    prompts: Annotated[
        Path | None,
        "Of --server: a file with a text, or a list of ids, in each line; a few short texts if "
        "left out.",
    ] = None
    log: Annotated[
        Path | None, "Of --server: JSON lines of what is learned, from which it goes on if killed."
    ] = None
    recorded: Annotated[
        Path | None,
        "Answers with log-probabilities as JSON lines (vLLM, SGLang, llama.cpp, OpenAI), or a log.",
    ] = None
    control: Annotated[
        Path | None, "Of --recorded: answers of the same server without speculation."
    ] = None
    model: Annotated[str | None, "Of --server: the model's name; the first if left out."] = None
    length: Annotated[int | None, "Of --server: tokens of a text."] = None
    max_tokens: Annotated[int | None, "Of --server: end after so many tokens."] = None
    drafted: Annotated[
        int | None, "Tokens drafted, by the server's own log, where its answers do not count them."
    ] = None
    concurrency: Annotated[int, "Of --server: requests at once."] = 4
    timeout: Annotated[float, "Of --server: seconds of a request."] = 60.0
    top: Annotated[int, "Of --server: tokens of a law to ask for, where that is a choice."] = 20
    logprobs: Annotated[
        str, "Whether log-probabilities are raw or processed (after temperature and filters)."
    ] = "raw"
    draft_top_k: Annotated[
        int | None, "Of --draft-server: drafts are drawn from so many tokens (llama.cpp: 10)."
    ] = None
    key_variable: Annotated[
        str | None, "Of --server: the environment variable that holds its key."
    ] = None
    tolerance: Annotated[
        float, "Of --server and --recorded: total variation put down to arithmetic, at least."
    ] = 0.002

    @property
    def is_asked(self) -> bool:
        """Whether a server, or what one wrote, is to be audited."""
        given = [x.name for x in fields(self) if getattr(self, x.name) != x.default]
        if given and self.server is None and self.recorded is None:
            name = given[0].replace("_", "-")
            raise InvalidInput(f"--{name} goes with --server or --recorded")
        return bool(given)


def audited(
    asked: ServerOptions,
    others: list[Any],
    sampling: options.SamplingOptions,
    promise: Any,
    seconds: float | None,
    false_alarm: float,
    seed: int,
) -> tuple[ServerReport, str]:
    """Report, and a name of its subject; `others` are the subjects of other audits."""
    if (asked.server is None) == (asked.recorded is None) or others.count(None) != len(others):
        raise InvalidInput("give --server or --recorded alone")
    from mdsd_opt.auditing.servers import audit_server, audit_tokens

    sides = sampling.sides
    shared: dict[str, Any] = {
        "sampling": sides[0],
        "promise": promise,
        "logprobs": asked.logprobs,
        "tolerance": asked.tolerance,
        "false_alarm": false_alarm,
        "drafted": asked.drafted,
        "rng": seed,
    }
    if asked.recorded is not None:
        report = audit_tokens(asked.recorded, control=asked.control, **shared)
        return report, f"{asked.recorded}: {report.tokens:,} tokens after the first ones"
    assert asked.server is not None
    key = None
    if asked.key_variable is not None:
        key = os.environ.get(asked.key_variable)
        if not key:
            raise InvalidInput(f"--key-variable {asked.key_variable}: it is not set")
    of_draft = None
    if asked.draft_top_k is not None or sampling.draft_temperature is not None:
        of_draft = sides[1]
        if asked.draft_top_k is not None:
            of_draft = replace(of_draft, top_k=asked.draft_top_k)
    report = audit_server(
        asked.server,
        asked.against,
        asked.draft_server,
        asked.api,
        asked.prompts,
        120.0 if seconds is None else seconds,
        log=asked.log,
        draft_sampling=of_draft,
        model=asked.model,
        length=asked.length,
        max_tokens=asked.max_tokens,
        concurrency=asked.concurrency,
        timeout=asked.timeout,
        key=key,
        top=asked.top,
        progress=sys.stderr.isatty(),
        **shared,
    )
    return report, asked.server
