"""Files of servers: what they say of the texts, in the forms of three of them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd_opt as mo
from mdsd_opt.corpora.engine_output import paired_positions
from mdsd_opt.errors import UnreadableFile
from mdsd_opt.formats import read_answers

RNG = np.random.default_rng(0)
V, LENGTH = 30, 5
#: p and q of every position of two texts, and the tokens that stand there.
P, Q = RNG.dirichlet(np.full(V, 0.3), size=(2, 2, LENGTH))
TEXTS = RNG.integers(V, size=(2, LENGTH)).tolist()


def best(law: Any, k: int) -> list[int]:
    return [int(i) for i in np.argsort(-law)[:k]]


def vllm(law: Any, text: list[int], k: int) -> dict[str, Any]:
    """A prompt with its log-probabilities: ids as keys, ranks, the prompt's own token on top."""
    lists: list[Any] = [None]
    for place in range(1, LENGTH):
        ids = dict.fromkeys([text[place], *best(law[place], k)])
        lists.append(
            {
                str(i): {
                    "logprob": math.log(law[place][i]),
                    "rank": int((-law[place]).argsort().argsort()[i]) + 1,
                    "decoded_token": f"<{i}>",
                }
                for i in ids
            }
        )
    return {"choices": [{"prompt_logprobs": lists, "prompt_token_ids": text, "logprobs": None}]}


def sglang(law: Any, text: list[int], k: int) -> dict[str, Any]:
    """`/generate` with the log-probabilities of its input: [logprob, id, text]."""
    lists = [None, *([[math.log(x[i]), i, None] for i in best(x, k)] for x in law[1:])]
    own = [[None, text[0], None]]
    own += [[math.log(x[i]), i, None] for x, i in zip(law[1:], text[1:], strict=True)]
    return {"meta_info": {"input_top_logprobs": lists, "input_token_logprobs": own}}


def completions(law: Any, text: list[int], k: int) -> dict[str, Any]:
    """`/v1/completions` with echo: text of tokens as keys, the own one beside the best."""
    lists: list[Any] = [None]
    for place in range(1, LENGTH):
        ids = dict.fromkeys([*best(law[place], k), text[place]])
        lists.append({f"<{i}>": math.log(law[place][i]) for i in ids})
    return {"choices": [{"logprobs": {"tokens": [f"<{i}>" for i in text], "top_logprobs": lists}}]}


def chat(law: Any, text: list[int], k: int) -> dict[str, Any]:
    """`/v1/chat/completions`: of every generated token an object with the best ones."""

    def entry(place: int, i: int) -> dict[str, Any]:
        return {"token": "\ufffd", "logprob": math.log(law[place][i]), "bytes": [i]}

    content = [
        entry(place, text[place]) | {"top_logprobs": [entry(place, i) for i in best(x, k)]}
        for place, x in enumerate(law)
    ]
    return {"choices": [{"logprobs": {"content": content}}]}


FORMS = {"vllm": vllm, "sglang": sglang, "completions": completions, "chat": chat}


def in_single(request: Any) -> Any:
    """The same request, its log-probabilities in float32."""
    if isinstance(request, dict):
        return {name: in_single(x) for name, x in request.items()}
    if isinstance(request, list):
        return [in_single(x) for x in request]
    return float(np.float32(request)) if isinstance(request, float) else request


def written(folder: Path, form: Any, k: int, single: bool = False) -> list[Path]:
    paths = [folder / "target.jsonl", folder / "draft.jsonl"]
    for path, laws in zip(paths, (P, Q), strict=True):
        requests = [form(law, text, k) for law, text in zip(laws, TEXTS, strict=True)]
        lines = [json.dumps(in_single(x) if single else x) for x in requests]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_listed", [8, V])
def test_rates_of_servers_hold_the_rate_of_the_whole_laws(
    form: str, num_listed: int, run_cli: Any, tmp_path: Path
) -> None:
    paths = written(tmp_path, FORMS[form], num_listed, single=True)
    document = run_cli.document("rates", *paths, "-k", "1,3", "--vocab-size", V)
    first = 0 if form == "chat" else 1  # the first token of a prompt has no list
    assert document["num_positions"] == 2 * (LENGTH - first)
    assert document["num_sequences"] == 2
    for row in document["rows"]:
        rates = mo.acceptance_rates(
            P[:, first:], Q[:, first:], row["num_drafts"], row["scheme"], kind="probs"
        )
        assert row["lower_mean"] <= rates.mean() <= row["upper_mean"]
        width = row["upper_mean"] - row["lower_mean"]
        assert width < 1e-5 if num_listed == V else 0.1 < width < 0.7  # so much 8 of 30 tokens say
    table = run_cli("rates", *paths, "-k", "1,3", "--vocab-size", V)
    assert table.returncode == 0, table.stderr
    certified = re.compile(r"(\d\.\d{4}) \.\. (\d\.\d{4})")  # the first of each line
    shown = [found.groups() for x in table.stdout.splitlines() if (found := certified.search(x))]
    for (low, high), row in zip(shown, document["rows"], strict=True):  # rounded outwards
        assert float(low) <= row["lower_mean"] <= row["upper_mean"] <= float(high)
    assert "certified" in table.stdout
    assert "at K = 3: without replacement, at least 0." in table.stdout


@pytest.mark.parametrize("form", ["vllm", "sglang", "chat"])
def test_lists_of_all_tokens_are_exact(form: str, run_cli: Any, tmp_path: Path) -> None:
    shown = run_cli.shown("rates", *written(tmp_path, FORMS[form], V), "--csv", "-k", "3")
    first = 0 if form == "chat" else 1
    rates = mo.acceptance_rates(P[:, first:], Q[:, first:], 3, kind="probs")
    header, line = shown.splitlines()[:2]
    row = dict(zip(header.split(","), line.split(","), strict=True))
    lower, upper = float(row["lower_mean"]), float(row["upper_mean"])
    assert lower <= rates.mean() <= upper <= lower + 1e-11


def test_a_token_of_the_text_that_is_not_among_the_best_bounds_nothing(tmp_path: Path) -> None:
    """Its small probability would be taken for the bound on all others."""
    law = np.array([0.5, 0.3, 0.1, 0.06, 0.04])
    with_rank = {
        str(i): {"logprob": math.log(law[i]), "rank": i + 1, "decoded_token": ""} for i in (4, 0, 1)
    }
    bare = {str(i): math.log(law[i]) for i in (4, 0, 1)}
    by_text = {f"<{i}>": math.log(law[i]) for i in (0, 1, 4)}
    requests = [
        {"prompt_logprobs": [None, with_rank]},
        {"prompt_logprobs": [None, bare], "prompt_token_ids": [3, 4]},
        {"prompt_logprobs": [None, bare]},
        {"choices": [{"logprobs": {"tokens": ["a", "<4>"], "top_logprobs": [None, by_text]}}]},
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("\n\n".join(map(json.dumps, requests)), encoding="utf-8")
    for (text,) in read_answers(path):
        assert text.lists[0] is None
        assert text.lists[1] is not None
        assert len(text.lists[1]) == 2
    kept = {"prompt_logprobs": [None, bare], "prompt_token_ids": [3, 0]}
    path.write_text(json.dumps(kept), encoding="utf-8")
    assert len(next(read_answers(path))[0].lists[1] or ()) == 3


def test_generated_text_of_the_classes_of_vllm(tmp_path: Path) -> None:
    entry = {"7": {"logprob": -0.1, "rank": 1, "decoded_token": "x"}}
    line = {"prompt_logprobs": None, "outputs": [{"token_ids": [7], "logprobs": [entry]}]}
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(line), encoding="utf-8")
    assert next(read_answers(path))[0].lists == [{7: -0.1}]
    assert list(paired_positions(path, path)) == [[({7: -0.1}, {7: -0.1})]]


BAD = {
    "no json": ("{", "line 1"),
    "no lists": ('{"text": "x"}', "no lists"),
    "a number": ("3", "no lists"),
    "strange": ('{"prompt_logprobs": [3]}', "not known"),
    "same names": (
        json.dumps({"choices": [{"logprobs": {"content": [{
            "token": "a", "logprob": 0, "top_logprobs": [{"token": "a", "logprob": -1}] * 2,
        }]}}]}),
        "same name",
    ),
    "empty": ("", "is empty"),
    "over one": ('{"prompt_logprobs": [null, {"1": -0.1, "2": -0.2, "3": -0.3}]}', "over one"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_broken_files_end_in_one_line(case: str, run_cli: Any, tmp_path: Path) -> None:
    content, said = BAD[case]
    path = tmp_path / "x.jsonl"
    path.write_text(content, encoding="utf-8")
    assert said in run_cli.refusal("rates", path, path)


def test_files_of_different_texts(tmp_path: Path, run_cli: Any) -> None:
    target, draft = written(tmp_path, sglang, 4)
    lines = draft.read_text().splitlines()
    draft.write_text(lines[0])
    with pytest.raises(UnreadableFile, match="no more requests"):
        list(paired_positions(target, draft))
    draft.write_text("\n".join(reversed(lines)))
    with pytest.raises(UnreadableFile, match="texts differ"):
        list(paired_positions(target, draft))
    draft.write_text(json.dumps(completions(Q[0], TEXTS[0], 3)))
    with pytest.raises(UnreadableFile, match="by id"):
        list(paired_positions(target, draft))
    short = json.loads(lines[0])
    for name in ("input_top_logprobs", "input_token_logprobs"):
        short["meta_info"][name].pop()
    draft.write_text(json.dumps(short))
    with pytest.raises(UnreadableFile, match="5 and 4 positions"):
        list(paired_positions(target, draft))
    for arguments in ([target], [target, target, "--temperature", "0.5"], [target, tmp_path / "z"],
                      [target, target, "--schemes", "greedy"]):  # fmt: skip
        assert run_cli("rates", *arguments).returncode == 2
