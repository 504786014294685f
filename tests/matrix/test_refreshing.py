"""The tables that tools write: the tools give what the tables say, by what the package index has."""

import io
import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest
import refresh_frameworks as frameworks
import refresh_releases
import refresh_torch_wheels
import refresh_transformers as transformers
from package_index import Index
from packaging.version import Version
from pip._internal.models.link import Link

from envdoctor.facts import Unknown
from envdoctor.matrix import Matrix, ModelTypes, asked_release, knows, load_toml, parse_toml

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
    types = parse_toml(transformers.model_types(found, ["chatglm"]).encode(), "")
    assert types["since"] == {"4.56.0": ["t5"], "4.56.2": ["glm"]}
    assert types["until"] == {"5.0.0": ["t5"]} and types["never"] == {"names": ["chatglm"]}


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
    found = {"1.0": {"a"}, "1.1": {"a", "b"}, "1.2": {"b"}, "1.3": {"b"}}
    table = parse_toml(frameworks.part("vllm", found, "1.1").encode(), "")["vllm"]
    assert table == {"fallback": "1.1", "since": {"1.0": ["a"], "1.1": ["b"]}, "until": {"1.2": ["a"]}}


@pytest.mark.parametrize(
    ("framework", "family", "installed", "asked", "known"),
    [
        ("vllm", "qwen3", "0.6.2", "vllm>=0.8.4", False),
        ("vllm", "qwen3", "0.8.2", None, False),  # it may run it with transformers' class
        ("vllm", "qwen3", "0.8.5.post1", "vllm>=0.8.4", True),
        ("llamafactory", "chatglm2", "0.9.5", "llamafactory<0.9.5", False),
        ("sglang", "qwen2", "0.1.3", "sglang", None),  # before the first release that was read
    ],
)
def test_what_a_family_asks_of_a_framework(matrix, framework, family, installed, asked, known):
    assert asked_release(matrix, framework, family, installed) == asked
    answer = knows(matrix, framework, family, installed)
    assert (None if isinstance(answer, Unknown) else answer) is known


def test_releases_are_those_that_were_not_withdrawn():
    names = ("a-2.0rc1-py3-none-any.whl", "a-1.9.tar.gz", "a-1.10-py3-none-any.whl", "a-1.8.zip", "a-1.7.exe")
    files = [Link(f"https://a.b/{name}") for name in names]
    files.append(Link("https://a.b/a-1.11.tar.gz", yanked_reason="broken"))
    found = refresh_releases.released(files)
    assert [str(version) for version in found] == ["1.8", "1.9", "1.10", "2.0rc1"]
    chosen = refresh_releases.chosen(found, Version("1.9"))
    assert parse_toml(refresh_releases.body({"a": chosen}).encode(), "") == {"releases": {"a": ["1.9", "1.10"]}}


@pytest.mark.slow
def test_the_table_of_releases_is_what_the_index_has(tmp_path: Path):
    copy = Path(shutil.copy(refresh_releases.TABLE, tmp_path))
    refresh_releases.main(copy)
    before, now = load_toml(refresh_releases.TABLE)["releases"], load_toml(copy)["releases"]
    assert list(before) == list(now)
    for name, versions in before.items():  # some may have been released or withdrawn since
        few = 3 + len(versions) // 5
        assert len(set(versions) - set(now[name])) <= few, name
        newest = Version(versions[-1])
        assert len({version for version in now[name] if Version(version) < newest} - set(versions)) <= few, name


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.46.3", "5.23.0"])
def test_the_table_of_transformers_is_what_its_wheels_have(matrix: Matrix, version: str):
    types = ModelTypes(matrix)
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
