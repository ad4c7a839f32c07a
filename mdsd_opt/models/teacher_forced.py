"""Acceptance rates along given texts: both models' forward passes feed the rates where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_opt.batch import acceptance_rates
from mdsd_opt.errors import InvalidInput, MissingExtra

#: (input_ids [B, T], attention_mask [B, T]) -> logits [B, T, V], as tensors.
Forward = Callable[[Any, Any], Any]


def model_rates(
    target: Any,
    draft: Any,
    texts: Sequence[Sequence[int]],
    num_drafts: int | Sequence[int] = 3,
    drafts: str = "with_replacement",
    *,
    batch_size: int = 8,
    device: str | None = None,
    **options: Any,
) -> list[NDArray[np.float64]]:
    """Acceptance rate after every prefix of every text, by teacher-forced passes.

    The logits stay on the device of the models: they go to the kernels there, or to the CPU's if
    the models run on the CPU, and only rates come back.

    Parameters
    ----------
    target, draft : LoadedModel, transformers model, or callable
        A callable takes input ids and attention mask, tensors [B, T], and gives logits [B, T, V].
    texts : sequence of sequences of int
        Token ids, each at least one.
    num_drafts, drafts
        As for `acceptance_rates`.
    batch_size : int
        Texts of one pass. Texts of similar length go together; the shorter are padded.
    device : str, optional
        Where the ids go; that of the target model unless given.
    **options
        Passed on to `acceptance_rates`: verifier, temperature, top_k, ...

    Returns
    -------
    list of ndarray
        For each text an array of shape (T,), or (T, len(num_drafts)); entry t is of the position
        after ``text[: t + 1]``.

    Raises
    ------
    MissingExtra
        torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra.of("torch", "models", "to run models") from error
    if batch_size < 1:
        raise InvalidInput(f"batch_size is {batch_size}: give at least 1")
    for n, text in enumerate(texts):
        if len(text) == 0:
            raise InvalidInput(f"text {n} is empty: a model needs at least one token")
    ask_target, ask_draft = _forward(target), _forward(draft)
    if device is None:
        device = str(getattr(getattr(target, "model", target), "device", "cpu"))
    found: list[NDArray[np.float64]] = [np.empty(0)] * len(texts)
    with torch.inference_mode():
        for chosen in _batches(texts, batch_size):
            ids, mask = _padded([texts[n] for n in chosen], device)
            rates = acceptance_rates(
                ask_target(ids, mask), ask_draft(ids, mask), num_drafts, drafts, **options
            )
            by_text = rates.cpu().numpy() if hasattr(rates, "cpu") else np.asarray(rates)
            for n, row in zip(chosen, by_text, strict=True):
                found[n] = row[: len(texts[n])].astype(np.float64)
    return found


def _forward(model: Any) -> Forward:
    model = getattr(model, "model", model)  # of a LoadedModel

    if hasattr(model, "config"):
        return lambda ids, mask: model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    if callable(model):
        forward: Forward = model
        return forward
    raise InvalidInput(
        f"{type(model).__name__} is no model: give one of transformers or a function"
    )


def _batches(texts: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _padded(texts: Sequence[Sequence[int]], device: str) -> tuple[Any, Any]:
    """Ids padded on the right, where causal attention does not see the padding, and their mask."""
    import torch

    longest = max(map(len, texts))
    ids = torch.zeros((len(texts), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.as_tensor(list(text), dtype=torch.long)
        mask[row, : len(text)] = 1
    return ids.to(device), mask.to(device)
