"""Lists to be installed: requirements as pip reads them, and pyproject.toml with its extras and groups."""

import errno
import os
from pathlib import Path

import pytest
from locking import LOCKS, opened
from tables import cases

from envdoctor.facts import ABSENT, NOT_GIVEN, Unknown
from envdoctor.observe import LockError

CASES = cases("requirements.toml")

WHEEL = (
    "https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/"
    "flash_attn-2.7.4.post1%2Bcu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"
)


@pytest.fixture
def read(tmp_path):
    def write(text, name="requirements.txt", **target):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        return opened(name, tmp_path, **target)

    return write


def test_a_pin_is_a_version_with_its_line(read):
    found = read("# first\n\ntorch==2.4.1  # why\nFlash_Attn[x] == 2.6.3\n")
    assert found.version("torch") == "2.4.1" and found.facts.get("pkg.torch").origin == "requirements.txt:3"
    assert found.version("flash-attn") == "2.6.3" and found.place("flash-attn") == 4


@pytest.mark.parametrize(("line", "reason"), CASES["no_one_version"])
def test_what_is_no_one_version_is_unknown_with_its_reason(read, line, reason):
    assert read(line, python="").reason("transformers").startswith(reason)


def test_what_a_list_does_not_name_is_absent_where_the_caller_says_that_it_is_whole(read, tmp_path):
    assert read("torch==2.4.1\n").version("peft") == NOT_GIVEN
    assert opened("requirements.txt[whole]", tmp_path).version("peft") == ABSENT
    assert opened("h2o.requirements.txt[whole]").version("trl") == ABSENT
    (tmp_path / "requirements.txt").write_text("torch==2.4.1\n== what\n")
    assert opened("requirements.txt[whole]", tmp_path).version("peft") == NOT_GIVEN


def test_without_a_target_a_marker_of_python_decides_nothing_and_the_system_is_linux(read):
    lines = 'triton==3.0.0 ; sys_platform == "linux"\ntomli==2.0.1 ; python_version < "3.11"\n'
    found = read(lines, python="", platform="")
    assert found.version("triton") == "3.0.0"
    assert found.reason("tomli") == "requirements.txt:2 asks for it on some targets only"
    assert found.notes == ("whether tomli would be installed depends on the target: --target-python 3.11",)


def test_included_lists_and_constraints_are_read_with_lines_of_their_own(read, tmp_path):
    (tmp_path / "more.txt").write_text("peft==0.12.0\n-r requirements.txt\n")
    (tmp_path / "limits.txt").write_text("# c\ntransformers==4.44.2\ntrl==0.9.6\n")
    found = read("-r more.txt\n-c limits.txt\ntransformers\n")
    assert found.version("peft") == "0.12.0" and found.facts.get("pkg.peft").origin == "more.txt:1"
    assert found.facts.get("pkg.transformers")[1:3] == ("4.44.2", "limits.txt:2")
    assert found.version("trl") == NOT_GIVEN and found.notes == ()


def test_nothing_outside_the_folder_of_the_list_is_read(read, tmp_path):
    (tmp_path / "link.txt").symlink_to("/etc/passwd")
    found = read("torch==2.4.1\n-r ../other.txt\n-r link.txt\n-r https://host.example/x.txt\n-r gone.txt\n")
    assert found.notes == (
        "requirements.txt:2: ../other.txt lies outside the folder of the list",
        "requirements.txt:3: link.txt lies outside the folder of the list",
        "requirements.txt:4: https://host.example/x.txt is not fetched",
        f"requirements.txt:5: gone.txt cannot be read: {os.strerror(errno.ENOENT)}",
    )


def test_a_list_in_a_folder_may_include_one_above_it_in_the_project_and_is_utf_16_of_powershell(read, tmp_path):
    (tmp_path / "base.txt").write_bytes("torch==2.4.1\r\n".encode("utf-16"))
    assert read("-r ../base.txt\n", "requirements/dev-requirements.txt").version("torch") == "2.4.1"


def test_an_index_of_builds_gives_the_local_tag_where_it_has_the_release(read):
    found = read(
        "--extra-index-url https://download.pytorch.org/whl/cu121\ntorch==2.4.1\ntorchvision==0.19.1\npeft==0.1.0\n"
    )
    assert found.version("torch") == "2.4.1+cu121" and found.version("torchvision") == "0.19.1+cu121"
    assert found.version("peft") == "0.1.0"
    assert found.notes == (
        "requirements.txt:1 names an index of builds cu121: torch 2.4.1, torchvision 0.19.1 is taken from there",
    )
    assert read("-i https://download.pytorch.org/whl/cu118\ntorch==2.9.0\n").version("torch") == "2.9.0"


@pytest.mark.parametrize("line", [WHEEL, f"flash-attn @ {WHEEL}", f"{WHEEL} ; python_version < '4'"])
def test_the_name_of_a_wheel_says_what_it_was_built_for(read, line):
    found = read(line + "\n")
    assert found.version("flash-attn") == "2.7.4.post1+cu12torch2.5cxx11abiFALSE"
    (extension,) = found.facts.value("extension")
    assert (extension["built_torch"], extension["built_cuda"]) == ("2.5", "12") and extension["python_tag"] == "cp311"
    assert extension["built_abi"] == "pre-cxx11"
    (windows,) = read(line.replace("linux_x86_64", "win_amd64") + "\n").facts.value("extension")
    assert windows["built_abi"] is ABSENT


def test_requirements_come_from_the_ledger(read):
    assert "tokenizers<0.20,>=0.19" in read("transformers==4.44.2\n").requires("transformers")
    with_tag = read("torch==2.4.1+cu118\n").requires("torch")
    assert "sympy" in with_tag and not any(line.startswith("nvidia-") for line in with_tag)
    assert isinstance(read("torch==2.4.1+25a9.nv24.8\n").requires("torch"), Unknown)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"torch==2.4.1\n" * (1 << 17), "names more than 20,000 packages, and no environment has so many"),
        (b"a==1 \\\n" * 60_000, "has a line of more than 262,144 characters: 1"),
        (b"x" * (17 << 20), "is larger than 16 MiB, and no lock is"),
        (b"\x00" * 100, "is not text but binary"),
        (b"\xff\xff\xff", "is not text in UTF-8 (byte 0)"),
        (b"# nothing\n", "names no package"),
        (b"!!!\n" * 1000, "names no package"),
        (b"x: [\n", "names no package"),
    ],
)
def test_a_hostile_list_is_one_sentence(tmp_path, content, problem):
    (tmp_path / "requirements.txt").write_bytes(content)
    with pytest.raises(LockError) as error:
        opened("requirements.txt", tmp_path)
    assert str(error.value) == f"--lock requirements.txt: {problem}"


def test_lists_that_include_many_others_end(tmp_path):
    for number in range(60):
        (tmp_path / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\np{number}==1\n")
    found = opened("r0.txt", tmp_path)
    assert found.version("p49") == "1" and found.version("p51") == NOT_GIVEN
    assert found.notes[0] == "r49.txt:1: r50.txt is one of more than 50 files"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_nobody_waits_for_a_pipe_that_a_list_names(read, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "other")
    (tmp_path / "link.txt").symlink_to("other")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("envdoctor.system.documents._UNTIL_A_WRITER", 600)
    assert read("torch==2.4.1\n-r pipe\n-c link.txt\n-r folder\n").notes == (
        "requirements.txt:2: pipe is not a regular file",
        "requirements.txt:3: link.txt is not a regular file",
        "requirements.txt:4: folder is not a regular file",
    )


def test_a_long_line_is_read_like_a_short_one(read):
    blanks = " " * 1_000_000  # hours, where the time grows with the square
    assert read(f"torch==2.4.1{blanks}# a comment\npeft==0.14.0{blanks}b#c\n--hash{blanks}x\n").notes == (
        "requirements.txt:2 is no requirement that can be read",
    )


def test_lines_that_are_none_are_counted(read):
    found = read("torch==2.4.1\n" + "== what\n" * 8)
    assert found.notes[0] == "requirements.txt:2 is no requirement that can be read"
    assert found.notes[-1] == "3 more lines of requirements.txt were not read"


def test_a_real_list_of_uv(read):
    found = opened(LOCKS / "h2o.requirements.txt")
    lines = (LOCKS / "h2o.requirements.txt").read_text().splitlines()
    assert found.version("torch") == "2.8.0+cu126" and lines[found.place("torch") - 1].startswith("torch==")
    assert found.version("triton") == "3.4.0" and Path(found.facts.get("dist").origin).name == "h2o.requirements.txt"


def test_a_wheel_whose_version_is_none_is_no_wheel(read):
    odd = WHEEL.replace("%2B", "%252B")
    with pytest.raises(LockError, match="names no package"):
        read(f"{odd}\n", python="3.11", platform="linux-x86_64")


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
def project(tmp_path):
    def write(text, chosen="", **target):
        (tmp_path / "pyproject.toml").write_text(text)
        return opened(f"pyproject.toml{chosen}", tmp_path, **{"python": "3.11", **target})

    return write


def test_dependencies_are_lines_of_a_list(project):
    found = project(PROJECT)
    assert found.version("torch") == "2.5.1" and found.facts.get("pkg.torch").origin == "pyproject.toml:4"
    assert found.version("transformers") == "4.49.0"
    assert found.notes == ("extras and groups that nobody chose are left out: dev, more, gpu, serve, all",)


def test_extras_and_groups_are_chosen(project):
    assert project(PROJECT, "[gpu]").version("bitsandbytes") == "0.45.0"
    found = project(PROJECT, "[dev]")
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
def test_the_groups_are_taken_that_uv_takes_by_itself(project, said, taken, left):
    found = project(f"{PROJECT}[tool.uv]\n{said}\n")
    assert {name for name in ("peft", "trl", "vllm") if found.facts.known(f"pkg.{name}")} == taken
    assert found.notes == (f"extras and groups that nobody chose are left out: {left}",)
    assert project(f"{PROJECT}[tool.uv]\n{said}\n", "[gpu]").version("bitsandbytes") == "0.45.0"


def test_an_extra_that_names_the_project_brings_its_other_extras(project):
    """As pip and uv follow it; torch of such a list was not known, without a word."""
    found = project(PROJECT, "[all]")
    assert found.version("bitsandbytes") == "0.45.0" and found.version("vllm") == "0.8.5"
    assert found.notes[0] == "extras and groups that nobody chose are left out: dev, more"
    elsewhere = project(PROJECT, "[all]", platform="windows-x86_64").facts
    assert not elsewhere.known("pkg.bitsandbytes") and not elsewhere.known("pkg.vllm")
    assert not project(PROJECT, "[all]", python="3.13").facts.known("pkg.vllm")


@pytest.mark.parametrize("tool", CASES["build_computes_said"])
def test_what_a_build_computes_is_said_unless_a_file_has_it(project, tmp_path, tool):
    dynamic = PROJECT.replace(
        'dependencies = [\n    "torch==2.5.1",\n    "transformers>=4.40,<4.50",\n]', 'dynamic = ["dependencies"]'
    )
    assert "is computed in the build (dynamic)" in project(dynamic, "[gpu]").notes[0]
    with pytest.raises(LockError, match=r"computed in the build .* `uv pip compile pyproject.toml"):
        project(dynamic)
    (tmp_path / "base.txt").write_text("torch==2.6.0\n")
    listed = project(f"{dynamic}[tool.{tool}")
    assert listed.version("torch") == "2.6.0" and "dynamic" not in listed.notes[0]


def test_what_uv_is_told_counts(project):
    more = """[tool.uv]
constraint-dependencies = ["numpy<2"]
override-dependencies = ["sympy==1.12"]
[tool.uv.sources]
torch = { git = "https://github.com/pytorch/pytorch" }
"""
    found = project(PROJECT + more)
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


@pytest.mark.parametrize(("change", "build"), CASES["explicit_index_serves"])
def test_an_explicit_index_serves_what_names_it_here(project, change, build):
    """As uv's guide for PyTorch has it; the list was torch for the CPU on every machine."""
    text = PROJECT.replace("2.5.1", "2.7.1") + INDEXES.replace(*change)
    assert project(text, platform="linux-x86_64").version("torch") == build


def test_the_one_index_of_a_package_bounds_it(project):
    """Where no system is given it is Linux's; torch 2.15.0+cpu was taken, and an error for every GPU."""
    text = PROJECT.replace("torch==2.5.1", "torch>=2.4") + INDEXES.replace("cu128", "cu121")
    assert project(text).version("torch") == "2.5.1+cu121"
    pytorch = '[[tool.uv.index]]\nurl = "https://download.pytorch.org/whl/cu124"\n'
    pypi = pytorch.replace("download.pytorch.org/whl/cu124", "mirror.example/pypi/simple")
    bare, strategy = text.partition("[tool.uv.sources]")[0], '[tool.uv]\nindex-strategy = "unsafe-best-match"\n'
    for indexes in (pytorch, pypi + "default = true\n" + pytorch):
        assert project(bare + indexes).version("torch") == "2.6.0+cu124"
    for indexes in (pypi + pytorch, strategy + pytorch, pytorch.replace("download.pytorch.org", "flashinfer.ai")):
        assert not project(bare + indexes).version("torch").startswith("2.6.0")


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
def test_a_project_for_another_python_is_refused(project, text, refused):
    """As pip refuses it; the list was judged without a word."""
    (*items,) = project(text).facts.value("refused").items
    assert [(item["kind"], item["lacks"]) for item in items] == [("python", "Python 3.11")] * refused


def test_poetry_has_words_of_its_own(project):
    text = """[tool.poetry.dependencies]
python = "^3.10"
torch = "2.5.1"
transformers = {version = "^4.40", extras = ["sentencepiece"]}
peft = "~0.12"
trl = {git = "https://github.com/huggingface/trl"}
"""
    found = project(text)
    assert found.version("torch") == "2.5.1" and found.version("transformers").startswith("4.57")
    assert found.version("peft").startswith("0.12.")


@pytest.mark.parametrize(("text", "said"), CASES["no_list_said"])
def test_what_is_no_list_is_said(project, text, said):
    with pytest.raises(LockError, match=said):
        project(text)


def test_names_of_indexes_that_are_no_text_name_none(project):
    more = '[tool.uv.sources]\ntorch = { index = ["a"] }\n[[tool.uv.index]]\nname = ["a"]\nexplicit = true\n'
    assert project(PROJECT + more).version("torch") == "2.5.1"


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
