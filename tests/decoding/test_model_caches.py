"""What models of any version and family call their caches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mdsd_opt.decoding import cache_name, cache_of
from mdsd_opt.decoding.passes import holds_text


class Since524:
    def forward(self, input_ids: Any, cache: Any = None, use_cache: bool = True) -> None: ...


class Before:
    def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...


class Recurrent:
    def forward(self, input_ids: Any, cache_params: Any = None) -> None: ...


class Anything:
    def forward(self, *inputs: Any, **more: Any) -> None: ...


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Since524, "cache"),
        (Before, "past_key_values"),
        (Recurrent, "cache_params"),
        (Anything, "past_key_values"),
    ],
)
def test_the_argument_is_that_of_the_class_whatever_wraps_the_model(kind: Any, name: str) -> None:
    model = kind()
    assert cache_name(model) == name
    model.forward = lambda *inputs, **more: None
    assert cache_name(model) == name


def test_a_wrapped_model_may_know_the_name_where_its_class_does_not() -> None:
    model = Anything()
    model.forward = Since524().forward  # type: ignore[method-assign]
    assert cache_name(model) == "cache"


@pytest.mark.parametrize("name", ["cache", "past_key_values", "cache_params", "state"])
def test_a_cache_is_found_by_any_name_in_outputs_and_arguments(name: str) -> None:
    held = [0]
    assert cache_of(SimpleNamespace(logits=None, **{name: held})) is held
    assert cache_of({"attention_mask": [1], name: held}) is held
    assert cache_of(SimpleNamespace(logits=None)) is cache_of({}) is None


def cache_with(length: int | None, *states: Any) -> Any:
    """A cache that counts tokens, or raises for want of layers that do."""

    def get_seq_length() -> int:
        if length is None:
            raise ValueError("no layer counts")
        return length

    layers = [SimpleNamespace(has_previous_state=state) for state in states]
    return SimpleNamespace(get_seq_length=get_seq_length, layers=layers)


@pytest.mark.parametrize(
    ("cache", "holds"),
    [
        (cache_with(3), True),
        (cache_with(0), False),
        (cache_with(None, {0: False}, {0: False, 1: True}), True),
        (cache_with(None, {0: False}), False),
        (cache_with(0, {0: True}), True),
        (SimpleNamespace(), False),
        (object(), False),
    ],
)
def test_whether_a_cache_holds_text(cache: Any, holds: bool) -> None:
    assert holds_text(cache) is holds
