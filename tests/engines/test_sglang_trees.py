"""Verification in SGLang that draws first: trees walked by target tokens, and compact supports."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stand_ins import Overlaid

import mdsd_opt as mo
from mdsd_opt.auditing.engines import Adapter
from mdsd_opt.auditing.engines.adapters import interpreted_triton
from mdsd_opt.auditing.engines.engine import Drafted
from mdsd_opt.auditing.trees import TableModel
from mdsd_opt.base.arrays import Matrix, Text
from mdsd_opt.decoding import Node, Topology

torch = pytest.importorskip("torch")

try:
    metadata.version("sglang")
except metadata.PackageNotFoundError:
    pytest.skip("sglang is not installed: make test-engines", allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs" / "shipped.md"


def compact_chain(shipped: Adapter) -> Callable[..., Text]:
    """UNO's rejection on the likeliest tokens alone, not compiled; the supports are all tokens."""

    def ranked(laws: Matrix) -> tuple[Any, Any]:
        ids = np.argsort(-laws, axis=1)
        probabilities = np.take_along_axis(laws, ids, axis=1)
        return torch.tensor(ids)[None], torch.tensor(probabilities).float()[None]

    reject = shipped.load(
        torch=Overlaid(torch, compile=lambda **_: lambda function: function),
        _build_sparse_target_support=lambda *, next_token_logits, **_: ranked(next_token_logits),
    )

    def verify(p: Matrix, q: Matrix, drafts: Any) -> Text:
        ids, probabilities = ranked(q)

        class Logits(np.ndarray[Any, Any]):
            device = "cpu"

        accepted, last = reject(
            candidates=torch.tensor([[0, *drafts.tolist()]]),
            next_token_logits=p.view(Logits),
            sampling_info=None,
            max_top_k=p.shape[1],
            draft_distribution=SimpleNamespace(token_ids=ids, probs=probabilities),
        )
        return (*drafts[: int(accepted[0])].tolist(), int(last[0]))

    return verify


def walked_tree(shipped: Adapter) -> Callable[..., Text]:
    """The walk of the greedy kernel by tokens of the target, one drawn at each node."""
    devices = ("is_cpu", "is_cuda", "is_hip", "is_musa", "is_npu", "is_xpu")
    never = dict.fromkeys(devices, lambda: False)
    walk = shipped.load(**interpreted_triton("sglang"), **never)

    def verify(root: Node, rng: np.random.Generator) -> Text:
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
RULES = {
    one.function: one
    for one in (
        Adapter(
            package="sglang", tested=("0.5.23",), path="sglang/srt/speculative/uno_utils.py",
            function="_run_sparse_rejection", made=compact_chain,
        ),
        Adapter(
            package="sglang", tested=("0.5.23",),
            path="sglang/kernels/ops/speculative/spec_tree.py",
            function="verify_tree_greedy_triton", made=walked_tree, drafted=Drafted(TREE, "top_k"),
        ),
    )
}  # fmt: skip


def report_of(one: Adapter, tree: str | Topology | None = None) -> Any:
    engine = one.engine(one.function)
    return mo.audit_tree(
        engine.verify, TableModel(3, 6), TableModel(3, 7), tree or engine.drafted.tree, 0,
        scheme=engine.drafted.scheme, method="driven", driven_checks=5, seconds=3_600.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_verdict_on_the_page(name: str) -> None:
    (verdict,) = re.findall(
        rf"^\| .*`\S*{name}`.*\| (\w+), \S+ \|$", PAGE.read_text(), re.MULTILINE
    )
    report = report_of(RULES[name])
    assert report.verdict_class == verdict, report.verdict
    assert report.total_variation < 1e-6


def test_a_mistake_in_compact_supports(tmp_path: Path) -> None:
    """The residual of the target alone."""
    one = RULES["_run_sparse_rejection"]
    source = Path(str(metadata.distribution(one.package).locate_file(one.path))).read_text()
    right = "(final_probs - q_on_target)"
    assert source.count(right) == 1
    copy = tmp_path / "uno.py"
    copy.write_text(source.replace(right, "final_probs.clone()"))
    report = report_of(replace(one, path=str(copy)), "chain1")
    assert report.verdict_class == "lossy"
    assert report.total_variation > 1e-3
