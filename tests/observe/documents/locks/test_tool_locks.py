"""Locks that tools write, and bills of materials: what each would install for the target, with each version's line."""

import json

import pytest
from locking import LOCKS, opened
from tables import cases

from envdoctor.facts import ABSENT, NOT_GIVEN, Unknown
from envdoctor.observe import LockError

CASES = cases("tool-locks.toml")

CONDA, PYPI = "https://conda.anaconda.org", "      - pypi: https://index.example"
#: File, package, its version, and how the line that is pointed at begins.
REAL = [
    ("h2o.requirements.txt[whole]", "transformers", "4.56.1", "transformers==4.56.1"),
    ("open-instruct.uv.lock", "vllm", "0.19.1", 'version = "0.19.1"'),
    ("georgian.poetry.lock", "sentencepiece", "0.1.99", 'version = "0.1.99"'),
    ("swindoc.pdm.lock", "torchvision", "0.16.2", 'version = "0.16.2"'),
    ("opendatahub.pylock.toml", "torch", "2.11.0", 'version = "2.11.0"'),
    ("simpo.environment.yml", "tokenizers", "0.15.2", "      - tokenizers==0.15.2"),
    ("sagemaker.gpu.env.out", "torch", "2.8.0", f"{CONDA}/conda-forge/linux-64/pytorch-2.8.0-cuda129"),
    ("cosmos-curator.pixi.lock[cluster]", "huggingface-hub", "1.21.0", f"{PYPI}/huggingface_hub-1"),
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
    assert (LOCKS / file.partition("[")[0]).read_text().splitlines()[found.place(package) - 1].startswith(line)
    assert found.version("sglang") == ABSENT  # what it does not name is not installed


def test_what_environments_begin_with_may_be_there_and_a_wheel_that_was_built_again_may_require_anything():
    assert isinstance(opened("open-instruct.uv.lock").version("pip"), Unknown)
    assert isinstance(opened("opendatahub.pylock.toml").requires("torch"), Unknown)


@pytest.mark.parametrize(
    ("said", "groups"),
    [
        ('default-groups = ["train"]', {"numpy"}),
        ('default-groups = "all"', {"numpy", "ruff"}),
        ("default-groups = []", set()),
        ("package = false", {"ruff"}),
        ("default-groups = [", {"ruff"}),
    ],
)
def test_of_a_lock_of_uv_the_groups_are_taken_that_uv_takes_by_itself(tmp_path, write, said, groups):
    packages = ("p", "tqdm", "numpy", "ruff", "torch")
    listed = "".join(f'\n[[package]]\nname = "{name}"\nversion = "1"\n' for name in packages[1:])
    own = 'name = "p"\nsource = { virtual = "." }\ndependencies = [{ name = "tqdm" }]\n'
    own += '[package.optional-dependencies]\ngpu = [{ name = "torch" }]\n'
    own += '[package.dev-dependencies]\ntrain = [{ name = "numpy" }]\ndev = [{ name = "ruff" }]\n'
    (tmp_path / "pyproject.toml").write_text(f"[tool.uv]\n{said}\n")
    found = write("uv.lock", f"version = 1\n\n[[package]]\n{own}{listed}")
    assert {name for name in packages if found.version(name) == "1"} == {"tqdm", *groups}


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
    assert write("uv.lock", UV, python="", platform="").version("torch") == "2.6.0"  # as on Linux, which is said


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


@pytest.mark.parametrize(("groups", "markers", "chosen", "version"), CASES["marker_poetry_counts"])
def test_a_marker_of_poetry_counts_for_its_group(write, groups, markers, chosen, version):
    markers = markers.replace("WIN", "\"sys_platform == 'win32'\"")
    text = f'[[package]]\nname = "colorama"\nversion = "1"\ngroups = [{groups}]\nmarkers = {{{markers}}}\n'
    assert write("poetry.lock", text, f"poetry.lock{chosen}").version("colorama") == version


EMPTY = """
[package.metadata]
provides-extras = ["gpu", "cpu", "flash-attn"]

[package.metadata.requires-dev]
empty = []

[[package]]
name = "torch"
"""


@pytest.mark.parametrize("chosen", ["cpu", "empty", "CPU"])
def test_an_extra_or_group_of_uv_that_is_empty_can_be_chosen(write, chosen):
    text = UV.replace('\n[[package]]\nname = "torch"\n', EMPTY, 1)
    found = write("uv.lock", text, f"uv.lock[{chosen}]")
    assert (found.version("torch"), found.version("flash-attn")) == ("2.6.0", ABSENT)


OF_POETRY = """[[package]]
name = "torch"
version = "2.4.1"
groups = ["main"]

[[package]]
name = "ruff"
version = "0.1"
groups = ["Code_Style"]

[[package]]
name = "flash-attn"
version = "2.7.4"
optional = true
groups = ["main"]
markers = "extra == \\"flash-attn\\""

[extras]
flash-attn = ["flash-attn"]
"""
OF_UV = UV.replace("gpu =", "flash-attn =")
OF_PDM = """[metadata]
groups = ["default", "flash-attn"]

[[package]]
name = "flash-attn"
version = "2.7.4"
groups = ["flash-attn"]
"""


@pytest.mark.parametrize(
    ("name", "text", "chosen", "package", "version"),
    [
        ("uv.lock", OF_UV, "flash_attn", "flash-attn", "2.7.4"),
        ("poetry.lock", OF_POETRY, "Flash_Attn", "flash-attn", "2.7.4"),
        ("poetry.lock", OF_POETRY, "code-style", "ruff", "0.1"),
        ("pdm.lock", OF_PDM, "flash.attn", "flash-attn", "2.7.4"),
    ],
)
def test_an_extra_is_taken_however_its_name_is_spelled(write, name, text, chosen, package, version):
    assert write(name, text, f"{name}[{chosen}]").version(package) == version


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("poetry.lock", OF_POETRY, "has no extra or group 'nope': Code_Style, flash-attn, main"),
        ("pdm.lock", OF_PDM, "has no extra or group 'nope': default, flash-attn"),
        ("requirements.txt", "torch==2.4.1\n", "has no extra or group 'nope': it has none"),
    ],
)
def test_an_extra_or_group_that_is_not_there_is_refused(write, name, text, said):
    with pytest.raises(LockError, match=said):
        write(name, text, f"{name}[nope]")


def test_a_lock_of_poetry_that_tells_no_groups_refuses_none(write):
    text = '[[package]]\nname = "torch"\nversion = "2.4.1"\noptional = false\n'
    assert write("poetry.lock", text, "poetry.lock[docs]").version("torch") == "2.4.1"


def test_a_marker_of_pylock_decides(write):
    extra = 'lock-version = "1.0"\n[[packages]]\nname = "vllm"\nversion = "0.9"\nmarker = "\'gpu\' in extras"\n'
    assert write("pylock.toml", extra).version("vllm") == ABSENT
    assert write("pylock.toml", extra, "pylock.toml[gpu]").version("vllm") == "0.9"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("uv.lock", "version = 2\n[[package]]\nname = 'a'\n", "is no uv.lock of version 1, the only one that is known"),
        ("uv.lock", "x = [", "is not TOML: "),
        ("uv.lock", "x = " + "[" * 100_000, "is nested too deeply to be read"),
        ("uv.lock", "version = 1\n[[package]]\nname = '../x'\nversion = '1'\n", "names a package that is none: '../x'"),
        ("poetry.lock", ".".join("a" * 5000) + " = 1", "is not TOML that can be read: a key has 200 parts or more"),
        ("poetry.lock", "package = 1", "holds no [[package]]"),
        ("bom.json", "[" * 100_000, "is nested too deeply, or too large, to be read"),
        ("Pipfile.lock", "{}", "is read no more: `pipenv requirements"),
        ("uv.lock", "version = 1\n" + "[[package]]\nname = 'a'\n" * 20_001, "names more than 20,000 packages"),
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
    with pytest.raises(LockError, match=r"--lock uv\.lock: cannot be read: "):
        opened("uv.lock", tmp_path)
    assert opened("h2o.requirements.txt[whole]").version("nothing") == ABSENT != NOT_GIVEN


def conda(*specs, pip=()):
    """An environment.yml."""
    lines = ["dependencies:", *(f"  - {spec}" for spec in specs), *(["  - pip:"] if pip else ())]
    return "\n".join([*lines, *(f"    - {line}" for line in pip)]) + "\n"


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0", "2.1.0"),
        ("conda-forge::pytorch==2.1", "2.1"),
        ("pytorch=2.1.0", "2.1.0"),
        ("pytorch 2.1.0 py3.10_cpu_0", "2.1.0"),
        ("pytorch=2.1", Unknown("environment.yml:2 asks for =2.1, no one version")),
        ("pytorch>=2.1", Unknown("environment.yml:2 asks for >=2.1, no one version")),
        ("pytorch", Unknown("environment.yml:2 names no version")),
    ],
)
def test_a_specification_of_conda_is_a_version_or_a_range(write, spec, version):
    assert write("environment.yml", conda(spec)).version("torch") == version


@pytest.mark.parametrize(("specs", "cuda"), CASES["build_conda_says"])
def test_the_build_of_conda_says_the_cuda_of_torch(write, specs, cuda):
    assert write("environment.yml", conda(*specs)).facts.value("torch.cuda") == cuda


def test_the_pip_section_is_a_list_of_requirements_with_its_own_lines(write):
    found = write("environment.yml", conda("python=3.10", "pip", pip=["torch==2.4.1", "peft>=0.12"]), python="")
    assert found.facts.get("pkg.torch")[1:3] == ("2.4.1", "environment.yml:5") and found.version("trl") == NOT_GIVEN
    assert found.version("peft") >= "0.12" and found.facts.value("python.minor") == "3.10"


def test_an_exported_environment_has_all_there_is():
    assert opened("simpo.environment.yml", python="", platform="").version("vllm") == ABSENT


def test_an_explicit_list_says_its_platform():
    facts = opened("sagemaker.gpu.env.out", python="", platform="").facts
    said = [facts.value(key) for key in ("os.platform", "os.arch", "python.version", "torch.cuda")]
    assert said == ["linux", "x86_64", "3.12.13", "12.9"]


def test_an_environment_of_pixi_that_is_not_there_is_said():
    for given in ("cosmos-curator.pixi.lock", "cosmos-curator.pixi.lock[gpu]"):
        with pytest.raises(LockError) as error:
            opened(given)
        problem = "has no environment 'default'; there are cluster"
        assert str(error.value) == f"--lock cosmos-curator.pixi.lock: {problem}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x [1]\nb: *x\n", "uses an alias of YAML in line 2, and no lock does"),
        ("[" * 500, "is nested more than 20 levels deep"),
        ("[" * 100_000, "is "),  # which newer releases of PyYAML refuse by themselves
        ("- " * 100_000, "is nested more than 20 levels deep"),
        ("a: b: c", "is not YAML: "),
        ("just words", "holds no environment"),
        ("name: x", "has no list of dependencies"),
        ("dependencies: []", "names no package"),
        ("a" * (5 << 20), "is too large to be read as YAML"),
        ("dependencies:\n" + "- a=1=0\n" * 20_001, "names more than 20,000 packages"),
    ],
)
def test_hostile_yaml_is_one_sentence(write, text, problem):
    with pytest.raises(LockError) as error:
        write("environment.yml", text)
    assert str(error.value).startswith(f"--lock environment.yml: {problem}")


CYCLONEDX = {"bomFormat": "CycloneDX", "specVersion": "1.6"}


@pytest.fixture
def bill(write):
    def written(document, indent=1):
        return write("bom.json", document if isinstance(document, str) else json.dumps(document, indent=indent))

    return written


def component(purl, **more):
    return {"type": "library", "name": "x", "purl": purl, **more}


def test_what_uv_writes_counts_by_its_markers():
    found = opened("uv.cdx.json")
    lines = (LOCKS / "uv.cdx.json").read_text().splitlines()
    assert found.version("torch") == "2.6.0+cpu" and "torch@2.6.0%2Bcpu" in lines[found.place("torch") - 1]
    assert opened("uv.cdx.json", platform="macos-arm64").version("torch") == "2.6.0"
    assert found.version("peft") == ABSENT


def test_components_within_components_and_packages_of_conda_count(bill):
    build = "pkg:conda/pytorch@2.5.1?build=cuda126_py312_300&subdir=linux-64&channel=conda-forge"
    inner = component("pkg:deb/ubuntu/openssl@3", components=[component("pkg:pypi/Flash_Attn@2.7.4?package-id=1")])
    found = bill({**CYCLONEDX, "components": [component(build), inner]})
    assert (found.version("torch"), found.version("flash-attn")) == ("2.5.1", "2.7.4")
    assert found.facts.value("torch.cuda") == "12.6" and found.facts.value("os.platform") == "linux"


def test_a_document_of_spdx_names_packages_by_references(bill):
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl"}
    package = {"name": "torch", "externalRefs": [{**reference, "referenceLocator": "pkg:pypi/torch@2.4.1"}]}
    document = {"spdxVersion": "SPDX-2.3", "packages": [package]}
    assert bill(document).facts.get("pkg.torch")[1:3] == ("2.4.1", "bom.json:10")
    assert bill(document, indent=None).facts.get("pkg.torch").origin == "bom.json"


def test_two_versions_of_one_package_are_none(bill):
    twice = [component("pkg:pypi/torch@2.4.1"), component("pkg:pypi/torch@2.5.1")]
    assert bill({**CYCLONEDX, "components": twice}).reason("torch").endswith("ask for different versions")


def nested(depth):
    return '{"bomFormat": "CycloneDX", "components": [' + '{"components": [' * depth + "]}" * depth + "]}"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "is not JSON: "),
        ({"name": "x"}, "is no bill of materials by CycloneDX or SPDX"),
        ({**CYCLONEDX, "components": []}, "names no package"),
        (nested(30), "is nested more than 20 levels deep"),
        (nested(100_000), "is nested too deeply, or too large, to be read"),
        ({**CYCLONEDX, "components": [component("pkg:pypi/a@1")] * 20_001}, "names more than 20,000 packages"),
    ],
)
def test_a_hostile_document_is_one_sentence(bill, document, problem):
    with pytest.raises(LockError) as error:
        bill(document)
    assert str(error.value).startswith(f"--lock bom.json: {problem}")
