"""What an environment has for compiling extensions."""

import os
import sys
from pathlib import Path

import pytest
from observing import a_layout, ask, values, write
from rooms import observer

from envdoctor.facts import ABSENT, Fact, FactSet, Unknown, Value

build_parts = observer("build_parts")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compiling is looked at on Linux only")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A Python installation with headers: base/bin/python3.11, base/include/python3.11/Python.h."""
    return write(tmp_path / "base", {"bin/python3.11": "", "include/python3.11/Python.h": ""})


@pytest.fixture
def venv(tmp_path: Path, base: Path) -> Path:
    place = tmp_path / "venv"
    (place / "bin").mkdir(parents=True)
    (place / "bin/python").symlink_to(base / "bin/python3.11")
    (place / "lib/python3.11/site-packages").mkdir(parents=True)
    return place


def look(venv: Path, deepspeed: Value = ABSENT, **environ: str) -> dict[str, Value]:
    layout = a_layout(venv, venv / "lib/python3.11/site-packages", executable=str(venv / "bin/python"))
    asked = ask(layout, facts=FactSet([Fact("pkg.deepspeed", deepspeed, "", "")]), environ=environ)
    return values(build_parts.observe(asked))


@pytest.mark.parametrize(("folder", "there"), [("python3.11", True), ("python3.11t", True), ("python3.12", False)])
def test_headers_are_those_of_the_interpreter_behind_the_link(venv, base, folder, there):
    os.rename(base / "include/python3.11", base / "include" / folder)
    assert look(venv)["build.python_headers"] is there


def test_variables_that_name_other_folders_leave_it_open(venv, base):
    (base / "include/python3.11/Python.h").unlink()
    assert look(venv)["build.python_headers"] is False
    assert isinstance(look(venv, CPATH="/opt/include")["build.python_headers"], Unknown)


def test_ninja_is_found_on_path_and_in_the_environment(venv, tmp_path):
    assert look(venv, PATH=str(tmp_path))["build.ninja"] is False
    for folder in (tmp_path, venv / "bin"):
        ninja = folder / "ninja"
        ninja.write_text("")
        assert look(venv, PATH=str(tmp_path))["build.ninja"] is False
        ninja.chmod(0o755)
        assert look(venv, PATH=str(tmp_path))["build.ninja"] is True
        ninja.unlink()


def test_compiled_ops_of_the_package_and_of_torchs_cache_are_named(venv, tmp_path):
    ops = ("cpu_adam_op.cpython-311-x86_64-linux-gnu.so", "fused_adam.py")
    write(venv / "lib/python3.11/site-packages/deepspeed/ops/adam", dict.fromkeys(ops, ""))
    kept = ("py311_cu124/fused_adam/fused_adam.so", "py310_cu124/fused_lamb/fused_lamb.so", "py311_cu124/fused_lion/x")
    write(tmp_path / ".cache/torch_extensions", dict.fromkeys(kept, ""))
    assert look(venv, "0.17.6", HOME=str(tmp_path))["build.compiled"] == ("cpu_adam", "fused_adam")
    assert look(venv, ABSENT, HOME=str(tmp_path))["build.compiled"] == ()
    write(tmp_path, {"own/cpu_adam/cpu_adam.so": ""})
    found = look(venv, "0.17.6", HOME=str(tmp_path), TORCH_EXTENSIONS_DIR=str(tmp_path / "own"))
    assert found["build.compiled"] == ("cpu_adam",)  # that cache is looked at instead
