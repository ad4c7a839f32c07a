"""Options that several kinds of audits have, and what an audit comes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from mdsd_opt.base.installed import loaded
from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.auditing import EngineAudit
    from mdsd_opt.cli.view import View
    from mdsd_opt.evidence import Bar, Report

#: Most tokens of a random problem, and of wide laws.
MAX_VOCAB_SIZE = 1_000_000

Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
FalseAlarm = Annotated[float, "Probability, at most, of calling a faultless verifier lossy."]
Scheme = Annotated[str, "How the drafts of random problems or of the trace were sampled."]
Library = Annotated[str, "numpy or torch."]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictOptions:
    """What passes, and where the verdict goes."""

    PANEL: ClassVar[str] = "Verdict"

    detect: Annotated[
        float, "Nothing passes where a bias above this could have stayed hidden: exit code 3."
    ] = 0.05
    tolerate_edge: Annotated[
        float, "Probability of impossible values up to which an edge has exit code 0."
    ] = 1e-12
    page: options.Page = None
    junit: Annotated[
        Path | None, "Save the verdict as JUnit's XML, for continuous integration."
    ] = None
    as_json: options.AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is tried, and how a function is looked into."""

    PANEL: ClassVar[str] = "Trials"

    trials: Annotated[
        int | None, "Sampled calls of each law; by default 100,000 on one problem, else 20,000."
    ] = None
    seconds: Annotated[
        float | None,
        "Limit of time, named where it is reached; on one problem instead of --trials.",
    ] = None
    method: Annotated[str, "auto, enumeration, driven or sampling."] = "auto"
    false_alarm: FalseAlarm = 1e-6
    seed: Seed = 0

    def given(self, trials: str = "num_trials") -> dict[str, Any]:
        """Arguments of an audit; those that are left out have its own defaults."""
        wanted = {"seconds": self.seconds, trials: self.trials}
        return {
            "method": self.method,
            "false_alarm": self.false_alarm,
            "progress": None,
            **{name: value for name, value in wanted.items() if value is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """Laws that a function is put to, and what it promises to make of the target's."""

    PANEL: ClassVar[str] = "Laws, and what is promised"

    logits: Annotated[
        Path | None, "A file with arrays target and draft, to audit on these laws."
    ] = None
    vocab_sizes: Annotated[str | None, "Tokens of the wide laws, as 2048,50000."] = None
    promise: Annotated[
        str | None,
        "module:function with (text, logits) -> law: what is made of the target's logits, as "
        "penalties, instead of temperature and filters.",
    ] = None
    sampling: options.SamplingOptions

    def given(self, **promises: str | None) -> dict[str, Any]:
        """Arguments of an audit; `promises` are module:function of others, by name."""
        from mdsd_opt.base.sampling import Sampling

        named = {"promise": self.promise, **promises}
        wanted = {name: loaded(spec) for name, spec in named.items() if spec is not None}
        own: dict[str, Any] = {}
        if self.logits is not None:
            sample = options.given_sample([self.logits], None)
            own["laws"] = sample.target, sample.draft
        if self.vocab_sizes is not None:
            own["vocab_sizes"] = _sizes(self.vocab_sizes)
        if self.sampling.draft_temperature is not None:
            raise InvalidInput(
                "--draft-temperature goes with --trace: a promise holds on both sides"
            )
        if (promised := self.sampling.sides[0]) != Sampling():
            own["promise"] = promised
        if wanted.keys() & own.keys():
            raise InvalidInput(
                "--promise comes instead of temperature and filters: give one of them"
            )
        return own | wanted


def scheme_named(text: str) -> str:
    """Name of a draft scheme, which may be written with dashes, or module:attribute."""
    return text if ":" in text else text.replace("-", "_")


def _sizes(text: str) -> list[int]:
    sizes = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if not all(2 <= size <= MAX_VOCAB_SIZE for size in sizes):
        raise InvalidInput(
            f"--vocab-sizes is {text!r:.60}: give numbers from 2 to {MAX_VOCAB_SIZE:,} with commas"
        )
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What answers of a server hold, and what it promises."""

    PANEL: ClassVar[str] = "Answers, and what is promised"

    logprobs: Annotated[
        str, "Whether log-probabilities are raw or processed (after temperature and filters)."
    ] = "raw"
    drafted: Annotated[
        int | None, "Tokens drafted, by the server's own log, where its answers do not count them."
    ] = None
    tolerance: Annotated[float, "Total variation put down to arithmetic, at least."] = 0.002
    promise: Annotated[
        str | None,
        "module:function with (text, logits) -> law: what the server makes of the target's logits, "
        "as penalties, instead of temperature and filters.",
    ] = None
    sampling: options.SamplingOptions
    false_alarm: FalseAlarm = 1e-6
    seed: Seed = 0

    def given(self) -> dict[str, Any]:
        """Arguments that audits of answers have in common."""
        return {
            "sampling": self.sampling.sides[0],
            "promise": None if self.promise is None else loaded(self.promise),
            "logprobs": self.logprobs,
            "tolerance": self.tolerance,
            "false_alarm": self.false_alarm,
            "drafted": self.drafted,
            "rng": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Audited:
    """Reports, each with its subject, and the view of them."""

    reports: Sequence[tuple[str, Report | EngineAudit]]
    view: Callable[[Bar], View]

    @classmethod
    def of(cls, report: Report, subject: str) -> Audited:
        """Of one subject."""
        from mdsd_opt.cli.report.audits import audit_view

        spelled = (re.sub(r"\bseconds=([\d.e+]+)", r"--seconds \1", note) for note in report.notes)
        report = replace(report, notes=tuple(spelled))
        return cls([(subject, report)], lambda bar: audit_view(report, subject, bar))
