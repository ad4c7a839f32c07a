"""Decoding by trees of drafts in `generate` of the transformers library, by `custom_generate`.

The target's law at every node is what `generate` itself would sample from: the float32 logits,
after all of its logits processors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mdsd_opt.base.arrays import Text
from mdsd_opt.decoding.generation import Metrics, generate_steps, require_room
from mdsd_opt.decoding.language_models import spread, token_ids_of
from mdsd_opt.decoding.passes import CACHE_NAMES, cache_of, holds_text
from mdsd_opt.drafts import SchemeMaker
from mdsd_opt.errors import InvalidInput
from mdsd_opt.trees import Tree, TreeRule, known, on_device, token_ids

#: Processors that treat every row by itself, whatever its place in the batch.
_ROW_BY_ROW = {
    "EpsilonLogitsWarper", "EtaLogitsWarper", "ExponentialDecayLengthPenalty",
    "ForcedBOSTokenLogitsProcessor", "ForcedEOSTokenLogitsProcessor",
    "InfNanRemoveLogitsProcessor", "LogitNormalization", "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor", "MinPLogitsWarper", "NoBadWordsLogitsProcessor",
    "NoRepeatNGramLogitsProcessor", "RepetitionPenaltyLogitsProcessor",
    "SequenceBiasLogitsProcessor", "SuppressTokensAtBeginLogitsProcessor",
    "SuppressTokensLogitsProcessor", "TemperatureLogitsWarper", "TopHLogitsWarper",
    "TopKLogitsWarper", "TopPLogitsWarper", "TypicalLogitsWarper",
}  # fmt: skip

#: Processors that remember what they saw: their laws are not functions of the text.
_STATEFUL = {
    "ClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor",
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
}  # fmt: skip

#: Arguments that `generate` prepares for every causal model and that are not needed here.
_PREPARED = {
    "attention_mask", "position_ids", "use_cache", "logits_to_keep", "cache_position", *CACHE_NAMES,
}  # fmt: skip


def custom_generate(
    model: Any,
    input_ids: Any,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    *,
    draft_model: Any = None,
    tree: Tree | str = "planned16",
    scheme: str | SchemeMaker = "with_replacement",
    rule: TreeRule | str = "traversal_hull",
    on_device: bool | None = None,
    relax: Mapping[str, float] | None = None,
    on_step: Callable[[Text, Metrics], None] | None = None,
    tokenizer: Any = None,
    **model_kwargs: Any,
) -> Any:
    """Decode by trees of drafts, for ``model.generate(..., custom_generate=custom_generate)``.

    The text has the law of `generate` without it, whatever the draft model: the target's law is
    that of the logits after all logits processors, and the draft's logits get the same ones. They
    must be functions of the text and the scores alone. Stopping criteria are asked after each
    token, end tokens, lengths and streamers are those of `generate`, prompts may be padded on the
    left. The prompts of a batch are continued one after another. Both models keep keys and values
    in static caches if `generate` was to, by ``cache_implementation="static"`` or an empty
    `StaticCache`: caches of their own, with room for the drafts. Seeded by ``torch.manual_seed``.

    Parameters
    ----------
    model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs
        Arguments from `generate`.
    draft_model : transformers.PreTrainedModel or object
        Model with the same tokenizer; its vocabulary may be padded differently. Or any draft with a
        method ``tree_logits(ids, continuations)``, such as `PromptLookup`, or a head that reads the
        model's hidden states, see `mdsd_opt.decoding.language_models`.
    tree : Topology, PlannedTree, DynamicTree or str
        See `mdsd_opt.decoding.generate`.
    scheme : str or callable
    rule : TreeRule or str
    on_device : bool, optional
    relax : mapping, optional
        See `mdsd_opt.decoding.generate`: the text follows the closest laws within this budget.
    on_step : callable, optional
        Called after every step with its tokens and the metrics of this prompt so far, among them
        the distance from the target.
    tokenizer : optional
        Not needed. `stop_strings` of `generate` are for its own ways only, which alone get the
        tokenizer: give ``stopping_criteria=[StopStringCriteria(tokenizer, strings)]``.

    Returns
    -------
    torch.Tensor or transformers.generation.GenerateDecoderOnlyOutput
        Output in the form of `generate`.

    Raises
    ------
    InvalidInput
        No draft model; beams, contrastive search, encoder-decoder models, or anything else whose
        law this is not, each by its name; a prompt that is empty or fills the context.
    """
    # generate tells custom functions of neither, but has handed the prompt to the streamer
    outside = _arguments_of_generate()
    streamer = outside.get("streamer")
    _require_honoured(
        model, draft_model, input_ids, logits_processor, generation_config, model_kwargs, outside
    )
    import torch
    from transformers.generation import GenerateDecoderOnlyOutput

    batch = _Batch(model, draft_model, input_ids, model_kwargs, logits_processor)
    rows: list[list[int]] = []
    scores: list[Any] = []
    for row in range(input_ids.shape[0]):
        tokens: list[int] = []
        steps = batch.steps(
            row, _room(stopping_criteria, input_ids.shape[1]), tree=tree, scheme=scheme,
            rule=rule, on_device=on_device, relax=relax,
            temperature=1.0 if generation_config.do_sample else 0.0,
        )  # fmt: skip
        for new, metrics in steps:
            if on_step is not None:
                on_step(new, metrics)
            piece = _until_stop(batch.text(row, tokens), new, stopping_criteria)
            tokens += piece
            if generation_config.output_scores or generation_config.output_logits:
                scores += [batch.target.seen(new[:n]) for n in range(len(piece))]
            if streamer is not None:
                streamer.put(torch.tensor(piece))
            if len(piece) < len(new) or _stopped(batch.text(row, tokens), stopping_criteria):
                break
        rows.append(tokens)
    if streamer is not None:
        streamer.end()
    sequences = _beside(input_ids, rows, generation_config)
    if not generation_config.return_dict_in_generate:
        return sequences
    return GenerateDecoderOnlyOutput(
        sequences=sequences,
        scores=tuple(one.scores for one in scores) if generation_config.output_scores else None,
        logits=tuple(one.logits for one in scores) if generation_config.output_logits else None,
    )


class _Processed:
    """A model whose logits, spread over the vocabulary, are processed at every node of a tree."""

    token_ids = None  # scores are of all tokens

    def __init__(
        self, inner: Any, vocab_size: int, processors: Any, input_ids: Any, row: int, padding: int
    ) -> None:
        self._inner, self._processors = inner, processors
        self._own_ids, self._vocab_size = token_ids_of(inner), vocab_size
        self._row, self._num_rows = row, input_ids.shape[0]
        self._prompt, self._padding, self.device = input_ids[row], padding, input_ids.device
        self._at_once = all(_is_row_by_row(one) for one in processors)
        self._seen: dict[Text, _Scores] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # hidden states, and what a draft has besides

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> Any:
        """Scores of the next token after the text and each continuation, [n, V]."""
        return self.tree_tensor(ids, continuations).cpu().numpy()

    def tree_tensor(self, ids: Sequence[int], continuations: Sequence[Text]) -> Any:
        """Tensor with the values of `tree_logits`."""
        import torch

        if hasattr(self._inner, "tree_tensor"):
            own = self._inner.tree_tensor(ids, continuations)
        else:
            own = torch.as_tensor(self._inner.tree_logits(ids, continuations))
        logits = spread(own, self._own_ids, self._vocab_size).to(self.device, torch.float32)
        text = torch.cat([self._prompt[: self._padding], self._ids([ids])[0]])
        scores = torch.empty_like(logits)
        for length in {len(tokens) for tokens in continuations}:
            places = [n for n, tokens in enumerate(continuations) if len(tokens) == length]
            drafts = self._ids([continuations[n] for n in places])
            texts = torch.cat([text.expand(len(places), -1), drafts], 1)
            at = on_device(places, logits.device)
            scores[at] = self._process(texts, logits[at])
        self._seen = {
            tokens: _Scores(scores[n : n + 1], logits[n : n + 1])
            for n, tokens in enumerate(continuations)
        }
        return scores

    def _process(self, texts: Any, scores: Any) -> Any:
        import torch

        if self._at_once:
            return self._processors(texts, scores)
        processed = []
        for text, row in zip(texts, scores, strict=True):  # in its own place in the batch
            copies = (self._num_rows, 1)
            all_rows = self._processors(text.repeat(copies), row.repeat(copies))
            processed.append(all_rows[self._row])
        return torch.stack(processed)

    def _ids(self, rows: Sequence[Sequence[int]]) -> Any:
        return token_ids(rows, self.device).clamp_(min=0)

    def seen(self, tokens: Text) -> _Scores:
        """Scores at a node of the last tree."""
        self._seen = {known(node): scores for node, scores in self._seen.items()}
        return self._seen[tokens]


def _is_row_by_row(processor: Any) -> bool:
    """Whether the processor treats rows alike in other batches, with nothing for each prompt."""
    if getattr(processor, "prompt_ignore_length", None) is not None:
        return False
    return type(processor).__name__ in _ROW_BY_ROW


class _Scores(NamedTuple):
    """Logits at one position, after and before the processors; [1, V]."""

    scores: Any
    logits: Any


class _Batch:
    """The prompts of a call, and the two models that continue them."""

    def __init__(
        self, model: Any, draft_model: Any, input_ids: Any, inputs: dict[str, Any], processors: Any
    ) -> None:
        from mdsd_opt.decoding.loading import LoadedModel
        from mdsd_opt.decoding.tree_pass import TreeModel

        def loaded(one: Any) -> LoadedModel:
            return LoadedModel(one, None, {"model": one.name_or_path or type(one).__name__})

        target, static = loaded(model), _static_length(cache_of(inputs))
        self._vocab_size = target.vocab_size
        self._models = (
            TreeModel(target, static_length=static),
            TreeModel(loaded(draft_model), target.vocab_size, static)
            if hasattr(draft_model, "config")
            else draft_model,
        )
        self._ids, self._processors = input_ids, processors
        self._paddings = _left_paddings(inputs.get("attention_mask"), input_ids)
        rows = zip(input_ids.tolist(), self._paddings, strict=True)
        self._prompts = [row[padding:] for row, padding in rows]
        require_room(*self._models, self._prompts)
        self.target: _Processed

    def steps(self, row: int, room: int, **options: Any) -> Iterator[tuple[Text, Metrics]]:
        """Results of each step after one of the prompts, see `generate_steps`."""
        import torch

        context = self._vocab_size, self._processors, self._ids, row, self._paddings[row]
        self.target, draft = (_Processed(model, *context) for model in self._models)
        rng = np.random.default_rng(int(torch.randint(2**62, (1,))))
        return generate_steps(
            self.target, draft, self._prompts[row], rng=rng, max_new_tokens=room, **options
        )

    def text(self, row: int, tokens: Sequence[int]) -> Any:
        """A prompt, as it was given, and its continuation; [1, T]."""
        import torch

        new = torch.as_tensor(list(tokens), dtype=torch.long, device=self._ids.device)
        return torch.cat([self._ids[row], new])[None]


def _arguments_of_generate() -> dict[str, Any]:
    """Local names of the `generate` that has called `custom_generate`; empty without one."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return dict(frame.f_locals) if frame is not None and frame.f_code.co_name == "generate" else {}


def _require_honoured(
    model: Any, draft_model: Any, input_ids: Any, processors: Any, config: Any,
    inputs: dict[str, Any], outside: dict[str, Any],
) -> None:  # fmt: skip
    """Raise `InvalidInput` for a setting that this loop would not follow, by its name.

    `inputs` is what `generate` has prepared, `outside` what it was given.
    """
    given = {"model.config": model, "input_ids.new_tensor": input_ids,
             "generation_config.do_sample": config}  # fmt: skip
    for name, value in given.items():
        if not hasattr(value, name.partition(".")[2]):
            raise InvalidInput(
                f"{name} is missing, as of a {type(value).__name__}: this is for "
                "model.generate(..., custom_generate=custom_generate), which gives it"
            )
    if draft_model is None:
        raise InvalidInput("there is no draft_model: give one with the same tokenizer")
    if not hasattr(draft_model, "config") and not hasattr(draft_model, "tree_logits"):
        raise InvalidInput(
            f"the draft_model is a {type(draft_model).__name__}: give a model of the transformers "
            "library itself (a LoadedModel has it in .model), or an object with a method "
            "tree_logits(ids, continuations)"
        )
    unusual = {
        "num_beams": (config.num_beams or 1) > 1,
        "penalty_alpha (contrastive search)": bool(config.penalty_alpha),
        "dola_layers": config.dola_layers is not None,
        "prompt_lookup_num_tokens": config.prompt_lookup_num_tokens is not None,
        "assistant_model": outside.get("assistant_model") is not None,
        "position_ids": outside.get("kwargs", {}).get("position_ids") is not None,
        "output_attentions": bool(config.output_attentions),
        "output_hidden_states": bool(config.output_hidden_states),
        "output_scores of several prompts": input_ids.shape[0] > 1
        and bool(config.output_scores or config.output_logits),
        "an encoder-decoder model": bool(model.config.is_encoder_decoder),
        "an encoder-decoder draft_model": hasattr(draft_model, "config")
        and bool(draft_model.config.is_encoder_decoder),
    }
    unusual |= {type(one).__name__: True for one in processors if type(one).__name__ in _STATEFUL}
    unusual |= {
        name: True for name, value in inputs.items() if name not in _PREPARED and value is not None
    }
    cache = cache_of(inputs)
    unusual["a cache that holds text"] = cache is not None and holds_text(cache)
    unusual["a cache that is offloaded"] = bool(getattr(cache, "offloading", False))
    unusual["a cache that is quantized"] = "Quantized" in type(cache).__name__
    refused = [name for name, present in unusual.items() if present]
    if refused:
        raise InvalidInput(
            f"trees of drafts do not honour {', '.join(refused)}: leave it out, or generate "
            "without custom_generate"
        )


def _static_length(cache: Any) -> int | None:
    """Number of tokens that a static cache has room for; None for any other cache."""
    from transformers import StaticCache

    if not isinstance(cache, StaticCache):
        return None
    return int(max(layer.max_cache_len for layer in cache.layers))


def _left_paddings(mask: Any, input_ids: Any) -> list[int]:
    """Number of tokens before each prompt that no one attends to."""
    if mask is None:
        return [0] * input_ids.shape[0]
    mask = mask.bool()
    counts = (~mask).sum(1).tolist()
    if any(bool(mask[row, :count].any()) for row, count in enumerate(counts)):
        raise InvalidInput(
            "the attention_mask (made of the padding tokens if none was given) has zeros behind "
            "ones: pad on the left, or give the mask of a prompt that holds such tokens"
        )
    return [int(count) for count in counts]


def _room(stopping_criteria: Any, length: int) -> int:
    longest = stopping_criteria.max_length
    return 2**31 if longest is None else max(int(longest) - length, 0)


def _until_stop(text: Any, new: Text, stopping_criteria: Any) -> list[int]:
    """Tokens up to the first after which a criterion ends the text."""
    import torch

    for n, token in enumerate(new):
        text = torch.cat([text, text.new_tensor([[token]])], 1)
        if n + 1 < len(new) and _stopped(text, stopping_criteria):
            return list(new[: n + 1])
    return list(new)


def _stopped(text: Any, stopping_criteria: Any) -> bool:
    return bool(stopping_criteria(text, None).all()) if len(stopping_criteria) else False


def _beside(input_ids: Any, rows: list[list[int]], config: Any) -> Any:
    """Prompts with their continuations, padded on the right as `generate` does."""
    import torch

    longest = max(map(len, rows))
    padding = config._pad_token_tensor
    fill = 0 if padding is None else int(padding)
    new = [[*row, *[fill] * (longest - len(row))] for row in rows]
    return torch.cat([input_ids, input_ids.new_tensor(new).reshape(len(rows), longest)], 1)
