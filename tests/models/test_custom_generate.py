"""`generate` with trees of drafts: its own laws, its own ways to end, and clear refusals."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from support.model_families import SIZE, model_of, text_of
from support.tiny_folders import tiny_folder
from torch_generate import continued
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    LogitsProcessor,
    StaticCache,
    StoppingCriteria,
    StopStringCriteria,
)

from mdsd_opt.decoding import Metrics, cache_name, cache_of, custom_generate
from mdsd_opt.decoding.tree_pass import PathByPath
from mdsd_opt.drafts import SINGLE_MODEL_SCHEMES, register
from mdsd_opt.errors import InvalidInput


@pytest.fixture(scope="module")
def target():
    return model_of("llama", 0).model


@pytest.fixture(scope="module")
def draft():
    return model_of("llama", 1).model


@pytest.fixture(scope="module")
def trees(draft):
    return {"custom_generate": custom_generate, "draft_model": draft, "tree": "2x2"}


class Odd(LogitsProcessor):
    """Tokens of the text's parity, by its length: nothing a list of known processors has."""

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, input_ids.shape[1] % 2 :: 2] = -torch.inf
        return scores


def allowed(batch_id, text):
    return range(3 + 10 * batch_id, 40 + 10 * batch_id + len(text) % 3)


#: Arguments of `generate` that change its law.
PROCESSORS = {
    "none": {"top_k": 0},
    "temperature": {"temperature": 0.7, "top_k": 0},
    "filters": {"temperature": 1.4, "top_k": 9, "top_p": 0.8, "min_p": 0.05},
    "repetition": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2},
    "bans": {"bad_words_ids": [[5], [7, 9]], "suppress_tokens": [11, 12], "typical_p": 0.9},
    "lengths": {"min_new_tokens": 4, "eos_token_id": list(range(0, SIZE, 2)), "top_k": 20},
    "constraint": {"prefix_allowed_tokens_fn": allowed},
    "a processor of one's own": {"logits_processor": [Odd()]},
}


def replayed(monkeypatch, model, inputs, new, **options):
    """The probabilities that plain `generate` draws each of the tokens from."""
    drawn = []

    def forced(probabilities, num_samples):
        drawn.append(probabilities.clone())
        return new[:, len(drawn) - 1 : len(drawn)].clamp(min=0)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "multinomial", forced)
        model.generate(**inputs, do_sample=True, **options)
    return torch.stack(drawn, 1)


@pytest.mark.parametrize("name", PROCESSORS)
def test_laws_are_those_of_generate(monkeypatch, target, trees, name):
    inputs = {"input_ids": torch.tensor([text_of(6)])}
    options = {"max_new_tokens": 9, "eos_token_id": None} | PROCESSORS[name]
    torch.manual_seed(2)
    output = target.generate(
        **inputs, do_sample=True, return_dict_in_generate=True, output_scores=True,
        output_logits=True, **options, **trees,
    )  # fmt: skip
    new = output.sequences[:, 6:]
    own = replayed(monkeypatch, target, inputs, new, **options)[0]
    laws = torch.stack([scores[0] for scores in output.scores]).softmax(-1)
    assert len(output.scores) == len(output.logits) == new.shape[1] == len(own)
    torch.testing.assert_close(laws, own, atol=2e-6, rtol=0)
    assert ((laws > 0) == (own > 0)).all()
    if name != "none":
        raw = torch.stack([logits[0] for logits in output.logits]).softmax(-1)
        assert (raw - own).abs().max() > 1e-2  # the processors did something


def test_the_text_follows_the_law(monkeypatch, target, trees):
    options = {"max_new_tokens": 2, "top_k": 3, "temperature": 0.2, "eos_token_id": None}
    inputs = {"input_ids": torch.tensor([text_of(6)])}
    torch.manual_seed(3)
    runs = 300
    law = {}
    first = replayed(monkeypatch, target, inputs, torch.zeros(1, 2).long(), **options)[0, 0]
    for one in first.nonzero().flatten().tolist():
        new = torch.tensor([[one, 0]])
        second = replayed(monkeypatch, target, inputs, new, **options)[0, 1]
        follow = second.nonzero().flatten().tolist()
        law |= {(one, n): float(first[one] * second[n]) for n in follow}
    monkeypatch.setitem(SINGLE_MODEL_SCHEMES, "plain", None)  # what is set is taken back
    del SINGLE_MODEL_SCHEMES["plain"]
    register("plain", lambda q, earlier: q)
    for how in (
        {"scheme": "with_replacement"},
        {"scheme": "plain", "rule": "naive_target"},
        {"on_device": True, "scheme": "without_replacement"},
        {"on_device": True, "rule": "level_sequential"},
    ):
        found = Counter(
            tuple(target.generate(
                **inputs, do_sample=True, **how, **options, **trees
            )[0, 6:].tolist())
            for _ in range(runs)
        )  # fmt: skip
        assert set(found) <= set(law)
        expected = np.array([*law.values()])
        counts = np.array([found[text] for text in law])
        assert chisquare(counts, runs * expected / expected.sum()).pvalue > 1e-5
        assert chisquare(counts, np.full(9, runs / 9)).pvalue < 1e-9  # another law is told apart


def test_each_row_of_a_batch_follows_its_own_law(monkeypatch, target, trees):
    """Prompts of different lengths, padded on the left; some texts end at once, most do not."""
    prompts, copies = (text_of(3), text_of(6)), 100
    ids = torch.tensor([[0, 0, 0, *prompts[0]], prompts[1]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    options = {"max_new_tokens": 2, "top_k": 3, "temperature": 0.4, "pad_token_id": 0}
    alone = [{"input_ids": torch.tensor([prompt])} for prompt in prompts]
    laws = [
        replayed(monkeypatch, target, one, torch.zeros(1, 2).long(), eos_token_id=None, **options)
        for one in alone
    ]
    firsts = [law[0, 0].nonzero().flatten().tolist() for law in laws]
    ends = [min(first, key=lambda t, law=law: float(law[0, 0, t]))
            for first, law in zip(firsts, laws, strict=True)]  # fmt: skip
    torch.manual_seed(4)
    found = target.generate(
        ids.repeat(copies, 1), attention_mask=mask.repeat(copies, 1), do_sample=True,
        eos_token_id=ends, **options, **trees,
    )[:, 6:].tolist()  # fmt: skip
    for row, (one, first) in enumerate(zip(alone, laws, strict=True)):
        law = {}
        for token in firsts[row]:
            if token in ends:
                law[token, 0] = float(first[0, 0, token])
                continue
            new = torch.tensor([[token, 0]])
            second = replayed(monkeypatch, target, one, new, eos_token_id=None, **options)[0, 1]
            for n in second.nonzero().flatten().tolist():
                law[token, n] = float(first[0, 0, token] * second[n])
        counts = Counter(map(tuple, found[row::2]))
        assert set(counts) <= set(law)
        assert counts[ends[row], 0] > 0
        expected = copies * np.array([*law.values()]) / sum(law.values())
        assert chisquare([counts[text] for text in law], expected).pvalue > 1e-5
        other = Counter(map(tuple, found[1 - row :: 2]))
        assert set(other) - set(law)  # the other row has another law


@pytest.mark.parametrize("family", ["llama", "gpt2", "bloom", "mamba"])
def test_greedy_batches_with_left_padding_are_those_of_generate(family):
    model, draft = model_of(family, 0).model, model_of(family, 1, vocab_size=SIZE + 3).model
    ids = torch.tensor([[0, 0, 0, *text_of(3)], text_of(6)])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    options = {"do_sample": False, "max_new_tokens": 12, "repetition_penalty": 1.2,
               "pad_token_id": 0, "eos_token_id": [9, 10, 30, 31]}  # fmt: skip
    # alone, since a padded batch of an ALiBi or recurrent model differs from its rows
    plain = [
        model.generate(ids[row : row + 1], attention_mask=mask[row : row + 1], **options)
        for row in range(2)
    ]
    with pytest.warns(PathByPath) if family in ("bloom", "mamba") else nullcontext():
        found = model.generate(
            ids, attention_mask=mask, custom_generate=custom_generate, draft_model=draft,
            tree="3x2", **options,
        )  # fmt: skip
    for row in range(2):
        length = plain[row].shape[1]
        assert found[row, :length].tolist() == plain[row][0].tolist()
        assert (found[row, length:] == 0).all()


@pytest.mark.parametrize("how", ["by name", "an own one"])
def test_static_caches(monkeypatch, target, draft, trees, how):
    """The text is that of `generate` with it, and no token of it is read twice."""
    ids = torch.tensor([[0, 0, 0, *text_of(3)], text_of(6)])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    options = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 14,
               "pad_token_id": 0, "eos_token_id": None}  # fmt: skip

    def static():
        if how == "by name":
            return {"cache_implementation": "static"}
        return {cache_name(target): StaticCache(config=target.config, max_cache_len=20)}

    plain = target.generate(ids, **options, **static())
    target.generate(ids, **options, **static(), **trees)  # with the checks at the start
    read, caches, steps = {"target": 0, "draft": 0}, set(), []
    for name, model in (("target", target), ("draft", draft)):

        def counting(tokens, *args, name=name, forward=model.forward, **given):
            read[name] += tokens.shape[1]
            caches.add(type(cache_of(given)))
            return forward(tokens, *args, **given)

        monkeypatch.setattr(model, "forward", counting)
    found = target.generate(
        ids, **options, **static(), **trees, on_step=lambda new, metrics: steps.append(metrics)
    )
    assert torch.equal(found, plain)
    assert caches == {StaticCache}
    ends = [one for one, after in pairwise([*steps, Metrics()]) if after.num_steps <= 1]
    assert [one.num_tokens for one in ends] == [14, 14]
    # the longer prompt, which begins with the other; the extra token of each step but the last of
    # a text; and the drafts
    assert read["target"] == 6 + len(steps) - 2 + sum(one.num_drafted for one in ends)


def test_a_constraint_knows_its_prompt_in_a_batch(target, trees):
    ids = torch.tensor([text_of(4), text_of(4)])
    found = target.generate(
        ids, do_sample=True, max_new_tokens=12, prefix_allowed_tokens_fn=allowed,
        eos_token_id=None, pad_token_id=0, **trees,
    )[:, 4:]  # fmt: skip
    for row, tokens in enumerate(found.tolist()):
        for n, token in enumerate(tokens):
            assert token in allowed(row, range(4 + n))


class Streamer:
    def __init__(self):
        self.tokens, self.ended = [], False

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.ended = True


class StopAt(StoppingCriteria):
    def __init__(self, length):
        self.length = length

    def __call__(self, input_ids, scores, **kwargs):
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)


def test_streamers_and_stopping_criteria(target, trees):
    streamer = Streamer()
    ids = torch.tensor([text_of(5)])
    found = target.generate(
        ids, do_sample=True, max_new_tokens=30, eos_token_id=None, streamer=streamer,
        stopping_criteria=[StopAt(18)], **trees,
    )  # fmt: skip
    assert found.shape == (1, 18)
    assert streamer.tokens == found[0].tolist()
    assert streamer.ended
    for length in (1, 2, 7):
        found = target.generate(
            ids, do_sample=True, max_new_tokens=length, eos_token_id=None, **trees
        )
        assert found.shape == (1, 5 + length)


def test_stop_strings(tmp_path):
    """By a criterion: for its argument of that name, the library loses the tokenizer."""
    folder = tiny_folder(tmp_path, 300)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    strings = [*"abcdefghijklmnopqrstuvwxyz"]
    torch.manual_seed(1)
    found = model.generate(
        torch.tensor([tokenizer.encode("hello")]), do_sample=True, max_new_tokens=100,
        eos_token_id=None, pad_token_id=0, suppress_tokens=list(range(256, 300)),
        stopping_criteria=[StopStringCriteria(tokenizer, strings)],
        custom_generate=custom_generate, draft_model=model, tree="2x2",
    )  # fmt: skip
    text = tokenizer.decode(found[0])[len("hello") :]
    assert found.shape[1] < 105
    assert text[-1] in strings
    assert not set(text[:-1]) & set(strings)


def test_the_example(target, draft):
    inputs = {"input_ids": torch.tensor([text_of(5)])}
    found = continued(target, draft, inputs, "2x2", max_new_tokens=6, eos_token_id=None)
    assert found.shape == (1, 11)


def test_seeds(target, trees):
    def text(seed):
        torch.manual_seed(seed)
        ids = torch.tensor([text_of(5)])
        return target.generate(ids, do_sample=True, max_new_tokens=8, eos_token_id=None, **trees)

    assert torch.equal(text(1), text(1))
    assert not torch.equal(text(1), text(2))


class QuantizedCache(DynamicCache):
    """In name: the package for a real one need not be here."""


def filled():
    model = model_of("llama", 0).model
    return cache_of(model(torch.tensor([text_of(2)]), use_cache=True))


def offloaded():
    cache = DynamicCache()
    cache.offloading = True
    return cache


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({cache_name(model_of("llama", 0).model): QuantizedCache()}, "a cache that is quantized"),
        ({cache_name(model_of("llama", 0).model): offloaded()}, "a cache that is offloaded"),
        ({cache_name(model_of("llama", 0).model): filled()}, "a cache that holds text"),
        ({"num_beams": 2}, "num_beams"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "contrastive"),
        ({"guidance_scale": 1.5}, "ClassifierFreeGuidance"),
        ({"draft_model": None}, "draft_model"),
        ({"draft_model": model_of("llama", 1)}, "is a LoadedModel: give a model"),
        ({"position_ids": torch.tensor([[0, 3, 5, 9, 17]])}, "position_ids"),
        ({"return_dict_in_generate": True, "output_attentions": True}, "output_attentions"),
        ({"tree": "tall"}, "unknown tree"),
        ({"rule": "best"}, "unknown rule"),
        ({"on_device": True, "scheme": "greedy"}, "for the host"),
        ({"on_device": True, "rule": "rrs"}, "on the host only: 'rrs' asks"),
        ({"attention_mask": torch.tensor([[1, 1, 0, 1, 1]])}, "pad on the left"),
    ],
)
def test_what_it_does_not_honour_is_refused_by_name(target, trees, options, said):
    ids = torch.tensor([text_of(5)])
    with pytest.raises(InvalidInput, match=said):
        target.generate(ids, **{"max_new_tokens": 4} | trees | options)


def test_kinds_of_tokens_are_refused():
    """GPT-2 adds their embeddings to those of the tokens: another law."""
    model, draft = (model_of("gpt2", seed).model for seed in (0, 1))
    ids = torch.tensor([text_of(5)])
    with pytest.raises(InvalidInput, match="token_type_ids"):
        model.generate(
            ids, token_type_ids=torch.full_like(ids, 7), max_new_tokens=4,
            custom_generate=custom_generate, draft_model=draft,
        )  # fmt: skip


def test_all_prompts_are_looked_at_first(target, trees):
    ids = torch.tensor([text_of(5), [0] * 5])
    mask = torch.tensor([[1] * 5, [0] * 5])
    steps = []
    with pytest.raises(InvalidInput, match="prompt 2 of 2 is empty"):
        target.generate(
            ids, attention_mask=mask, max_new_tokens=4, **trees,
            on_step=lambda *step: steps.append(step),
        )  # fmt: skip
    assert not steps


@pytest.fixture(scope="module")
def translator():
    """A tiny T5."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=SIZE, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


def test_encoder_decoder_models_are_refused(target, translator, trees):
    ids = torch.tensor([text_of(5)])
    with pytest.raises(InvalidInput, match="an encoder-decoder model"):
        translator.generate(ids, max_new_tokens=4, **trees)
    with pytest.raises(InvalidInput, match="an encoder-decoder draft_model"):
        target.generate(ids, max_new_tokens=4, **trees | {"draft_model": translator})


@pytest.mark.parametrize("budget", [None, {"tv": 0.05}, {"kl": 0.01}])
def test_steps_tell_how_far_from_the_target_they_were(target, trees, budget):
    told = []
    target.generate(
        torch.tensor([text_of(6)]), do_sample=True, top_k=0, max_new_tokens=12, eos_token_id=None,
        relax=budget, on_step=lambda tokens, metrics: told.append((tokens, metrics)), **trees,
    )  # fmt: skip
    total = told[-1][1]
    assert total.num_steps == len(told)
    assert total.num_tokens == sum(len(tokens) for tokens, _ in told) == 12
    if budget is None:
        assert total.tv == total.kl == 0.0
    else:
        ((name, most),) = budget.items()
        assert 0.0 < getattr(total, name) <= most * 12 * (1 + 1e-9)
