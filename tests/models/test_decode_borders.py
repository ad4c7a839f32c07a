"""mdsd-opt decode where models, names and lengths end: on folders of tiny models."""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest
import transformers
from safetensors.torch import load_file, save_file
from support.model_families import model_of
from support.terminal import WIDTH, on_a_terminal
from support.tiny_folders import TEMPLATE, tiny_folder

from mdsd_opt.cli import main
from mdsd_opt.decoding import tree_pass
from mdsd_opt.decoding.passes import StaticTreePass, TreePass


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        "wide": tiny_folder(folder / "wide", 320, TEMPLATE),
        "narrow": tiny_folder(folder / "narrow", 300),
        "short": tiny_folder(folder / "short", 320, max_position_embeddings=32),
    }


@pytest.fixture
def run(folders, monkeypatch, capsys):
    def command(target, draft, *arguments):
        models = ("--target", folders.get(target, target), "--draft", folders.get(draft, draft))
        chosen = ("--tokens", "8", "--tree", "2x2", "--prompt", "hello")
        monkeypatch.setattr(sys, "argv", ["mdsd-opt", "decode", *models, *chosen, *arguments])
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return int(end.value.code or 0), output.out, output.err

    return command


def test_a_chat_template_is_needed_for_chat(run):
    code, out, err = run("wide", "narrow", "--chat")
    assert code == 0, err
    assert out.startswith("hello\n")
    code, out, err = run("narrow", "wide", "--chat")
    assert (code, out) == (2, "")
    assert "narrow has no chat template: leave --chat out" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("target", "draft"), [("wide", "narrow"), ("narrow", "wide")])
@pytest.mark.parametrize(
    "how",
    [
        (),
        ("--scheme", "without_replacement"),
        ("--on-device",),
        ("--static-cache",),
        ("--compare", "--verifier", "rrs,level_sequential"),
    ],
)
def test_vocabularies_may_be_padded_differently(run, target, draft, how):
    """The text is greedy: that of the target with itself as a draft."""
    options = ("--temperature", "0", "--precision", "float32", "--json")
    code, out, err = run(target, draft, *options, *how)
    assert code == 0, err
    found = json.loads(out)
    if "rows" in found:
        assert all(row["total"]["num_tokens"] == 8 for row in found["rows"])
        return
    alone = json.loads(run(target, "skip:0", *options)[1])
    assert found["outputs"][0]["text"] == alone["outputs"][0]["text"]


@pytest.mark.parametrize(("target", "draft"), [("short", "wide"), ("wide", "short")])
def test_a_text_ends_where_the_context_does(run, target, draft):
    code, out, err = run(target, draft, "--tokens", "100", "--json")
    assert code == 0, err
    (output,) = json.loads(out)["outputs"]
    assert output["ended_by"] == "context"
    assert output["num_tokens"] in (27, 28)
    assert f"ends after {output['num_tokens']} new tokens" in err
    code, out, err = run(target, draft, "--prompt", 32 * "x")
    assert (code, out) == (2, "")
    assert "prompt 2 of 2 has 32 tokens, and the models read 32" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", ""), "no device ''"),
        (("--device", "mps"), "no device 'mps' here: PyTorch is built without it"),
        (("--device", "meta"), "holds no numbers"),
        (("--device", "xpu"), "no device 'xpu'"),
        (("--precision", "bf16"), "Did you mean 'bfloat16'?"),
        (("--attention", "none"), 'attn_implementation="none"` is not supported'),
        (("--attention", "flash_attention_2"), "cannot load the model"),
        (("--target", "no-such/model"), "cannot load the model no-such/model"),
        (("--target", "no-such-model"), "cannot load the model no-such-model"),
        (("--target", ""), "a model's name is empty"),
        (("--target", "wheel:"), "the package  is not installed"),
        (("--draft", "./missing"), "./missing does not exist"),
        (("--draft", "skip:0,1"), "at least one must stay"),
    ],
)
def test_bad_names_are_one_line(run, arguments, said):
    code, out, err = run("wide", "narrow", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert len(err) < 500


def configured(folder, **changes):
    """Other entries of config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def cut(file):
    file.write_bytes(file.read_bytes()[:300])


def without_numbers(folder):
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


#: What is done to the folder of a model, and what is said then.
DAMAGES = {
    "no configuration": (lambda f: (f / "config.json").unlink(), "there is no config.json"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "cannot load the model"),
    "half a tokenizer": (lambda f: cut(f / "tokenizer.json"), "cannot load the model"),
    "another file": (lambda f: (f / "tokenizer.json").write_text("{}"), "cannot load the model"),
    "half the weights": (lambda f: cut(f / "model.safetensors"), "deserializing header"),
    "no mapping": (lambda f: (f / "config.json").write_text("[]"), "cannot load the model"),
    "other heads": (lambda f: configured(f, num_attention_heads=3), "cannot load the model"),
    "another size": (
        lambda f: configured(f, intermediate_size=64),
        "mlp.down_proj.weight has another shape in its files than by its config",
    ),
    "code of its own": (
        lambda f: configured(f, model_type="own", auto_map={"AutoConfig": "own.Config"}),
        "custom code",
    ),
    "no numbers": (without_numbers, "gives logits that are NaN"),
    "half a template": (
        lambda f: (f / "chat_template.jinja").write_text("{% for x in %}"),
        "chat template of",
    ),
    "another template": (
        lambda f: (f / "chat_template.jinja").write_text("{{ raise_exception('no user') }}"),
        "fails: no user. Leave --chat out",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders_are_one_line(run, folders, tmp_path, monkeypatch, damage):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asks whoever sits there"))
    folder = tmp_path / "damaged"
    shutil.copytree(folders["wide"], folder)
    change, said = DAMAGES[damage]
    change(folder)
    code, out, err = run(str(folder), "skip:0", *(("--chat",) if "template" in damage else ()))
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert len(err) < 500


def test_weights_that_are_random_are_told(run, folders, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(folders["wide"], folder)
    configured(folder, num_hidden_layers=3)
    code, _, err = run(str(folder), "skip:0")
    assert code == 0, err
    assert "longer is not whole: 9 of its weights are random, such as model.layers.2." in err


def test_a_cut_gguf_file_is_one_line(run, tmp_path):
    (tmp_path / "cut.gguf").write_bytes(b"GGUF")
    code, out, err = run(str(tmp_path / "cut.gguf"), "skip:0")
    assert (code, out) == (2, "")
    assert "cannot load the model" in err
    assert err.count("\n") == 1


def test_without_a_network_nobody_waits_for_the_hub(run, monkeypatch):
    import mdsd_opt.decoding.loading as loading

    def nowhere(*_):
        raise OSError("Name or service not known")

    asked = []
    monkeypatch.setattr(loading.urllib.request, "getproxies", dict)
    monkeypatch.setattr(loading.socket, "getaddrinfo", nowhere)
    monkeypatch.setattr(
        transformers.AutoTokenizer, "from_pretrained",
        lambda *_, **given: asked.append(given) or load(**given),
    )  # fmt: skip

    def load(**given):
        raise OSError("not in the cache")

    code, _, err = run("no-such/model", "narrow")
    assert code == 2
    assert err == "mdsd-opt: error: cannot load the model no-such/model: not in the cache\n"
    (given,) = asked
    assert given["pretrained_model_name_or_path"] == "no-such/model"
    assert given["local_files_only"]


def test_layers_are_spread_on_request(run, monkeypatch):
    given = []
    load = transformers.AutoModelForCausalLM.from_pretrained

    def loading(**options):
        given.append(options.get("device_map"))
        return load(**options)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", loading)
    texts = [run("wide", "narrow", *device)[1] for device in ((), ("--device", "auto"))]
    assert given == [None, None, "auto", "auto"]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_implementations_of_attention(run, attention):
    code, _, err = run("wide", "narrow", "--attention", attention)
    assert code == 0, err
    assert "path by path" not in err


def test_flexible_attention_gets_no_mask_of_a_tree():
    """It would write beyond its memory."""
    model = model_of("llama", 0).model
    assert tree_pass.agrees(model, TreePass, None)
    model.config._attn_implementation = "flex_attention"
    asked = []
    model.forward = lambda *args, **given: asked.append(args)
    assert not tree_pass.agrees(model, StaticTreePass, None)
    assert not tree_pass.agrees(model, TreePass, None)
    assert not asked


def test_a_terminal_of_80_columns(folders):
    models = ("--target", folders["short"], "--draft", folders["narrow"], "--tokens", "100")
    prompts = ("--prompt", "hello", "--prompt", "A longer one.")
    code, text, said = on_a_terminal("decode", *models, *prompts, "--tree", "2x2")
    assert code == 0, said
    assert "hello" in text
    assert "A longer one." in text
    assert said.count("fills the models' context") == 2
    lines = [line for line in said.splitlines() if re.search(r"[│┃]", line)]
    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[1:4:2] for line in lines[-2:]] == [["1", "context"], ["2", "context"]]
