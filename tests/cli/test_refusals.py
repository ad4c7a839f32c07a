"""Commands that are refused: one line that says why, soon, and no file is left behind."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.commands import commands
from support.few_lines import few_lines

LONG = 5000 * "a"
MODELS = "--target x --draft y"
DECODE = f"decode {MODELS} --prompt one --tree 2x2 --tokens 6"
CAPTURE = f"capture {MODELS}"
COUNTED = "advise log.jsonl"
ONE = "a.safetensors"
RRS = "audit --verifier rrs --vocab-size 4"
CHAIN = "audit --chain rules:chain"

#: Commands and what the line says, verb by verb; the current folder is `inputs`.
REFUSED = [
    # logits
    ("rates missing.npz", "does not exist"),
    ("rates nothing", "holds no shard"),
    ("rates notes.txt", "suffix"),
    ("rates --schemes gready", "'greedy'"),
    ("rates --verifiers ksek", "'kseq'"),
    ("rates --verifiers lp", "unknown verifier"),
    ("rates --verifiers kseq --schemes greedy", "greedy: optimal"),
    ("rates --verifiers spechub -k 3", "K = 2"),
    ("rates logits.npz -k 3 --verifiers spechub,rrs --schemes greedy,top_k", "for spechub, rrs"),
    ("rates --seed -1", "seed is -1"),
    ("rates --num-drafts 0", "from 1 up"),
    ("rates --num-drafts two", "numbers and ranges"),
    ("rates --temperature -1", "temperature"),
    ("rates --top-p 1.5", "top_p"),
    ("rates --confidence 2", "between 0 and 1"),
    ("rates --json --csv", "choose one"),
    ("rates --json --latex", "--json and --latex both given"),
    ("rates --plot picture.bmp", ".png"),
    ("rates --plot no/such/folder/x.png", "folder"),
    ("rates --out nowhere/page.html", "cannot write"),
    ("rates --save-config nowhere/run.toml", "cannot write"),
    ("rates --width 5", "go with --plot"),
    ("rates --plot x.pdf --width 0", "--width is 0"),
    ("rates --plot x.pdf --style glossy", "unknown style 'glossy'"),
    ("rates a.npy b.npy c.npy", "a.npy does not exist"),
    ("rates empty.npz", "empty"),
    ("rates broken.npz", "broken.npz"),
    ("rates text.npz", "text.npz"),
    ("rates names.npz", "draft"),
    ("rates uneven.npz", "shape"),
    ("rates nan.npz", "row 0"),
    ("rates narrow.npz", "pad=True"),
    ("rates trace.npz -k 2", "'probs'"),
    ("rates logits.npz --best-temperature", "--schemes all"),
    ("rates logits.npz --schemes all --best-temperature --top-k 5", "top_k"),
    ("rates logits.npz --best-filter --draft-temperature 1", "--best-filter"),
    ("rates logits.npz --best-filter --mask mask.npy", "--best-filter"),
    ("rates logits.npz --no-mask-draft", "goes with --mask or --lift"),
    ("rates logits.npz --mask lift.npy", "give booleans"),
    ("rates logits.npz --mask short.npy", "mask has shape (2, 5)"),
    ("rates logits.npz --lift mask.npz", "mask.npz"),
    ("rates logits.npz --mask mask.npy --schemes all", "goes without --schemes all"),
    ("rates folder --mask mask.npy", "--mask is for files"),
    ("rates --vocab-size 5", "--vocab-size"),
    ("rates --no-verify", "--no-verify is for a folder of shards"),
    ("rates --rank-timeout 5", "--rank-timeout is for a folder"),
    ("rates folder --rank-timeout 5", "executor 'local' has no ranks"),
    ("rates folder --executor torchrun --rank-timeout 0", "(--rank-timeout) is 0.0: give sec"),
    ("rates --executor dask", "is for a folder of shards: mdsd-opt rates DIR --executor"),
    (f"rates target.safetensors {ONE} {ONE}", "given twice"),
    (f"rates target.safetensors {ONE} cut.safetensors", "cut.safetensors"),
    (f"rates target.safetensors {ONE} short.safetensors", "shape"),
    ("rates target.safetensors two.safetensors", "has x, y: give one tensor"),
    (f"rates target.safetensors {ONE} nan.safetensors", "NaN"),
    (f"rates {ONE} {ONE} {ONE} --verifiers rrs", "leave --verifiers out"),
    ("rates --config unknown.toml", "has 'topk'; this verb takes"),
    ("rates --config table.toml", "has a table 'top-k'"),
    ("rates --config half.toml", "cannot be read as TOML"),
    ("rates --config words.toml", "invalid value for '--top-k'"),
    ("rates --config below.toml", "temperature"),
    ("relax logits.npz --positions -1", "--positions is -1"),
    ("relax logits.npz -k x", "--num-drafts is 'x'"),
    ("relax logits.npz --scheme what", "unknown draft scheme 'what'"),
    ("relax logits.npz --plot x.bmp", ".png"),
    ("relax logits.npz --temperature -1", "temperature is -1"),
    ("relax trace.npz -k 2", "'probs'"),
    ("plan trace.npz --nodes 3", "'probs'"),
    # advice
    ("advise logits.npz --rows-ms 1-20", "--rows-ms is '1-20': give rows and milliseconds"),
    ("advise logits.npz --rows-ms 1:20,1:30", "--rows-ms is '1:20,1:30': give rows and millis"),
    ("advise logits.npz --max-drafts 0", "max_drafts is 0"),
    ("advise logits.npz --draft-ms -1", "draft_ms is -1"),
    ("advise logits.npz --schemes nothing", "unknown draft scheme"),
    ("advise logits.npz --verifier rrs,optimal", "--verifier is 'rrs,optimal': give one"),
    ("advise logits.npz --draft-ms 2/1", "--draft-ms has 2 costs, and the number of drafts is 1"),
    ("advise logits.npz --batch 0", "batch_size is 0"),
    (f"advise {ONE} {ONE} {ONE} --draft-ms 1/2/3", "has 3 costs"),
    (f"advise {ONE} {ONE} {ONE} --draft-ms 1/x", "--draft-ms is 'x'"),
    ("advise nowhere.log", "nowhere.log does not exist"),
    ("advise 0.5", "tokens a step are at least 1"),
    ("advise 5//9", "give a file, 1093/1717"),
    ("advise 5/9", "give depth"),
    (f"{COUNTED} --kind logits", "--kind goes with logits, not with log"),
    (f"{COUNTED} mine.npz", "mine.npz is of logits, and"),
    (f"{COUNTED} --watch 9", "--watch 9 goes with an address"),
    (f"{COUNTED} --temperature .3", "--temperature goes with logits, models, not with log"),
    (f"{COUNTED} --verifier x", "--verifier goes with logits, not with log"),
    (f"{COUNTED} --target-ms x", "--target-ms is 'x'"),
    (f"{COUNTED} --target-ms 20", "costs without draft_ms"),
    (f"{COUNTED} --context 5", "--context goes with --costs"),
    (f"{COUNTED} --speedup 2", "depends on costs"),
    (f"{COUNTED} --costs log.jsonl", "is not JSON"),
    ("advise --speedup 2", "--speedup goes with log, not with logits"),
    ("advise --measure costs.json", "--measure goes with models, not with logits"),
    ("advise log log.jsonl --target x", "--target goes with models, not with log"),
    ("advise --measure c --target http://a --draft b", "--measure times models: of a server"),
    ("advise --target big", "--draft"),
    (f"advise {MODELS} --prompt a --batch 8", "--batch goes with "),
    (f"advise {MODELS} --prompt a --rows-ms 1:20", "--rows-ms goes with "),
    (f"advise {MODELS} --prompt a --target-ms 3", "--target-ms goes with "),
    ("advise empty.log", "empty.log is empty"),
    ("advise hello.log", "no counts of accepted drafts in a known form"),
    ("advise run.log hello.log", "hello.log has no counts"),
    ("advise plain.log", "plain.log is of a run without drafts"),
    ("advise plain.log plain.log", "is of a run without drafts"),
    ("advise run.log told.log", "its settings have"),
    ("advise run.log config.log", "its settings have"),
    ("advise cut.log plain.log", "cut.log"),
    ("advise run.log plain.log --target-ms nan", "nan"),
    ("advise run.log --batch 1,,2", "--batch is '1,,2'"),
    # problems and claims
    ("solve missing.json", "does not exist"),
    ("solve missing.json --method simplex", "full_lp"),
    ("solve problem.json --method subset_selection --plan", "--method full_lp"),
    ("solve problem.json --tolerance 3", "--tolerance is 3.0"),
    ("solve problem.json --size 0", "--size"),
    ("solve problem.json --size 1-x", "--size"),
    ("solve nested.json", "nested"),
    ("solve locked.json", "locked.json"),
    ("solve many.json", "num_drafts is 1.00e+30: give an integer of at most 2,147,483,647"),
    ("check acceptance_two", "acceptance_one"),
    ("check acceptance_one --vocab-size 0", "vocab_size is 0"),
    ("check acceptance_one --draft 1/2,1/2", "draft has 2 probabilities, vocab_size is 4"),
    ("check acceptance_one --inequality 'p0 >= 1'", "--inequality"),
    ("check acceptance_one --timeout -1", "timeout"),
    ("check acceptance_one --memory 0", "memory"),
    ("check prefix_optimality --search --draft 1/2,1/2", "--draft"),
    ("check condition --scheme greedy", "unknown draft scheme 'greedy'"),
    ("check acceptance_one -V 40 --out a.png", "no picture"),
    ("check acceptance_one -V 40 --plot a.png", "no such option"),
    # audits
    ("audit", "give one of --chain, --text, --tree, --trace, --verifier, --engine"),
    ("audit ''", "unknown kind of audit ''"),
    ("audit --chain no_such_module:f", "cannot load"),
    ("audit --chain math:sqrt --takes odds", "takes"),
    ("audit --chain math:sqrt", "is called with (p, q, drafts), and takes (x, /)"),
    ("audit --verifier optimum", "no verifier is called"),
    ("audit --verifier no_such_module:f", "cannot load"),
    ("audit --verifier kseq --scheme greedy", "not lossless for"),
    ("audit --trace missing.npz", "does not exist"),
    ("audit --seed 1 trace trace.npz", "the kind first"),
    ("audit trace trace.npz --batch 2", "--batch goes with chain, not with trace"),
    ("audit chain", "missing argument 'CHAIN'; mdsd-opt audit chain -h says what to give"),
    ("audit chains rules:first", "Did you mean 'chain'?"),
    ("audit --trace trace.npz --api=auto", "--api goes with server, not with trace"),
    ("audit --trace trace.npz 5", "unexpected extra argument(s) (5)"),
    ("audit --server a --trace trace.npz", "give one of --chain"),
    ("audit --server", "SERVER"),
    (f"{RRS} --promise m:f", "--promise goes with chain, text, server, tokens, not"),
    (f"{RRS} --draft-promise m:f", "--draft-promise goes with chain, not"),
    (f"{RRS} --detect 0", "detect is 0.0: give a total variation above 0, up to 1"),
    (f"{RRS} --detect 1.5", "detect is 1.5"),
    (f"{RRS} --detect nan", "detect is nan"),
    (f"{RRS} --tolerate-edge nan", "tolerate_edge is nan: give a probability"),
    (f"{RRS} --logits logits.npz", "--logits goes with chain, text, not"),
    (f"{RRS} --vocab-sizes 40", "--vocab-sizes goes with chain, text, not"),
    (f"{RRS} --seconds -1", "seconds is -1.0: give a positive number"),
    (f"{RRS} --trials 0", "num_trials is 0"),
    (f"{RRS} --method guess", "guess"),
    (f"{RRS} --junit no/x.xml", "no"),
    (f"{RRS} --out nowhere/page.html", "cannot write"),
    (f"{CHAIN} --vocab-sizes many", "--vocab-sizes is 'many': give numbers"),
    (f"{CHAIN} --vocab-sizes 1", "--vocab-sizes is '1': give numbers from 2 to 1,000,000"),
    (f"{CHAIN} --draft-temperature 1", "--draft-temperature goes with --trace"),
    (f"{CHAIN} --promise rules:biased --top-k 2", "comes instead of"),
    (f"{CHAIN} --promise rules:none", "cannot load 'rules:none'"),
    (f"{CHAIN} --batch 65", "batch is 65: give True, or 2 to 64 rows"),
    (f"{CHAIN} --logits missing.npz", "missing.npz"),
    # speed and papers
    ("bench nothing", "solvers"),
    ("bench --out x.txt", "give a name that ends in .json"),
    ("bench solvers --out folder", "give a name that ends in .json"),
    ("bench solvers --problems harder", "give small, hard, real, or a folder"),
    ("bench --compare missing.json", "missing.json does not exist"),
    ("bench --plot x.q", ".png"),
    ("bench decisions --quick --out nowhere/page.html", "cannot write"),
    ("reproduce --out n.csv", "--out goes with the name of an experiment"),
    ("reproduce hu2024", "Did you mean 'hu2025'"),
    ("reproduce hu2025 nowhere.npz", "does not exist"),
    ("reproduce hu2025 --confidence 1", "between 0 and 1"),
    # models
    (f"{DECODE} --relax kl", "--relax is 'kl': give one budget, as kl=0.01"),
    (f"{DECODE} --relax js=1", "unknown budget 'js'"),
    (f"{DECODE} --relax kl=-1", "kl is -1"),
    (f"{DECODE} --relax kl=1 --tree planned16", "same number of drafts at all nodes"),
    (f"{DECODE} --verifier gumbel", "too many terms"),
    (f"{DECODE} --verifier gumbel --compare", "too many terms"),
    (f"{DECODE} --compare --temperature -1", "temperature is -1"),
    (f"{DECODE} --tree chain9999", "has over 100,000 leaves or 1,000 levels: give fewer"),
    # what is no command
    ("solve", "missing argument 'PROBLEM'; mdsd-opt solve -h says what to give"),
    ("solve a b", "(b); mdsd-opt solve -h says what to give"),
    ("nosuch", "mdsd-opt -h says what to give"),
    ("rates -k", "; mdsd-opt rates -h says what to give"),
]  # fmt: skip

#: What the system refuses, or would take too long.
ODD = [
    ["rates", LONG], ["rates", f"{LONG}.npz"], ["rates", f"{LONG}.npy", f"{LONG}.npy"],
    ["rates", "logits.npz", "--plot", f"{LONG}.png"],
    ["rates", "logits.npz", "--plot", "folder.png"], ["rates", "folder.png", "--out", LONG],
    ["rates", "logits.npz", "-k", "1-100000000"], ["rates", "logits.npz", "-k", "9" * 5000],
    ["rates", "logits.npz", "-k", "1-" + "9" * 5000],
    ["solve", f"{LONG}.json"], ["solve", f"{LONG}/p.json"], ["solve", "folder.json"],
    ["check", LONG], ["check", "condition", "--inequality", LONG],
    ["check", "acceptance_one", "--draft", LONG],
    ["audit", "--verifier", LONG], ["audit", "--verifier", f"{LONG}:{LONG}"],
    ["audit", "--verifier", "rrs", "--problem", f"{LONG}.json"],
    ["audit", "--trace", f"{LONG}.npz"], ["audit", "--verifier", "rrs", "--seed", "-1"],
    ["audit", "--verifier", "rrs", "--vocab-size", "100000000"],
    ["audit", "--verifier", "rrs", "-k", "1" + "0" * 30],
    ["audit", "--verifier", "rrs", "--trials", "1" + "0" * 30],
    ["bench", "solvers", "--quick", "--out", f"{LONG}.json"],
    ["bench", "solvers", "--quick", "--out", "folder.json"],
    ["bench", "solvers", "--quick", "--compare", f"{LONG}.json"],
    ["bench", "solvers", "--quick", "--plot", f"{LONG}.png"],
    ["bench", "solvers", "--quick", "--seed", "-1"],
    ["capture", "--target", LONG, "--draft", LONG, "--out", LONG, "--prompts", LONG],
    [*CAPTURE.split(), "--out", "z", "--prompts", "folder.json"],
    ["decode", *MODELS.split(), "--prompts", LONG], [*DECODE.split(), "--tree", LONG],
    ["reproduce", LONG], ["reproduce", "hu2025", LONG], ["reproduce", "hu2025", f"{LONG}.npz"],
    ["reproduce", "hu2025", "logits.npz", "--out", f"{LONG}.md"],
    ["reproduce", "hu2025", "logits.npz", "--out", "folder.json"],
]  # fmt: skip

CASES = [(shlex.split(command), said) for command, said in REFUSED] + [(x, "") for x in ODD]


@pytest.mark.parametrize(
    ("words", "said"), CASES, ids=[" ".join(word[:25] for word in words) for words, _ in CASES]
)
def test_a_command_says_in_one_line_why_it_is_refused(
    words: list[str], said: str, inputs: Path, run_cli: Any
) -> None:
    if "locked.json" in words and os.access("locked.json", os.R_OK):
        pytest.skip("this user may read everything")
    before = sorted(inputs.iterdir())
    with few_lines(100_000):
        line = run_cli.refusal(*words)
    assert line.startswith("mdsd-opt: error: ")
    assert said in line
    assert sorted(path for path in inputs.iterdir() if path.name != "__pycache__") == before


@pytest.mark.parametrize("words", [*commands(), ""])
def test_words_that_make_no_command_are_told_in_a_line(words: str, run_cli: Any) -> None:
    line = run_cli.refusal(*words.split(), "--no-such-option")
    assert line.startswith("mdsd-opt: error: no such option: --no-such-option")
    assert line.endswith(f"mdsd-opt {words} -h says what to give".replace("  ", " "))
