"""pyproject.toml: the project's dependencies as a list to be installed."""

import pytest
from locking import opened

from envdoctor.observe import LockError

PROJECT = """[project]
name = "mine"
dependencies = [
    "torch==2.5.1",
    "transformers>=4.40,<4.50",
]
[project.optional-dependencies]
gpu = ["bitsandbytes==0.45.0", "mine[more]"]
serve = ["vllm==0.8.5; python_version < '3.13'", "Mine[All]"]
all = ["mine [gpu, serve]; sys_platform == 'linux'"]
[dependency-groups]
dev = ["peft==0.14.0", {include-group = "more"}]
more = ["trl==0.9.6"]
"""


@pytest.fixture
def read(tmp_path):
    def write(text, chosen="", **target):
        (tmp_path / "pyproject.toml").write_text(text)
        return opened(f"pyproject.toml{chosen}", tmp_path, **{"python": "3.11", **target})

    return write


def test_dependencies_are_lines_of_a_list(read):
    found = read(PROJECT)
    assert found.version("torch") == "2.5.1" and found.facts.get("pkg.torch").origin == "pyproject.toml:4"
    assert found.version("transformers") == "4.49.0"
    assert found.notes == ("extras and groups that nobody chose are left out: dev, more, gpu, serve, all",)


def test_extras_and_groups_are_chosen(read):
    assert read(PROJECT, "[gpu]").version("bitsandbytes") == "0.45.0"
    found = read(PROJECT, "[dev]")
    assert found.version("peft") == "0.14.0" and found.version("trl") == "0.9.6"


@pytest.mark.parametrize(
    ("said", "taken", "left"),
    [
        ('default-groups = ["dev"]', {"peft", "trl"}, "gpu, serve, all"),
        ('default-groups = "all"', {"peft", "trl"}, "gpu, serve, all"),
        ('default-groups = ["more", "gone"]', {"trl"}, "dev, gpu, serve, all"),
        ("default-groups = []", set(), "dev, more, gpu, serve, all"),
        ("default-groups = 3", set(), "dev, more, gpu, serve, all"),
    ],
)
def test_the_groups_are_taken_that_uv_takes_by_itself(read, said, taken, left):
    found = read(f"{PROJECT}[tool.uv]\n{said}\n")
    assert {name for name in ("peft", "trl", "vllm") if found.facts.known(f"pkg.{name}")} == taken
    assert found.notes == (f"extras and groups that nobody chose are left out: {left}",)
    assert read(f"{PROJECT}[tool.uv]\n{said}\n", "[gpu]").version("bitsandbytes") == "0.45.0"


def test_an_extra_that_names_the_project_brings_its_other_extras(read):
    """As pip and uv follow it; torch of such a list was not known, without a word."""
    found = read(PROJECT, "[all]")
    assert found.version("bitsandbytes") == "0.45.0" and found.version("vllm") == "0.8.5"
    assert found.notes[0] == "extras and groups that nobody chose are left out: dev, more"
    elsewhere = read(PROJECT, "[all]", platform="windows-x86_64").facts
    assert not elsewhere.known("pkg.bitsandbytes") and not elsewhere.known("pkg.vllm")
    assert not read(PROJECT, "[all]", python="3.13").facts.known("pkg.vllm")


@pytest.mark.parametrize(
    "tool",
    [
        "setuptools.dynamic]\ndependencies = { file = ['base.txt'] }\n",
        "hatch.metadata.hooks.requirements_txt]\nfiles = ['base.txt']\n",
        "hatch.metadata.hooks.requirements_txt]\nfilename = 'base.txt'\n",
    ],
)
def test_what_a_build_computes_is_said_unless_a_file_has_it(read, tmp_path, tool):
    dynamic = PROJECT.replace(
        'dependencies = [\n    "torch==2.5.1",\n    "transformers>=4.40,<4.50",\n]', 'dynamic = ["dependencies"]'
    )
    assert "is computed in the build (dynamic)" in read(dynamic, "[gpu]").notes[0]
    with pytest.raises(LockError, match=r"computed in the build .* `uv pip compile pyproject.toml"):
        read(dynamic)
    (tmp_path / "base.txt").write_text("torch==2.6.0\n")
    listed = read(f"{dynamic}[tool.{tool}")
    assert listed.version("torch") == "2.6.0" and "dynamic" not in listed.notes[0]


def test_what_uv_is_told_counts(read):
    more = """[tool.uv]
constraint-dependencies = ["numpy<2"]
override-dependencies = ["sympy==1.12"]
[tool.uv.sources]
torch = { git = "https://github.com/pytorch/pytorch" }
"""
    found = read(PROJECT + more)
    assert found.version("numpy") == "1.26.4" and found.reason("torch").endswith("from a repository or a folder")
    assert found.facts.value("refused").items == ()


INDEXES = """[tool.uv.sources]
torch = [
  { index = "cpu", marker = "sys_platform != 'linux'" },
  { index = "cu128", marker = "sys_platform == 'linux'" },
]
[[tool.uv.index]]
name = "cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
[[tool.uv.index]]
name = "cu128"
url = "https://download.pytorch.org/whl/cu128"
explicit = true
"""


@pytest.mark.parametrize(
    ("change", "build"),
    [
        (("", ""), "2.7.1+cu128"),
        (("!= 'linux'", "== 'linux'"), "2.7.1+cpu"),
        (("marker = \"sys_platform == 'linux'\"", 'extra = "gpu"'), "2.7.1"),
        (("torch = [", "numpy = ["), "2.7.1"),
    ],
)
def test_an_explicit_index_serves_what_names_it_here(read, change, build):
    """As uv's guide for PyTorch has it; the list was torch for the CPU on every machine."""
    text = PROJECT.replace("2.5.1", "2.7.1") + INDEXES.replace(*change)
    assert read(text, platform="linux-x86_64").version("torch") == build


def test_the_one_index_of_a_package_bounds_it(read):
    """Where no system is given it is Linux's; torch 2.15.0+cpu was taken, and an error for every GPU."""
    text = PROJECT.replace("torch==2.5.1", "torch>=2.4") + INDEXES.replace("cu128", "cu121")
    assert read(text).version("torch") == "2.5.1+cu121"
    first = (
        text.partition("[tool.uv.sources]")[0] + '[[tool.uv.index]]\nurl = "https://download.pytorch.org/whl/cu124"\n'
    )
    assert read(first).version("torch") == "2.6.0+cu124"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (PROJECT.replace("[project]", '[project]\nrequires-python = ">=3.12"'), True),
        (PROJECT.replace("[project]", '[project]\nrequires-python = ">=3.11"'), False),
        (PROJECT.replace("[project]", '[project]\nrequires-python = "soon"'), False),
        ('[tool.poetry.dependencies]\npython = "^3.12"\ntorch = "2.5.1"\n', True),
        ('[tool.poetry.dependencies]\npython = ">=3.9,<3.13"\ntorch = "2.5.1"\n', False),
    ],
)
def test_a_project_for_another_python_is_refused(read, text, refused):
    """As pip refuses it; the list was judged without a word."""
    (*items,) = read(text).facts.value("refused").items
    assert [(item["kind"], item["lacks"]) for item in items] == [("python", "Python 3.11")] * refused


def test_poetry_has_words_of_its_own(read):
    text = """[tool.poetry.dependencies]
python = "^3.10"
torch = "2.5.1"
transformers = {version = "^4.40", extras = ["sentencepiece"]}
peft = "~0.12"
trl = {git = "https://github.com/huggingface/trl"}
"""
    found = read(text)
    assert found.version("torch") == "2.5.1" and found.version("transformers").startswith("4.57")
    assert found.version("peft").startswith("0.12.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[project]\nname = 'x'\n", "names no package that is installed with the project"),
        ("[project\n", "pyproject.toml: is"),
        ("[project]\ndependencies = 3\n[tool]\nuv = 3\n", "names no package"),
    ],
)
def test_what_is_no_list_is_said(read, text, said):
    with pytest.raises(LockError, match=said):
        read(text)


def test_names_of_indexes_that_are_no_text_name_none(read):
    more = '[tool.uv.sources]\ntorch = { index = ["a"] }\n[[tool.uv.index]]\nname = ["a"]\nexplicit = true\n'
    assert read(PROJECT + more).version("torch") == "2.5.1"


@pytest.mark.parametrize(
    ("chosen", "said"),
    [("train", None), ("dev", None), ("nope", "no extra or group 'nope': dev, train"), ("whole", None)],
)
def test_an_extra_that_does_not_exist_is_refused_with_those_that_do(tmp_path, chosen, said):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["torch==2.6.0"]\n'
        '[project.optional-dependencies]\ntrain = ["peft==0.15.2"]\n[dependency-groups]\ndev = ["pytest"]\n'
    )
    if said is None:
        assert opened(f"pyproject.toml[{chosen}]", tmp_path).version("torch") == "2.6.0"
    else:
        with pytest.raises(LockError, match=said):
            opened(f"pyproject.toml[{chosen}]", tmp_path)
