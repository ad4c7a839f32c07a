"""The tool that puts small faults into the package, and that those recorded are found again."""

from __future__ import annotations

import pytest
from support import mutants

TEXT = '''\
class Rule:
    def rate(self, q: "a or b" = 3) -> float:
        """Is not -1 + 2."""
        if not q:
            raise ValueError(f"{q - 1} of {q + 1}")
        log(q)
        return 1 - q


@kernel
def compiled(q):
    return q < 1


def twice(q):
    q += 1
    q += 1
    return q <= 2 and q
'''


def test_what_is_put_in_place_of_what():
    found = {(x.function, x.old, x.new) for x in mutants.mutants_of("rule.py", TEXT)}
    assert found == {
        ("Rule.rate", "not q", "(q)"),
        ("Rule.rate", 'raise ValueError(f"{q - 1} of {q + 1}")', "pass"),
        ("Rule.rate", "log(q)", "pass"),
        ("Rule.rate", "1 - q", "((1) + (q))"),
        ("Rule.rate", "1", "2"),
        ("twice", "q <= 2 and q", "(q <= 2) or (q)"),
        ("twice", "q <= 2", "(q) < (2)"),
        ("twice", "2", "3"),
    }


def test_a_fault_is_known_by_its_line_wherever_that_stands():
    fault = next(x for x in mutants.mutants_of("rule.py", TEXT) if x.old == "1 - q")
    moved = f"import math\n{TEXT}".replace("log(q)", "math.log(q)")
    assert fault.planted(moved) == moved.replace("1 - q\n", "((1) + (q))\n")
    assert fault.planted(TEXT.replace("1 - q", "1 - q * q")) is None
    assert fault.planted(TEXT.replace("def rate", "def law")) is None


def test_half_of_what_is_recorded_or_more_has_its_line_still():
    recorded = mutants.recorded()
    texts = {x.file: mutants.text_of(mutants.ROOT / x.file) for x in recorded}
    still = [x for x in recorded if x.planted(texts[x.file])]
    assert len(still) >= len(recorded) / 2, "most lines are gone: draw others, as mutants.py says"


@pytest.mark.parametrize("number", range(2))
def test_a_recorded_fault_is_found_and_nothing_without_it(tmp_path, number):
    tree = mutants.copied(tmp_path)
    recorded = [x for x in mutants.recorded() if "::" in x.killed_by]
    fault = [x for x in recorded if x.planted(mutants.text_of(tree / x.file))][number]
    assert mutants.failing(tree, [fault.killed_by]) == ""
    assert mutants.killer(tree, fault, [fault.killed_by]) == fault.killed_by
