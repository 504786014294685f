"""The tokenizer's file, the weights' names and the repository's own code."""

import os
import re
import warnings

import pytest

from envdoctor.facts import ABSENT, Unknown

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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "holds no tokenizer_config.json"),
        ("{", "tokenizer_config.json of the model is not JSON: line 1"),
        ("[]", "not a JSON object"),
        ({"padding_side": "up"}, "neither left nor right"),
        ({"padding_side": ["left"]}, "neither left nor right"),
    ],
)
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
