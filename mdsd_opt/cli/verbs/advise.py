"""mdsd-opt advise: do drafts pay, and which?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsd_opt.cli import options
from mdsd_opt.errors import InvalidInput

if TYPE_CHECKING:
    from mdsd_opt.planning.model_advice import ModelAdvice


@options.gathers_options()
def advise(
    logits: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A .npz, .safetensors or .pt file with arrays 'target' and 'draft' [..., V] and "
            "perhaps 'sequence' and 'position' [...], two .npy or .pt files, or a folder of "
            "shards; the bundled real logits if left out."
        ),
    ] = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(
            help="With --draft, in place of LOGITS: a model, as of mdsd-opt decode, whose passes "
            "are measured and with which the advice is tried out."
        ),
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="The same, or skip:14,18 for the target without layers.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help='With models: one prompt a line, or .jsonl with the field "prompt".'),
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="The same, here; may be given several times.")
    ] = None,
    tokens: Annotated[
        int, typer.Option(help="With models: new tokens of each prompt, twice.")
    ] = 32,
    precision: Annotated[
        str, typer.Option(help="The models run in: bfloat16, float16, float32.")
    ] = "bfloat16",
    device: Annotated[str, typer.Option(help="The models run on: cpu, cuda, ...")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="With models: of all sampling.")] = 0,
    target_ms: Annotated[float, typer.Option(help="Milliseconds of a target pass.")] = 20.0,
    draft_ms: Annotated[float, typer.Option(help="Milliseconds of a draft pass.")] = 2.0,
    rows_ms: Annotated[
        str | None,
        typer.Option(
            help="Milliseconds of a target pass by its rows, as 1:20,8:21,64:40; the same for any "
            "number of rows if left out. A tree of n drafts is n + 1 rows for each text."
        ),
    ] = None,
    verify_ms: Annotated[float, typer.Option(help="Milliseconds of a step's decision.")] = 0.0,
    draft_passes: Annotated[
        int | None,
        typer.Option(
            help="Draft passes of a step: 1 for drafts that come in parallel, 0 for those that are "
            "looked up; one for each level if left out."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Texts that are decoded together.")] = 1,
    max_drafts: Annotated[int, typer.Option(help="Drafts of a tree, at most.")] = 16,
    schemes: Annotated[
        str, typer.Option(help="Draft schemes, separated by commas.")
    ] = options.SCHEMES,
    verifier: Annotated[str, typer.Option(help="Whose acceptance rates are taken.")] = "optimal",
    sampling: options.SamplingOptions,
    kind: options.Kind = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    plot: options.Plot = None,
    report: options.Report = None,
    as_json: options.AsJson = False,
    threads: options.Threads = None,
    progress: options.Progress = None,
) -> None:
    """Whether drafts are worth it at your costs, and which scheme and tree bring most tokens.

    Beside the best: plain decoding, drafts one by one, and every scheme's best tree. With --target
    and --draft the costs are measured and the texts the target's own; the tree advised is tried out
    in one call of decoding, and what came of it stands beside the forecast.
    """
    from mdsd_opt.cli.report.advice import advice_view, model_advice_view
    from mdsd_opt.cli.verbs.plan import parse_cost
    from mdsd_opt.cli.view import Form, present
    from mdsd_opt.data import sample_logits_path
    from mdsd_opt.planning.advice import advise as found_advice

    form = Form(as_json, plot=plot, page=report)
    names = options.parse_schemes(schemes)
    if target is not None or draft is not None:
        given = (logits, rows_ms, target_ms != 20.0, draft_ms != 2.0, verify_ms, batch != 1, kind)
        if target is None or draft is None or not (prompt or prompts) or any(given):
            raise InvalidInput(
                "--target and --draft go together, with --prompt or --prompts, and without LOGITS, "
                "--kind, --batch and costs, which are measured"
            )
        found = _of_models(
            target, draft, prompt, prompts, precision, device, num_tokens=tokens,
            max_drafts=max_drafts, schemes=names, confidence=confidence, rng=seed,
            **asdict(sampling),
        )  # fmt: skip
        title = f"{target} and {draft}; temperature {sampling.temperature:g}"
        present(model_advice_view(found, title, source=[target, draft]), form)
        return
    advice = found_advice(
        logits or [sample_logits_path()],
        target_ms=target_ms,
        draft_ms=draft_ms,
        rows_ms=None if rows_ms is None else parse_cost(rows_ms, "--rows-ms", "rows"),
        verify_ms=verify_ms,
        max_drafts=max_drafts,
        batch_size=batch,
        draft_passes=draft_passes,
        schemes=names,
        verifier=options.parse_verifiers(verifier)[0],
        confidence=confidence,
        kind=kind if logits else "logits",
        num_threads=threads,
        progress=sys.stderr.isatty() if progress is None else progress,
        **asdict(sampling),
    )
    source = " and ".join(map(str, logits or [])) or sample_logits_path().name
    title = f"{source}; temperature {sampling.temperature:g}, batch {batch}"
    present(advice_view(advice, title, source=source), form)


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
    from mdsd_opt.corpora.capture import read_prompts
    from mdsd_opt.decoding.generation import require_room
    from mdsd_opt.decoding.models import tree_pass
    from mdsd_opt.planning.model_advice import advise_models

    texts = [*(prompt or []), *(read_prompts(prompts) if prompts is not None else [])]
    skip = capture.skipped_layers(draft)
    big, small = capture.load_pair(target, draft, skip, None, None, precision, device)
    models = tree_pass.TreeModel(big), tree_pass.TreeModel(small, vocab_size=big.vocab_size)
    ids = [big.encode(text) for text in texts]
    require_room(*models, ids)
    return advise_models(*models, ids, tell=remark, **asked)
