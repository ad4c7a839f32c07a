"""Metrics as text for Prometheus, of vLLM, LMDeploy, llama.cpp, SGLang, TensorRT-LLM and TGI.

Counters grow from the start of a server. Of several scrapes in a file each counts what it adds. A
server that is started again begins each of its counters anew, which `_created` samples tell, or
that all of them fall; engines of one address are told apart by their labels. Gauges are of the last
interval alone, and are read where there are no counters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.checks import Told, counts_of
from mdsd_opt.formats.content import BEFORE
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Passes
from mdsd_opt.formats.engines.sglang import mean_of
from mdsd_opt.formats.format import Format

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(\{.*\})? (\S+)(?: -?\d+)?\s*$")
_BEGINS = re.compile(
    r"^(?:\w+:spec_decode_num_|sglang:spec_|trtllm_spec_decode_|tgi_request_skipped_tokens)",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_POSITION = re.compile(r'(?:position|pos)="(\d+)"')

#: Counters of speculation, which a server that is started again begins anew, all of them.
_COUNTER = re.compile(
    r":spec_decode_num_|^trtllm_spec_decode_num_|^tgi_request_|"
    r"^sglang:(?:spec_verify_calls|generation_tokens)$"
)

_UNSURE = "spec_verify_calls is taken for the steps of all requests"

#: A sample's name and labels; and the value.
_Scrape = dict[tuple[str, str], float]


def of_text(text: str, source: str) -> list[AcceptedCounts]:
    """Counts with a group for what each scrape adds."""
    if not text.endswith("\n"):
        raise UnreadableFile(f"{source} is cut: its last line has no end. Save all of GET /metrics")
    scrapes = _scrapes(text, source)
    known_before = text.startswith(BEFORE)
    parts: list[AcceptedCounts] = []
    before: _Scrape = {}
    for number, scrape in enumerate(scrapes):
        added = _added(scrape, before, source)
        before |= scrape
        if number or not known_before:
            parts += _of_scrape(added, scrape, source)
    if known_before and not parts:
        raise UnreadableFile(
            f"{source} counted no drafts between two scrapes: send requests meanwhile, or save its "
            "text to a file, which counts from the start of the server"
        )
    return parts


def _scrapes(text: str, source: str) -> list[_Scrape]:
    """Samples of each scrape: a sample that comes again begins the next."""
    found: list[_Scrape] = [{}]
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        value = _number(match[3]) if match else None
        if match is None or value is None:
            if _BEGINS.match(line) or not re.match(r"^[A-Za-z_:][\w:]*[{ ]", line):
                raise UnreadableFile(
                    f"line {number} of {source} is cut or changed: {line!r:.80}. Save the answer "
                    "of GET /metrics whole"
                )
            continue
        labels = match[2] or ""
        if labels and _LABEL.sub("", labels).strip("{}, "):
            raise UnreadableFile(f"line {number} of {source} is cut or changed: {line!r:.80}")
        name = match[1].removesuffix("_total"), labels
        if name in found[-1]:
            found.append({})
        found[-1][name] = value
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _engine(name: tuple[str, str]) -> str:
    """Labels of an engine, without those that tell its series apart."""
    return ",".join(f"{k}={v}" for k, v in _LABEL.findall(name[1])
                    if k in ("engine", "engine_type", "dp_rank", "tp_rank", "pid", "instance",
                             "model_name", "job"))  # fmt: skip


def _shown(name: tuple[str, str]) -> str:
    place = _POSITION.search(name[1])
    return f"{name[0]}{{position={place[1]}}}" if place else name[0]


def _added(scrape: _Scrape, before: _Scrape, source: str) -> _Scrape:
    """What each counter added since the scrape before; all of it where its server began anew."""
    anew: set[str] = set()
    fell: dict[str, tuple[str, str]] = {}
    grew: dict[str, tuple[str, str]] = {}
    created: set[str] = set()
    for name, value in scrape.items():
        old = before.get(name)
        if old is None or not _COUNTER.search(name[0]):
            continue
        if name[0].endswith("_created"):
            created.add(_engine(name))
            if value != old:
                anew.add(_engine(name))
        elif value < old:
            fell.setdefault(_engine(name), name)
        elif value > old:
            grew.setdefault(_engine(name), name)
    for engine, name in fell.items():
        if engine in anew:
            continue
        other = grew.get(engine)
        if other is not None:
            raise UnreadableFile(
                f"{source} contradicts itself: {_shown(name)} fell from {before[name]:g} to "
                f"{scrape[name]:g}, while {_shown(other)} grew from {before[other]:g} to "
                f"{scrape[other]:g}, and a server that is started again counts all of them anew. "
                "Give scrapes of one server"
            )
        if engine in created:
            raise UnreadableFile(
                f"{source} contradicts itself: {_shown(name)} fell from {before[name]:g} to "
                f"{scrape[name]:g}, and _created says that it was not started again. Give scrapes "
                "of one server"
            )
        anew.add(engine)
    return {
        name: value - (0.0 if _engine(name) in anew or value < before.get(name, 0.0)
                       else before.get(name, 0.0))
        for name, value in scrape.items() if not name[0].endswith("_created")
    }  # fmt: skip


def _sums(scrape: _Scrape, name: str) -> float | None:
    """Sum over all engines."""
    values = [value for other, value in scrape.items() if other[0] == name]
    return sum(values) if values else None


def _counted(name: tuple[str, str], value: float) -> float:
    if not 0.0 <= value < 1e18:
        raise UnreadableFile(f"{name[0]} is {value:g}, not a count: the metrics are cut or changed")
    return value


def _of_scrape(added: _Scrape, scrape: _Scrape, source: str) -> list[AcceptedCounts]:
    names = {name for name, _ in added}
    found = []
    for prefix in dict.fromkeys(x.partition(":")[0] for x in names if ":spec_decode_num_" in x):
        found.append(_of_counters(added, scrape, prefix, source))
    for marker, reader in _OTHERS.items():
        if any(x.startswith(marker) for x in names):
            found.append(reader(added, scrape, source))
    return [x for x in found if x is not None]


#: Names of the requests that run at the moment, and of generated tokens.
_RUNNING = ("num_requests_running", "num_running_reqs", "requests_processing")
_TOKENS = ("generation_tokens", "tokens_predicted")


def _measured(added: _Scrape, scrape: _Scrape, prefix: str) -> Measured:
    """Tokens, and of each engine what runs at the moment and the time between its outputs."""

    def by_engine(given: _Scrape, *names: str) -> dict[str, float]:
        wanted = {f"{prefix}:{name}" for name in names}
        return {_engine(x): _counted(x, value) for x, value in given.items() if x[0] in wanted}

    latency = "inter_token_latency_seconds"
    seconds, number = (by_engine(added, f"{latency}_{x}") for x in ("sum", "count"))
    running, speed = by_engine(scrape, *_RUNNING), by_engine(scrape, "gen_throughput")
    length = by_engine(scrape, "spec_accept_length")
    passes = []
    for engine in dict.fromkeys([*running, *seconds]):
        count, batch = number.get(engine) or 1.0, running.get(engine) or None
        ms = None
        if number.get(engine) and engine in seconds:  # an output of a request is a step
            ms = 1000.0 * seconds[engine]
        elif batch and speed.get(engine) and length.get(engine):
            ms = 1000.0 * batch * length[engine] / speed[engine]
        if batch or ms:
            passes.append(Passes(batch, count, ms))
    tokens = by_engine(added, *_TOKENS)
    return Measured(sum(tokens.values()) if tokens else None, passes=tuple(passes))


def _of_counters(
    added: _Scrape, scrape: _Scrape, prefix: str, source: str
) -> AcceptedCounts | None:
    head = f"{prefix}:spec_decode_num_"
    names = {"accepted": "accepted_tokens", "drafted": "draft_tokens", "steps": "drafts"}
    told = {field: _needed(added, head + name, source) for field, name in names.items()}
    places: dict[int, float] = {}
    for (name, labels), value in added.items():
        if name == f"{head}accepted_tokens_per_pos":
            place = _POSITION.search(labels)
            if place is None:
                raise UnreadableFile(f"{source}: {name}{labels:.60} has no label 'position'")
            places[int(place[1])] = places.get(int(place[1]), 0.0) + value
    positions = None
    if places:
        if {*places} != {*range(len(places))}:
            raise UnreadableFile(
                f"{source} is cut: {head}accepted_tokens_per_pos has the positions "
                f"{', '.join(map(str, sorted(places)))}, and not all before the last"
            )
        positions = Told(f"{head}accepted_tokens_per_pos", [places[n] for n in range(len(places))])
    return counts_of(
        source, **told,
        depth=Told("the number of positions", float(len(places))) if places else None,
        positions=positions, unit="scrapes" if places else "runs",
        measured=_measured(added, scrape, prefix),
    )  # fmt: skip


def _needed(added: _Scrape, name: str, source: str) -> Told:
    value = _sums(added, name)
    if value is None:
        raise UnreadableFile(
            f"{source} is cut: {name} is missing from a scrape. Save the answer of GET /metrics "
            "whole"
        )
    return Told(name, value)


def _of_sglang(added: _Scrape, scrape: _Scrape, source: str) -> AcceptedCounts | None:
    """Mean of the counters, or of the last interval's gauge."""
    drafts, steps = (_sums(scrape, f"sglang:spec_num_{x}") for x in ("draft_tokens", "steps"))
    ranks = max(sum(name == "sglang:spec_num_draft_tokens" for name, _ in scrape), 1)
    depth = Told("sglang:spec_num_draft_tokens - 1", drafts / ranks - 1.0) if drafts else None
    if depth is None and steps:
        depth = Told("sglang:spec_num_steps", steps)
    calls, tokens, requests = (
        _sums(added, f"sglang:{x}")
        for x in ("spec_verify_calls", "generation_tokens", "num_requests")
    )
    measured = _measured(added, scrape, "sglang")
    if calls and tokens:
        return counts_of(
            source, Told("generation_tokens - spec_verify_calls", tokens - calls - (requests or 0)),
            None, Told("spec_verify_calls", calls), depth, unit="scrapes", assumed=True,
            measured=measured, notes=(_UNSURE,),
        )  # fmt: skip
    lengths = [value for (name, _), value in scrape.items() if name == "sglang:spec_accept_length"]
    if not lengths or max(lengths) == 0:
        return None
    if max(lengths) - min(lengths) > 1e-6:
        raise UnreadableFile(
            f"{source} has sglang:spec_accept_length {min(lengths):g} and {max(lengths):g} of two "
            "ranks, without their numbers of steps: give the log, or the answers"
        )
    return mean_of(source, Told("sglang:spec_accept_length - 1", lengths[0] - 1.0), depth, measured)


def _of_trtllm(added: _Scrape, scrape: _Scrape, source: str) -> AcceptedCounts | None:
    head = "trtllm_spec_decode_num_"
    drafted, accepted = (_needed(added, f"{head}{x}_tokens", source) for x in ("draft", "accepted"))
    return counts_of(source, accepted, drafted, unit="runs")


def _of_tgi(added: _Scrape, scrape: _Scrape, source: str) -> AcceptedCounts | None:
    """Tokens beyond one of each pass of each request, a zero for each prefill among them."""
    name = "tgi_request_skipped_tokens"
    accepted, passes = (_sums(added, f"{name}_{x}") for x in ("sum", "count"))
    requests = _sums(added, "tgi_request_success")
    if requests is None:
        requests = _sums(added, "tgi_request_count")
    if accepted is None or passes is None or requests is None:
        raise UnreadableFile(
            f"{source} has not all of {name}_sum, {name}_count and tgi_request_success, which give "
            "the steps: save the answer of GET /metrics whole"
        )
    if not accepted or passes <= requests:
        return None
    return AcceptedCounts(
        np.array([accepted]), None, np.array([passes - requests]), None, unit="runs", source=source
    )


_OTHERS: dict[str, Callable[[_Scrape, _Scrape, str], AcceptedCounts | None]] = {
    "sglang:spec_": _of_sglang,
    "trtllm_spec_decode_num_": _of_trtllm,
    "tgi_request_skipped_tokens": _of_tgi,
}

FORMATS = (
    Format(
        "metrics",
        "samples such as 'vllm:spec_decode_num_drafts_total', as of GET /metrics",
        marker=_BEGINS,
        of_text=of_text,
    ),
)
