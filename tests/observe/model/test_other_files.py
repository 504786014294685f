"""Files of a model beside its configuration: tokenizer, weights, its code, lists that name it, hostile JSON."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observing import a_layout, assert_registered, write
from tables import cases

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.observe import JsonProblem, Request, observers, parse_object
from envdoctor.observe.gather import gather

CASES = cases("other-files.toml")

CONFIG = {"model_type": "glm"}


def facts(disk, **files: object) -> dict[str, object]:
    named = {name.replace("__", "."): content for name, content in files.items()}
    disk.folder(files={"config.json": CONFIG, **named})
    return disk.facts("./model")


@pytest.mark.parametrize(
    ("content", "side", "name"),
    [
        ({"padding_side": "left", "tokenizer_class": "ChatGLMTokenizer"}, "left", "ChatGLMTokenizer"),
        ({"padding_side": None}, ABSENT, ABSENT),
    ],
)
def test_the_tokenizers_class_and_side_are_read(disk, content, side, name):
    found = facts(disk, tokenizer_config__json=content)
    assert (found["model.padding_side"], found["model.tokenizer_class"]) == (side, name)


@pytest.mark.parametrize(("content", "words"), CASES["tokenizer_file_cannot"])
def test_a_tokenizer_file_that_cannot_be_read_leaves_the_side_unknown(disk, content, words):
    found = facts(disk) if content is None else facts(disk, tokenizer_config__json=content)
    assert words in found["model.padding_side"].reason
    assert found["model.type"] == "glm"


@pytest.mark.parametrize(
    ("names", "formats"),
    [
        (["model-00001-of-00007.safetensors"], ("safetensors",)),
        (["pytorch_model-00001-of-00002.bin", "model.safetensors"], ("bin", "safetensors")),
        (["glm-4-9b-chat.Q4_K_M.gguf"], ("gguf",)),
        (["adapter_model.bin"], ("bin",)),
        (["training_args.bin", "optimizer.bin", "model.safetensors.index.json"], ()),
        ([], ()),
    ],
)
def test_weight_formats_are_told_by_names(disk, names, formats):
    folder = disk.folder()
    for name in names:
        (folder / name).touch()
    assert disk.facts("./model")["model.weight_formats"] == formats


def test_a_snapshot_without_weights_does_not_say_their_format(disk):
    disk.cached()
    assert isinstance(disk.facts("Qwen/Qwen2.5-7B-Instruct")["model.weight_formats"], Unknown)


CODE = """
import torch, math
import torch.nn.functional as F
from transformers.utils.import_utils import is_torch_fx_available
from transformers import *
from .configuration_glm import GlmConfig
from typing import TYPE_CHECKING

try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None

try:
    import yaml
except ValueError:
    pass

if TYPE_CHECKING:
    from transformers.cache_utils import Gone

if is_torch_fx_available():
    import torch.fx
    def traced(x): ...

def split(tensor, parts: int = 2): ...

class GlmTokenizer(Base):
    def _pad(self, encoded_inputs, max_length=None, *, padding_side="left", **kwargs): ...
    async def run(self, a, /, b, *rest): ...
    class Inner:
        def method(self):
            def local(): ...

    def forward(self, past):
        self.stored = past.seen_tokens
        return torch.matmul(past)
"""


def test_methods_imported_names_and_read_attributes_are_listed(disk):
    found = facts(disk, modeling_glm__py=CODE)
    assert found["model.code_methods"] == (
        "GlmTokenizer.Inner.method(self)",
        "GlmTokenizer._pad(self, encoded_inputs, max_length, *, padding_side, **kwargs)",
        "GlmTokenizer.forward(self, past)",
        "GlmTokenizer.run(self, a, /, b, *rest)",
        "split(tensor, parts)",
        "traced(x)",
    )
    assert found["model.code_names"] == (
        ".matmul",
        ".seen_tokens",
        "torch",
        "torch.nn.functional",
        "transformers",
        "transformers.utils.import_utils.is_torch_fx_available",
        "yaml",
    )


def test_all_python_files_count_and_a_model_without_code_has_none(disk):
    found = facts(disk)
    assert found["model.code_methods"] == found["model.code_names"] == ()
    found = facts(disk, a__py="def f(x): ...", b__py="def g(x): ...\ndef f(x): ...")
    assert found["model.code_methods"] == ("f(x)", "g(x)")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("def f(:\n", r"not Python that this interpreter can parse \(line 1\)"),
        ("x = 1\0", "not Python"),
        ("x = " + "-" * 100_000 + "1", "nested too deeply"),
        ("x = a" + ".a" * 300_000, "nested too deeply"),
        ("(" * 100_000, "not Python|nested too deeply"),
        ("# " + "x" * (1 << 20), "larger than|at most 1 MiB"),
    ],
)
def test_one_file_that_cannot_be_parsed_makes_both_unknown(disk, content, words):
    found = facts(disk, a__py="def f(x): ...", b__py=content)
    for key in ("model.code_methods", "model.code_names"):
        assert found[key].reason.startswith("b.py")
        assert re.search(words, found[key].reason)


@pytest.mark.parametrize(
    ("count", "content", "reason"),
    [
        (65, "", "the model has more than 64 Python files"),
        (5, "#" * (1 << 20), "the Python files of the model are larger than 4 MiB together"),
    ],
)
def test_too_much_code_is_a_reason(disk, count, content, reason):
    assert facts(disk, **{f"m{number}__py": content for number in range(count)})["model.code_names"] == Unknown(reason)


def test_nothing_of_the_code_is_run(disk):
    facts(disk, evil__py=f"open({str(disk.cwd / 'ran')!r}, 'w')\nimport evil2\n", evil2__py="1 / 0")
    assert not (disk.cwd / "ran").exists()


def test_what_the_author_would_be_warned_of_is_not_printed(disk):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert facts(disk, a__py="x = '\\d'\nassert (1, 2)\n")["model.code_names"] == ()


@pytest.mark.skipif(os.name == "nt", reason="such names cannot be made on Windows")
def test_a_file_name_with_escape_codes_is_shown_without_them(disk):
    (disk.folder() / "\x1b[31m.py").write_text("def f(:")
    reason = disk.facts("./model")["model.code_names"].reason
    assert reason.isprintable()
    assert "\\x1b[31m.py" in reason


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege on Windows")
def test_a_link_in_a_circle_is_a_reason_and_a_folder_is_no_code(disk):
    folder = disk.folder()
    (folder / "package.py").mkdir()
    assert disk.facts("./model")["model.code_names"] == ()
    (folder / "loop.py").symlink_to("loop.py")
    assert "loop.py cannot be read" in disk.facts("./model")["model.code_names"].reason


def test_conditions_in_conditions_are_read_once_each(disk):
    """Each level was read twice: ninety take longer than the universe has."""
    code = "".join(f"{' ' * n}if flag:\n" for n in range(90)) + f"{' ' * 90}import torch\n"
    code += "".join(f"{' ' * n}else:\n{' ' * n} import numpy\n" for n in range(89, -1, -1))
    assert {"numpy", "torch"} <= set(facts(disk, modeling_glm__py=code)["model.code_names"])


TOO_MUCH = "too deeply|too much|more than"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        pytest.param(
            "class " + "A" * 500_000 + ":\n" + "".join(f"    def f{n}(self): 0\n" for n in range(14_000)),
            TOO_MUCH,
            marks=pytest.mark.slow,
        ),
        ("# coding: punycode\n" + "x-" * 400_000, "not Python|more than"),
        (f"from {'L' * 400_000} import " + ",".join(f"a{n}" for n in range(80_000)) + "\n", TOO_MUCH),
        pytest.param("x = f'" + "{a}" * 340_000 + "'\n", TOO_MUCH, marks=pytest.mark.slow),
    ],
    ids=["long names", "slow encoding", "a long name before many", "fields of a text"],
)
def test_code_that_costs_too_much_is_given_up_in_its_child(disk, code, why):
    assert re.search(why, facts(disk, modeling_glm__py=code)["model.code_names"].reason)


TINY = {"model_type": "tiny", "auto_map": {"AutoModel": "modeling_tiny.TinyModel", "AutoConfig": "org/else--far.C"}}
MODEL = """
from transformers.utils import is_torch_fx_available
from .configuration_tiny import TinyConfig

class TinyModel:
    def forward(self):
        import flash_attn
"""


def uses(disk, **files):
    folder = disk.folder("model", {"config.json": TINY, **{f"{name}.py": text for name, text in files.items()}})
    found = disk.facts(str(folder))["model_use"]
    assert isinstance(found, Records)
    return {(item["module"], item["reach"]): item for item in found}


def test_files_that_an_auto_map_names_and_those_that_they_import(disk):
    found = uses(disk, modeling_tiny=MODEL, configuration_tiny="import peft", convert="import trl", far="import trl")
    assert found.keys() == {("transformers.utils", "start"), ("flash_attn", "call"), ("peft", "start")}
    item = found["transformers.utils", "start"]
    assert item["name"] == "is_torch_fx_available"
    assert [place.rpartition("model/")[2] for place in item["place"]] == ["modeling_tiny.py:2"]


def test_files_in_a_circle_are_read_once(disk):
    found = uses(disk, modeling_tiny="from . import other\n", other="from .modeling_tiny import x\nimport peft\n")
    assert found.keys() == {("peft", "start")}


def test_a_model_without_auto_map_has_none(disk):
    folder = disk.folder("plain", {"config.json": {"model_type": "qwen2"}, "modeling_tiny.py": MODEL})
    assert disk.facts(str(folder))["model_use"] == Records(())


FILES = {
    "transformers/models/auto/configuration_auto.py": 'NAMES = OrderedDict([("t5", "T5Config")])\n',
    "transformers/models/auto/auto_mappings.py": 'NAMES = OrderedDict({"qwen2": "Qwen2Config"})\n',
    "vllm/model_executor/models/registry.py": '_MODELS = {"Qwen2ForCausalLM": ("qwen2", "Qwen2ForCausalLM")}\n',
    "sglang/srt/models/qwen2.py": "class Qwen2ForCausalLM(nn.Module):\n    pass\n\nEntryClass = Qwen2ForCausalLM\n",
}


def listed_in(disk, site: Path, files: dict[str, str], **config):
    write(site, files)
    model = disk.resolve(str(disk.folder("model", {"config.json": config})))
    found = gather(Request(environ={}, model=model, layout=a_layout(site)), ["model"])
    return [found.value(f"model.registered{end}") for end in ("", "_vllm", "_sglang")]


@pytest.mark.parametrize(("kind", "architecture", "listed"), CASES["lists_name"])
def test_what_the_lists_name(disk, tmp_path, kind, architecture, listed):
    assert listed_in(disk, tmp_path / "site", FILES, model_type=kind, architectures=[architecture]) == listed


def test_without_a_list_or_a_type_it_is_unknown(disk, tmp_path):
    found = listed_in(disk, tmp_path / "site", {}, model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    found += listed_in(disk, tmp_path / "other", FILES)
    assert all(isinstance(value, Unknown) for value in found)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not JSON: line 1, column 1: "),
        (b'{"a": 1,\n 2}', "is not JSON: line 2, column 2"),
        (b"<html>", "is not JSON"),
        (b"[]", "is not a JSON object but a list"),
        (b"null", "is not a JSON object but null"),
        (b"\xff\xfe{", "is not UTF-8 text: byte 0"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "is nested more than 60 levels deep"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "holds a number that is too long to read"),
    ],
)
def test_what_is_no_object_is_refused_with_the_place(content: bytes, why: str) -> None:
    with pytest.raises(JsonProblem, match="^" + why):
        parse_object(content)


def test_keys_that_are_given_twice_are_told_and_the_last_one_counts() -> None:
    found = parse_object(b'\xef\xbb\xbf{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}')
    assert found.data == {"a": 3, "b": {"c": 2}}
    assert sorted(found.repeated) == ["a", "c"]


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(content: bytes) -> None:
    try:
        assert isinstance(parse_object(content).data, dict)
    except JsonProblem as problem:
        assert str(problem).isprintable()


def test_keys_are_not_written_flat_when_that_takes_more_than_the_file() -> None:
    content = json.dumps({"p" * (1 << 20): {str(number): 1 for number in range(100)}}).encode()
    with pytest.raises(JsonProblem, match="keys that are too long"):
        parse_object(content)


REPO = "Qwen/Qwen2.5-7B-Instruct"


@pytest.mark.parametrize("model", ["./model", REPO, "some/thing"])
def test_every_fact_is_registered_and_of_its_type_and_observed_once(disk, model):
    disk.folder()
    disk.cached()
    facts = disk.observe(model)
    assert_registered(facts, "model")
    assert all(fact.origin for fact in facts)
    assert sorted(fact.key for fact in facts) == sorted(key for module in observers("model") for key in module.keys)


def test_nothing_is_written_and_no_client_is_imported(disk):
    disk.cached()
    script = (
        "import sys\n"
        "from envdoctor.observe import Request, resolve\n"
        "from envdoctor.observe.gather import gather\n"
        f"model = resolve({REPO!r}, cwd={str(disk.cwd)!r}, environ={disk.environ!r})\n"
        "gather(Request(environ={}, model=model), ['model'])\n"
        "print(sorted({'huggingface_hub', 'transformers', 'torch', 'socket', 'ast'} & set(sys.modules)))\n"
    )
    before = sorted(disk.home.rglob("*"))
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"
    assert sorted(disk.home.rglob("*")) == before
