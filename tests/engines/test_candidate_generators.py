"""Candidate generators of Transformers: is q, which they hand on, the law of their drafts?

Each drafts for a tiny random target through `generate`, whose texts are driven. Sampling is at
temperature 0.7 from the two likeliest tokens, so that a q before the filters shows as well.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.auditing import engines

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")
candidate_generator = pytest.importorskip("transformers.generation.candidate_generator")
MtpModel: Any = pytest.importorskip("transformers.modeling_layers").MtpModel

torch.set_num_threads(1)

PAGE = Path(__file__).parents[2] / "docs" / "shipped.md"

V = 3
PROMPT = torch.tensor([[1, 2, 1]])
TEMPERATURE, TOP_K = 0.7, 2
SAMPLING: dict[str, Any] = {"temperature": TEMPERATURE, "top_k": TOP_K}

SIZES: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip


def made(seed: int, model: Callable[..., Any], config: Any, *more: Any) -> Any:
    torch.manual_seed(seed)
    return model(config, *more).eval()


def llama(seed: int, **more: Any) -> Any:
    config = transformers.LlamaConfig(vocab_size=V, initializer_range=0.35, **SIZES, **more)
    model = made(seed, transformers.LlamaForCausalLM, config)
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.num_assistant_tokens = 2
    return model


class Drafting(NamedTuple):
    """A target, what `generate` is told, and how many tokens it writes."""

    target: Any
    options: dict[str, Any]
    length: int = 3


def assisted() -> Drafting:
    """Drafts end where the last one is unlikely."""
    draft = llama(1)
    draft.generation_config.assistant_confidence_threshold = 0.4
    return Drafting(llama(0), {"assistant_model": draft})


def prompt_lookup() -> Drafting:
    return Drafting(llama(0), {"prompt_lookup_num_tokens": 2})


def early_exit() -> Drafting:
    return Drafting(llama(0), {"assistant_early_exit": 1})


def mtp() -> Drafting:
    """Its heads are random, where they are read from a checkpoint otherwise."""
    target = llama(0, num_mtp_layers=1)
    heads = made(10, MtpModel, target, 1)
    target.mtp_heads = heads
    return Drafting(target, {"use_mtp": True})


def dflash() -> Drafting:
    config = transformers.MuseGlimmerAssistantConfig(
        num_key_value_heads=2, head_dim=8, block_size=2, mask_token_id=0, target_layer_ids=[0, 1],
        initializer_range=0.35, **SIZES,
    )  # fmt: skip
    draft = made(10, transformers.MuseGlimmerAssistantModel, config)
    return Drafting(llama(0), {"assistant_model": draft, "speculation_type": "dflash"})


def gemma() -> Drafting:
    """One draft a step."""

    def text(**more: Any) -> Any:
        return transformers.Gemma4TextConfig(
            vocab_size=V, num_key_value_heads=1, head_dim=8, global_head_dim=8,
            hidden_size_per_layer_input=0, vocab_size_per_layer_input=0, initializer_range=0.12,
            layer_types=["sliding_attention", "full_attention"], sliding_window=16, **SIZES, **more,
        )  # fmt: skip

    target = made(0, transformers.Gemma4ForCausalLM, text())
    config = transformers.Gemma4AssistantConfig(
        text_config=text(num_kv_shared_layers=2), backbone_hidden_size=16
    )
    draft = made(10, transformers.Gemma4AssistantForCausalLM, config)
    draft.generation_config.num_assistant_tokens = 1
    return Drafting(target, {"assistant_model": draft})


GENERATORS: dict[str, Callable[[], Drafting]] = {
    "AssistedCandidateGenerator": assisted,
    "EarlyExitCandidateGenerator": early_exit,
    "PromptLookupCandidateGenerator": prompt_lookup,
    "MTPCandidateGenerator": mtp,
    "DFlashTokenCandidateGenerator": dflash,
    "SinglePositionMultiTokenCandidateGenerator": gemma,
}


@torch.no_grad()
def law(model: Any, text: tuple[int, ...], temperature: float, top_k: int) -> Any:
    """Of the token after a text, the likeliest tokens alone."""
    logits = model(torch.cat([PROMPT, torch.tensor([text]).long().reshape(1, -1)], dim=1)).logits
    weights = (logits[0, -1].double() / temperature).softmax(dim=-1).numpy()
    weights[np.argsort(weights)[: V - top_k]] = 0
    return weights / weights.sum()


def text_law(model: Any, length: int, temperature: float = TEMPERATURE, top_k: int = TOP_K) -> Any:
    found = np.ones(1)
    for n in range(length):
        rows = [law(model, text, temperature, top_k) for text in np.ndindex(*(V,) * n)]
        found = (found[:, None] * rows).ravel()
    return found


def audited(drafting: Drafting, promised: Any, **sampling: Any) -> Any:
    """Texts as numbers, driven; the drafts of the audit are not looked at."""
    target, options, length = drafting

    def verify(p: Any, q: Any, drafts: Any, rng: Any) -> int:
        text = target.generate(
            PROMPT, attention_mask=torch.ones_like(PROMPT), do_sample=True, max_new_tokens=length,
            **options, **sampling,
        )[0, PROMPT.shape[1] :]  # fmt: skip
        return int(np.ravel_multi_index(text.tolist(), (V,) * length))

    problem = mo.TransportProblem(promised, mo.TopKDrafts(promised, 1))
    return mo.audit(
        verify, problem, 0, 20, method="driven", driven_checks=2, edge_probes=0, seconds=3_600.0
    )


@pytest.fixture(autouse=True)
def own_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of a model are those that it was given."""
    monkeypatch.setattr(MtpModel, "from_pretrained", lambda main, device_map: main.mtp_heads)


def report_of(drafting: Drafting) -> Any:
    return audited(drafting, text_law(drafting.target, drafting.length), **SAMPLING)


def stated() -> dict[str, tuple[str, str]]:
    """Verdict and distance (of an edge its mass) that the page gives, by generator."""
    found = re.findall(
        r"^\| `(\w+CandidateGenerator)` \|.*\| (lossless|edge|lossy) \| (\S*) ?\|$",
        PAGE.read_text(),
        re.MULTILINE,
    )
    return {name: (verdict, size) for name, verdict, size in found}


def test_the_page_has_these_generators() -> None:
    assert set(stated()) == set(GENERATORS)
    assert set(GENERATORS) <= set(vars(candidate_generator))


@pytest.mark.parametrize("name", GENERATORS)
def test_verdict_and_distance(name: str) -> None:
    report = report_of(GENERATORS[name]())
    verdict, size = stated()[name]
    assert report.verdict_class == verdict, report.verdict
    if verdict == "lossy":
        assert f"{report.total_variation:.2g}" == size
    else:
        assert report.total_variation < 1e-6
        assert size == ("" if verdict == "lossless" else f"{report.edge_mass:.2g}")


def test_a_temperature_that_was_not_promised_is_lossy() -> None:
    drafting = assisted()
    promised = text_law(drafting.target, drafting.length)
    report = audited(drafting, promised, temperature=0.6 * TEMPERATURE, top_k=TOP_K)
    assert report.verdict_class == "lossy"


#: Logits before the filters are handed on, as up to 5.15.0.
RAW = {
    "MTPCandidateGenerator": (
        MtpModel, "forward",
        {"drafted_logits.append(next_token_logits[:, None, :])": "drafted_logits.append(logits)"},
    ),
    "DFlashTokenCandidateGenerator": (
        candidate_generator.DFlashTokenCandidateGenerator, "get_candidates",
        {
            "candidate_logits[:, i, :] = self.logits": "filtered = self.logits",
            "softmax(candidate_logits[:, i, :], ": "softmax(filtered, ",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RAW)
def test_logits_before_the_filters_deviate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, changes = RAW[name]
    source = inspect.cleandoc("\n" + inspect.getsource(getattr(owner, method)))
    for right, wrong in changes.items():
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    scope = dict(vars(inspect.getmodule(owner)))
    exec(source, scope)
    monkeypatch.setattr(owner, method, scope[method])
    report = report_of(GENERATORS[name]())
    assert report.verdict_class == "lossy"
    assert report.total_variation > 0.01


def test_likeliest_drafts_with_a_law_that_is_not_theirs() -> None:
    """The function alone, as the assistant of Gemma 4 calls it: (5/6, 0, 1/6)."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.3, 0.1])
    engine = engines.get("transformers")
    problem = mo.TransportProblem(p, mo.TopKDrafts(q, 1))
    certain = np.array([1.0, 0.0, 0.0])
    for handed_on, away in ((q, 1 / 3), (certain, 0.0)):
        report = mo.audit(
            lambda target, draft, drafts, rng, q=handed_on: engine(target, q, drafts, rng),
            problem, 0, 100, method="driven", edge_probes=0, seconds=3_600.0,
        )  # fmt: skip
        assert report.verdict_class == ("lossy" if away else "lossless"), report.verdict
        assert report.total_variation == pytest.approx(away, abs=1e-6)


def test_the_ensemble_follows_the_mixture() -> None:
    """One draft; with weight w on the target it is (1 - w) of their distance away, as is meant."""
    drafting, weight = Drafting(llama(0), {"assistant_model": llama(1)}, 2), 0.5
    drafting.options["assistant_ensemble_weight"] = weight
    first, second = text_law(drafting.target, 1, 1.0, V), text_law(drafting.target, 2, 1.0, V)
    q = text_law(drafting.options["assistant_model"], 1, 1.0, V)
    mixed = weight * first + (1 - weight) * q
    texts = (second.reshape(V, V) * (mixed / first)[:, None]).ravel()
    report = audited(drafting, texts, top_k=0)
    assert report.verdict_class == "lossless", report.verdict
    report = audited(drafting, second, top_k=0)
    assert report.verdict_class == "lossy"
    away = (1 - weight) * np.abs(first - q).sum() / 2
    assert report.total_variation == pytest.approx(away, abs=1e-6)
