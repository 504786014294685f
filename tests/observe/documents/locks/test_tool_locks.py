"""Locks that tools write: what each would install for the target, with the line of each version."""

from __future__ import annotations

import json

import pytest
from locking import LOCKS, opened

from envdoctor.facts.values import ABSENT, NOT_GIVEN, Unknown
from envdoctor.observe.documents.locks.lock import LockError

#: File, package, its version, and how the line that is pointed at begins.
REAL = [
    ("h2o.requirements.txt", "transformers", "4.56.1", "transformers==4.56.1"),
    ("open-instruct.uv.lock", "vllm", "0.19.1", 'version = "0.19.1"'),
    ("georgian.poetry.lock", "sentencepiece", "0.1.99", 'version = "0.1.99"'),
    ("swindoc.pdm.lock", "torchvision", "0.16.2", 'version = "0.16.2"'),
    ("opendatahub.pylock.toml", "torch", "2.11.0", 'version = "2.11.0"'),
    ("training-hub.Pipfile.lock", "torch", "2.10.0", '        "torch": {'),
]
UV = """version = 1
requires-python = ">=3.10"

[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "torch", marker = "sys_platform == 'linux'" },
    { name = "peft", extra = ["fast"] },
]

[package.optional-dependencies]
gpu = [{ name = "flash-attn" }]

[[package]]
name = "torch"
version = "2.6.0"

[[package]]
name = "peft"
version = "0.15.0"

[package.optional-dependencies]
fast = [{ name = "numpy" }]

[[package]]
name = "numpy"
version = "2.2.0"

[[package]]
name = "flash-attn"
version = "2.7.4"
"""


@pytest.fixture
def write(tmp_path):
    def write(name, text, given=None, **target):
        (tmp_path / name).write_text(text)
        return opened(given or name, tmp_path, **target)

    return write


@pytest.mark.parametrize(("file", "package", "version", "line"), REAL)
def test_a_real_lock_gives_versions_with_their_lines(file, package, version, line):
    found = opened(file)
    assert found.version(package) == version
    assert (LOCKS / file).read_text().splitlines()[found.place(package) - 1].startswith(line)


@pytest.mark.parametrize("file", [file for file, *_ in REAL])
def test_what_a_lock_does_not_name_is_not_installed(file):
    assert opened(file).version("sglang") == ABSENT


def test_of_the_builds_in_a_lock_of_uv_the_one_of_the_chosen_group_counts():
    assert opened("open-instruct.uv.lock").version("torch") == "2.10.0"
    found = opened("open-instruct.uv.lock[cuda12]")
    assert found.version("torch") == "2.10.0+cu128" and found.version("flash-attn") == "2.8.3+cu128torch2.10"
    (extension,) = [item for item in found.facts.value("extension") if item["package"] == "flash-attn"]
    assert (extension["built_torch"], extension["python_tag"]) == ("2.10", "cp312")


def test_the_python_of_a_lock_decides_its_markers_where_none_is_stated():
    found = opened("open-instruct.uv.lock", python="")
    assert found.facts.value("python.minor") == "3.12" and found.version("torch") == "2.10.0"


def test_an_override_of_uv_counts_for_nobody():
    requires = opened("open-instruct.uv.lock").requires("vllm")
    assert isinstance(requires, tuple) and not any(line.startswith("transformers") for line in requires)


def test_a_lock_of_uv_is_walked_from_the_project(write):
    found = write("uv.lock", UV)
    assert [found.version(name) for name in ("torch", "peft", "numpy")] == ["2.6.0", "0.15.0", "2.2.0"]
    assert found.version("flash-attn") == ABSENT
    assert found.notes == ("extras and groups that nobody chose are left out: gpu; --lock 'uv.lock[gpu]' takes one",)
    assert write("uv.lock", UV, "uv.lock[gpu]").version("flash-attn") == "2.7.4"
    assert write("uv.lock", UV, platform="windows-x86_64").version("torch") == ABSENT
    assert isinstance(write("uv.lock", UV, python="", platform="").version("torch"), Unknown)


def test_poetry_writes_requirements_that_count(write):
    text = """[[package]]
name = "trl"
version = "0.9.6"
optional = false
python-versions = ">=3.8"

[package.dependencies]
torch = ">=1.4.0"
numpy = {version = ">=1.18.2,<2.0.0", markers = "python_version < \\"3.13\\""}
pin = "1.2"
any = "*"
extra = {version = "*", optional = true}

[[package]]
name = "vllm"
version = "0.5.4"
optional = true

[extras]
serve = ["vllm"]
"""
    found = write("poetry.lock", text)
    wanted = ("torch>=1.4.0", 'numpy>=1.18.2,<2.0.0 ; python_version < "3.13"', "pin==1.2", "any")
    assert found.requires("trl") == wanted and found.version("vllm") == ABSENT
    assert found.notes == ("extras and groups that nobody chose are left out: serve",)
    assert write("poetry.lock", text, "poetry.lock[serve]").version("vllm") == "0.5.4"


def test_a_marker_of_poetry_and_of_pylock_decides(write):
    text = '[[package]]\nname = "{}"\nversion = "1"\ngroups = ["main"]\nmarkers = {}\n'
    by_group = text.format("colorama", '{ main = "sys_platform == \\"win32\\"" }')
    assert write("poetry.lock", by_group).version("colorama") == ABSENT
    extra = 'lock-version = "1.0"\n[[packages]]\nname = "vllm"\nversion = "0.9"\nmarker = "\'gpu\' in extras"\n'
    assert write("pylock.toml", extra).version("vllm") == ABSENT
    assert write("pylock.toml", extra, "pylock.toml[gpu]").version("vllm") == "0.9"


def test_a_wheel_that_was_built_again_may_require_anything():
    assert isinstance(opened("opendatahub.pylock.toml").requires("torch"), Unknown)


def test_other_categories_of_pipenv_are_chosen_by_name(write):
    entry = {"version": "==1.0"}
    text = json.dumps({"default": {"a": entry}, "develop": {"b": {"file": "https://x.example/b-2-py3-none-any.whl"}}})
    assert write("Pipfile.lock", text).version("b") == ABSENT
    assert write("Pipfile.lock", text, "Pipfile.lock[develop]").version("b") == "2"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("uv.lock", "version = 2\n[[package]]\nname = 'a'\n", "is no uv.lock of version 1, the only one that is known"),
        ("uv.lock", "x = [", "is not TOML: Invalid value (at end of document)"),
        ("uv.lock", "x = " + "[" * 100_000, "is nested too deeply to be read"),
        ("uv.lock", "version = 1\n[[package]]\nname = '../x'\nversion = '1'\n", "names a package that is none: '../x'"),
        ("poetry.lock", ".".join("a" * 5000) + " = 1", "a key has 200 parts or more"),
        ("poetry.lock", "package = 1", "holds no [[package]]"),
        ("Pipfile.lock", "[" * 100_000, "is nested too deeply, or too large, to be read"),
        ("Pipfile.lock", "[]", 'holds no packages below "default"'),
        ("pdm.lock", "[[package]]\nname = 'a'\n" * 20_001, "names more than 20,000 packages"),
    ],
)
def test_a_hostile_lock_is_one_sentence(write, name, text, problem):
    with pytest.raises(LockError) as error:
        write(name, text)
    assert str(error.value).startswith(f"--lock {name}: {problem}")


def test_packages_that_depend_on_each_other_in_a_circle_end(write):
    text = UV.replace('version = "2.6.0"', 'version = "2.6.0"\ndependencies = [{ name = "app" }, { name = "torch" }]')
    assert write("uv.lock", text).version("torch") == "2.6.0"


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(LockError, match=r"--lock uv\.lock: cannot be read: No such file or directory"):
        opened("uv.lock", tmp_path)
    assert opened("h2o.requirements.txt").version("nothing") == ABSENT != NOT_GIVEN
