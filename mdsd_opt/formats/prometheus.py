"""Metrics as text for Prometheus, of vLLM, LMDeploy, llama.cpp, SGLang, TensorRT-LLM and TGI.

Counters grow from the start of a server. Of several scrapes in a file each counts what it adds. A
server that is started again begins each of its counters anew, which `_created` samples tell, or
that all of them fall; engines of one address are told apart by their labels. Gauges are of the last
interval alone, and are read where there are no counters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.checks import Told, agree, counts_of, mean_of
from mdsd_opt.formats.content import BEFORE, count, lines_of
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Passes, Speed, passes_of
from mdsd_opt.formats.reading import Format

_NUMBER = r"[+-]?(?:\d[\d.eE+-]*|\.\d+|[Ii]nf|[Nn]a[Nn])"
_SAMPLE = re.compile(rf"^([A-Za-z_:][\w:]*)(\{{.*\}})? ({_NUMBER})(?: -?\d+)?\s*$")
_OTHER = re.compile(r"^[A-Za-z_:][\w:]*[{ ]")
_BEGINS = re.compile(
    r"^(?:\w+:spec_decode_num_|sglang:spec_|trtllm_spec_decode_|tgi_request_skipped_tokens)",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_POSITION = re.compile(r'(?:position|pos)="(\d+)"')

#: Labels of an engine, beside those that tell its series apart.
_ENGINE = ("engine", "engine_type", "dp_rank", "tp_rank", "pid", "instance", "model_name", "job")

#: Counters of speculation, which a server that is started again begins anew, all of them.
_COUNTER = re.compile(
    r":spec_decode_num_|^trtllm_spec_decode_num_|^tgi_request_|"
    r"^sglang:(?:spec_verify_calls|generation_tokens)$"
)

#: A sample's name and labels; and the value.
_Scrape = dict[tuple[str, str], float]


def of_text(text: str, source: str) -> list[AcceptedCounts | None]:
    """Counts with a group for what each scrape adds."""
    if not text.endswith("\n"):
        raise UnreadableFile(f"{source} is cut: its last line has no end. Save all of GET /metrics")
    parts: list[AcceptedCounts | None] = []
    for added, scrape in _counted(text, source):
        for marker, reader in _READERS.items():
            names = [name for name, _ in added if marker in name]
            for prefix in dict.fromkeys(x.partition(marker)[0] for x in names):
                parts.append(reader(added, scrape, prefix, source))
    if text.startswith(BEFORE) and not any(parts):
        raise UnreadableFile(
            f"{source} counted no drafts between two scrapes: send requests meanwhile, or save its "
            "text to a file, which counts from the start of the server"
        )
    return parts


def _counted(text: str, source: str) -> Iterator[tuple[_Scrape, _Scrape]]:
    """What each scrape adds, and itself; but the first of an address."""
    before: _Scrape = {}
    for number, scrape in enumerate(_scrapes(text, source)):
        added = _added(scrape, before, source)
        before |= scrape
        if number or not text.startswith(BEFORE):
            yield added, scrape


def _scrapes(text: str, source: str) -> list[_Scrape]:
    """Samples of each scrape: a sample that comes again begins the next."""
    scrapes: list[_Scrape] = [{}]
    for where, line in lines_of(text, source):
        match = _SAMPLE.match(line)
        labels = (match and match[2]) or ""
        if match is None or _LABEL.sub("", labels).strip("{}, "):
            is_others = _OTHER.match(line) and not labels and not _BEGINS.match(line)
            if is_others or not line.strip() or line.startswith("#"):
                continue
            raise UnreadableFile(
                f"{where} is cut or changed: {line!r:.80}. Save the answer of GET /metrics whole"
            )
        name = match[1].removesuffix("_total"), labels
        if name in scrapes[-1]:
            scrapes.append({})
        scrapes[-1][name] = float(match[3])
    return scrapes


def _engine(name: tuple[str, str]) -> str:
    """Labels of an engine, without those that tell its series apart."""
    return ",".join(f"{k}={v}" for k, v in _LABEL.findall(name[1]) if k in _ENGINE)


def _added(scrape: _Scrape, before: _Scrape, source: str) -> _Scrape:
    """What each counter added since the scrape before; all of it where its server began anew."""
    engines: dict[str, dict[tuple[str, str], tuple[float, float]]] = {}
    for name, value in scrape.items():
        if name in before and _COUNTER.search(name[0]):
            engines.setdefault(_engine(name), {})[name] = before[name], value
    anew = set()
    for engine, pairs in engines.items():
        created = [old == new for x, (old, new) in pairs.items() if x[0].endswith("_created")]
        counts = {x: pair for x, pair in pairs.items() if not x[0].endswith("_created")}
        fell = [_told(x, "fell", *pair) for x, pair in counts.items() if pair[1] < pair[0]]
        grew = [_told(x, "grew", *pair) for x, pair in counts.items() if pair[1] > pair[0]]
        if fell and all(created) and (grew or created):
            why = grew[0] if grew else "_created says that it was not started again"
            raise UnreadableFile(
                f"{source} contradicts itself: {fell[0]}, while {why}: a server that is started "
                "again counts all of them anew. Give scrapes of one server"
            )
        if fell or not all(created):
            anew.add(engine)
    return {
        name: value
        if value < before.get(name, 0.0) or _engine(name) in anew
        else value - before.get(name, 0.0)
        for name, value in scrape.items()
        if not name[0].endswith("_created")
    }


def _told(name: tuple[str, str], how: str, old: float, new: float) -> str:
    place = _POSITION.search(name[1])
    called = f"{name[0]}{{position={place[1]}}}" if place else name[0]
    return f"{called} {how} from {old:g} to {new:g}"


def _sums_of(scrape: _Scrape, names: Mapping[str, str], source: str) -> dict[str, Told]:
    """Sums over all engines by our names, those by position each; one not there is left out."""
    sums: dict[str, dict[int, float]] = {}
    for (name, labels), value in scrape.items():
        if name in names.values():
            place = _POSITION.search(labels)
            if place is None and name == names.get("positions"):
                raise UnreadableFile(f"{source}: {name}{labels:.60} has no label 'position'")
            n = int(place[1]) if place else 0
            of = sums.setdefault(name, {})
            of[n] = of.get(n, 0.0) + value

    numbers = {}
    for field, name in names.items():
        places = sorted(sums.get(name, ()))
        if places != [*range(len(places))]:
            raise UnreadableFile(
                f"{source} is cut: {name} has the positions {', '.join(map(str, places))}, and not "
                "all before the last"
            )
        if places:
            values = [sums[name][n] for n in places]
            numbers[field] = Told(name, values if field == "positions" else values[0])
    return numbers


def _all_of(scrape: _Scrape, names: Mapping[str, str], source: str) -> dict[str, Told]:
    """The same, where all but positions have to be there."""
    numbers = _sums_of(scrape, names, source)
    missing = [names[x] for x in names if x not in numbers and x != "positions"]
    if missing:
        raise UnreadableFile(
            f"{source} is cut: {missing[0]} is missing from a scrape. Save the answer of GET "
            "/metrics whole"
        )
    return numbers


def _measured(added: _Scrape, scrape: _Scrape, prefix: str, source: str) -> Measured:
    """Tokens, and of each engine what runs at the moment and the time between its outputs."""

    def by_engine(samples: _Scrape, *names: str) -> dict[str, float]:
        wanted = {f"{prefix}:{name}" for name in names}
        return {_engine(x): count({x[0]: value}, x[0], source)
                for x, value in samples.items() if x[0] in wanted}  # fmt: skip

    latency = "inter_token_latency_seconds"
    seconds, number = (by_engine(added, f"{latency}_{x}") for x in ("sum", "count"))
    speed, length = (by_engine(scrape, x) for x in ("gen_throughput", "spec_accept_length"))
    running = by_engine(scrape, "num_requests_running", "num_running_reqs", "requests_processing")
    tokens = by_engine(added, "generation_tokens", "tokens_predicted")
    passes: tuple[Passes, ...] = ()
    for engine in dict.fromkeys([*running, *seconds]):
        batch, ms = running.get(engine) or None, None
        if number.get(engine) and engine in seconds:  # an output of a request is a step
            ms = 1000.0 * seconds[engine]
        elif batch and speed.get(engine) and length.get(engine):
            ms = 1000.0 * batch * length[engine] / speed[engine]
        passes += passes_of(batch, number.get(engine) or 1.0, ms or None)
    return Measured(sum(tokens.values()) if tokens else None, passes=passes)


_SPEED = re.compile(
    r"^(vllm|sglang|llamacpp):(?:inter_token_latency_seconds_sum|gen_throughput"
    r"|tokens_predicted_seconds)"
)


def speeds_of(text: str, source: str) -> Iterator[Speed]:
    """Tokens and seconds that each scrape adds, of all engines of a server."""
    if not re.search(_SPEED.pattern, text, re.MULTILINE):
        return
    for added, scrape in _counted(text, source):
        for prefix in dict.fromkeys(x[1] for name, _ in added if (x := _SPEED.match(name))):
            measured = _measured(added, scrape, prefix, source)
            running = sum(x.running or 0.0 for x in measured.passes)
            names = {"speed": f"{prefix}:gen_throughput",
                     "seconds": f"{prefix}:tokens_predicted_seconds"}  # fmt: skip
            sums = {name: x.value for name, x in _sums_of(added, names, source).items()}
            tokens, seconds = measured.tokens or 0.0, sums.get("seconds", 0.0)
            if "speed" in sums:
                tokens, seconds = sums["speed"], 1.0
            elif not seconds and running:
                seconds = sum(x.ms or 0.0 for x in measured.passes) / running / 1000.0
            if running and tokens and seconds:
                yield Speed(running, tokens, seconds)


# --- engines ---


def _counters(prefix: str) -> dict[str, str]:
    """Names of the counters that several engines share, after a prefix of each, by our names."""
    head = f"{prefix}:spec_decode_num_"
    return {
        "accepted": f"{head}accepted_tokens",
        "drafted": f"{head}draft_tokens",
        "steps": f"{head}drafts",
        "positions": f"{head}accepted_tokens_per_pos",
    }


def counters_in(text: str, prefix: str) -> dict[str, Told]:
    """Sums of the counters in the metrics of a server, by our names, as far as they are there."""
    sums = _sums_of(_scrapes(text, "the metrics")[-1], _counters(prefix), "the metrics")
    for number in sums.values():
        for value in number.value if isinstance(number.value, list) else [number.value]:
            count({number.name: value}, number.name, "the metrics")
    return sums


def _of_counters(
    added: _Scrape, scrape: _Scrape, prefix: str, source: str
) -> AcceptedCounts | None:
    numbers = _all_of(added, _counters(prefix), source)
    places = numbers.get("positions")
    return counts_of(
        source, **numbers, depth=places and places.number, unit="scrapes" if places else "runs",
        measured=_measured(added, scrape, prefix, source),
    )  # fmt: skip


def _of_sglang(added: _Scrape, scrape: _Scrape, prefix: str, source: str) -> AcceptedCounts | None:
    """Mean of the counters, or of the last interval's gauge."""
    names = {
        "steps": "sglang:spec_verify_calls",
        "tokens": "sglang:generation_tokens",
        "requests": "sglang:num_requests",
    }
    numbers = {name: x for name, x in _sums_of(added, names, source).items() if x.value}
    lengths, tokens, steps = (
        [Told(name, x) for (name, _), x in scrape.items() if name == f"sglang:spec_{of}"]
        for of in ("accept_length", "num_draft_tokens", "num_steps")
    )
    depth = next((x for x in steps if x.value), None)
    depth = next((x - 1.0 for x in tokens if x.value), depth)
    measured = _measured(added, scrape, "sglang", source)
    if numbers.keys() >= {"steps", "tokens"}:
        accepted = numbers["tokens"] - numbers["steps"]
        if "requests" in numbers:
            accepted = accepted - numbers["requests"]
        return counts_of(
            source, accepted=accepted, steps=numbers["steps"], depth=depth, unit="scrapes",
            assumed=True, measured=measured,
            notes=("spec_verify_calls is taken for the steps of all requests",),
        )  # fmt: skip
    for length in lengths:  # ranks without their numbers of steps have no mean over both
        agree(source, lengths[0], length)
    return mean_of(source, lengths[0], depth, measured) if any(x.value for x in lengths) else None


def _of_trtllm(added: _Scrape, scrape: _Scrape, prefix: str, source: str) -> AcceptedCounts | None:
    head = "trtllm_spec_decode_num_"
    names = {"accepted": f"{head}accepted_tokens", "drafted": f"{head}draft_tokens"}
    return counts_of(source, **_all_of(added, names, source), unit="runs")


def _of_tgi(added: _Scrape, scrape: _Scrape, prefix: str, source: str) -> AcceptedCounts | None:
    """Tokens beyond one of each pass of each request, a zero for each prefill among them."""
    name, ended = "tgi_request_skipped_tokens", ["tgi_request_success", "tgi_request_count"]
    requests = [x for x in ended if any(x == other for other, _ in added)] or ended
    names = {"accepted": f"{name}_sum", "passes": f"{name}_count", "requests": requests[0]}
    numbers = _all_of(added, names, source)
    steps = numbers["passes"] - numbers["requests"]
    none = not numbers["accepted"].value or steps.value <= 0
    return (
        None if none else counts_of(source, accepted=numbers["accepted"], steps=steps, unit="runs")
    )


_READERS: dict[str, Callable[[_Scrape, _Scrape, str, str], AcceptedCounts | None]] = {
    ":spec_decode_num_": _of_counters,
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
        speeds=speeds_of,
    ),
)
