"""Greedy drafts in SGLang's own drafting, pruning and verification, as far as a CPU runs them."""

from __future__ import annotations

import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.enumerated_trees import Asked, distance, every_draw
from support.sglang_parts import Engine, device_operation, sglang_parts

from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.serving import draft_tree, greedy_drafts, sglang_hooks, sglang_plugin

try:
    metadata.version("sglang")
except metadata.PackageNotFoundError:
    pytest.skip("sglang is not installed: make test-engines", allow_module_level=True)


torch.set_num_threads(1)

GROUP = "sglang.srt.plugins"


def entry_point() -> str:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (name,) = project["entry-points"][GROUP].values()
    return str(name)


@pytest.fixture(scope="module")
def loaded() -> Iterator[SimpleNamespace]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that are imported
        with sglang_parts() as parts:
            parts.before = {
                name: dict(vars(getattr(parts, name)))
                for name in ("eagle_utils", "eagle_worker_v2", "eagle_worker_common", "spec_utils")
            }
            parts.methods = dict(vars(parts.eagle_worker_v2.EagleDraftWorker))
            yield parts


@pytest.fixture
def parts(loaded: SimpleNamespace) -> Iterator[SimpleNamespace]:
    """Without hooks before and after."""
    yield loaded
    loaded.hook_registry.HookRegistry.reset()
    for name, contents in loaded.before.items():
        vars(getattr(loaded, name)).update(contents)
    for name in ("draft", "draft_forward", "_draft_extend_for_prefill", "_draft_extend_for_decode"):
        setattr(loaded.eagle_worker_v2.EagleDraftWorker, name, loaded.methods[name])


@pytest.fixture
def hooked(parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The plug-in's hooks, loaded and put in place by SGLang; `parts.hooks` are they."""
    made: list[Any] = []

    class Kept(sglang_hooks.GreedyHooks):
        def __init__(self, draw: Any) -> None:
            super().__init__(draw)
            made.append(self)

    monkeypatch.setattr(sglang_hooks, "GreedyHooks", Kept)
    monkeypatch.setenv(sglang_plugin.VARIABLE, "greedy")
    point = metadata.EntryPoint("mdsd_opt", entry_point(), GROUP)
    monkeypatch.setattr(parts.plugins, "entry_points", lambda group: [point] * (group == GROUP))
    monkeypatch.setattr(parts.plugins, "_plugins_loaded", False)
    parts.plugins.load_plugins()
    assert len(parts.hook_registry.HookRegistry._patched) == 9
    (parts.hooks,) = made
    return parts


def drawn_everywhere(monkeypatch: pytest.MonkeyPatch, scored_by_own_q: bool = False) -> None:
    """Nodes with a drawn child, whatever q says; for the control, scored by its own q."""

    def drafts(probs: Any, num_drafts: int, draw: Any, **options: Any) -> Any:
        made = greedy_drafts(probs, num_drafts, draw, disagreement=0.0, **options)
        if scored_by_own_q:
            scores = probs.gather(1, made.tokens).clamp(max=1 - 2.0**-23)
            made = replace(made, scores=scores)
        return made

    monkeypatch.setattr(sglang_hooks, "greedy_drafts", drafts)


def asked_of(
    parts: SimpleNamespace, models: tuple[Any, Any], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Any], Asked]:
    """From a way to draw to what the tree operation is given after SGLang's own steps."""
    target, draft = models
    given: list[Asked] = []

    def record(**named: Any) -> None:
        rows = named["draft_rows"]
        given.append(
            Asked(
                named["candidates"], named["retrive_next_token"], named["retrive_next_sibling"],
                named["target_probs"], named["draft_probs"], rows,
            )
        )  # fmt: skip
        named["accept_token_num"].zero_()
        named["accept_index"][:, 0] = 0

    def run(draw: Any) -> Asked:
        parts.hooks.draw = draw
        given.clear()
        engine.step(engine.first_drafts(draft), target)
        return given[0]

    monkeypatch.setattr(sglang_hooks, "verify_tree", record)
    return run


def test_nothing_happens_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sglang_plugin.VARIABLE, raising=False)
    monkeypatch.setattr(sglang_plugin, "_register_hooks", device_operation)
    before = set(sys.modules)
    sglang_plugin.register()
    assert not [name for name in set(sys.modules) - before if name.startswith("sglang")]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("choice", "MDSD_OPT_SGLANG is 'greddy'; set it to 'greedy', or unset it"),
        ("version", "SGLang is 0.6.0; the plug-in fits 0.5.23"),
        ("operation", "nothing to call at sglang.srt.speculative.eagle_utils.tree_speculative"),
        ("method", "nothing to call at sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.dr"),
    ],
)
def test_it_says_why_it_stays_out(
    parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: Any, change: str, told: str
) -> None:
    monkeypatch.setenv(sglang_plugin.VARIABLE, "greddy" if change == "choice" else "greedy")
    if change == "version":
        monkeypatch.setattr(metadata, "version", lambda package: "0.6.0")
    if change == "operation":
        parts.eagle_utils.tree_speculative_sampling_target_only = None
    if change == "method":
        monkeypatch.delattr(parts.eagle_worker_v2.EagleDraftWorker, "draft")
    sglang_plugin.register()
    assert told in caplog.text
    assert "Drafts stay as SGLang makes them." in caplog.text
    assert not parts.hook_registry.HookRegistry._hooks


def test_the_entry_point_names_it() -> None:
    assert resolve_name(entry_point()) is sglang_plugin.register
    assert (metadata.version("sglang"),) == sglang_plugin.VERSIONS


def test_hooks_stand_where_drafts_are_made_and_nowhere_else(hooked: SimpleNamespace) -> None:
    """The registry would put them wherever `fast_topk` is bound: where nodes are chosen, too."""
    common = sys.modules["sglang.srt.utils.common"]
    assert hooked.spec_utils.fast_topk is common.fast_topk
    assert hooked.before["eagle_worker_v2"]["fast_topk"] is common.fast_topk
    assert hooked.eagle_worker_v2.fast_topk is not common.fast_topk
    assert hooked.eagle_worker_common.eagle_sample is hooked.eagle_utils.eagle_sample
    assert hooked.eagle_utils.eagle_sample is not hooked.before["eagle_utils"]["eagle_sample"]


TABLES = [(3, 2, 2, 4), (4, 3, 2, 5), (5, 3, 3, 9)]


@pytest.mark.parametrize(("v", "topk", "steps", "num_nodes"), TABLES)
def test_the_trees_are_those_of_the_plain_form(
    hooked: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    v: int,
    topk: int,
    steps: int,
    num_nodes: int,
) -> None:
    engine = Engine(hooked, topk, steps, num_nodes)
    for seed in range(8):
        target, draft = TableModel(v, seed), TableModel(v, 50 + seed)
        asked = asked_of(hooked, (target, draft), engine, monkeypatch)(of_generator(seed))
        draw = of_generator(seed)
        tree = draft_tree(
            lambda texts, draft=draft: torch.tensor(np.stack([draft(t) for t in texts])).float(),
            lambda q, draw=draw: greedy_drafts(q, topk, draw),
            steps,
            num_nodes,
        )
        assert torch.equal(asked.candidates[:, 1:], tree.candidates[:, 1:])
        assert torch.equal(asked.next_token, tree.next_token)
        assert torch.equal(asked.next_sibling, tree.next_sibling)
        assert torch.equal(asked.rows, tree.rows)
        torch.testing.assert_close(asked.laws, tree.laws)
        probs = torch.tensor(np.stack([target(text) for text in tree.texts])).float()
        torch.testing.assert_close(asked.target_probs[0], probs)


def of_generator(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return lambda laws: torch.multinomial(laws, 1, generator=generator)[:, 0]


@pytest.mark.parametrize("scored_by_own_q", [False, True])
def test_texts_follow_the_target_unless_drawn_children_are_scored_by_their_own_q(
    hooked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, scored_by_own_q: bool
) -> None:
    drawn_everywhere(monkeypatch, scored_by_own_q)
    engine = Engine(hooked, 2, 2, 4)
    found = []
    for seed in (1, 2):
        target, draft = TableModel(3, seed), TableModel(3, 50 + seed)
        run = asked_of(hooked, (target, draft), engine, monkeypatch)
        found.append(distance(every_draw(run), target, 3, 3))
    assert (min(found) > 1e-2) if scored_by_own_q else (max(found) < 1e-6), found


class Turned:
    """The same probabilities after every token, at tokens that depend on it: ties everywhere."""

    def __init__(self, *law: float) -> None:
        self.law = np.array(law)

    def __call__(self, text: Any) -> Any:
        return np.roll(self.law, text[-1] if text else 0)


@pytest.mark.parametrize(
    "law", [(1 / 3, 1 / 3, 1 / 3), (0.5, 0.25, 0.25), (0.0, 1.0, 0.0), (0.6, 0.4, 0.0)]
)
def test_ties_zeros_and_certain_drafts(
    hooked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, law: tuple[float, ...]
) -> None:
    drawn_everywhere(monkeypatch)
    for steps, num_nodes in ((2, 4), (3, 5)):
        engine, target = Engine(hooked, 2, steps, num_nodes), Turned(0.2, 0.3, 0.5)
        run = asked_of(hooked, (target, Turned(*law)), engine, monkeypatch)
        assert distance(every_draw(run), target, steps + 1, 3) < 1e-6


def test_the_race_draws_by_the_law(hooked: SimpleNamespace) -> None:
    """SGLang's `fast_sample`; false alarm below 1e-9 for each token."""
    torch.manual_seed(0)
    law = torch.tensor([0.0, 0.5, 0.125, 0.375])
    count = hooked.hooks.draw(law.repeat(100_000, 1)).bincount(minlength=4) / 100_000
    assert count[0] == 0
    assert (count - law).abs().max() < 6.2 * np.sqrt(0.25 / 100_000)


def test_steps_with_the_operation_itself(hooked: SimpleNamespace) -> None:
    """Accepted drafts and one more token; the laws handed on are those of the next first level."""
    torch.manual_seed(0)
    engine, lengths = Engine(hooked, 2, 2, 4), []
    for seed in range(20):
        target, draft = TableModel(3, seed), TableModel(3, 50 + seed)
        drafts, text = engine.first_drafts(draft), ()
        for _ in range(2):
            tokens, drafts = engine.step(drafts, target)
            lengths.append(len(tokens))
            text = (*text, *tokens)
            made = greedy_drafts(
                torch.tensor(draft(text))[None].float(), 2, lambda q: torch.zeros(1).long()
            )
            torch.testing.assert_close(drafts.draft_probs[:, :3], made.laws)
            torch.testing.assert_close(drafts.topk_p, made.scores)
    assert set(lengths) == {1, 2, 3}


def test_laws_that_belong_to_other_drafts_are_not_used(hooked: SimpleNamespace) -> None:
    engine = Engine(hooked, 2, 2, 4)
    drafts = engine.first_drafts(TableModel(3, 51))
    for change in ("none", "other scores", "none there", "another batch"):
        given = replace(drafts)
        if change == "other scores":
            given.topk_p = drafts.topk_p + 2.0**-20
        elif change == "none there":
            given.draft_probs = None
        elif change == "another batch":
            given.draft_probs = drafts.draft_probs.repeat(2, 1)
        made = engine.worker.draft(engine.batch(given)).mdsd_opt_drawn_children
        assert bool(made.laws[0].any()) is (change == "none")
        assert made.laws[1:].any()


def test_requests_at_temperature_0_or_with_a_seed_keep_their_drafts(
    hooked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_everywhere(monkeypatch)
    q = torch.tensor([0.1, 0.4, 0.3, 0.2])
    engine = Engine(hooked, 2, 2, 4)

    def first() -> Any:
        return engine.first_drafts(lambda text: q)

    assert first().draft_probs[0, :4].count_nonzero() == 3
    engine.sampling.top_ks[:] = 1
    drafts = first()
    assert drafts.topk_index.tolist() == [[1, 2]]
    torch.testing.assert_close(drafts.topk_p, q[None, [1, 2]])
    assert drafts.draft_probs[0, :4].tolist() == [0, 0, 1, 0]
    engine.sampling.top_ks[:] = 50
    engine.sampling.sampling_seed = torch.zeros(1, dtype=torch.int64)
    assert first().topk_index.tolist() == [[1, 2]]


def test_drafts_are_drawn_at_the_temperature_of_the_request(
    hooked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_everywhere(monkeypatch)
    q = torch.tensor([0.1, 0.4, 0.3, 0.2])
    engine = Engine(hooked, 2, 2, 4)
    engine.sampling.temperatures[:] = 0.5
    drafts = engine.first_drafts(lambda text: q)
    sharp = torch.where(q == q.max(), 0, q**2)
    torch.testing.assert_close(drafts.draft_probs[0, :4], sharp / sharp.sum())
    made = engine.worker.draft(engine.batch(drafts)).mdsd_opt_drawn_children
    torch.testing.assert_close(made.laws[1], sharp / sharp.sum())


def test_a_captured_pass_reads_what_a_request_asks_for(hooked: SimpleNamespace) -> None:
    runner = object.__new__(hooked.eagle_draft_cuda_graph_runner.EAGLEDraftCudaGraphRunner)
    runner.temperatures, runner.top_ks = torch.ones(4, 1), torch.full((4,), 99)
    info = SimpleNamespace(
        temperatures=torch.tensor([[0.3], [0.7]]),
        top_ks=torch.tensor([1, 50]),
        sampling_seed=None,
    )
    hooked.hooks.execute(runner, SimpleNamespace(sampling_info=info))
    torch.testing.assert_close(runner.temperatures[:, 0], torch.tensor([0.3, 0.7, 1.0, 1.0]))
    assert runner.top_ks.tolist() == [1, 50, 99, 99]
    info.sampling_seed = torch.zeros(2)
    hooked.hooks.execute(runner, SimpleNamespace(sampling_info=info))
    assert runner.top_ks.tolist() == [1, 1, 99, 99]


def test_laws_of_a_smaller_draft_vocabulary(hooked: SimpleNamespace) -> None:
    engine = Engine(hooked, 2, 2, 4)
    engine.worker.hot_token_id = torch.tensor([4, 1, 3])
    engine.worker.target_worker.model_config.vocab_size = 5
    drafts = engine.first_drafts(lambda text: torch.tensor([0.5, 0.2, 0.3]))
    verify_input = engine.worker.draft(engine.batch(drafts))
    made = verify_input.mdsd_opt_drawn_children
    assert set(verify_input.draft_token[1:].tolist()) <= {4, 1, 3}
    torch.testing.assert_close(made.laws[:, [4, 1, 3]], torch.tensor([[0.0, 0.4, 0.6]] * 3))
    assert not made.laws[:, [0, 2]].any()


def test_all_other_calls_go_to_the_engine_s_own_operation(
    hooked: SimpleNamespace, caplog: Any
) -> None:
    operation = hooked.eagle_utils.tree_speculative_sampling_target_only
    with pytest.raises(AssertionError, match="operation of a device"):
        operation(target_probs=torch.ones(1, 1, 3))
    engine = Engine(hooked, 2, 2, 4)
    drafts = engine.first_drafts(TableModel(3, 51))
    with pytest.raises(AssertionError, match="operation of a device"):
        engine.step(drafts, TableModel(4, 1))  # another vocabulary
    assert "draft laws of 3 tokens for a target of 4" in caplog.text
    likeliest = hooked.eagle_worker_v2.fast_topk(torch.tensor([[0.2, 0.8]]), 1, dim=-1)
    assert likeliest[1].tolist() == [[1]]


def test_one_level_has_the_laws_of_the_first(hooked: SimpleNamespace) -> None:
    engine = Engine(hooked, 2, 1, 3)
    made = engine.worker.draft(engine.batch(engine.first_drafts(TableModel(3, 51))))
    assert made.mdsd_opt_drawn_children.rows.tolist() == [[-1, -1, 0]]
    assert made.mdsd_opt_drawn_children.laws.shape == (1, 3)
