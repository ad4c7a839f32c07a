"""mdsd-opt decode where models, names and lengths end: on folders of tiny models."""

from __future__ import annotations

import json
import re
import shutil
from types import SimpleNamespace

import pytest
import transformers
from safetensors.torch import load_file, save_file
from support.model_families import model_of
from support.terminal import WIDTH, on_a_terminal
from support.tiny_folders import TEMPLATE, tiny_folder

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
def decode(folders, monkeypatch, run_cli):
    """`decode.shown` and the like of a target, a draft, and more words."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def asked(how):
        def command(target, draft, *more):
            models = ("--target", folders.get(target, target), "--draft", folders.get(draft, draft))
            chosen = ("--tokens", "8", "--tree", "2x2", "--prompt", "hello")
            return how("decode", *models, *chosen, *more)

        return command

    names = ("__call__", "shown", "document", "refusal")
    return SimpleNamespace(**{name.strip("_"): asked(getattr(run_cli, name)) for name in names})


def test_a_chat_template_is_needed_for_chat(decode):
    assert decode.shown("wide", "narrow", "--chat").startswith("hello\n")
    refused = decode.refusal("narrow", "wide", "--chat")
    assert "narrow has no chat template: leave --chat out" in refused


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
def test_vocabularies_may_be_padded_differently(decode, target, draft, how):
    """The text is greedy: that of the target with itself as a draft."""
    options = ("--temperature", "0", "--precision", "float32")
    found = decode.document(target, draft, *options, *how)
    if "rows" in found:
        assert all(row["total"]["num_tokens"] == 8 for row in found["rows"])
        return
    alone = decode.document(target, "skip:0", *options)
    assert found["outputs"][0]["text"] == alone["outputs"][0]["text"]


@pytest.mark.parametrize(("target", "draft"), [("short", "wide"), ("wide", "short")])
def test_a_text_ends_where_the_context_does(decode, target, draft):
    done = decode.call(target, draft, "--tokens", "100", "--json")
    (output,) = json.loads(done.stdout)["outputs"]
    assert output["ended_by"] == "context"
    assert output["num_tokens"] in (27, 28)
    assert f"ends after {output['num_tokens']} new tokens" in done.stderr
    refused = decode.refusal(target, draft, "--prompt", 32 * "x")
    assert "prompt 2 of 2 has 32 tokens, and the models read 32" in refused


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
def test_bad_names_are_one_line(decode, arguments, said):
    line = decode.refusal("wide", "narrow", *arguments)
    assert said in line
    assert len(line) < 500


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
def test_damaged_folders_are_one_line(decode, folders, tmp_path, monkeypatch, damage):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asks whoever sits there"))
    folder = tmp_path / "damaged"
    shutil.copytree(folders["wide"], folder)
    change, said = DAMAGES[damage]
    change(folder)
    line = decode.refusal(folder, "skip:0", *(("--chat",) if "template" in damage else ()))
    assert said in line
    assert len(line) < 500


def test_weights_that_are_random_are_told(decode, folders, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(folders["wide"], folder)
    configured(folder, num_hidden_layers=3)
    told = decode.call(folder, "skip:0").stderr
    assert "longer is not whole: 9 of its weights are random, such as model.layers.2." in told


def test_a_cut_gguf_file_is_one_line(decode, tmp_path):
    (tmp_path / "cut.gguf").write_bytes(b"GGUF")
    assert "cannot load the model" in decode.refusal(tmp_path / "cut.gguf", "skip:0")


def test_without_a_network_nobody_waits_for_the_hub(decode, monkeypatch):
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

    line = decode.refusal("no-such/model", "narrow")
    assert line == "mdsd-opt: error: cannot load the model no-such/model: not in the cache"
    (given,) = asked
    assert given["pretrained_model_name_or_path"] == "no-such/model"
    assert given["local_files_only"]


def test_layers_are_spread_on_request(decode, monkeypatch):
    given = []
    load = transformers.AutoModelForCausalLM.from_pretrained

    def loading(**options):
        given.append(options.get("device_map"))
        return load(**options)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", loading)
    texts = [decode.shown("wide", "narrow", *device) for device in ((), ("--device", "auto"))]
    assert given == [None, None, "auto", "auto"]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_implementations_of_attention(decode, attention):
    done = decode.call("wide", "narrow", "--attention", attention)
    assert done.returncode == 0, done.stderr
    assert "path by path" not in done.stderr


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
