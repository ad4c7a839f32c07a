"""JSON Schemas of what verbs print with --json: python docs/json_schemas.py writes docs/schemas.

Names behind it are those of the schemas to write, all unless given.

A schema is what genson reads off the documents of several commands: their fields, with types, and
which of them all have. That of problems is written by hand, beside them.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent / "schemas"
COUNTS = "advise .72,.5,.34 --depth 3 --target-ms 20 --draft-ms 2"

#: Commands that a schema is read off, by its name; those of `TESTED` are held against it.
COMMANDS = {
    "rates": [
        "rates -k 1-2",
        "rates -k 3 --schemes without_replacement --verifiers all",
    ],
    "advise": [
        "advise --target-ms 20 --draft-ms 2",
        "advise --target-ms 40 --draft-ms 1 --temperature 0.5",
    ],
    "advise-counts": [COUNTS, f"{COUNTS} --batch 1,16"],
    "solve": ["solve {problem}", "solve {problem} --method full_lp"],
    "plan": ["plan --nodes 4 -k 2", "plan --nodes 3 -k 1 --temperature 0.7"],
    "relax": ["relax -k 2", "relax -k 1 --temperature 0.7"],
    "check": [
        "check without_replacement_dominates --vocab-size 3 -k 2",
        "check acceptance_one --vocab-size 3 -k 2",
        "check thresholds_raised --vocab-size 3 -k 2",
        "check gains_of_drafts_fall --vocab-size 2 -k 2",
    ],
    "search": [
        'search "greedy(2) >= without_replacement(2)" --vocab-size 3',
        'search "p0 >= q0**3" --vocab-size 3',
        'search "p0 >= 0" --given "q0 >= 2" --vocab-size 2 --trials 5',
    ],
    "prove": [
        'prove "with_replacement(2) >= with_replacement(1)" -V 2',
        'prove "p0 >= q0**3" -V 2 --given "q0 >= 1/2"',
        'prove "greedy(2) >= 0" -V 2',
    ],
    "audit-verifier": [
        "audit verifier rrs --seconds 5",
        "audit verifier naive_target",
    ],
    "bench": ["bench solvers --quick --rounds 1"],
    "reproduce": ["reproduce hu2025", "reproduce khisti2025"],
}
TESTED = {
    "rates": "rates -k 2,4 --top-p 0.9 --verifiers optimal,rrs",
    "advise": "advise --target-ms 30 --draft-ms 1 --temperature 0.8",
    "advise-counts": "advise .6,.3 --depth 2 --target-ms 20 --draft-ms 4",
    "solve": "solve {problem} --method dual_lp",
    "plan": "plan --nodes 5 -k 2",
    "relax": "relax -k 4",
    "check": "check acceptance_one --vocab-size 4 -k 2",
    "audit-verifier": "audit verifier kseq --seconds 5",
    "reproduce": "reproduce spechub",
    "search": 'search "greedy(3) >= without_replacement(3)" --vocab-size 4',
    "prove": 'prove "rrs(2) <= with_replacement(2)" -V 2',
    "bench": "bench solvers --quick --rounds 1 --methods full_lp -V 6",
}
PROBLEM = {
    "target": ["1/2", "0.3", 0.2],
    "drafts": {"scheme": "with_replacement", "q": [0.2, 0.3, 0.5], "num_drafts": 2},
}


def document_of(command: str, folder: Path) -> Any:
    """What a command prints with --json."""
    problem = folder / "problem.json"
    problem.write_text(json.dumps(PROBLEM))
    words = shlex.split(command.format(problem=problem))
    program = [sys.executable, "-m", "mdsd_opt", *words, "--json"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):  # 1 and 3 are verdicts
        raise RuntimeError(f"{command}: {done.stderr}")
    return json.loads(done.stdout)


#: Fields whose names belong to what was read, solved or run.
FREE = (
    "metadata",
    "stats",
    "circumstances",
    "options",
    "settings",
    "summary",
    "by_assumption",
    "flags",
    "points",
    "ranges",
)

#: Numbers that a run may lack, whether or not these commands had them.
NUMBERS = (
    *("median_ms", "p90_ms", "setup_ms", "first_ms", "limit_ms"),
    *("gap", "times_faster"),
)


#: Numbers that a verdict may lack, by what calls there was time for.
OF_VERDICTS = ("class_bias", "p_value", "tolerance")


def freed(schema: Any) -> Any:
    """A schema in which objects with names of their own are objects, and no more is said."""
    if isinstance(schema, list):
        return [freed(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    known = dict.fromkeys(FREE, "object") | dict.fromkeys(OF_VERDICTS, "number")
    known |= dict.fromkeys(NUMBERS, "number") if "rounds" in schema else {}
    return {
        name: {"type": [known[name], "null"]} if name in known else freed(part)
        for name, part in schema.items()
    }


def main(names: list[str]) -> None:
    from tempfile import TemporaryDirectory

    from genson import SchemaBuilder

    with TemporaryDirectory() as folder:
        for name, commands in COMMANDS.items():
            if names and name not in names:
                continue
            builder = SchemaBuilder("https://json-schema.org/draft/2020-12/schema")
            builder.add_schema(
                {"title": f"mdsd-opt {commands[0].split(' -')[0]} --json"}
            )
            for command in commands:
                builder.add_object(document_of(command, Path(folder)))
            path = SCHEMAS / f"{name}.schema.json"
            path.write_text(json.dumps(freed(builder.to_schema()), indent=1) + "\n")
            print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
