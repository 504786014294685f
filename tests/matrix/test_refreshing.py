"""The tables that tools write: the tools give what the tables say, by what the package index has."""

import io
from zipfile import ZipFile

import pytest
import refresh_frameworks as frameworks
import refresh_torch_wheels
import refresh_transformers as transformers
from package_index import Index

from envdoctor.facts import Unknown
from envdoctor.matrix import KnownNames, Matrix, parse_toml, transformers_types

CONFIGURATION = """
from collections import OrderedDict
CONFIG_MAPPING_NAMES = OrderedDict([("albert", "AlbertConfig"), ("bert", "BertConfig")])
CONFIG_MAPPING_NAMES.update({"glm": "GlmConfig"})
OTHERS = OrderedDict([("nothing", "X")])
"""


def test_model_types_are_the_keys_of_the_mapping():
    wheel = ZipFile(io.BytesIO(), "w")
    wheel.writestr("transformers/auto.py", CONFIGURATION)
    tree = transformers.tree(wheel, "transformers.auto")
    assert set(transformers.registered(tree)) == {"albert", "bert", "glm"}


def test_spans_of_types_are_those_of_the_releases():
    found = {"4.56.0": {"t5"}, "4.56.2": {"t5", "glm"}, "4.57.6": {"t5", "glm"}, "5.0.0": {"glm"}}
    types = parse_toml(transformers.spans(found).encode(), "")
    assert types == {"since": {"4.56.0": ["t5"], "4.56.2": ["glm"]}, "until": {"5.0.0": ["t5"]}}
    gone_and_back = {"1": {"a", "b"}, "2": {"b"}, "3": {"a", "b"}, "4": {"a"}}
    assert parse_toml(transformers.spans(gone_and_back, "x.").encode(), "") == {
        "x": {"since": {"1": ["a", "b"]}, "until": {"4": ["b"]}}
    }


REGISTRY = """
_MODELS = {"GlmForCausalLM": ("glm", "GlmForCausalLM"), "Qwen3ForCausalLM": ("qwen3", "Qwen3ForCausalLM")}
_OLD = {"LlamaForCausalLM": LlamaForCausalLM, "m": ("a", "b"), "GoneForCausalLM": "0.9.2"}
"""


def test_families_are_known_from_the_release_that_names_one_of_their_models(matrix: Matrix):
    assert set(frameworks.registered(REGISTRY)) == {"GlmForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM"}
    module = "class A: ...\nEntryClass = [\n  A,  # the first\n  B,\n]\n"
    assert list(frameworks.entry_classes(module)) == ["A", "B"]
    assert list(frameworks.downloads('{DownloadSource.DEFAULT: "THUDM/glm-4-9b"}')) == ["THUDM/glm-4-9b"]
    assert list(frameworks.mapped('"a/b-1": (\nclass FastModel(X):\n')) == ["a/b-1", "FastModel"]
    assert frameworks.family_of("THUDM/glm-4-9b", matrix) == {"glm4"}
    by_architecture = frameworks.families_of(matrix, {"llama": {"LlamaForCausalLM"}})
    assert {"llama3", "yi"} <= by_architecture["LlamaForCausalLM"] and "glm4" in by_architecture["GlmForCausalLM"]


@pytest.mark.parametrize(
    ("framework", "family", "installed", "asked", "answered"),
    [
        ("vllm", "qwen3", "0.6.2", "vllm>=0.8.4", False),
        ("vllm", "qwen3", "0.8.2", None, False),  # it may run it with transformers' class
        ("vllm", "qwen3", "0.8.5.post1", "vllm>=0.8.4", True),
        ("llamafactory", "chatglm2", "0.9.5", "llamafactory<0.9.5", False),
        ("sglang", "qwen2", "0.1.3", "sglang", None),  # before the first release that was read
    ],
)
def test_what_a_family_asks_of_a_framework(matrix, framework, family, installed, asked, answered):
    known = KnownNames(matrix.part("framework-models", framework))
    releases, answer = known.required(family, installed), known.has(family, installed)
    assert (None if releases is None else framework + releases) == asked
    assert (None if isinstance(answer, Unknown) else answer) is answered


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.46.3", "5.23.0"])
def test_the_table_of_transformers_is_what_its_wheels_have(matrix: Matrix, version: str):
    types = transformers_types(matrix)
    kinds = {kind for listed in matrix.part("transformers-model-types", "since").values() for kind in listed}
    assert transformers.read(Index(), version) == {kind for kind in kinds if types.has(kind, version) is True}


WORKFLOW = """
jobs: {build_wheels: {strategy: {matrix: {
  os: [ubuntu-22.04, ubuntu-22.04-arm], python-version: ["3.9", "3.10"], cuda-version: ["12.9.1", "13.0.1"],
  torch-version: ["2.9.1", "2.10.0.dev20260101"], cxx11_abi: ["FALSE", "TRUE"], exclude: [
    {torch-version: "2.9.1", cuda-version: "13.0.1"}, {torch-version: "2.10.0.dev20260101", python-version: "3.9"},
    {torch-version: "2.9.1", os: ubuntu-22.04-arm}]}}}}
"""


def test_wheels_are_the_matrix_of_the_workflow_without_what_it_excludes():
    found = refresh_torch_wheels.builds(WORKFLOW)
    assert found is not None
    assert list(refresh_torch_wheels.grouped(found)) == [
        '{ torch = "2.9", cuda = ["12"], python = ["3.9", "3.10"], machine = ["x86_64"] }',
        '{ torch = "2.10", cuda = ["12", "13"], python = ["3.10"], machine = ["x86_64", "aarch64"] }',
    ]
    assert refresh_torch_wheels.builds("jobs: {wheel: {strategy: {matrix: {os: [x]}}}}") is None
