"""As `reused_states`, for the generators of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from support.reused_states import (
    Case,
    Parts,
    case,
    kept,
    put_back,
    put_back_at_the_end,
    seeded_anew,
)


def number(generator: Any = None) -> float:
    return float(torch.rand((), dtype=torch.float64, generator=generator))


def of_torch(_: Any) -> Any:
    return number, torch.get_rng_state, torch.set_rng_state


def of_default(_: Any) -> Any:
    return number, torch.default_generator.get_state, torch.default_generator.set_state


#: Kept by an engine from request to request.
OWN = torch.Generator().manual_seed(5)


def of_own(_: Any) -> Any:
    return lambda: number(OWN), OWN.get_state, OWN.set_state


def of_seed(_: Any) -> Any:
    """The state is a seed."""
    return number, torch.seed, torch.manual_seed


def forked(is_wrong: bool, _: Any) -> tuple[float, float]:
    with torch.random.fork_rng(devices=[]):
        first = number()
    return (first, number()) if is_wrong else (number(), number())


def forked_and_seeded(is_wrong: bool, _: Any) -> tuple[float, float]:
    """From the same seed in every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        inside = number()
    return number(), inside if is_wrong else number()


def cloned(is_wrong: bool, _: Any) -> tuple[float, float]:
    other = torch.default_generator.clone_state()
    first, second = number(), number(other)
    return first, second if is_wrong else number()


def cloned_by_hand(is_wrong: bool, _: Any) -> tuple[float, float]:
    other = torch.Generator()
    other.set_state(OWN.get_state())
    first, second = number(OWN), number(other)
    return first, second if is_wrong else number(OWN)


def initial(is_wrong: bool, _: Any) -> tuple[float, float]:
    """The seed that the process began with, in every call."""
    before = torch.get_rng_state()
    torch.manual_seed(torch.initial_seed())
    if not is_wrong:
        number()
        torch.set_rng_state(before)
    return number(), number()


def made_from_one_seed(is_wrong: bool, _: Any) -> tuple[float, float]:
    """A number that was drawn seeds two generators."""
    seed = int(number() * 2**53)
    first = torch.Generator().manual_seed(seed)
    other = torch.Generator().manual_seed(seed if is_wrong else seed + 1)
    return number(first), number(other)


def at_other_sizes(is_wrong: bool, _: Any) -> tuple[float, float]:
    """Put back between draws of many numbers and of one."""
    before = torch.get_rng_state()
    many = torch.rand(4, dtype=torch.float64)
    torch.set_rng_state(before)
    first = number()
    return first, float(many[0]) if is_wrong else number()


PARTS: dict[str, Parts] = {"torch": of_torch, "torch.Generator": of_own}

CASES: dict[str, Case] = {
    "get_rng_state": case(put_back, of_torch),
    "get_rng_state at the end": case(put_back_at_the_end, of_torch),
    "get_rng_state kept": kept(of_torch),
    "get_rng_state at other sizes": case(at_other_sizes),
    "default_generator": case(put_back, of_default),
    "seed": case(put_back, of_seed),
    "manual_seed": case(seeded_anew, of_torch, torch.manual_seed),
    "initial_seed": case(initial),
    "fork_rng": case(forked),
    "fork_rng and a seed": case(forked_and_seeded),
    "Generator": case(put_back, of_own),
    "Generator at the end": case(put_back_at_the_end, of_own),
    "Generator kept": kept(of_own),
    "Generator cloned": case(cloned),
    "Generator cloned by hand": case(cloned_by_hand),
    "Generators of one seed": case(made_from_one_seed),
}
