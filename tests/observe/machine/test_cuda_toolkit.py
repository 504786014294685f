"""The CUDA toolkit: where it is looked for, and how its version is known."""

import os
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from observing import program
from processes import gone
from rooms import observer, observing

from envdoctor.facts import ABSENT, Unknown

cuda_toolkit = observer("cuda_toolkit")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nvcc is a shell script here")


def nvcc(machine, home: str, script: str = "exit 1") -> str:
    return str(program(machine.root / home.lstrip("/") / "bin/nvcc", script).parents[1])


def toolkit(machine) -> tuple[object, str]:
    (fact,) = cuda_toolkit.observe(machine.request())
    return fact.value, fact.origin


JSON = '{"cuda": {"version": "12.4.1"}, "cuda_nvcc": {"name": "nvcc", "version": "12.4.131"}}'


@pytest.mark.parametrize(
    ("homes", "files", "environ", "found"),
    [
        ([], {}, {}, (ABSENT, None)),
        (["/opt/cuda"], {"/opt/cuda/version.json": JSON}, {"CUDA_HOME": "/opt/cuda"}, ("12.4", "version.json")),
        (["/opt/cuda"], {"/opt/cuda/version.txt": "10.2.89\n"}, {"CUDA_PATH": "/opt/cuda"}, ("10.2", "version.txt")),
        (
            ["/usr/local/cuda"],
            {"/usr/local/cuda/include/cuda.h": "/* API */\n#define CUDA_VERSION 13010\n"},
            {},
            ("13.1", "include/cuda.h"),
        ),
        # CUDA_HOME comes before PATH
        (
            ["/opt/first", "/opt/second"],
            {"/opt/first/version.txt": "11.8.0", "/opt/second/version.txt": "12.1.0"},
            {"CUDA_HOME": "/opt/first", "PATH": "/opt/second/bin"},
            ("11.8", "version.txt"),
        ),
        # a home without nvcc is passed over
        ([], {"/opt/runtime/version.txt": "11.8.0"}, {"CUDA_HOME": "/opt/runtime"}, (ABSENT, None)),
    ],
)
def test_the_version_is_that_of_a_file_of_the_first_home_with_nvcc(machine, homes, files, environ, found):
    for home in homes:
        nvcc(machine, home)
    for path, text in files.items():
        machine.file(path, f"CUDA Version {text}" if path.endswith("txt") else text)
    machine.environ.update({name: f"{machine.root}{path}" for name, path in environ.items()})
    version, origin = toolkit(machine)
    assert version == found[0]
    if found[1] is not None:
        assert origin == f"{next(iter(environ), '/usr/local/cuda')}: {found[1]}"


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


def test_nvcc_sees_no_secret_of_the_caller(machine):
    script = "[ -z \"$HF_TOKEN\" ] && echo 'Cuda compilation tools, release 12.6, V12.6.77'"
    machine.environ.update(CUDA_HOME=nvcc(machine, "/opt/cuda", script), HF_TOKEN="hf_secret")
    assert toolkit(machine) == ("12.6", "CUDA_HOME: nvcc --version")


@pytest.mark.parametrize("script", ["exit 1", "echo hello", "yes"])
def test_an_nvcc_that_talks_nonsense_is_a_reason(machine, script):
    machine.environ["CUDA_HOME"] = nvcc(machine, "/opt/cuda", script)
    assert "does not say a release" in toolkit(machine)[0].reason


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its child, as Linux can")
def test_an_nvcc_that_hangs_is_ended_with_its_children(machine, monkeypatch):
    monkeypatch.setattr(observing("cuda_toolkit"), "_NVCC_TIMEOUT", 0.3)
    pid_file = machine.root / "pid"
    script = f"tail -f /dev/null & echo $! > {pid_file}; wait"
    machine.environ.update(CUDA_HOME=nvcc(machine, "/opt/cuda", script), PATH=os.environ["PATH"])
    assert toolkit(machine)[0] == Unknown("nvcc took more than 0.3 s")
    assert gone(int(pid_file.read_text()))


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


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200) | st.recursive(st.none() | st.text(), lambda x: st.dictionaries(st.text(), x)).map(repr))
@example("[" * 9**5)
@example('{"cuda": 3}')
@example('{"cuda": {"version": null}}')
@example('{"cuda_nvcc": []}')
@example("3")
def test_an_odd_version_json_is_no_version(machine, text):
    machine.environ["CUDA_HOME"] = nvcc(machine, "/opt/cuda", "echo release 12.6, V12.6.77")
    machine.file("/opt/cuda/version.json", text.encode("utf-8", "replace").decode())
    assert toolkit(machine) == ("12.6", "CUDA_HOME: nvcc --version")
