"""A decoding step without its models: laws and decision on the device, beside those on the host.

    python benchmarks/device_laws.py --vocab-size 128256 --tree 4x3

Both start from the same bfloat16 logits of made-up models, take turns, and draw the same kind of
tree. Printed: medians, and how much less than the optimal rule the ones on bins may pass: from the
sums over bins alone, as on tables, and with each token's own p, as the binned verifier.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from mdsd_opt.base.sampling import Sampling
from mdsd_opt.decoding import Node, get_rule, parse_topology
from mdsd_opt.decoding.step_laws import DeviceLaws, HostLaws, require_device_rule
from mdsd_opt.drafts import WithoutReplacement, WithReplacement
from mdsd_opt.drafts.by_name import scheme_maker
from mdsd_opt.trees.device_laws import LinearPlan
from mdsd_opt.trees.draft_tree import grow
from mdsd_opt.trees.topology import Topology
from mdsd_opt.verifiers.optimal.grouped_plan import BinnedPlan


class Noise:
    """Model whose logits are a few rows of noise."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = rows

    def tree_tensor(self, ids: object, continuations: list[tuple[int, ...]]) -> torch.Tensor:
        """Logits after each continuation, [n, V]."""
        return self._rows[[sum(tokens) % len(self._rows) for tokens in continuations]]

    def tree_logits(self, ids: object, continuations: list[tuple[int, ...]]) -> np.ndarray:
        """Logits of `tree_tensor` as an array."""
        return self.tree_tensor(ids, continuations).float().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description="Laws and decision of a step, without models.")
    parser.add_argument("--vocab-size", type=int, default=128_256)
    parser.add_argument("--tree", default="4x3")
    parser.add_argument("--rule", default="level_sequential")
    parser.add_argument("--scheme", default="with_replacement")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--near", type=float, default=1.0, help="Standard deviation of log p/q.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--cpu-time", action="store_true", help="One thread's own time, where others are busy, too."
    )
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    if given.cpu_time:
        torch.set_num_threads(1)
    topology = parse_topology(given.tree)
    assert isinstance(topology, Topology)
    generator = torch.Generator().manual_seed(0)
    draft = 3.0 * torch.randn(16, given.vocab_size, generator=generator)
    target = draft + given.near * torch.randn(draft.shape, generator=generator)
    models = [Noise(x.to(given.device, torch.bfloat16)) for x in (target, draft)]
    rule, make = get_rule(given.rule), scheme_maker(given.scheme)
    seconds: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    gaps: list[tuple[float, float]] = []
    for number in range(given.rounds + 1):
        for on_device in (number % 2 == 0, number % 2 == 1):
            laws: Any = (
                DeviceLaws(*models, require_device_rule(make, rule), Sampling(), Sampling())
                if on_device
                else HostLaws(*models, make, Sampling(), Sampling())
            )
            rng = np.random.default_rng(number)
            moments = [clock()]
            root = grow(lambda texts, laws=laws: laws.drafts([], texts), topology, laws.make, rng)
            moments.append(clock())
            laws.set_targets([], root.walk())
            moments.append(clock())
            rule.verify(root, rng)
            moments.append(clock())
            if number:  # the first compiles
                seconds[on_device].append((*np.diff(moments), moments[-1] - moments[0]))
            if number and on_device:
                gaps.extend(_gaps(root))
    print(
        f"V = {given.vocab_size:,}, {given.tree}, {given.rule}, {given.scheme}, "
        f"{torch.get_num_threads()} threads"
    )
    print("milliseconds        drafts   target laws   decision   sum (median; least sum)")
    for on_device, name in ((False, "host, float64"), (True, "device, tables")):
        *parts, whole = 1e3 * np.median(seconds[on_device], axis=0)
        least = 1e3 * min(row[-1] for row in seconds[on_device])
        print(f"{name:16s}" + "".join(f"{x:12.1f}" for x in parts) + f"{whole:12.1f}; {least:.1f}")
    for name, found in zip(("sums", "tokens"), np.transpose(gaps), strict=True):
        print(
            f"gap of a node by {name}, certified: median {np.median(found):.1e}, 90 % below "
            f"{np.quantile(found, 0.9):.1e}, largest {max(found):.1e}"
        )


def _gaps(root: Node) -> list[tuple[float, float]]:
    """Bounds, by both plans, of each node's loss in passed mass against the optimal rule."""
    laws: list[tuple[Any, Any]] = [(node.target, node.drafts) for node in root.walk()]
    found = []
    for law, drafts in laws:
        if drafts is not None:
            scheme = WithReplacement if drafts.replaced else WithoutReplacement
            q = drafts.weights.double().cpu().numpy()
            of_sums = LinearPlan(law.table, 1.0, drafts.num_drafts, drafts.replaced)
            draws = scheme(q / q.sum(), drafts.num_drafts).random_draws
            of_tokens = BinnedPlan(np.asarray(law), draws)
            found.append((of_sums.gap, of_tokens.gap))
    return found


if __name__ == "__main__":
    main()
