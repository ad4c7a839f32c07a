"""SGLang: its log, its answers, `/server_info`, and the result of its benchmark.

A line "Decode batch ... accept len: 2.61, accept rate: 0.54" is a mean over the requests of some
passes (--decode-log-interval), whose number is the same for every line. "accept len" counts the
target's token. "accept rate" is a / K with a accepted drafts of a step, and was (a + 1) / (K + 1)
before April 2026. "gen throughput" tells the time of a pass, with prefills and idling in it.

Answers have `meta_info`, or `sglext.spec_tokens_details`. `spec_accept_length` is of all tokens by
verification steps: with the prompt's token, and less what a stop cut off.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats.answer import Answer, answer_of
from mdsd_opt.formats.checks import Contradiction, Told, agree, at_most, counts_by_names, counts_of
from mdsd_opt.formats.content import count, counted, cut, holders
from mdsd_opt.formats.counts import AcceptedCounts, Measured, Passes
from mdsd_opt.formats.engines import vllm
from mdsd_opt.formats.format import Format

_MARKER = re.compile(r"Decode batch.*accept len: ")
_FIELD = {
    "#running-req": re.compile(r"#running-req: (\d+)\b"),
    "accept len": re.compile(r"accept len: (\d+\.\d\d)\b"),
    "accept rate": re.compile(r"accept rate: (\d+\.\d\d)\b"),
    "gen throughput": re.compile(r"gen throughput \(token/s\): (\d+\.\d\d)\b"),
}
_ARGUMENT = re.compile(
    r"['\"]?(speculative_num_draft_tokens|speculative_num_steps|speculative_eagle_topk"
    r"|decode_log_interval)['\"]?[=:] ?(\d+)"
)
_ADAPTIVE = re.compile(r"speculative_adaptive\w*['\"]?[=:] ?[Tt]rue")

#: Number of passes between two lines by default (--decode-log-interval).
_PASSES = 40

#: Largest error of rounding to two places.
_OFF = 0.00501


def of_log(text: str, source: str, depth_given: int | None = None) -> list[AcceptedCounts]:
    """Counts of the log, a group for each line."""
    settings = {name: float(value) for name, value in _ARGUMENT.findall(text)}
    if depth_given is not None and "speculative_num_draft_tokens" not in settings:
        settings.setdefault("speculative_num_steps", float(depth_given))
    depth = _depth(settings, source)
    is_adaptive = _ADAPTIVE.search(text) is not None
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not _MARKER.search(line):
            continue
        told = {name: float(x[1]) for name, form in _FIELD.items() if (x := form.search(line))}
        if not told.keys() >= {"#running-req", "accept len", "gen throughput"} or (
            "accept rate:" in line and "accept rate" not in told
        ):
            raise cut(f"line {number} of {source}", "SGLang's Decode batch")
        if told["#running-req"] and told["accept len"] >= 1.0:
            rows.append((f"line {number} of {source}", told))
    if is_adaptive:
        depth = None
    elif rows:
        depth = _depth_by_rates(rows, depth, source)
    passes = settings.get("decode_log_interval")
    note = (
        f"a line of SGLang's log is taken for {passes or _PASSES:g} passes (--decode-log-interval) "
        "of the requests that ran"
    )
    found = (_of_line(told, where, depth, passes, note) for where, told in rows)
    return [x for x in found if x is not None]


def _of_line(
    told: dict[str, float], where: str, depth: Told | None, passes: float | None, note: str
) -> AcceptedCounts | None:
    running, length, speed = (told[x] for x in ("#running-req", "accept len", "gen throughput"))
    number = passes or float(_PASSES)
    steps = Told("#running-req x passes", running * number)
    if depth is not None:
        at_most(where, Told("accept len - 1", length - 1.0, _OFF), depth)
        length = min(length, 1.0 + depth.value)
    ms = 1000.0 * running * length / speed if speed else None
    return counts_of(
        where, Told("accept len", (length - 1.0) * steps.value),
        None if depth is None else Told("drafted", depth.value * steps.value), steps, depth,
        unit="lines of the log", assumed=passes is None, notes=(note,),
        measured=Measured(passes=(Passes(running, number, ms and ms * number),)),
    )  # fmt: skip


def _depth(settings: dict[str, float], where: str) -> Told | None:
    """K by the arguments of a server; trees are refused, whose counts do not tell of others."""
    topk = settings.get("speculative_eagle_topk", 1.0)
    name = "speculative_num_draft_tokens"
    if topk > 1:
        raise UnreadableFile(
            f"{where} is of trees (speculative_eagle_topk={topk:g}, {name}="
            f"{settings.get(name, math.nan):g}), whose counts do not tell what other trees accept: "
            "advise from logits, or run it with topk 1"
        )
    tokens, steps = settings.get(name), settings.get("speculative_num_steps")
    found = [Told(f"{name} - 1", tokens - 1.0)] if tokens else []
    if steps:
        found.append(Told("speculative_num_steps", steps))
    if len(found) > 1 and found[0].value >= 1:
        agree(where, *found)
    return found[-1] if found and found[-1].value >= 1 else None


def _depth_by_rates(
    rows: list[tuple[str, dict[str, float]]], depth: Told | None, source: str
) -> Told | None:
    """K that the mean lengths and the rates leave, in one of the two forms of the rate."""
    forms: dict[int, set[int]] = {}
    for older in (0, 1):
        low, high = 1.0, 256.0
        for _, told in rows:
            a, rate = told["accept len"] - 1.0 + older, told.get("accept rate")
            if rate is not None:
                low = max(low, (a - _OFF) / (rate + _OFF) - older)
                high = min(high, (a + _OFF) / (rate - _OFF) - older if rate > _OFF else math.inf)
        forms[older] = {*range(math.ceil(low), math.floor(high) + 1)}
    rows = [(where, told) for where, told in rows if "accept rate" in told]
    if not rows:
        return depth
    either = forms[0] | forms[1]
    where, told = rows[0]
    length, share = told["accept len"], told.get("accept rate", 0.0)
    if depth is not None:
        if int(depth.value) not in either:
            for where, told in rows:
                one, by = _closest(told, depth)
                agree(where, one, by)
            raise Contradiction(source, depth, Told("accept len / accept rate", 0.0))
        return depth
    if not either:
        raise UnreadableFile(
            f"{where} contradicts itself: accept len is {length:.2f} and accept rate is "
            f"{share:.2f}, which no whole number of drafts gives in all lines. Give the log "
            "of one run, as the engine wrote it"
        )
    if len(either) == 1:
        return Told("accept len / accept rate", float(next(iter(either))))
    if forms[0] and forms[1]:
        raise UnreadableFile(
            f"{where} can be read in two ways: by accept len {length:.2f} and accept rate "
            f"{share:.2f} a step has {min(forms[0])} drafts, or {min(forms[1])} if the rate is "
            "that of SGLang before April 2026. Give depth, or the log from its start"
        )
    return None


def _closest(told: dict[str, float], depth: Told) -> tuple[Told, Told]:
    a, rate, k = told["accept len"] - 1.0, told.get("accept rate", 0.0), depth.value
    ways = (a / k, (a + 1.0) / (k + 1.0))
    near = min(ways, key=lambda x: abs(x - rate))
    return Told("accept rate", rate, _OFF), Told(f"accept len by {depth.name}", near, _OFF / k)


# --- answers ---

#: Names that changed between versions, the newest first.
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def of_record(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Counts of each answer, or each choice of one."""
    found = holders(record, "spec_verify_ct")
    if not found:
        return None
    choices = holders(record.get("choices"), "spec_verify_ct") if isinstance(record, dict) else []
    if choices and len(choices) < len(found):  # the answer's own stand beside those of choices
        whole = [x for x in found if not any(x is y for y in choices)]
        for name in ("spec_verify_ct", *_ACCEPTED, *_DRAFTED):
            agree(where, Told(name, sum(x.get(name) or 0.0 for x in whole)),
                  Told(f"{name} of choices", sum(x.get(name) or 0.0 for x in choices)))  # fmt: skip
        found = choices
    usage = [x for x in holders(record, "completion_tokens") if "spec_verify_ct" not in x]
    if len(found) == 1 and len(usage) == 1 and "completion_tokens" not in found[0]:
        found = [{**found[0], "completion_tokens": usage[0]["completion_tokens"]}]
    return [_of_answer(x, where) for x in found]


def _of_answer(found: dict[str, Any], where: str) -> AcceptedCounts | None:
    steps = Told("spec_verify_ct", count(found, "spec_verify_ct", where))
    if not steps.value:
        return None
    names = {
        field: next((name for name in choices if found.get(name) is not None), choices[0])
        for field, choices in (
            ("accepted", _ACCEPTED), ("drafted", _DRAFTED), ("histogram", _HISTOGRAM),
            ("rate", ("spec_accept_rate",)),
        )
    }  # fmt: skip
    tokens, length, accepted, drafted = (
        counted(found, name, where)
        for name in ("completion_tokens", "spec_accept_length", names["accepted"], names["drafted"])
    )
    if drafted is None:
        del names["rate"]
    if tokens is not None and length is not None:
        agree(where, Told("spec_accept_length", length, 0.0051),
              Told("completion_tokens / spec_verify_ct", tokens / steps.value))  # fmt: skip
    beyond = 0.0  # tokens of passes without a draft
    if tokens is not None and accepted is not None and names["accepted"] != _ACCEPTED[-1]:
        whole = Told(f"{names['accepted']} + spec_verify_ct + 1", accepted + steps.value + 1.0)
        beyond = max(tokens - whole.value, 0.0)
        each = (drafted or 0.0) / steps.value
        if beyond and steps.value > 2.0 * each and 0.0 <= steps.value - beyond <= each:
            raise Contradiction(where, Told("completion_tokens", tokens), whole)  # one a step less
    known: dict[str, Any] = {"undrafted": np.array([beyond])}
    if accepted is None and not found.get(names["histogram"]):  # as a step brings one token more
        tokens = count(found, "completion_tokens", where)
        known["accepted"] = Told("completion_tokens", max(tokens - 1.0 - steps.value, 0.0))
    if drafted is not None and not found.get(names["histogram"]) and drafted % steps.value == 0:
        known["depth"] = Told(f"{names['drafted']} / spec_verify_ct", drafted / steps.value)
    return counts_by_names(found, where, names, dense=False, steps=steps, **known)


def _first(found: dict[str, Any], names: tuple[str, ...], where: str) -> Told | None:
    named = ((name, counted(found, name, where)) for name in names)
    return next((Told(name, value) for name, value in named if value is not None), None)


# --- means alone ---


def mean_of(where: str, mean: Told, depth: Told | None, measured: Measured) -> AcceptedCounts:
    """Counts of a mean without a number of steps."""
    if depth is not None:
        at_most(where, mean, depth)
    if mean.value < 0:
        raise Contradiction(where, mean, Told("what a step brings at least", 0.0))
    return AcceptedCounts(
        np.array([mean.value]), None if depth is None else np.array([depth.value]), np.ones(1),
        None if depth is None else int(depth.value), unit="runs", source=where, assumed=True,
        measured=measured, notes=("a mean without the number of steps: chance is left out",),
    )  # fmt: skip


def of_server_info(record: Any, where: str) -> list[AcceptedCounts | None] | None:
    """Mean of `/server_info`, since the server started, of each rank."""
    found = holders(record, "avg_spec_accept_length")
    if not found:
        return None
    name = "avg_spec_accept_length"
    settings = {x: float(record[x]) for x in record
                if x.startswith("speculative") and type(record[x]) is int}  # fmt: skip
    means = [Told(f"internal_states [{n}] {name} - 1", count(x, name, where) - 1.0)
             for n, x in enumerate(found)]  # fmt: skip
    for mean in means[1:]:  # ranks without numbers of steps have no mean over both
        agree(where, means[0], mean)
    return [mean_of(where, means[0], _depth(settings, where), Measured())]


_ACCEPT_LENGTH = re.compile(r"^Accept length:\s+(\d+\.\d\d)\s*$", re.MULTILINE)
_TOTAL = re.compile(r"^([A-Z][\w ()/]+):\s+([\d.]+)\s*$", re.MULTILINE)


def of_bench_text(text: str, source: str) -> list[AcceptedCounts]:
    """Mean of the text that bench_serving prints; several runs are not one mean."""
    found = []
    for block in vllm.blocks(text):
        match = _ACCEPT_LENGTH.search(block)
        if match is None:
            raise cut(source, "the result of bench_serving, with Accept length")
        told = {name: float(value) for name, value in _TOTAL.findall(block)}
        found.append(mean_of(source, Told("Accept length - 1", float(match[1]) - 1.0), None,
                             vllm.run_of(told, source)))  # fmt: skip
    return found


def answers(record: Any, where: str, top: int | None) -> list[Answer]:
    """Scored prompts and generated texts: [logarithm, id, text], none for the drawn token."""
    return [
        _listed(x, part, where)
        for x in holders(record, "input_top_logprobs", "output_top_logprobs")
        for part in ("input", "output")
        if x.get(f"{part}_top_logprobs")
    ]


def _listed(info: dict[str, Any], part: str, where: str) -> Answer:
    name = f"{part}_top_logprobs"
    own = info.get(f"{part}_token_logprobs")
    accepted, drafted = (_first(info, names, where) for names in (_ACCEPTED, _DRAFTED))
    return answer_of(
        where,
        [int(entry[1]) for entry in own] if own else None,
        [[(int(e[1]), e[0]) for e in row] if row else None for row in info[name]],
        own=[entry[0] for entry in own] if own else None,
        fields=(name, f"{part}_token_logprobs"), is_prompt=part == "input",
        drafted=drafted and drafted.value, accepted=accepted and accepted.value,
        steps=counted(info, "spec_verify_ct", where),
    )  # fmt: skip


FORMATS = (
    Format(
        "SGLang's log",
        "lines with 'Decode batch' and 'accept len:'",
        _MARKER,
        of_log,
        takes_depth=True,
    ),
    Format("SGLang's answers", "JSON with 'spec_verify_ct'", of_record=of_record, answers=answers),
    Format("SGLang's /server_info", "JSON with 'avg_spec_accept_length'", of_record=of_server_info),
    Format("SGLang's bench_serving", "a line 'Accept length:'", _ACCEPT_LENGTH, of_bench_text),
)
