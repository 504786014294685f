"""Dockerfiles: the image by its tag, then what RUN installs, in order, each with its line."""

import errno
import json
import os

import pytest
from locking import LOCKS, opened
from tables import cases

from envdoctor.facts import NOT_GIVEN
from envdoctor.observe import LockError

CASES = cases("dockerfile.toml")


@pytest.fixture
def build(tmp_path):
    def build(text):
        (tmp_path / "Dockerfile").write_text(text)
        return opened("Dockerfile", tmp_path, python="", platform="")

    return build


@pytest.mark.parametrize(("image", "key", "value"), CASES["tag_image_says"])
def test_the_tag_of_an_image_says_what_is_in_it(build, image, key, value):
    fact = build(f"# first\nFROM --platform=linux/amd64 {image}\nRUN pip install peft==0.12.0\n").facts.get(key)
    assert fact.value == value and fact.origin in ("Dockerfile:2", "Dockerfile", "")


def test_an_image_that_is_not_known_is_said(build):
    found = build("FROM nvcr.io/nvidia/pytorch:24.08-py3\nRUN pip install peft==0.12.0\n")
    assert found.notes == ("Dockerfile:1: what the image nvcr.io/nvidia/pytorch:24.08-py3 has installed is not known",)
    assert found.version("torch") == NOT_GIVEN


def test_each_package_stands_at_its_own_line_of_a_command(build):
    found = build(
        "FROM python:3.11-slim\nRUN apt-get update && \\\n    # comment\n    python3 -m pip install -U \\\n"
        "      torch==2.4.1 --index-url https://download.pytorch.org/whl/cu121 \\\n      'peft[x]==0.12.0' && rm x\n"
        "RUN uv pip install --system trl==0.9.6; conda install -y -c nvidia numpy=1.26.4\n"
    )
    assert found.facts.get("pkg.torch")[1:3] == ("2.4.1+cu121", "Dockerfile:5")
    assert found.facts.get("pkg.peft")[1:3] == ("0.12.0", "Dockerfile:6")
    assert found.facts.get("pkg.trl")[1:3] == ("0.9.6", "Dockerfile:7") and found.version("numpy") == "1.26.4"


@pytest.mark.parametrize(
    ("packages", "python"), [("python3.10 python3-pip git", "3.10"), ("python3.10 python3.11", None), ("git", None)]
)
def test_the_one_python_that_the_system_installs_is_the_python(build, packages, python):
    text = f"FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN apt-get update && apt-get install -y {packages}\n"
    found = build(f"{text}RUN pip install peft==0.12.0\n")
    assert found.facts.text("python.minor") == python


def test_the_last_stage_counts_with_those_it_comes_from(build):
    text = (
        "FROM python:3.11 AS base\nRUN pip install peft==0.12.0\nFROM python:3.9 AS side\nRUN pip install trl==0.9.6\n"
    )
    found = build(text + "FROM base\nRUN pip install numpy==1.26.4\n")
    assert [found.version(name) for name in ("peft", "numpy", "trl")] == ["0.12.0", "1.26.4", NOT_GIVEN]
    assert found.facts.value("python.minor") == "3.11"


def test_variables_have_the_values_that_the_file_gives(build):
    text = "ARG T=2.4.1\nFROM pytorch/pytorch:${T}-cuda12.1-cudnn9-devel\nARG P=0.12.0\nENV N 1.26.4\n"
    found = build(text + "RUN pip install peft==$P numpy==${N} trl==${TRL:-0.9.6} vllm==$GIVEN\n")
    assert [found.version(name) for name in ("torch", "peft", "numpy", "trl")] == ["2.4.1", "0.12.0", "1.26.4", "0.9.6"]
    assert found.notes == ("Dockerfile:5 is no requirement that can be read",) and found.version("vllm") == NOT_GIVEN


def test_lists_beside_the_file_are_read(build, tmp_path):
    (tmp_path / "requirements.txt").write_text("\npeft==0.12.0\n")
    found = build(
        "FROM python:3.11\nCOPY requirements.txt gone.txt /app/\nRUN pip install -r requirements.txt -r /app/gone.txt\n"
    )
    assert found.facts.get("pkg.peft").origin == "requirements.txt:2"
    assert found.notes == (f"Dockerfile:3: gone.txt cannot be read: {os.strerror(errno.ENOENT)}",)


@pytest.mark.parametrize(
    "copied",
    ["COPY . .", "COPY list.txt /app/", "COPY --chown=a list.txt setup.cfg ./", "ADD docker/list.txt /app/list.txt"],
)
def test_a_list_that_was_copied_into_the_image_is_read(build, tmp_path, copied):
    (tmp_path / "list.txt").write_text("peft==0.12.0\n")
    (tmp_path / "other.txt").write_text("peft==0.9.0\n")
    assert build(f"FROM python:3.11\n{copied}\nRUN pip install -r /app/list.txt\n").version("peft") == "0.12.0"
    renamed = "FROM python:3.11\nCOPY other.txt /app/list.txt\nRUN pip install -r /app/list.txt\n"
    assert build(renamed).version("peft") == "0.9.0"


@pytest.mark.parametrize(
    ("folder", "copied"),
    [("docker", "COPY list.txt ."), ("docker", "COPY . /app"), ("docker/cuda", "COPY list.txt /app")],
)
def test_a_list_of_a_build_from_a_folder_above(tmp_path, folder, copied):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "list.txt").write_text("peft==0.12.0\n")
    (tmp_path / folder / "Dockerfile").write_text(f"FROM python:3.11\n{copied}\nRUN pip install -r list.txt\n")
    assert opened(f"{folder}/Dockerfile", tmp_path, python="", platform="").version("peft") == "0.12.0"
    (tmp_path / folder / ".git").touch()  # another project lies above
    assert opened(f"{folder}/Dockerfile", tmp_path, python="", platform="").version("peft") != "0.12.0"


def test_a_real_file_with_here_documents():
    found = opened("qwen.Dockerfile", python="", platform="")
    lines = (LOCKS / "qwen.Dockerfile").read_text().splitlines()
    for name, version in (("torch", "2.1.2+cu121"), ("transformers", "4.36.0"), ("vllm", "0.2.7")):
        assert found.version(name) == version and f"{name}==" in lines[found.place(name) - 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("RUN pip install torch==2.4.1\n", "has no FROM"),
        ("FROM\n", "has a FROM without an image in line 1"),
        ("FROM scratch\nRUN echo\n", "installs no package with pip, uv or conda on an image that is known"),
        ("FROM python:3.11\n" + "RUN x\n" * 20_000, "has more than 20,000 lines"),
        ("FROM python:3.11\nRUN pip install " + "x" * 270_000, "has an instruction of more than 262,144 characters"),
        ("FROM python:3.11\n#" + "x" * (1 << 20), "has more than 1,048,576 characters"),
        ("FROM python:3.11\nRUN pip install a==1 " + "a==1 " * 20_001 + "\n", "names more than 20,000 packages"),
        ("FROM a\nFROM $" + "{X:-" * 1000, "installs no package"),
    ],
)
def test_a_hostile_file_is_one_sentence(build, text, problem):
    with pytest.raises(LockError) as error:
        build(text)
    assert str(error.value).startswith(f"--lock Dockerfile: {problem}")


def test_commands_that_no_shell_would_read_are_passed_over(build):
    found = build("FROM python:3.11\nRUN pip install 'torch==2.4.1\nRUN pip install peft==1.0\n")
    assert (found.version("torch"), found.version("peft")) == (NOT_GIVEN, "1.0")


def test_stages_and_packages_cost_no_more_than_their_lines(build):
    packages = " ".join(f"p{number}==1.{number}" for number in range(5000))
    stages = "".join(f"FROM a AS b{number}\n" for number in range(15_000))
    found = build(f"FROM python:3.11 AS a\nRUN pip install {packages}\n{stages}RUN pip install peft==0.12.0\n")
    assert (found.version("p4999"), found.version("peft")) == ("1.4999", "0.12.0")


@pytest.mark.parametrize("given", [".", "'.[dev]'", "-e .", "./own --no-build-isolation"])
def test_a_folder_that_is_installed_is_said_not_to_be_read(build, given):
    found = build(f"FROM python:3.11\nRUN pip install peft==0.12.0 > ./log\nRUN pip install {given}\n")
    assert found.notes == ("Dockerfile:3: a package of your own, what it requires is not read",)


COMPOSE = "services:\n  llm:\n    image: {}\n    command: --model Qwen/Qwen3-8B\n"
JOB = (
    "kind: Job\nspec:\n  template:\n    spec:\n      containers:\n        - image: {}\n          command: [bash, -c]\n"
    "          args:\n            - |\n              pip install peft==0.12.0\n              torchrun train.py\n"
)


@pytest.mark.parametrize("form", [COMPOSE, JOB], ids=["compose", "kubernetes"])
def test_the_image_of_a_container_is_a_base_image(tmp_path, form):
    (tmp_path / "run.yml").write_text(form.format("vllm/vllm-openai:v0.8.5"))
    found = opened("run.yml", tmp_path, python="", platform="")
    assert found.facts.get("pkg.vllm")[1:3] == ("0.8.5", f"run.yml:{3 if form is COMPOSE else 6}")
    assert found.version("peft") == (NOT_GIVEN if form is COMPOSE else "0.12.0")


@pytest.mark.parametrize("image", ["vllm/vllm-openai:latest", "example.org/own:1", "redis:7\n  db:\n    image: own:1"])
def test_of_an_image_that_is_not_known_nothing_is_said(tmp_path, image):
    (tmp_path / "run.yml").write_text(COMPOSE.format(image))
    found = opened("run.yml", tmp_path, python="", platform="")
    assert found.version("vllm") == NOT_GIVEN
    assert "is not known; --lock FILE" in found.notes[0]


def test_of_several_containers_the_one_with_a_known_image_counts_and_a_build_is_its_dockerfile(tmp_path):
    (tmp_path / "run.yml").write_text("services:\n  db: {image: 'redis:7'}\n  llm: {build: {context: ./app}}\n")
    (tmp_path / "app").mkdir()
    (tmp_path / "app/Dockerfile").write_text("FROM vllm/vllm-openai:v0.8.5\nRUN pip install peft==0.12.0\n")
    found = opened("run.yml", tmp_path, python="", platform="")
    assert (found.version("vllm"), found.version("peft")) == ("0.8.5", "0.12.0")


def test_a_pin_that_a_later_command_moves_is_said_with_who_asks(tmp_path):
    (tmp_path / "Dockerfile").write_text(
        "FROM python:3.11\nRUN pip install torch==2.2.2 --index-url https://download.pytorch.org/whl/cu121\n"
        "RUN pip install bitsandbytes==0.50.2\n"
    )
    found = opened("Dockerfile", tmp_path, python="3.11", platform="linux-x86_64")
    (said,) = (one for one in found.notes if "is replaced by" in one)
    assert said.startswith("torch 2.2.2+cu121 (Dockerfile:2) is replaced by 2.")
    assert said.endswith(": bitsandbytes 0.50.2 asks for torch<3,>=2.4")
    assert found.version("torch").startswith("2.") and found.version("torch") not in ("2.2.2", "2.2.2+cu121")


def test_the_install_lines_of_a_notebook_are_a_list(tmp_path):
    cells = [
        ("markdown", "!pip install torch==1.0\n"),
        ("code", "import torch\n!pip install -q torch==2.4.1 \\\n   peft==0.12.0\n%pip install trl==0.9.6\n"),
        ("code", "%%bash\npython -m pip install datasets==3.0.0\n"),
    ]
    document = {"cells": [{"cell_type": kind, "source": text.splitlines(True)} for kind, text in cells]}
    (tmp_path / "train.ipynb").write_text(json.dumps(document, indent=1))
    facts = opened("train.ipynb", tmp_path).facts
    assert {fact.key[4:]: fact.value for fact in facts.below("pkg.") if fact.source == "environment"} == {
        **{"torch": "2.4.1", "peft": "0.12.0"},
        **{"trl": "0.9.6", "datasets": "3.0.0"},
    }
    assert facts.get("pkg.trl").origin == "train.ipynb:15"
    (tmp_path / "train.ipynb").write_text('{"cells": []}')
    with pytest.raises(LockError, match="--code judges what it uses"):
        opened("train.ipynb", tmp_path)
