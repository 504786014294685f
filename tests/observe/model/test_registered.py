"""Whether the installed transformers, vLLM and SGLang list a model, by their own files."""

from pathlib import Path

import pytest
from observing import a_layout, write

from envdoctor.facts import Unknown
from envdoctor.observe import Request
from envdoctor.observe.gather import gather

FILES = {
    "transformers/models/auto/configuration_auto.py": 'NAMES = OrderedDict([("t5", "T5Config")])\n',
    "transformers/models/auto/auto_mappings.py": 'NAMES = OrderedDict({"qwen2": "Qwen2Config"})\n',
    "vllm/model_executor/models/registry.py": '_MODELS = {"Qwen2ForCausalLM": ("qwen2", "Qwen2ForCausalLM")}\n',
    "sglang/srt/models/qwen2.py": "class Qwen2ForCausalLM(nn.Module):\n    pass\n\nEntryClass = Qwen2ForCausalLM\n",
}


def facts(disk, site: Path, files: dict[str, str], **config):
    write(site, files)
    model = disk.resolve(str(disk.folder("model", {"config.json": config})))
    found = gather(Request(environ={}, model=model, layout=a_layout(site)), ["model"])
    return [found.value(f"model.registered{end}") for end in ("", "_vllm", "_sglang")]


@pytest.mark.parametrize(
    ("kind", "architecture", "listed"),
    [
        ("qwen2", "Qwen2ForCausalLM", [True, True, True]),
        ("t5", "Qwen2ForCausal", [True, False, False]),
        ("qwen", "QwenForCausalLM", [False, False, False]),
        ("qwen.", "Qwen2ForCausalL.", [False, False, False]),
    ],
)
def test_what_the_lists_name(disk, tmp_path, kind, architecture, listed):
    assert facts(disk, tmp_path / "site", FILES, model_type=kind, architectures=[architecture]) == listed


def test_without_a_list_or_a_type_it_is_unknown(disk, tmp_path):
    found = facts(disk, tmp_path / "site", {}, model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    found += facts(disk, tmp_path / "other", FILES)
    assert all(isinstance(value, Unknown) for value in found)
