"""mdsd-opt advise: do drafts pay, and which?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.cli.view import Form
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.cli.view import View
    from mdsd_opt.planning import ModelAdvice, StepCosts

#: Most seconds between two readings of metrics.
_LONGEST_WATCH = 86400


@options.gathers_options()
def advise(
    logits: Annotated[
        list[str] | None,
        typer.Argument(
            help="A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V] and "
            "perhaps 'sequence' and 'position' [...], two .npy or .pt files, or a folder of "
            "shards; the bundled real logits if left out. Or what an engine wrote of a run, as "
            "of --accepted, and perhaps of another without drafts, which is then compared."
        ),
    ] = None,
    *,
    target: Annotated[
        str | None,
        "With --draft, in place of LOGITS: a model, as of mdsd-opt decode, whose passes "
        "are measured and with which the advice is tried out.",
    ] = None,
    draft: Annotated[str | None, "The same, or skip:14,18 for the target without layers."] = None,
    prompts: Annotated[
        Path | None,
        'With models: one prompt a line, or .jsonl with the field "prompt".',
    ] = None,
    prompt: Annotated[list[str] | None, "The same, here; may be given several times."] = None,
    tokens: Annotated[int, "With models: new tokens of each prompt, twice."] = 32,
    precision: Annotated[str, "The models run in: bfloat16, float16, float32."] = "bfloat16",
    device: Annotated[str, "The models run on: cpu, cuda, ..."] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="With models: of all sampling.")] = 0,
    accepted: Annotated[
        list[str] | None,
        "What an engine counted: a log, metrics, saved answers or streams of vLLM, SGLang, "
        "llama.cpp, TensorRT-LLM, TGI, Ollama, LMDeploy, AIPerf, told apart by content, gzipped or "
        "not; - for standard input, or the address of /metrics, which is read twice; further files "
        "behind it. Or numbers: 1093/1717 accepted of drafted, 720,500,340/1000 by position of "
        "steps, .72,.5,.34 the same as shares, 2.56 tokens a step.",
    ] = None,
    watch: Annotated[
        float | None, "With an address of /metrics: seconds between its two readings; else 10."
    ] = None,
    depth: Annotated[
        int | None,
        "With --accepted: drafts of a step one after another, where the counts do not say it.",
    ] = None,
    num_drafts: Annotated[int | None, typer.Option(hidden=True)] = None,
    speedup: Annotated[
        float | None,
        "With --accepted: say what acceptance this speed-up takes.",
    ] = None,
    target_ms: Annotated[
        str | None,
        "Milliseconds of a target pass, or by the texts decoded together, as 1:20,32:40; "
        "with LOGITS 20 if left out.",
    ] = None,
    draft_ms: Annotated[
        str | None,
        "The same of a draft pass; with LOGITS 2 if left out. Of several drafts 2/1/.5, one each.",
    ] = None,
    costs: Annotated[Path | None, "A file that --measure wrote, in place of milliseconds."] = None,
    context: Annotated[
        int | None,
        "Tokens before a pass: of --costs, if it has several, or of --measure.",
    ] = None,
    measure: Annotated[
        Path | None,
        "Time passes of the models --target and perhaps --draft, and write them to this file.",
    ] = None,
    rows_ms: Annotated[
        str | None,
        "Milliseconds of a target pass by its rows, as 1:20,8:21,64:40; the same for any "
        "number of rows if left out. A tree of n drafts is n + 1 rows for each text.",
    ] = None,
    verify_ms: Annotated[float, "Milliseconds of a step's decision."] = 0.0,
    draft_passes: Annotated[
        int | None,
        "Draft passes of a step: 1 for drafts that come in parallel, 0 for those that are "
        "looked up; one for each level if left out.",
    ] = None,
    batch: Annotated[
        str | None,
        "Texts that are decoded together; of a run's own costs, as many as in most of its steps. "
        "else one. With counts several, as 1,16,64.",
    ] = None,
    max_drafts: Annotated[int, "Drafts of a tree, at most."] = 16,
    schemes: Annotated[str, "Draft schemes, separated by commas."] = options.SCHEMES,
    verifier: Annotated[str, "Whose acceptance rates are taken."] = "optimal",
    sampling: options.SamplingOptions,
    kind: options.Kind = None,
    confidence: options.Confidence = 0.95,
    form: Form,
    threads: options.Threads = None,
    progress: options.Progress = None,
) -> None:
    """Whether drafts are worth it at your costs, and which scheme and tree bring most tokens.

    Beside the best: plain decoding, drafts one by one, and every scheme's best tree. With --target
    and --draft the costs are measured and the texts the target's own; the tree advised is tried out
    in one call of decoding, and what came of it stands beside the forecast. With --accepted, how
    long chains of drafts should be, by what an engine counted.
    """
    from mdsd_opt.cli.output import remark
    from mdsd_opt.cli.report.advice import advice_view, count_advice_view, model_advice_view
    from mdsd_opt.cli.verbs.advice_of_counts import (
        advice_of_counts,
        are_counts,
        costs_of_file,
        prices,
        write_costs,
    )
    from mdsd_opt.cli.view import present
    from mdsd_opt.data import sample_logits_path
    from mdsd_opt.planning import StepCosts
    from mdsd_opt.planning import advise as advice_of_logits

    if measure is not None:
        write_costs(measure, target, draft, precision, device, context)
        return
    names = options.parse_schemes(schemes)
    given_costs = (target_ms, draft_ms, rows_ms)
    if watch is not None and not 0 < watch <= _LONGEST_WATCH:
        raise InvalidInput(f"--watch is {watch}: give seconds above 0, up to {_LONGEST_WATCH}")
    batches = [1] if batch is None else options.parse_numbers(batch, "--batch", 10**6)
    if accepted is not None or are_counts(logits or ()):
        if target or draft or prompts or prompt or kind:
            raise InvalidInput("--accepted goes without --kind, models and prompts")
        options.refuse_changed(
            advise,
            {
                "schemes": schemes, "verifier": verifier, "tokens": tokens, "seed": seed,
                "precision": precision, "device": device, "threads": threads, **asdict(sampling),
            },
            "--{name} does nothing with counts of an engine: leave it out",
        )  # fmt: skip
        if num_drafts is not None:
            remark("--num-drafts of advise is --depth: the old word goes with the next release")
        sources = [*(accepted or []), *(logits or [])]
        by_hand = prices(*given_costs, verify_ms, draft_passes)
        by_batch = advice_of_counts(
            sources, num_drafts if depth is None else depth,
            [
                {
                    **by_hand, "costs": costs_of_file(costs, size, context, by_hand),
                    **({} if batch is None else {"batch": size}),
                }
                for size in batches
            ],
            max_drafts, speedup, confidence, watch, with_baseline=accepted is None,
        )  # fmt: skip
        present(count_advice_view(by_batch, " and ".join(sources), batches), form)
        return
    if any(x is not None for x in (num_drafts, depth, speedup)):
        raise InvalidInput("--depth and --speedup go with --accepted or a log")
    if watch is not None or len(batches) > 1:
        raise InvalidInput("--watch and several of --batch go with what an engine counted")
    if target is not None or draft is not None:
        others = (logits, *given_costs, costs, verify_ms, batches != [1], kind)
        if target is None or draft is None or not (prompt or prompts) or any(others):
            raise InvalidInput(
                "--target and --draft go together, with --prompt or --prompts, and without LOGITS, "
                "--kind, --batch and costs, which are measured"
            )
        model_advice = _of_models(
            target, draft, prompt, prompts, precision, device, num_tokens=tokens,
            max_drafts=max_drafts, schemes=names, confidence=confidence, rng=seed,
            **asdict(sampling),
        )  # fmt: skip
        title = f"{target} and {draft}; temperature {sampling.temperature:g}"
        present(model_advice_view(model_advice, title, source=[target, draft]), form)
        return
    each = (draft_ms or "2").split("/")
    drafts, (rule, *rules) = max(len(logits or ()) - 1, 1), options.parse_verifiers(verifier)
    if rules:
        raise InvalidInput(f"--verifier is {verifier!r:.60}: give one")
    if len(each) not in (1, drafts):
        raise InvalidInput(
            f"--draft-ms has {len(each)} costs, and the number of drafts is {drafts}"
        )
    by_hand = prices(target_ms, draft_ms and each[0], rows_ms, verify_ms, draft_passes)
    price = costs_of_file(costs, batches[0], context, by_hand) or StepCosts(
        **{name: x for name, x in by_hand.items() if x is not None}, batch_size=batches[0]
    )
    if logits and len(logits) > 2:
        options.refuse_changed(
            advise, {"verifier": verifier}, "several drafts have the optimum: leave --{name} out"
        )
        present(
            _of_drafts(
                [Path(x) for x in logits], price, each, names, kind=kind, max_drafts=max_drafts,
                confidence=confidence, num_threads=threads, progress=bool(progress),
                **asdict(sampling),
            ),
            form,
        )  # fmt: skip
        return
    files: list[Any] = logits or [sample_logits_path()]
    advice = advice_of_logits(
        files, target_ms=price.target_ms, draft_ms=price.draft_ms, rows_ms=price.rows_ms,
        verify_ms=price.verify_ms, batch_size=price.batch_size, draft_passes=price.draft_passes,
        max_drafts=max_drafts, schemes=names, verifier=rule,
        confidence=confidence, kind=kind if logits else "logits", num_threads=threads,
        progress=bool(progress), **asdict(sampling),
    )  # fmt: skip
    source = " and ".join(map(str, logits or [])) or sample_logits_path().name
    title = f"{source}; temperature {sampling.temperature:g}, {price.told}"
    present(advice_view(advice, title, source=source), form)


def _of_drafts(
    paths: list[Path], price: StepCosts, each: list[str], schemes: list[str], **asked: Any
) -> View:
    """View of several drafts of one target at these costs."""
    from mdsd_opt.cli.verbs.advice_of_counts import pass_cost
    from mdsd_opt.cli.verbs.rates_of_drafts import compared, drafts_view

    scheme, *more = ["with_replacement"] if schemes == options.SCHEMES.split(",") else schemes
    if more:
        raise InvalidInput(
            f"--schemes has {1 + len(more)} names: several drafts are compared by one"
        )
    costs = {
        "rows_ms": price.rows_ms, "verify_ms": price.verify_ms, "batch_size": price.batch_size,
        "draft_passes": price.draft_passes, "max_drafts": asked.pop("max_drafts"),
    }  # fmt: skip
    own = [pass_cost(x, "--draft-ms") for x in each] if len(each) > 1 else [price.draft_ms]
    comparison = compared(
        paths, [1, 2, 3, 4], scheme, target_ms=price.target_ms, draft_ms=own, costs=costs, **asked
    )
    return drafts_view(comparison, f"{paths[0].name}, {price.told}")


def _of_models(
    target: str,
    draft: str,
    prompt: list[str] | None,
    prompts: Path | None,
    precision: str,
    device: str,
    **asked: Any,
) -> ModelAdvice:
    from mdsd_opt.cli.output import remark
    from mdsd_opt.cli.verbs import capture
    from mdsd_opt.corpora import read_prompts
    from mdsd_opt.decoding import TreeModel, require_room
    from mdsd_opt.planning import advise_models

    texts = [*(prompt or []), *(read_prompts(prompts) if prompts is not None else [])]
    big, small = capture.load_pair(target, draft, precision, device)
    models = TreeModel(big), TreeModel(small, vocab_size=big.vocab_size)
    ids = [big.encode(text) for text in texts]
    require_room(*models, ids)
    return advise_models(*models, ids, tell=remark, **asked)
