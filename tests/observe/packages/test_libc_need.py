"""Compiled packages that ask for a newer C library than their wheel promises, or than this system has."""

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
def needs(venv: Path, site: Path, make_dist):
    """What is found of a package with this tag, on a system with this glibc."""

    def look(tag: str, system: str = "2.31", name: str = "pyarrow") -> Records:
        (site / "pyarrow").mkdir()
        (site / FILE).write_bytes(shared_object(versions={"libc.so.6": ["GLIBC_2.17", "GLIBC_2.34"]}))
        make_dist(site, name, "21.0.0", WHEEL=f"Wheel-Version: 1.0\nTag: cp311-cp311-{tag}\n", RECORD=f"{FILE},,\n")
        layout = choose(venv / "bin" / "python")
        facts = FactSet([*observe(layout).seen, Fact("os.libc_version", system, "", "environment")])
        value = one(libc_need, layout, facts).value
        assert isinstance(value, Records)
        return value

    return look


@pytest.mark.parametrize(
    ("tag", "name", "read"),
    [
        ("linux_x86_64", "pyarrow", True),
        ("manylinux_2_34_x86_64", "pyarrow", True),
        ("manylinux_2_28_x86_64", "pyarrow", False),
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", "pyarrow", False),
        ("musllinux_1_2_x86_64", "pyarrow", False),
        ("linux_x86_64", "flash_attn", False),  # extensions for torch are looked at elsewhere
    ],
)
def test_files_that_no_tag_vouches_for_are_read(needs, tag, name, read):
    found = [(item["package"], item["file"], item["glibc"]) for item in needs(tag, name=name)]
    assert found == ([("pyarrow", FILE, "2.34")] if read else [])


@pytest.mark.parametrize(("system", "named"), [("2.31", True), ("2.34", False)])
def test_the_system_decides(needs, system, named):
    facts = FactSet([Fact("os.libc", "glibc", "", "given"), Fact("os.libc_version", system, "", "given")])
    facts.add(Fact("libc_need", needs("linux_x86_64", system), "", "environment"))
    found = [finding.id for finding in judged(facts, shipped()).findings]
    assert ("package-needs-newer-glibc" in found) is named
