"""mdsd-opt audit server: a server that runs, in whatever language it is written."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from mdsd_opt.cli.audits.common import Answers, Audited
from mdsd_opt.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A server, those beside it, and what is asked of it."""

    server: Annotated[str, "Address of a server that runs, http://HOST:PORT, in any language."]
    against: Annotated[
        str | None,
        "The same without speculation; else requests for one token are the control.",
    ] = None
    draft_server: Annotated[
        str | None, "One of the draft model, whose laws decide more, and sooner."
    ] = None
    api: Annotated[
        str, "auto, openai, llamacpp, openai-completions, openai-chat or module:attribute."
    ] = "auto"
    prompts: Annotated[
        Path | None,
        "A file with a text, or a list of ids, in each line; a few short texts if left out.",
    ] = None
    log: Annotated[
        Path | None, "JSON lines of what is learned, from which it goes on if killed."
    ] = None
    model: Annotated[str | None, "The model's name; the first if left out."] = None
    length: Annotated[int | None, "Tokens of a text."] = None
    max_tokens: Annotated[int | None, "End after so many tokens."] = None
    seconds: Annotated[float, "Limit of time, named where it is reached."] = 120.0
    concurrency: Annotated[int, "Requests at once."] = 4
    timeout: Annotated[float, "Seconds of a request."] = 60.0
    top: Annotated[int, "Tokens of a law to ask for, where that is a choice."] = 20
    draft_top_k: Annotated[
        int | None, "Of --draft-server: drafts are drawn from so many tokens (llama.cpp: 10)."
    ] = None
    key_variable: Annotated[str | None, "The environment variable that holds its key."] = None
    answers: Answers


def run(options: Options) -> Audited:
    """Audit of a server by what it answers."""
    from mdsd_opt.servers import audit_server

    report = audit_server(
        options.server,
        options.against,
        options.draft_server,
        options.api,
        options.prompts,
        options.seconds,
        log=options.log,
        draft_sampling=_draft_sampling(options),
        model=options.model,
        length=options.length,
        max_tokens=options.max_tokens,
        concurrency=options.concurrency,
        timeout=options.timeout,
        key=_key(options.key_variable),
        top=options.top,
        progress=sys.stderr.isatty(),
        **options.answers.given(),
    )
    return Audited.of(report, options.server)


def _key(variable: str | None) -> str | None:
    """Key in a variable of the environment, which has to be set."""
    key = None if variable is None else os.environ.get(variable)
    if variable is not None and not key:
        raise InvalidInput(f"--key-variable {variable}: it is not set")
    return key


def _draft_sampling(options: Options) -> Any:
    """How the draft server draws, if that is said."""
    asked = options.answers.sampling
    if options.draft_top_k is None:
        return None if asked.draft_temperature is None else asked.sides[1]
    return replace(asked.sides[1], top_k=options.draft_top_k)
