"""Verification in SGLang that draws first: trees walked by target tokens, and compact supports."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stand_ins import Overlaid

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton

from mdsd_opt.auditing.engines.loading import file_alone, interpret_triton, stand_in

import mdsd_opt as mo
from mdsd_opt.auditing import engines, load_definitions
from mdsd_opt.auditing.chains import Rows, Tokens, of_chains
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.decoding import Node, Topology
from mdsd_opt.errors import MissingExtra

torch = pytest.importorskip("torch")

try:
    engines.get("sglang")
except MissingExtra as error:
    pytest.skip(str(error), allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs" / "shipped.md"


def compact_chain(load: Callable[..., Any] = load_definitions) -> Callable[[Node], Tokens]:
    """UNO's rejection on the likeliest tokens alone, not compiled; the supports are all tokens."""

    def ranked(laws: Rows) -> tuple[Any, Any]:
        ids = np.argsort(-laws, axis=1)
        probabilities = np.take_along_axis(laws, ids, axis=1)
        return torch.tensor(ids)[None], torch.tensor(probabilities).float()[None]

    reject = load(
        "sglang/srt/speculative/uno_utils.py", "_run_sparse_rejection", package="sglang",
        torch=Overlaid(torch, compile=lambda **_: lambda function: function),
        _build_sparse_target_support=lambda *, next_token_logits, **_: ranked(next_token_logits),
    )._run_sparse_rejection  # fmt: skip

    def verify(p: Rows, q: Rows, drafts: Tokens) -> Tokens:
        ids, probabilities = ranked(q)

        class Logits(np.ndarray[Any, Any]):
            device = "cpu"

        accepted, last = reject(
            candidates=torch.tensor([[0, *drafts]]),
            next_token_logits=p.view(Logits),
            sampling_info=None,
            max_top_k=p.shape[1],
            draft_distribution=SimpleNamespace(token_ids=ids, probs=probabilities),
        )
        return (*drafts[: int(accepted[0])], int(last[0]))

    return of_chains("compact", verify)


def walked_tree() -> Callable[[Node], Tokens]:
    """The walk of the greedy kernel by tokens of the target, one drawn at each node."""
    interpret_triton("sglang")
    never = dict.fromkeys(
        ("is_cpu", "is_cuda", "is_hip", "is_musa", "is_npu", "is_xpu"), lambda: False
    )
    walk = file_alone(
        "sglang", "sglang/kernels/ops/speculative/spec_tree.py",
        stand_in("sglang.srt.platforms.interface", reject_out_of_tree_path=None)
        | stand_in("sglang.srt.platforms", current_platform=None)
        | stand_in("sglang.srt.utils", **never),
    ).verify_tree_greedy_triton  # fmt: skip

    def verify(root: Node) -> Tokens:
        nodes = sorted(root.walk(), key=lambda node: (node.depth, node.place))
        number = {node.place: n for n, node in enumerate(nodes)}
        child, sibling = [-1] * len(nodes), [-1] * len(nodes)
        for node in nodes:
            below = [number[other.place] for other in node.children.values()]
            for n, following in zip([None, *below], [*below, -1], strict=True):
                if n is None:
                    child[number[node.place]] = following
                else:
                    sibling[n] = following
        laws = torch.tensor(np.stack([node.target for node in nodes])).float()
        drawn = torch.multinomial(laws, 1).reshape(1, -1)
        depth = max(node.depth for node in nodes) + 1
        predicted = torch.zeros(len(nodes), dtype=torch.int32)
        path = torch.full((1, depth), -1, dtype=torch.int32)
        count = torch.zeros(1, dtype=torch.int32)
        tokens = [0, *(node.tokens[-1] for node in nodes[1:])]
        walk(
            predicted, path, count, torch.tensor([tokens]), torch.arange(len(nodes))[None],
            torch.tensor([child]), torch.tensor([sibling]), drawn,
        )  # fmt: skip
        return tuple(predicted[path[0, : int(count) + 1].long()].tolist())

    return verify


TREE = Topology({(): 2, (0,): 2}, "2, 2 after the first")
RULES: dict[str, tuple[Callable[[], Any], str | Topology, str]] = {
    "_run_sparse_rejection": (compact_chain, "chain2", "with_replacement"),
    "verify_tree_greedy_triton": (walked_tree, TREE, "top_k"),
}


def report_of(rule: Callable[[Node], Tokens], tree: str | Topology, scheme: str) -> Any:
    return mo.audit_tree(
        lambda root, rng: rule(root), TableModel(3, 6), TableModel(3, 7), tree, 0, scheme=scheme,
        method="driven", driven_checks=5, seconds=3_600.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_verdict_on_the_page(name: str) -> None:
    make, tree, scheme = RULES[name]
    (verdict,) = re.findall(
        rf"^\| .*`\S*{name}`.*\| (\w+), \S+ \|$", PAGE.read_text(), re.MULTILINE
    )
    report = report_of(make(), tree, scheme)
    assert report.verdict_class == verdict, report.verdict
    assert report.total_variation < 1e-6


def test_a_mistake_in_compact_supports(tmp_path: Path) -> None:
    """The residual of the target alone."""

    def load(path: str, name: str, *, package: str, **given: Any) -> Any:
        file = metadata.distribution(package).locate_file(path)
        source = Path(str(file)).read_text()
        right = "(final_probs - q_on_target)"
        assert source.count(right) == 1
        copy = tmp_path / "uno.py"
        copy.write_text(source.replace(right, "final_probs.clone()"))
        return load_definitions(copy, name, **given)

    report = report_of(compact_chain(load), "chain1", "with_replacement")
    assert report.verdict_class == "lossy"
    assert report.total_variation > 1e-3
