"""Check what `mdsd-opt solve PROBLEM --proof FILE.json` wrote: python check_optimum.py FILE.json

By nothing of ours, in fractions: that the draft sets have the masses that the scheme gives them (of
one draft model with or without replacement, and of independent ones; on trust for others), that the
plan gives each token no more than its target and takes from each draft set no more than its mass,
and that the plan and the cut 1 + P(H) - Q(H) have the value that is claimed.
"""

import json
import sys
from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path


def law_of(drafts, size):
    """Masses of draft sets by the definition of the scheme; None for a scheme not known here."""
    k = drafts.get("num_drafts", 0)
    law, scheme = Counter(), drafts["scheme"]
    if scheme == "independent":
        models = [[Fraction(x) for x in row] for row in drafts["q"]]
    elif scheme in ("with_replacement", "without_replacement"):
        models = [[Fraction(x) for x in drafts["q"]]] * k
        support = sum(x > 0 for x in models[0])
        models = models[: support if scheme == "without_replacement" else k]
    else:
        return None
    for drawn in product(range(size), repeat=len(models)):
        mass, left = Fraction(1), Fraction(1)
        for place, (token, q) in enumerate(zip(drawn, models, strict=True)):
            mass *= q[token] / left if mass else 0
            if scheme == "without_replacement":
                mass *= token not in drawn[:place]
                left -= q[token]
        law[frozenset(drawn)] += mass
    return {s: mass for s, mass in law.items() if mass}


def faults(document, by_scheme):
    target = [Fraction(x) for x in document["target"]]
    sets = {frozenset(s): Fraction(mass) for s, mass in document["draft_sets"]}
    given, taken, h = Counter(), Counter(), set(document["subset"])
    for s, token, mass in document["plan"]:
        given[token] += Fraction(mass)
        taken[frozenset(s)] += Fraction(mass)
        yield token not in s or Fraction(mass) < 0
    yield by_scheme not in (None, sets)
    yield sum(target) != 1 or sum(sets.values()) != 1 or min(*target, *sets.values()) < 0
    yield any(mass > target[i] for i, mass in given.items())
    yield any(mass > sets.get(s, 0) for s, mass in taken.items())
    cut = 1 + sum(target[i] for i in h) - sum(mass for s, mass in sets.items() if s <= h)
    yield not sum(given.values()) == cut == Fraction(document["acceptance_rate"])


document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
known = law_of(document["drafts"], len(document["target"]))
any(faults(document, known)) and sys.exit("NOT proved")
print(f"proved: {document['acceptance_rate']}" + ("" if known else ", if the draft sets are right"))
