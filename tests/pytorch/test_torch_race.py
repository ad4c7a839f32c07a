"""The race to paste elsewhere: its noise, its laws, and one text with any drafter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_race
from support import chi_square

import mdsd_opt as mo
from mdsd_opt import verifiers

P = torch.tensor([0.5, 0.3, 0.2, 0.0])
Q = torch.tensor([0.1, 0.3, 0.4, 0.2])


def test_the_noise_is_exponential_and_independent() -> None:
    rows = torch.stack([torch_race.exponentials(3, n, 500) for n in range(400)])
    uniforms = np.exp(-rows.numpy())
    assert abs(uniforms.mean() - 0.5) < 5 * np.sqrt(1 / 12 / uniforms.size)
    cells = (uniforms * 20).astype(int).ravel().tolist()
    assert chi_square.p_value(cells, dict.fromkeys(range(20), 0.05)) > 1e-6
    for one, other in ((uniforms[1:], uniforms[:-1]), (uniforms[:, 1:], uniforms[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(one.size)
    seeds = np.stack([torch_race.exponentials(s, 0, 500).numpy() for s in range(400)])
    assert abs(np.corrcoef(seeds[1:].ravel(), seeds[:-1].ravel())[0, 1]) < 5 / np.sqrt(seeds.size)


def test_the_noise_is_that_of_integers_without_a_sign() -> None:
    """The hash in Python's integers: torch's wrap and have a sign."""
    mask = (1 << 64) - 1

    def hashed(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    for seed, position in ((7, 5), (0, 0), (2**62, 10**9)):
        key = hashed((hashed(seed) + position) & mask)
        bits = [hashed((hashed((key + i) & mask) + 0x9E3779B97F4A7C15) & mask) for i in range(3)]
        wanted = [-np.log(((x >> 11) + 0.5) / 2**53) for x in bits]
        assert torch_race.exponentials(seed, position, 3).tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_the_output_follows_the_target_and_is_accepted_at_the_exact_rate(num_drafts: int) -> None:
    trials = 5_000
    outputs, hits = [], 0
    for n in range(trials):
        noise = torch_race.exponentials(11, n, 4)
        outputs.append(torch_race.output(P, noise))
        hits += outputs[-1] in torch_race.drafts(Q, noise, num_drafts)
    law = dict(enumerate(P.double().tolist()))
    assert chi_square.p_value(outputs, {k: v for k, v in law.items() if v}) > 1e-6
    assert chi_square.p_value(outputs, {0: 0.4, 1: 0.4, 2: 0.2}) < 1e-6
    problem = mo.TransportProblem(
        P.double().numpy(), mo.WithoutReplacement(Q.double().numpy(), num_drafts)
    )
    rate = verifiers.get("race").acceptance_rate(problem)
    assert abs(hits / trials - rate) < 5 * np.sqrt(rate * (1 - rate) / trials)


def test_drafts_are_at_most_the_tokens_there_are() -> None:
    noise = torch_race.exponentials(1, 0, 4)
    assert sorted(torch_race.drafts(torch.tensor([0.5, 0.0, 0.5, 0.0]), noise, 3)) == [0, 2]


def test_one_text_with_any_drafter(capsys: pytest.CaptureFixture[str]) -> None:
    torch_race.main()
    lines = capsys.readouterr().out.splitlines()
    assert len({line.partition(":")[2] for line in lines}) == 1
    none, good, poor = (int(line.split()[1]) for line in lines)
    assert good < poor < none == 60
