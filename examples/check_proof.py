"""Check what `mdsd-opt prove CLAIM --proof FILE.json` wrote: python check_proof.py FILE.json

By nothing of ours: that cells, split at points of edges, cover a clause's domain, a product of
simplices; that in each a goal g >= 0 where all premises c >= 0: the sum of w g - s c - t (x^a + x^b
- 2 x^((a+b)/2)), w, s, t >= 0, has no negative coefficient, and it or sum w is positive. On trust:
that the clauses are what the claim says of all laws, by its reading and what "rests_on" names."""

import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path


def times(x, y, total):
    for (a, c), (b, d) in product(x.items(), y.items()):
        total[tuple(map(int.__add__, a, b))] += c * d
    return total


def positive(x, of):  # wherever a coordinate of each simplex is positive
    spots = product(*([j for j, k in enumerate(of) if k == n] for n in set(of)))
    used = [{j for j, n in enumerate(key) if n} for key, c in x.items() if c > 0]
    return min(x.values(), default=0) >= 0 and all(any(u <= set(s) for u in used) for s in spots)


def proved(cell, own, clause, of, unit):
    corners, total, weight = cell["corners"], Counter(), Counter()
    good = all(sum(x) > 0 and [sum(y) * a for a in x] == [sum(x) * b for b in y]
               for x, y in zip(corners, own, strict=True))  # fmt: skip
    if "split" in cell:
        i, j, a, b = cell["split"]
        point = [a * x + b * y for x, y in zip(corners[i], corners[j], strict=True)]
        good = good and a > 0 < b and i != j and of[i] == of[j] and len(cell["parts"]) == 2
        inner = ([*corners[:n], point, *corners[n + 1 :]] for n in (j, i))
        return good and all(proved(z, next(inner), clause, of, unit) for z in cell["parts"])
    x = [Counter(dict(zip(unit, row, strict=True))) for row in zip(*corners, strict=True)]
    for kind, sign in (("goals", 1), ("premises", -1)):
        for number, key, c in cell.get(kind, []):
            good = good and c > 0 <= min(*key, number)
            weight[tuple(key)] += c * (sign > 0)
            for powers, coefficient in clause[kind][number]:
                term = {tuple(key): sign * c * coefficient}  # at x, the sum of y_j times corner j
                for i in [i for i, n in enumerate(powers) for _ in range(n)]:
                    term = times(term, x[i], Counter())
                total.update(term)
    for a, b, c in cell.get("squares", []):
        good = good and c > 0 and a != b and not any((i + j) % 2 for i, j in zip(a, b, strict=True))
        middle = tuple((i + j) // 2 for i, j in zip(a, b, strict=True))
        total.update({tuple(a): -c, tuple(b): -c, middle: 2 * c})
    good = good and any(positive(sums, of) for sums in (weight, total))
    return good and min(total.values(), default=0) >= 0


document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
for clause in document["clauses"]:
    of = [k for k, n in enumerate(clause["blocks"]) for _ in range(n)]
    unit = [tuple(int(i == j) for j in range(len(of))) for i in range(len(of))]
    proved(clause["cell"], unit, clause, of, unit) or sys.exit("NOT proved")
print(f"proved if these are its clauses: {document['claim']}, {document['rests_on']}")
