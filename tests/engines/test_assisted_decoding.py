"""Assisted decoding of Transformers as a whole: drafts, verification and cache of tiny models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

V, LENGTH = 3, 3
PROMPT = torch.tensor([[0, 1]])


def tiny(seed: int) -> Any:
    """A random model of three tokens, peaked enough to tell texts apart."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, initializer_range=0.35, bos_token_id=None, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.num_assistant_tokens = LENGTH - 1
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


@torch.no_grad()
def text_law(model: Any) -> Any:
    """Of all texts, by the model alone."""
    law = np.ones(1)
    for length in range(LENGTH):
        texts = torch.tensor(list(np.ndindex(*(V,) * length))).reshape(V**length, length).long()
        logits = model(torch.cat([PROMPT.expand(len(texts), -1), texts], dim=1)).logits[:, -1]
        law = (law[:, None] * logits.double().softmax(dim=-1).numpy()).ravel()
    return law


def texts_of(target: Any, **options: Any) -> Any:
    """Texts as numbers, for an audit of one token; what it gives as drafts is not looked at."""

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        text = target.generate(
            PROMPT, attention_mask=torch.ones_like(PROMPT), do_sample=True, top_k=0,
            max_new_tokens=LENGTH, **options,
        )[0, PROMPT.shape[1] :]  # fmt: skip
        return int(np.ravel_multi_index(text.tolist(), (V,) * LENGTH))

    return verify


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_texts_of_assisted_decoding_follow_the_target() -> None:
    """Sampled: false alarm below 1e-6."""
    target, draft = tiny(0), tiny(1)
    law = text_law(target)
    assert np.abs(law - text_law(draft)).sum() > 0.5
    problem = mo.TransportProblem(law, mo.TopKDrafts(law, 1))
    right = mo.audit(texts_of(target, assistant_model=draft), problem, 0, 1_000, edge_probes=0)
    assert right.clean, right.verdict
    assert right.detectable_bias < 0.2
    # the same function at a temperature that was not promised
    wrong = mo.audit(
        texts_of(target, assistant_model=draft, temperature=0.6), problem, 0, 1_000, edge_probes=0
    )
    assert not wrong.clean
