"""A draft of one decoder layer over its target's hidden states, of the kind of EAGLE [EAGLE].

After a text it reads hidden states of the target, which are those before the last token, and the
last token itself; further on its own state stands in for them. The target is a Llama.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mdsd_opt.decoding.loading import LoadedModel

Text = tuple[int, ...]

LENGTH = 4.0  # of the vectors that the layer reads at first, next to states; what it adds is small
LEFT_OUT = 0.1  # of the numbers it reads in training, so that it knows its texts less well by heart


def feature_layers(loaded: LoadedModel) -> tuple[int, ...]:
    """Layers whose states the draft reads: after a quarter, after three fifths, the last."""
    count = int(loaded.model.config.num_hidden_layers)
    return max(1, round(0.27 * count)), max(1, round(0.6 * count)), count


class Layer(nn.Module):
    """Decoder layer of a Llama; whoever calls it keeps the keys and values."""

    def __init__(self, like: Any, config: Any) -> None:
        super().__init__()
        one, two = like.self_attn, like.mlp
        self.heads = (config.num_attention_heads, config.num_key_value_heads)
        self.eps = config.rms_norm_eps
        self.qkv = own(torch.cat([x.weight for x in (one.q_proj, one.k_proj, one.v_proj)]))
        self.mixed, self.down = own(one.o_proj.weight), own(two.down_proj.weight)
        self.gate_up = own(torch.cat([two.gate_proj.weight, two.up_proj.weight]))
        self.first, self.second = (
            own(x.weight) for x in (like.input_layernorm, like.post_attention_layernorm)
        )

    def project(self, x: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [B, heads, T, d], of states [B, T, D] with their rotations."""
        (queries, keys), normed = self.heads, rms(x, self.first, self.eps)
        parts = functional.linear(normed, self.qkv).unflatten(-1, (queries + 2 * keys, -1))
        parts = parts.transpose(1, 2)
        turned = parts[:, : queries + keys]
        half = turned.shape[-1] // 2
        swapped = torch.cat([-turned[..., half:], turned[..., :half]], -1)
        turned = turned * rotary[0] + swapped * rotary[1]
        return turned[:, :queries], turned[:, queries:], parts[:, queries + keys :]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output of the layer, from its input and what the heads have read, [B, heads, T, d]."""
        x = x + functional.linear(attended.transpose(1, 2).flatten(2), self.mixed)
        normed = rms(x, self.second, self.eps)
        gate, up = functional.linear(normed, self.gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, self.down)


def own(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().clone())


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of groups of heads that share keys; the mask, [T, S], is added."""
    batch, heads, length, size = queries.shape
    groups = heads // keys.shape[1]
    grouped = queries.reshape(batch, keys.shape[1], groups * length, size)
    repeated = None if mask is None else mask.repeat(groups, 1)
    found = functional.scaled_dot_product_attention(grouped, keys, values, repeated)
    return found.reshape(batch, heads, length, size)


def causal(new: int, known: int, like: Tensor) -> Tensor | None:
    """Mask of `new` positions after `known` ones; one position needs none."""
    if new == 1:
        return None
    return like.new_full((new, known + new), -torch.inf).triu(known + 1)


def rotary_of(loaded: LoadedModel, dtype: torch.dtype) -> Tensor:
    """Cosines and sines of all positions that the model reads, [2, positions, d]."""
    positions = torch.arange(loaded.model.config.max_position_embeddings)
    found = loaded.model.model.rotary_emb(torch.zeros(1), positions[None])
    return torch.cat(found).to(dtype)


class OneLayer(nn.Module):
    """Layer whose states are near the target's last one before its norm, from those a token before.

    The vector that the layer reads is a linear map of states, the target's or its own, and of the
    new token: its embedding, and what a table has of the target's state after it.
    """

    def __init__(self, loaded: LoadedModel, token_ids: Tensor, table: Tensor) -> None:
        super().__init__()
        inner, size = loaded.model.model, loaded.model.config.hidden_size
        head = loaded.model.get_output_embeddings().weight.detach()
        norm = inner.norm.weight.detach().float()
        self.features = feature_layers(loaded)
        self.register_buffer("centre", torch.zeros((len(self.features) + 2) * size))
        self.register_buffer("spread", torch.ones((len(self.features) + 2) * size))
        self.register_buffer("token_ids", token_ids)
        self.register_buffer("table", table)
        for name, weight in {
            "embedding": inner.embed_tokens.weight.detach(),
            "output": head[token_ids].float(),
            "norm": norm,
            "rotary": rotary_of(loaded, torch.float32),
        }.items():
            self.register_buffer(name, weight, persistent=False)
        self.from_target = nn.Linear(len(self.features) * size, size)
        self.from_itself = nn.Linear(size, size)
        self.from_token = nn.Linear(2 * size, size, bias=False)
        self.layer = Layer(inner.layers[-1], loaded.model.config).float()
        self.scale = own(norm)
        with torch.no_grad():  # at first what the linear maps say is all
            self.layer.mixed.zero_()
            self.layer.down.zero_()
        self.eval()

    def normed(self, states: Tensor) -> Tensor:
        """States of mean square one, each of those that stand side by side."""
        parts = states.float().unflatten(-1, (-1, len(self.norm)))
        return functional.rms_norm(parts, parts.shape[-1:], eps=1e-5).flatten(-2)

    def of_target(self, features: Tensor) -> Tensor:
        """Normed features; the last without the weights of the target's norm, as own states are."""
        middle, last = features.float().tensor_split([-len(self.norm)], -1)
        return self.normed(torch.cat([middle, last / self.norm], -1))

    def of_tokens(self, tokens: Tensor) -> Tensor:
        """Features of a token alone, [..., 2 D]."""
        return self.normed(torch.cat([self.embedding[tokens], self.table[tokens]], -1))

    def inputs(self, states: Tensor, tokens: Tensor, by_target: bool) -> Tensor:
        """Input of the layer, [..., D], from the target's features or from states of its own."""
        size = len(self.norm)
        read = self.from_target if by_target else self.from_itself
        parts = [
            self.of_target(states) if by_target else self.normed(states),
            self.of_tokens(tokens),
        ]
        first = 0 if by_target else -3 * size
        known = (torch.cat(parts, -1) - self.centre[first:]) / self.spread[first:]
        known = functional.dropout(known, LEFT_OUT, self.training).to(self.output.dtype)
        return read(known[..., : -2 * size]) + self.from_token(known[..., -2 * size :])

    def cast(self, dtype: torch.dtype) -> OneLayer:
        """Cast the weights to another precision; what standardises inputs stays in float32."""
        for x in self.parameters():
            x.data = x.data.to(dtype)
        self.output, self.rotary = self.output.to(dtype), self.rotary.to(dtype)
        return self

    def unrolled(self, features: Tensor, tokens: Tensor, depth: int) -> list[Tensor]:
        """States after each token but the first and up to `depth` - 1 tokens on, each [B, T, D].

        features [B, T, F], tokens [B, T + depth]. The state `n` at position i has read the tokens
        up to i + 1 + n, and the target's features up to i: its logits are of token i + 2 + n.
        """
        length = features.shape[1]
        mask = features.new_full((length, length), -torch.inf, dtype=torch.float32).triu(1)
        alone = torch.full_like(mask, -torch.inf).fill_diagonal_(0.0)
        states, keys, values = [features], [], []
        for n in range(depth):
            x = self.inputs(states[-1], tokens[:, n + 1 : n + 1 + length], by_target=n == 0)
            found = self.layer.project(x, self.rotary[:, n : n + length].to(x.dtype))
            keys.append(found[1])
            values.append(found[2])
            own_too = torch.cat([mask, *n * [alone]], -1).to(x.dtype)
            attended = attend(found[0], torch.cat(keys, 2), torch.cat(values, 2), own_too)
            states.append(self.state(x, attended))
        return states[1:]

    def state(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output of the layer from its input and what its heads have read, of mean square one."""
        return self.normed(self.layer.finish(x, attended)).to(x.dtype)

    def logits(self, states: Tensor, tokens: int | None = None) -> Tensor:
        """Logits of the tokens that can be drafted, or of so many of them, [..., S]."""
        return functional.linear(states * self.scale, self.output[:tokens])

    @torch.no_grad()
    def start_linear(self, texts: dict[str, Tensor], ridge: float = 100.0) -> None:
        """Begin with the best linear maps to the target's own last states.

        They read standardised numbers: some of a target's are large and hardly vary, so that steps
        of equal size for all weights would be far too large for theirs.
        """
        size, features = len(self.norm), texts["features"]
        tokens = texts["tokens"][:, 1 : features.shape[1]]
        x = torch.cat([self.of_target(features[:, :-1]), self.of_tokens(tokens)], -1).flatten(0, 1)
        y = (features[:, 1:, -size:] / self.norm).flatten(0, 1).float()
        self.centre.copy_(x.mean(0))
        self.spread.copy_(x.std(0) + 1e-3)
        x, mean = (x - self.centre) / self.spread, y.mean(0)
        gram = x.T @ x + ridge * torch.eye(x.shape[1])
        found = LENGTH * torch.linalg.solve(gram, x.T @ (y - mean)).T
        self.from_target.weight.copy_(found[:, : -2 * size])
        self.from_token.weight.copy_(found[:, -2 * size :])
        self.from_itself.weight.copy_(found[:, -3 * size : -2 * size])
        for linear in (self.from_target, self.from_itself):
            linear.bias.copy_(LENGTH * mean)


class TreeDrafts:
    """Trained layer as a draft that `generate` takes; keys and values of the text are kept.

    What the target has read of the text is read once, with its states. Behind it stand the drafts
    of one tree, a level of it in a pass. Those that are accepted come again with the target's
    states, in place of the layer's own.
    """

    def __init__(self, model: OneLayer) -> None:
        self.model, self.token_ids, self.features = model, model.token_ids.numpy(), model.features
        heads, size = model.layer.heads[1], model.rotary.shape[-1]
        self._kept = torch.zeros(2, 1, heads, 256, size, dtype=model.output.dtype)
        self.begin()

    def begin(self) -> None:
        """Forget the text that was read."""
        self._unread: list[Tensor] = []
        self._known = 0  # positions of the text whose keys are kept
        self._nodes: dict[Text, tuple[int, Tensor]] = {}  # places of keys, and states

    def read(self, tokens: Text, features: Tensor) -> None:
        """Take the target's states at tokens of the text, [n, F]; each waits for the next token."""
        self._unread.append(features)

    @torch.inference_mode()
    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> Tensor:
        """Logits of `token_ids` after the text and each continuation, [n, S]."""
        if self._unread:
            self._read_text(ids)
        wanted = {text[:n] for text in continuations for n in range(1, len(text) + 1)}
        missing = wanted - self._nodes.keys()
        for depth in sorted({len(text) for text in missing}):
            self._read_level(sorted(text for text in missing if len(text) == depth))
        return self.model.logits(torch.stack([self._nodes[text][1] for text in continuations]))

    tree_tensor = tree_logits

    def _read_text(self, ids: Sequence[int]) -> None:
        features, start = torch.cat(self._unread), self._known
        self._unread, self._known = [], start + len(features)
        tokens = torch.tensor(ids[start + 1 : self._known + 1])
        mask = causal(len(tokens), start, self._kept)
        states = self._pass(features, tokens, True, range(start, self._known), mask)
        self._nodes = {(): (self._known - 1, states[-1])}

    def _read_level(self, level: list[Text]) -> None:
        start = self._known + len(self._nodes) - 1
        mask = self._kept.new_full((len(level), start + len(level)), -torch.inf)
        mask[:, : self._known] = 0.0
        for n, text in enumerate(level):
            above = [self._nodes[text[:m]][0] for m in range(1, len(text))]
            mask[n, [*above, start + n]] = 0.0
        states = torch.stack([self._nodes[text[:-1]][1] for text in level])
        tokens = torch.tensor([text[-1] for text in level])
        positions = [self._known - 1 + len(level[0])] * len(level)
        found = self._pass(states, tokens, False, positions, mask, start)
        self._nodes |= {text: (start + n, found[n]) for n, text in enumerate(level)}

    def _pass(
        self, states: Tensor, tokens: Tensor, by_target: bool, positions: Sequence[int],
        mask: Tensor | None, start: int | None = None,
    ) -> Tensor:  # fmt: skip
        """States of the layer, [n, D]; keys and values go to `start` and the places after it."""
        model, start = self.model, positions[0] if start is None else start
        end = start + len(tokens)
        if end > self._kept.shape[-2]:
            self._kept = functional.pad(self._kept, (0, 0, 0, end))
        x = model.inputs(states, tokens, by_target)[None]
        queries, keys, values = model.layer.project(x, model.rotary[:, list(positions)])
        self._kept[0, :, :, start:end], self._kept[1, :, :, start:end] = keys, values
        known = self._kept[..., :end, :]
        return model.state(x, attend(queries, known[0], known[1], mask))[0]
