"""Flags or settings of serving engines that carry out an advice, and what an engine cannot do.

Names are those of vLLM 0.33, SGLang 0.5.23 and llama.cpp of October 2026, whose sources or programs
were looked at, and those that the documentation of TensorRT-LLM 1.3.0rc29 gives for its
`DecodingBaseConfig`; none was tried on a TensorRT-LLM that runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from mdsd_opt.errors import UnknownName
from mdsd_opt.planning.count_advice import CountAdvice

_OFF = "Drafts do not pay"


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """Flags or settings to start an engine with.

    Attributes
    ----------
    engine : str
    lines : tuple of str
        Flags or lines of a file, ready to be copied; empty where it should draft nothing.
    remarks : tuple of str
        Remarks on what the flags leave out.
    """

    engine: str
    lines: tuple[str, ...]
    remarks: tuple[str, ...]


def engine_flags(advice: CountAdvice, engine: str) -> EngineFlags:
    """Flags that carry out an advice in "vllm", "sglang", "trtllm" or "llamacpp".

    Raises `UnknownName` for another engine.
    """
    if engine not in ENGINES:
        raise UnknownName.among("engine", engine, ENGINES)
    k = advice.depth
    parts = advice.lengths_by_batch if any(n for *_, n in advice.lengths_by_batch) else ()
    if not k and not parts:
        return EngineFlags(engine, (), (f"{_OFF}: start it without speculative decoding.",))
    longest = max([k, *(n for _, _, n in parts)])
    lines, remarks = ENGINES[engine](k, longest, parts, advice)
    if advice.worth_it is None:
        remarks = [*remarks, "Whether they pay is not settled: see the sentence above."]
    return EngineFlags(engine, tuple(lines), tuple(remarks))


Parts = Sequence[tuple[int, int, int]]
Lines = tuple[list[str], list[str]]


def _vllm(k: int, longest: int, parts: Parts, advice: CountAdvice) -> Lines:
    config: dict[str, object] = {
        "num_speculative_tokens": longest if len(parts) > 1 else k or longest
    }
    remarks = ['Add your method and draft model: "method": ..., "model": ...']
    if len(parts) > 1:
        config["num_speculative_tokens_per_batch_size"] = [list(part) for part in parts]
        remarks.append("The schedule by batch is for EAGLE and draft models.")
    remarks += _no_stop(advice, "vLLM")
    return [f"--speculative-config '{json.dumps(config)}'"], remarks


def _sglang(k: int, longest: int, parts: Parts, advice: CountAdvice) -> Lines:
    steps = longest if len(parts) > 1 else k or longest
    lines = [
        f"--speculative-num-steps {steps} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {steps + 1}"
    ]
    remarks = ["Add --speculative-algorithm and --speculative-draft-model-path."]
    if len(parts) > 1:
        config = {str(low): {"candidate_steps": [n]} for low, _, n in parts}
        lines.append("--speculative-adaptive --speculative-adaptive-config FILE, with in FILE:")
        lines.append(json.dumps(config))
        remarks.append("Steps by batch are for EAGLE and EAGLE3 with topk 1.")
    remarks += _no_stop(advice, "SGLang")
    return lines, remarks


def _trtllm(k: int, longest: int, parts: Parts, advice: CountAdvice) -> Lines:
    lines = ["speculative_config:", f"  max_draft_len: {k or longest}"]
    remarks = ["In the file of --extra_llm_api_options, with decoding_type and your draft model."]
    off = [low for low, _, n in parts if n == 0]
    if off and parts[-1][2] == 0:
        lines.append(f"  max_concurrency: {off[-1] - 1}")
    if len({n for _, _, n in parts if n}) > 1:
        remarks.append("One length serves all batches up to there: " + _in_words(parts))
    return lines, remarks


def _llamacpp(k: int, longest: int, parts: Parts, advice: CountAdvice) -> Lines:
    length = k or longest
    flags = f"--spec-draft-n-max {length} --spec-draft-n-min 0"
    stop = next((x for x in advice.policies if x.name == "by confidence"), None)
    if stop is not None and advice.counts.has_one_length:
        flags += f" --spec-draft-p-min {stop.thresholds['p_min']:.2f}"
    remarks = [
        "Add --spec-draft-model; older builds call it --draft-max, --draft-min, --draft-p-min.",
        "n-min stays 0: to clear a chain for being short, once it is drawn, is not lossless.",
    ]
    if stop is not None and not advice.counts.has_one_length:
        remarks.append("Leave p-min as it was in this run.")
    if len({n for _, _, n in parts}) > 1:
        remarks.append(f"llama.cpp has no length by batch: {_in_words(parts)}")
    return [flags], remarks


def _in_words(parts: Parts) -> str:
    return ", ".join(f"{n} at {low} to {high}" for low, high, n in parts)


def _no_stop(advice: CountAdvice, engine: str) -> list[str]:
    if any(x.name == "by confidence" for x in advice.policies):
        return [f"{engine} stops a chain by confidence with DSpark drafts alone."]
    return []


#: Functions by engine: of the drafts at this batch, the most at any, those by batch, the advice.
ENGINES = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm, "llamacpp": _llamacpp}
