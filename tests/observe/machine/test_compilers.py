"""The compilers of a machine: which one is taken, and how its version is known without starting it."""

import os
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observing import values
from rooms import observer

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe import Request

compilers = observer("compilers")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compilers are looked for on Linux only")


LIBRARY = f"/usr/lib/gcc/{os.uname().machine}-linux-gnu"
CONDA = "/opt/conda/bin/x86_64-conda-linux-gnu-c++"


def build(machine, files: str) -> None:
    """Make links (``c++>clang``) and programs that leave a trace when they run, in /usr/bin or where they say."""
    for path, _, target in (file.partition(">") for file in files.split()):
        path = path if path.startswith("/") else f"/usr/bin/{path}"
        if target:
            place = machine.root / path[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(machine.root / target[1:] if target.startswith("/") else target)
        else:
            machine.file(path, f"#!/bin/sh\ntouch {machine.root}/started\n").chmod(0o755)


def observed(machine, **environ):
    """The version of gcc and the C compiler; nothing is started."""
    given = {"PATH": "/usr/bin", **environ}
    below = {name: re.sub(r"/(?=usr/|opt/)", f"{machine.root}/", value) for name, value in given.items()}
    facts = values(compilers.observe(machine.request(environ=below)))
    assert not (machine.root / "started").exists()
    return facts["build.gcc"], facts["build.c_compiler"]


@pytest.mark.parametrize(
    ("files", "environ", "version"),
    [
        # the name behind the link
        (
            "x86_64-linux-gnu-g++-12 g++-12>x86_64-linux-gnu-g++-12 /etc/alternatives/c++>/usr/bin/g++-12 "
            "c++>/etc/alternatives/c++",
            {},
            "12",
        ),
        ("g++-13 g++>g++-13", {}, "13"),
        # the one folder of its library
        (f"c++ {LIBRARY}/8/crtbegin.o /usr/lib/gcc/riscv64-linux-gnu/13/crtbegin.o", {}, "8"),
        (f"c++ {LIBRARY}/8/crtbegin.o {LIBRARY}/12.3.0/crtbegin.o", {}, None),
        (
            f"g++-12 c++>g++-12 {CONDA} /opt/conda/lib/gcc/{os.uname().machine}-conda-linux-gnu/14.2.0/crtbegin.o",
            {"CXX": f"ccache {CONDA} -m64"},
            "14.2.0",
        ),
        # another CC than CXX leaves it open
        ("g++-12 c++>g++-12 gcc-11", {"CC": "/usr/bin/gcc-11"}, None),
        ("g++-12 c++>g++-12 gcc-12", {"CC": "/usr/bin/gcc-12"}, "12"),
        # a compiler cache in front is passed over
        (
            "g++-12 c++>g++-12 ccache /usr/lib/ccache/c++>/usr/bin/ccache",
            {"PATH": f"/usr/lib/ccache{os.pathsep}/usr/bin"},
            "12",
        ),
    ],
)
def test_the_version_of_gcc_is_told_by_names_and_folders(machine, files, environ, version):
    build(machine, files)
    gcc, _ = observed(machine, **environ)
    assert isinstance(gcc, Unknown) if version is None else gcc == version


def test_a_machine_without_compilers_has_none(machine):
    assert observed(machine) == (ABSENT, ABSENT)


def test_clang_is_a_compiler_and_no_gcc_and_gcc_goes_before_it(machine):
    build(machine, "clang c++>clang")
    gcc, compiler = observed(machine)
    assert compiler == "clang" and "clang" in gcc.reason
    (machine.root / "usr/bin/c++").unlink()
    build(machine, "gcc")
    assert observed(machine)[1] == "gcc"


def test_a_cxx_that_is_not_there_is_not_a_missing_compiler(machine):
    assert all(isinstance(value, Unknown) for value in observed(machine, CXX="icpx", CC=""))


def test_a_circle_of_links_ends(machine):
    build(machine, "c++>g++ g++>c++")
    assert observed(machine)[0] is ABSENT


def test_other_platforms_are_not_looked_at(machine):
    facts = compilers.observe(machine.request(platform="darwin"))
    assert all(isinstance(fact.value, Unknown) for fact in facts)


@given(st.text(), st.text(), st.text())
def test_any_variables_are_borne(cc: str, cxx: str, path: str):
    request = Request(environ={"CC": cc, "CXX": cxx, "PATH": path}, platform="linux", root="/nowhere")
    assert {fact.key for fact in compilers.observe(request)} == set(compilers.keys)
