"""PyTorch's random operators, answered by a source. Imported only where torch is already there.

A dispatch mode sees them below autograd, TorchScript and compiled code, with a generator of the
engine's own or without. It does not see other threads, nor what an operator of C++ draws by itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from mdsd_opt.auditing.randomness.sources import CPU_CLOCK, CUDA_CLOCK, GRIDS, Grid, Source
from mdsd_opt.base.arrays import Floats

Answer = Callable[..., Any]

#: Operators met before that draw nothing: their tags take long to look up.
_ORDINARY: set[Any] = set()

_NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16))

#: Operators whose draws depend on the numbers in their tensors; the others fill a shape.
_WEIGHED = ("multinomial", "bernoulli")

#: Seed of a generator that was never given one.
_NO_SEED = torch.Generator().initial_seed()


class _NotServedError(Exception):
    """A draw that no source answers."""


class TorchDraws(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Mode in which a source answers every random operator; without one, it only looks on.

    Generators, the default ones too, go on as they would without an audit; what they draw is
    answered by their states, see `Source`. An operator that no source answers draws by itself, and
    the source is told.

    `begins` takes the name of a generator that stands at the beginning of its seed when it draws.
    `narrow`: whether any result had fewer bits than float64; `num_draws` counts the draws.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Decline torch's guard: it costs as much again as all else here, see `torch_draws`."""
        return False

    def __init__(self, source: Source | None, begins: Callable[[str], None]) -> None:
        super().__init__()
        self._source: Any = source
        self._begins = begins
        self._beginnings: dict[tuple[str, int], Any] = {}
        self._reseeding: np.random.Generator | None = None
        self._met: dict[int, Any] = {}  # own generators of this call, of the last one, kept ones
        self._last: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}
        self.narrow = False
        self.num_draws = 0
        self._answers: dict[str, Answer] = {
            "rand": self._rand,
            "rand_like": self._rand_like,
            "uniform": self._uniform,
            "exponential": self._exponential,
            "multinomial": self._multinomial,
            "bernoulli": self._bernoulli,
        }

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func not in _ORDINARY:
            if torch.Tag.nondeterministic_seeded in func.tags:
                return self._drawn(func, args, dict(named))
            _ORDINARY.add(func)
        result = func(*args, **named)
        if not self.narrow:
            self.narrow = getattr(result, "dtype", None) in _NARROW
        return result

    def restart(self, rng: np.random.Generator) -> None:
        """Let each generator begin anew, from a seed that is drawn when it is met.

        One that is met in two calls running is kept by the function, which may read its state
        before it draws: it begins anew at once.
        """
        self._reseeding = rng
        self._kept |= {key: one for key, one in self._met.items() if key in self._last}
        self._last, self._met = self._met, dict(self._kept)
        for generator in self._kept.values():
            generator.manual_seed(int(rng.integers(2**63)))

    def _drawn(self, func: Any, args: Any, named: dict[str, Any]) -> Any:
        if _drops_nothing(func, args, named):
            return func(*args, **named)
        self.num_draws += 1
        own = named.get("generator")
        generator = _default_generator(args, named) if own is None else own
        if self._source is None:
            if own is not None and self._reseeding is not None and id(own) not in self._met:
                self._met[id(own)] = own
                own.manual_seed(int(self._reseeding.integers(2**63)))
            if generator is not None and self._is_at_beginning(generator):
                self._begins(_name(generator, is_default=own is None))
            return func(*args, **named)
        name = func._schema.name.partition("::")[2]
        asked = {key: value for key, value in named.items() if key not in ("generator", "out")}
        try:
            result = self._answered(name, generator, args, asked)
        except _NotServedError as error:
            subject = str(error) or f"the operator {func}"
            self._source.lost(f"it draws from {subject}, which is not served")
            return func(*args, **named)
        if name.endswith("_"):
            return args[0].copy_(result)
        out = named.get("out")
        return result if out is None else out.resize_(result.shape).copy_(result)

    def _answered(self, name: str, generator: Any, args: Any, named: dict[str, Any]) -> Any:
        answer = self._answers.get(name.rstrip("_"))
        if answer is None or generator is None:
            raise _NotServedError
        if name == "bernoulli_" and len(args) == 1:
            named.setdefault("p", 0.5)  # without it, `bernoulli` takes the tensor itself
        weighed = name.startswith(_WEIGHED)
        arguments = [_told(x, weighed) for x in (*args, *named.values())]
        if name.endswith("_"):
            arguments[0] = _told(args[0], weighed=False)  # it is overwritten
        state = hash(generator.get_state().numpy().tobytes())
        result = self._source.followed([state], (name, *arguments), lambda: answer(*args, **named))
        torch.empty(1, device=generator.device).uniform_(generator=generator)
        return result.clone()

    def _is_at_beginning(self, generator: Any) -> bool:
        key = str(generator.device), generator.initial_seed()
        if key not in self._beginnings:
            fresh = torch.Generator(generator.device).manual_seed(key[1])
            self._beginnings = {key: fresh.get_state()}
        return bool(generator.get_state().equal(self._beginnings[key]))

    def _rand(self, size: Any, **options: Any) -> Any:
        options.pop("names", None)
        return self._uniform(torch.empty(size, **options))

    def _rand_like(self, like: Any, **options: Any) -> Any:
        return self._uniform(torch.empty_like(like, **options))

    def _uniform(self, like: Any, low: float = 0.0, high: float = 1.0) -> Any:
        drawn = self._source.uniforms(self._grid(like), tuple(like.shape))
        result = _as(low + drawn * (high - low), like)
        # what rounds to the end of the range starts again
        return torch.where(result == high, low, result) if (low, high) != (0.0, 1.0) else result

    def _grid(self, like: Any) -> Grid:
        name = str(like.dtype).removeprefix("torch.")
        if name not in GRIDS:
            raise _NotServedError(f"uniforms of type {name}")
        return GRIDS[name]

    def _exponential(self, like: Any, rate: float = 1.0) -> Any:
        if not rate > 0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate}")
        clock = CUDA_CLOCK if like.is_cuda else CPU_CLOCK
        return _as(self._source.clocks(clock, tuple(like.shape)) / rate, like)

    def _multinomial(self, weights: Any, size: int, replacement: bool = False) -> Any:
        rows = _weights(weights)
        undrawn = np.ones(rows.shape, dtype=np.bool_)
        drawn = np.empty((len(rows), size), dtype=np.int64)
        for n in range(size):
            drawn[:, n] = self._source.categories(rows, _rounded(weights))
            if not replacement and n + 1 < size:
                undrawn[np.arange(len(rows)), drawn[:, n]] = False
                rows *= undrawn
                # With nothing else left, torch goes on with tokens of weight zero.
                spent = np.flatnonzero(rows.sum(axis=1) == 0)
                rows[spent, np.argmax(undrawn[spent], axis=1)] = 1.0
        shape = (*weights.shape[:-1], size)
        return torch.from_numpy(drawn.reshape(shape)).to(weights.device)

    def _bernoulli(self, like: Any, given: Any = None, p: Any = None) -> Any:
        given = torch.as_tensor(next(x for x in (given, p, like) if x is not None))
        chances = given.double().expand(like.shape).cpu().numpy().reshape(-1)
        if not ((chances >= 0) & (chances <= 1)).all():
            raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
        drawn = self._source.categories(np.stack([1.0 - chances, chances], axis=1), _rounded(given))
        return _as(drawn.reshape(tuple(like.shape)), like)


def _drops_nothing(func: Any, args: Any, named: dict[str, Any]) -> bool:
    """Whether the operator draws for dropout alone, as attention does, with probability 0."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            value = args[place] if place < len(args) else None
            return named.get("dropout_p", argument.default_value if value is None else value) == 0
    return False


class GuardedTorchDraws(TorchDraws):
    """`TorchDraws` that is not compiled with the functions it serves: that would take minutes."""

    __torch_dispatch__ = torch._disable_dynamo(TorchDraws.__torch_dispatch__, recursive=True)


def torch_draws(source: Source | None, begins: Callable[[str], None]) -> TorchDraws:
    """`TorchDraws`, guarded if anything in this process may have been compiled."""
    kind = GuardedTorchDraws if "torch._dynamo" in sys.modules else TorchDraws
    return kind(source, begins)


def default_generators() -> list[Any]:
    """Generators that draw where none is given."""
    cuda = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [torch.default_generator, *cuda]


def _default_generator(args: Any, named: dict[str, Any]) -> Any:
    """Generator of an operator that is given none; None where it is one that nobody can ask for."""
    tensors = (x for x in (*args, *named.values()) if isinstance(x, torch.Tensor))
    device = torch.device(named.get("device") or getattr(next(tensors, None), "device", "cpu"))
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[index]
    return torch.default_generator if device.type in ("cpu", "meta") else None


def _name(generator: Any, is_default: bool) -> str:
    seed = generator.initial_seed()
    if is_default:
        return f"torch.manual_seed({seed})"
    return f"torch.Generator of {'no seed' if seed == _NO_SEED else f'seed {seed}'}"


def _told(argument: Any, weighed: bool) -> Any:
    """Part of an argument that tells one draw from another."""
    if not isinstance(argument, torch.Tensor):
        return str(argument)
    numbers = argument.flatten().tolist() if weighed else ()
    return (tuple(argument.shape), argument.dtype, *numbers)


def _as(values: NDArray[Any], like: Any) -> Any:
    """Tensor of the numbers, of the type, device and shape of another."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(like).reshape(like.shape)


def _rounded(weights: Any) -> bool:
    """Whether the weights come from arithmetic in float32 or coarser."""
    return bool(torch.finfo(weights.dtype).bits < 64) if weights.is_floating_point() else False


def _weights(weights: Any) -> Floats:
    """Rows of weights (n, V), refused as torch would refuse them."""
    shape = (math.prod(weights.shape[:-1]), weights.shape[-1])
    rows = weights.detach().double().cpu().reshape(shape).numpy().copy()
    if not (np.isfinite(rows) & (rows >= 0)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not (rows.sum(axis=1) > 0).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    return rows
