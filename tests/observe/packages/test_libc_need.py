"""Compiled packages that ask for a newer C library than their wheel promises, or than this system has."""

from __future__ import annotations

from pathlib import Path

import pytest
from elf_writer import shared_object
from known import judged
from observing import choose, observe, one, shipped
from rooms import observer

from envdoctor.facts import Fact, FactSet, Records

libc_need = observer("libc_need")

FILE = "pyarrow/lib.cpython-311-x86_64-linux-gnu.so"


@pytest.fixture
def needs(venv: Path, site: Path, tmp_path: Path, make_dist):
    """What is found of a package with this tag, on a system with this glibc."""

    def look(tag: str, system: str = "2.31", name: str = "pyarrow") -> Records:
        (site / "pyarrow").mkdir()
        (site / FILE).write_bytes(shared_object(versions={"libc.so.6": ["GLIBC_2.17", "GLIBC_2.34"]}))
        make_dist(site, name, "21.0.0", WHEEL=f"Wheel-Version: 1.0\nTag: cp311-cp311-{tag}\n", RECORD=f"{FILE},,\n")
        layout = choose(str(venv / "bin" / "python"), None, None, environ={}, cwd=str(tmp_path))
        facts = FactSet([*observe(layout).seen, Fact("os.libc_version", system, "", "environment")])
        value = one(libc_need, layout, facts).value
        assert isinstance(value, Records)
        return value

    return look


@pytest.mark.parametrize("tag", ["linux_x86_64", "manylinux_2_34_x86_64"])
def test_files_that_no_tag_vouches_for_are_read(needs, tag):
    (item,) = needs(tag)
    assert (item["package"], item["file"], item["glibc"]) == ("pyarrow", FILE, "2.34")


@pytest.mark.parametrize(
    "tag", ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64.manylinux2014_x86_64", "musllinux_1_2_x86_64"]
)
def test_the_tag_of_a_wheel_is_believed(needs, tag):
    assert needs(tag).items == ()


def test_extensions_for_torch_are_looked_at_elsewhere(needs):
    assert needs("linux_x86_64", name="flash_attn").items == ()


@pytest.mark.parametrize(("system", "named"), [("2.31", True), ("2.34", False)])
def test_the_system_decides(needs, system, named):
    facts = FactSet([Fact("os.libc", "glibc", "", "given"), Fact("os.libc_version", system, "", "given")])
    facts.add(Fact("libc_need", needs("linux_x86_64", system), "", "environment"))
    found = [finding.id for finding in judged(facts, shipped()).findings]
    assert ("package-needs-newer-glibc" in found) is named
