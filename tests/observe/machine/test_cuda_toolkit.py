"""The CUDA toolkit: where it is looked for, and how its version is known."""

from __future__ import annotations

import os
import select
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rooms import observer

from envdoctor.facts import ABSENT, Unknown

cuda_toolkit = observer("cuda_toolkit")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nvcc is a shell script here")


def nvcc(machine, home: str, script: str = "exit 1") -> str:
    path = machine.file(f"{home}/bin/nvcc", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(machine.root / home.lstrip("/"))


def toolkit(machine) -> tuple[object, str]:
    (fact,) = cuda_toolkit.observe(machine.request())
    return fact.value, fact.origin


def test_no_nvcc_anywhere_is_absent(machine):
    assert toolkit(machine)[0] is ABSENT


def test_the_compilers_version_of_version_json_counts(machine):
    home = nvcc(machine, "/opt/cuda")
    machine.file(
        "/opt/cuda/version.json",
        '{"cuda": {"version": "12.4.1"}, "cuda_nvcc": {"name": "nvcc", "version": "12.4.131"}}',
    )
    machine.environ["CUDA_HOME"] = home
    assert toolkit(machine) == ("12.4", "CUDA_HOME: version.json")


def test_version_txt_of_older_toolkits_is_read(machine):
    machine.environ["CUDA_PATH"] = nvcc(machine, "/opt/cuda")
    machine.file("/opt/cuda/version.txt", "CUDA Version 10.2.89\n")
    assert toolkit(machine) == ("10.2", "CUDA_PATH: version.txt")


def test_the_header_is_read_where_there_is_no_version_file(machine):
    nvcc(machine, "/usr/local/cuda")
    machine.file("/usr/local/cuda/include/cuda.h", "/* API */\n#define CUDA_VERSION 13010\n")
    assert toolkit(machine) == ("13.1", "/usr/local/cuda: include/cuda.h")


def test_cuda_home_comes_before_path(machine):
    machine.environ["CUDA_HOME"] = nvcc(machine, "/opt/first")
    machine.environ["PATH"] = nvcc(machine, "/opt/second") + "/bin"
    machine.file("/opt/first/version.txt", "CUDA Version 11.8.0")
    machine.file("/opt/second/version.txt", "CUDA Version 12.1.0")
    assert toolkit(machine)[0] == "11.8"


def test_a_home_without_nvcc_is_passed_over(machine):
    machine.file("/opt/runtime/version.txt", "CUDA Version 11.8.0")
    machine.environ["CUDA_HOME"] = str(machine.root / "opt/runtime")
    assert toolkit(machine)[0] is ABSENT


def test_a_link_on_path_is_followed(machine):
    home = nvcc(machine, "/opt/cuda")
    machine.file("/opt/cuda/version.txt", "CUDA Version 12.1.0")
    (machine.root / "bin").mkdir()
    (machine.root / "bin/nvcc").symlink_to(f"{home}/bin/nvcc")
    machine.environ["PATH"] = str(machine.root / "bin")
    assert toolkit(machine)[0] == "12.1"


def test_a_script_on_path_is_followed_without_being_started(machine):
    home = nvcc(machine, "/opt/cuda", "touch started")
    machine.file("/opt/cuda/version.txt", "CUDA Version 12.1.0")
    machine.environ["PATH"] = nvcc(machine, "/home/me", f'exec {home}/bin/nvcc "$@"') + "/bin"
    assert toolkit(machine) == ("12.1", "PATH: version.txt")
    assert not list(machine.root.rglob("started"))


def test_a_relative_place_depends_on_the_working_directory_and_is_left_out(machine, monkeypatch):
    nvcc(machine, "/here", "echo release 9.9, V9.9.9")
    monkeypatch.chdir(machine.root / "here")
    machine.environ.update(PATH="bin:", CUDA_HOME=".")
    assert toolkit(machine)[0] is ABSENT


def test_nvcc_is_asked_when_no_file_tells(machine):
    machine.environ["CUDA_HOME"] = nvcc(machine, "/opt/cuda", "echo 'Cuda compilation tools, release 12.6, V12.6.77'")
    assert toolkit(machine) == ("12.6", "CUDA_HOME: nvcc --version")


def test_nvcc_sees_no_secret_of_the_caller(machine):
    script = "[ -z \"$HF_TOKEN\" ] && echo 'Cuda compilation tools, release 12.6, V12.6.77'"
    machine.environ.update(CUDA_HOME=nvcc(machine, "/opt/cuda", script), HF_TOKEN="hf_secret")
    assert toolkit(machine)[0] == "12.6"


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 1", "does not say a release"), ("echo hello", "does not say a release"), ("yes", "does not say a release")],
)
def test_an_nvcc_that_talks_nonsense_is_a_reason(machine, script, words):
    machine.environ["CUDA_HOME"] = nvcc(machine, "/opt/cuda", script)
    assert words in toolkit(machine)[0].reason


def has_ended(pid: int) -> bool:
    """Whether a process that was killed comes to its end, which may take it a moment."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 60)[0])
    finally:
        os.close(process)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its child, as Linux can")
def test_an_nvcc_that_hangs_is_ended_with_its_children(machine, monkeypatch):
    monkeypatch.setattr(cuda_toolkit, "_NVCC_TIMEOUT", 0.3)
    pid_file = machine.root / "pid"
    script = f"tail -f /dev/null & echo $! > {pid_file}; wait"
    machine.environ.update(CUDA_HOME=nvcc(machine, "/opt/cuda", script), PATH=os.environ["PATH"])
    assert toolkit(machine)[0] == Unknown("nvcc did not answer in 0.3 s")
    assert has_ended(int(pid_file.read_text()))


def test_an_nvcc_that_cannot_be_started_is_a_reason(machine):
    home = nvcc(machine, "/opt/cuda")
    os.chmod(os.path.join(home, "bin/nvcc"), 0o644)
    machine.environ["CUDA_HOME"] = home
    if os.access(os.path.join(home, "bin/nvcc"), os.X_OK):
        pytest.skip("this user may start everything")
    assert "cannot be started" in toolkit(machine)[0].reason


def test_a_pipe_in_the_place_of_a_version_file_does_not_block(machine):
    machine.environ["CUDA_HOME"] = nvcc(machine, "/opt/cuda", "echo release 12.6, V12.6.77")
    os.mkfifo(machine.root / "opt/cuda/version.json")
    assert toolkit(machine)[0] == "12.6"


@settings(max_examples=40)
@given(st.text(max_size=200) | st.recursive(st.none() | st.text(), lambda x: st.dictionaries(st.text(), x)).map(repr))
def test_no_version_json_raises(text):
    cuda_toolkit._from_json(text)


@pytest.mark.parametrize("text", ["[" * 9**5, '{"cuda": 3}', '{"cuda": {"version": null}}', '{"cuda_nvcc": []}', "3"])
def test_odd_json_is_no_version(text):
    assert cuda_toolkit._from_json(text) is None
