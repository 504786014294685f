"""What an install of a list takes: open lines by the ledger, and why an installer refuses."""

from pathlib import Path

import pytest
from locking import opened
from observing import shipped
from tables import cases

from envdoctor.facts import ABSENT, NOT_GIVEN, Range, Unknown
from envdoctor.matrix import load_toml

CASES = cases("taking.toml")

TABLE = load_toml(Path(__file__).resolve().parents[4] / "fixtures" / "lists" / "taking.toml")["case"]


@pytest.fixture
def read(tmp_path):
    def write(text, name="requirements.txt", **target):
        (tmp_path / name).write_text(text)
        return opened(name, tmp_path, **{"python": "3.11", **target})

    return write


def _refused(found):
    return [(item["package"], item["kind"]) for item in found.facts.value("refused")]


def spelled(version):
    """A version as the table has it."""
    if version in (ABSENT, NOT_GIVEN):
        return "absent" if version is ABSENT else "not given"
    return (
        f"range {version.specifiers}"
        if isinstance(version, Range)
        else "?"
        if isinstance(version, Unknown)
        else version
    )


@pytest.mark.parametrize(
    "row", [{**case, **row} for case in TABLE for row in case["rows"]], ids=lambda row: row["about"]
)
def test_a_list_is_taken_as_the_table_says(read, row):
    target = {name: row[name] for name in ("python", "platform", "until") if name in row}
    found = read(row.get("begin", "") + row["text"], row.get("name", "requirements.txt"), **target)
    assert {name: spelled(found.version(name)) for name in row.get("versions", ())} == row.get("versions", {})
    assert "refused" not in row or sorted(_refused(found)) == sorted(map(tuple, row["refused"]))
    assert "refused" in row or "versions" in row


def test_an_open_line_is_what_an_install_takes(read):
    found = read("torch==2.7.0\ntransformers<4.50\nnumpy\n")
    assert found.version("transformers") == "4.49.0" and found.version("tokenizers").startswith("0.21")
    assert found.version("triton") == "3.3.0" and found.version("nvidia-nccl-cu12") == "2.26.2"
    assert found.facts.get("pkg.numpy").origin.startswith("what an install on 20")
    assert found.taken[0].startswith("versions of an install with Python 3.11 on 20")
    assert _refused(found) == []


def test_what_is_taken_fits_the_python_and_the_other_lines(read):
    assert read("numpy\n", python="3.9").version("numpy") == "2.0.2"
    assert read("vllm\ntorch==2.5.1\n").version("vllm") == "0.7.3"
    assert read("numpy\n", python="").version("numpy").reason == "requirements.txt:1 names no version"


@pytest.mark.parametrize(("files", "is_own"), CASES["list_within_fork"])
def test_a_list_within_a_fork_does_not_name_the_fork(tmp_path, files, is_own):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "requirements.txt").write_text("torch==2.7.0\n")
    found = opened("requirements.txt[whole]", tmp_path).facts
    assert (found.value("pkg.transformers") is ABSENT) is not is_own and found.value("pkg.peft") is ABSENT


def test_constraints_limit_what_is_taken(read, tmp_path):
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    assert read("-c limits.txt\ntransformers==4.48.0\n").version("numpy") == "1.26.4"


def test_an_index_that_replaces_pypi_has_only_its_builds(read):
    found = read("--index-url https://download.pytorch.org/whl/cu121\ntorch\n")
    assert found.version("torch") == "2.5.1+cu121"
    (refused,) = read("--index-url https://download.pytorch.org/whl/cu121\ntorch==2.6.0\n").facts.value("refused")
    assert refused["asked"].endswith("; the index cu121: torch!=1.13.0,!=1.13.1,!=2.0.0,!=2.0.1,…")


def test_every_patch_bounds_what_is_taken_by_its_own_metadata(read):
    found = read("datasets==2.14.5\nfsspec\nxxhash\n")
    assert found.version("fsspec") == "2023.6.0" and found.version("dill") == "0.3.7" and found.version("xxhash")
    assert _refused(read("pydantic==2.11.3\npydantic_core==2.33.1\n")) == []
    assert _refused(read("llamafactory==0.9.2\ntransformers==4.49.0\naccelerate==1.2.1\npeft==0.12.0\n")) == []
    assert _refused(read("llamafactory==0.9.3\ntransformers==4.52.4\npeft==0.15.2\ntrl==0.9.6\n")) == []
    assert _refused(read("llamafactory==0.9.3\ntransformers==4.53.0\n")) == [("transformers", "conflict")]
    assert read("datasets<2.14.6\n").version("datasets") == "2.14.5"
    assert read("torchvision==0.14.1\ndeepspeed==0.9.2\n", python="3.10").version("torch") == "1.13.1"
    found = read("llamafactory==0.9.3\n", platform="")  # <=4.51.3 on macOS
    assert found.version("transformers") == "4.52.4" and " 3.11 for Linux on " in found.taken[0]


def test_who_asks_for_an_extra_is_named_and_not_the_extra(read):
    (refused,) = read("datasets==2.14.5\nfsspec==2023.9.2\nhuggingface-hub==0.16.4\n", python="3.10").facts.value(
        "refused"
    )
    asked = "requirements.txt:2: fsspec==2023.9.2; datasets 2.14.5: fsspec<2023.9.0,>=2023.1.0"
    assert (refused["kind"], refused["asked"]) == ("conflict", asked)


def test_an_extra_of_a_checkout_asks_for_no_release(read):
    found = read(
        "git+https://github.com/huggingface/trl\nunsloth[conda]@git+https://github.com/unslothai/unsloth.git\n"
    )
    assert found.reason("unsloth") == "requirements.txt:2 takes it from a repository or a folder"


def test_what_an_unread_release_requires_is_taken_for_known_only_where_its_neighbours_agree(read):
    older = read("datasets==2.8.0\npyarrow==10.0.1\nfsspec\nmultiprocess\n")
    assert older.version("fsspec") > "2023.10" and older.version("pyarrow") == "10.0.1"
    mixed = "protobuf==6.30.2\nwandb==0.19.10\ndill==0.3.8\ndatasets==3.5.1\nmultiprocess==0.70.16\n"
    assert _refused(read(mixed)) == []
    both = read("protobuf==7.34.0\nwandb==0.19.10\n")  # <6 before and <7 behind: still a guess
    assert _refused(both) == []
    assert both.notes == ("what these require is not known, nor whether the other lines fit it: wandb",)


def test_a_list_may_bring_what_was_deleted_from_the_index(read):
    """As the second fix of the rule says."""
    line = "xgrammar @ https://host.example/xgrammar-0.1.16-cp311-cp311-manylinux_2_17_x86_64.whl\n"
    assert _refused(read(f"vllm==0.8.2\n{line}")) == []


def test_a_package_that_the_ledger_does_not_know_stays_unknown(read):
    found = read("torch==2.7.0\nsome-tool\nother-tool==1.0\n")
    assert found.reason("some-tool") == "requirements.txt:2 names no version" and found.version("other-tool") == "1.0"


@pytest.mark.parametrize("platform", ["windows-x86_64", "windows-amd64", "macos-arm64", "linux-aarch64"])
@pytest.mark.parametrize("line", ["torch==2.6.0", "torch", "bitsandbytes==0.49.2", "numpy==2.2.6"])
def test_a_release_with_a_wheel_for_the_system_is_not_refused(read, line, platform):
    assert _refused(read(f"{line}\n", platform=platform)) == []


def test_commands_of_a_dockerfile_are_run_in_order(read):
    steps = ("torch==2.1.2", "torch==2.4.0 vllm==0.6.0", "numpy")
    text = "FROM python:3.11\n" + "".join(f"RUN pip install {step}\n" for step in steps)
    found = read(text, "Dockerfile", python="")
    assert found.version("torch") == "2.4.0" and found.version("numpy") == "1.26.4"
    assert read("FROM python:3.11\nRUN pip install --no-deps trl==0.9.6\n", "Dockerfile").version("transformers")
    newer = "FROM python:3.11\nRUN pip install some-tool\nRUN pip install -U 'some-tool>=2'\n"
    assert _refused(read(newer, "Dockerfile")) == []


def test_only_requirements_that_contradict_one_another_are_named(read):
    (refused,) = read("numpy==1.22.0\ntransformers==4.40.0\nscipy==1.11.4\npandas==1.5.3\n").facts.value("refused")
    assert refused["asked"] == "requirements.txt:1: numpy==1.22.0; pandas 1.5.3: numpy>=1.23.2"


_OLD, _NEW, _BEFORE = "2025-10-24", "2025-10-25", [("flash-attn", "before")]


def test_what_pip_replaces_of_conda_is_what_is_there(read):
    """It was an error (pyarrow cannot be imported with numpy 1.26.4) beside a note that numpy is replaced."""
    text = "dependencies:\n  - python=3.11\n  - numpy=1.26.4\n  - pip:\n    - datasets==3.0.1\n"
    found = read(text, "environment.yml")
    assert found.version("numpy").startswith("2.") and "is replaced by 2." in found.notes[0]
    assert next(one for one in found.facts.value("dist") if one["name"] == "numpy").get("kind") != "conda"
    kept = read(text.replace("3.0.1", "2.20.0\n    - pandas<2.3\n    - pyarrow<18"), "environment.yml")
    assert kept.version("numpy") == "1.26.4" and not kept.notes


def test_nothing_is_taken_for_absent_on_an_image_that_is_not_known(read):
    found = read("FROM nvcr.io/nvidia/pytorch:24.05-py3\nRUN pip install transformers peft==0.12.0\n", "Dockerfile")
    assert found.reason("transformers") and found.version("peft") == "0.12.0" and found.taken == ()


_IMAGE = "FROM pytorch/pytorch:2.7.0-cuda12.8-cudnn9-devel\n"
_FORK = "FROM python:3.11\nRUN pip install git+https://github.com/me/transformers\n"
_OWN = _FORK.replace("/me/", "/huggingface/")
_NEWEST = f">={shipped().ledger.package('transformers').releases[-1].version}"


@pytest.mark.parametrize(
    ("start", "steps", "name", "version"),
    [
        (_IMAGE, ["scikit-learn==1.3.2"], "numpy", Range(">=1.26.4,<2.0")),
        (_IMAGE, ["'numpy>=1.25,<2'", "'numpy>=1.20'"], "numpy", Range(">=1.25,<2")),
        (_IMAGE, ["'numpy<2'", "pillow", "'numpy>=1.26'"], "numpy", Range(">=1.26")),
        (_IMAGE, ["scikit-learn==1.3.2", "numpy==1.25.0"], "numpy", "1.25.0"),
        (_IMAGE, ["scikit-learn==1.3.2", "'numpy>=2,<2.1'"], "numpy", "2.0.2"),
        (_IMAGE, ["'numpy<2' -c limits.txt"], "numpy", Range(">=1.25,<2")),
        (_OWN, ["transformers==4.49.0"], "transformers", "4.49.0"),
        (_OWN, ["transformers==4.49.0"], "huggingface-hub", "0.36.2"),
        (_OWN, ["trl==0.9.6"], "transformers", Range(_NEWEST)),
        (_OWN.replace("transformers", "transformers.git@main"), ["trl==0.9.6"], "transformers", Range(_NEWEST)),
        (_FORK, ["transformers==4.49.0"], "huggingface-hub", Range(">=0.26.0,<1.0")),
        (_FORK, ["trl==0.9.6"], "transformers", Range(">=4.31.0")),
    ],
)
def test_a_release_that_is_not_known_meets_what_is_asked_for_or_is_replaced(
    read, tmp_path, start, steps, name, version
):
    (tmp_path / "limits.txt").write_text("numpy>=1.25\n")
    found = read(start + "".join(f"RUN pip install {step}\n" for step in steps), "Dockerfile").version(name)
    assert (found, getattr(found, "specifiers", None)) == (version, getattr(version, "specifiers", None))


_VLLM = "FROM vllm/vllm-openai:v0.7.3\n"


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_a_step_on_such_an_image_takes_what_it_takes_behind_an_install(read, python):
    step = "RUN pip install trl==0.15.1 deepspeed==0.16.3\n"
    image = read(_VLLM + step, "Dockerfile", python=python)
    steps = read(f"FROM python:{python}\nRUN pip install vllm==0.7.3\n{step}", "Dockerfile", python="")
    for name in ("torch", "transformers", "tokenizers", "huggingface-hub", "datasets", "numpy", "trl"):
        assert image.version(name) == steps.version(name), name


def test_an_image_of_a_release_that_nobody_knows_may_bring_anything(read):
    found = read("FROM vllm/vllm-openai:v99.0\nRUN pip install trl==0.15.1 flash-attn\n", "Dockerfile")
    assert found.reason("transformers") and found.version("trl") == "0.15.1" and _refused(found) == []
    post = read("FROM vllm/vllm-openai:v0.6.3.post1\nRUN pip install trl==0.15.1\n", "Dockerfile")
    assert post.version("vllm") == "0.6.3.post1" and post.version("torch") == "2.4.0"


def test_no_release_of_an_image_meets_what_contradicts_itself(read):
    text = f"{_IMAGE}RUN pip install 'numpy>=2' scikit-learn==1.3.2\n"
    assert _refused(read(text, "Dockerfile")) == [("numpy", "conflict")]


@pytest.mark.parametrize(("text", "taken", "unknown"), CASES["checkout_requires_newest"])
def test_a_checkout_requires_what_the_newest_release_does_and_that_of_the_list_s_time(read, text, taken, unknown):
    found = read(text)
    assert [name for name in taken if not isinstance(found.version(name), str)] == []
    assert [name for name in unknown if isinstance(found.version(name), str)] == []
    assert _refused(found) == []


@pytest.mark.parametrize(("text", "python", "said"), CASES["packages_whose_requirements"])
def test_packages_whose_requirements_are_not_known_are_said_even_where_the_list_is_refused(read, text, python, said):
    assert [note for note in read(text, python=python).notes if note.startswith(("what ", "whether "))] == said


def test_without_an_index_a_list_takes_what_lies_in_its_folder(read, tmp_path):
    lines = "--no-index\n--find-links ./wheels\npeft==0.13.2\nnumpy\n"
    (note,) = read(lines).notes
    assert note == "requirements.txt:1: nothing but ./wheels is installed from, and what is in it could not be seen"
    files = tmp_path / "wheels"
    files.mkdir()
    for name in ("peft-0.13.2-py3-none-any.whl", "numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl"):
        (files / name).touch()
    (refused,) = read(lines).facts.value("refused")
    assert (
        refused["kind"] == "folder" and refused["asked"].startswith("accelerate, ") and "numpy" not in refused["asked"]
    )
    (files / "peft-0.13.2-py3-none-any.whl").unlink()
    (refused,) = read(lines).facts.value("refused")
    assert refused["asked"].startswith("peft, accelerate, "), "what the list names comes first"
    whole = read("--no-index\n--find-links wheels\nnumpy\n")
    assert whole.version("numpy") == "1.26.4" and _refused(whole) == []
