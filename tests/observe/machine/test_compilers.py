"""The compilers of a machine: which one is taken, and how its version is known without starting it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooms import observer

from envdoctor.facts import ABSENT, Unknown, Value
from envdoctor.observe import Request

compilers = observer("compilers")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compilers are looked for on Linux only")


def program(machine, path: str) -> str:
    """A program that leaves a trace when it is started."""
    file = machine.file(path, f"#!/bin/sh\ntouch {machine.root}/started\n")
    file.chmod(0o755)
    return str(file)


def link(machine, path: str, target: str) -> None:
    place = machine.root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def triple() -> str:
    return f"{os.uname().machine}-linux-gnu"


@pytest.fixture
def observed(machine, by_key):
    machine.environ["PATH"] = str(machine.root / "usr/bin")

    def observe() -> dict[str, Value]:
        facts = by_key(compilers.observe(machine.request()))
        assert not (machine.root / "started").exists()
        return facts

    return observe


def test_a_machine_without_compilers_has_none(observed):
    assert observed() == {"build.c_compiler": ABSENT, "build.gcc": ABSENT}


def test_the_name_behind_the_link_tells_the_version(machine, observed):
    program(machine, "/usr/bin/x86_64-linux-gnu-g++-12")
    link(machine, "/usr/bin/g++-12", "x86_64-linux-gnu-g++-12")
    link(machine, "/etc/alternatives/c++", str(machine.root / "usr/bin/g++-12"))
    link(machine, "/usr/bin/c++", str(machine.root / "etc/alternatives/c++"))
    assert observed()["build.gcc"] == "12"


def test_the_one_folder_of_its_library_tells_the_version(machine, observed):
    program(machine, "/usr/bin/c++")
    machine.file(f"/usr/lib/gcc/{triple()}/8/crtbegin.o")
    machine.file("/usr/lib/gcc/riscv64-linux-gnu/13/crtbegin.o")
    assert observed()["build.gcc"] == "8"


def test_two_library_folders_do_not_tell(machine, observed):
    program(machine, "/usr/bin/c++")
    machine.file(f"/usr/lib/gcc/{triple()}/8/crtbegin.o")
    machine.file(f"/usr/lib/gcc/{triple()}/12.3.0/crtbegin.o")
    assert isinstance(observed()["build.gcc"], Unknown)


def test_gpp_is_taken_where_there_is_no_cpp(machine, observed):
    program(machine, "/usr/bin/g++-13")
    link(machine, "/usr/bin/g++", "g++-13")
    assert observed()["build.gcc"] == "13"


def test_clang_is_a_compiler_and_no_gcc(machine, observed):
    program(machine, "/usr/bin/clang")
    link(machine, "/usr/bin/c++", "clang")
    facts = observed()
    assert facts["build.c_compiler"] == "clang"
    assert isinstance(facts["build.gcc"], Unknown)
    assert "clang" in facts["build.gcc"].reason


def test_gcc_goes_before_clang(machine, observed):
    program(machine, "/usr/bin/clang")
    program(machine, "/usr/bin/gcc")
    assert observed()["build.c_compiler"] == "gcc"


def test_cxx_names_the_compiler(machine, observed):
    program(machine, "/usr/bin/g++-12")
    link(machine, "/usr/bin/c++", "g++-12")
    machine.environ["CXX"] = "ccache " + program(machine, "/opt/conda/bin/x86_64-conda-linux-gnu-c++") + " -m64"
    machine.file(f"/opt/conda/lib/gcc/{os.uname().machine}-conda-linux-gnu/14.2.0/crtbegin.o")
    assert observed()["build.gcc"] == "14.2.0"


def test_a_cxx_that_is_not_there_is_not_a_missing_compiler(machine, observed):
    machine.environ["CXX"] = "icpx"
    machine.environ["CC"] = ""
    facts = observed()
    assert isinstance(facts["build.gcc"], Unknown)
    assert isinstance(facts["build.c_compiler"], Unknown)


def test_another_cc_than_cxx_leaves_the_version_open(machine, observed):
    machine.environ["CC"] = program(machine, "/usr/bin/gcc-11")
    program(machine, "/usr/bin/g++-12")
    link(machine, "/usr/bin/c++", "g++-12")
    assert isinstance(observed()["build.gcc"], Unknown)
    machine.environ["CC"] = program(machine, "/usr/bin/gcc-12")
    assert observed()["build.gcc"] == "12"


def test_a_compiler_cache_in_front_is_passed_over(machine, observed):
    program(machine, "/usr/bin/ccache")
    link(machine, "/usr/lib/ccache/c++", str(machine.root / "usr/bin/ccache"))
    program(machine, "/usr/bin/g++-12")
    link(machine, "/usr/bin/c++", "g++-12")
    machine.environ["PATH"] = f"{machine.root}/usr/lib/ccache{os.pathsep}{machine.root}/usr/bin"
    assert observed()["build.gcc"] == "12"


def test_a_circle_of_links_ends(machine, observed):
    link(machine, "/usr/bin/c++", "g++")
    link(machine, "/usr/bin/g++", "c++")
    assert observed()["build.gcc"] is ABSENT
    assert isinstance(compilers.gcc_version(str(machine.root / "usr/bin/c++")), Unknown)


def test_other_platforms_are_not_looked_at(machine, by_key):
    facts = by_key(compilers.observe(machine.request(platform="darwin")))
    assert all(isinstance(value, Unknown) for value in facts.values())


@given(st.text(), st.text(), st.text())
def test_any_variables_are_borne(cc: str, cxx: str, path: str):
    request = Request(environ={"CC": cc, "CXX": cxx, "PATH": path}, platform="linux", root=str(Path("/nowhere")))
    assert {fact.key for fact in compilers.observe(request)} == set(compilers.KEYS)
