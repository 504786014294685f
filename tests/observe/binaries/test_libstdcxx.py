"""Which libstdc++ a process would load."""

from __future__ import annotations

import os
import platform
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import one
from rooms import observer

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.observe import Layout
from envdoctor.observe.binaries.reading.libstdcxx import find_libstdcxx
from envdoctor.observe.binaries.reading.loader import cached_library
from envdoctor.text import Files

libstdcxx = observer("libstdcxx")

ELF = Path(__file__).resolve().parents[3] / "fixtures" / "elf"
NEW, OLD = ELF / "libstdc++.so.6", ELF / "old-libstdc++.so.6"  # 3.4.28 and 3.4.21
NAME = "libstdc++.so.6"
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the files are for x86_64")


def layout(prefix: Path, kind: str = "venv") -> Layout:
    return Layout(str(prefix), None, (), "3.11.9", "cpython", kind, "", True, Files())


def place(folder: Path, library: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, folder / NAME)
    return str(folder)


def loader_cache(root: Path, entries: list[tuple[str, str]], before: bytes = b"") -> None:
    """An /etc/ld.so.cache of these names and paths."""
    places, strings = [], b""
    start = 48 + 24 * len(entries)
    for name, path in entries:
        places.append((1, start + len(strings), start + len(strings) + len(name) + 1, 0, 0))
        strings += name.encode() + b"\0" + path.encode() + b"\0"
    head = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + bytes(20)
    (root / "etc").mkdir(parents=True, exist_ok=True)
    data = before + head + b"".join(struct.pack("<iIIIQ", *entry) for entry in places) + strings
    (root / "etc" / "ld.so.cache").write_bytes(data)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system whose loader knows the newer library."""
    place(tmp_path / "system" / "usr" / "lib64", NEW)
    loader_cache(tmp_path / "system", [("libc.so.6", "/lib64/libc.so.6"), (NAME, f"/usr/lib64/{NAME}")])
    return tmp_path / "system"


def test_without_anything_else_it_is_the_one_of_the_loaders_cache(tmp_path: Path, root: Path) -> None:
    fact = find_libstdcxx(["3.4.21"], layout(tmp_path), {}, root=str(root))
    assert (fact.value, fact.origin) == ("3.4.28", f"{root}/usr/lib64/{NAME}")


def test_without_a_cache_it_is_the_one_in_the_usual_folder(tmp_path: Path, root: Path) -> None:
    (root / "etc" / "ld.so.cache").unlink()
    assert find_libstdcxx(["3.4.21"], layout(tmp_path), {}, root=str(root)).value == "3.4.28"


def test_the_variables_of_the_loader_come_first_in_its_order(tmp_path: Path, root: Path) -> None:
    old = place(tmp_path / "old", OLD)
    new = place(tmp_path / "new", NEW)
    (tmp_path / "empty").mkdir()
    for environ, version in (
        ({"LD_LIBRARY_PATH": f"{tmp_path}/empty:{old}"}, "3.4.21"),
        ({"LD_LIBRARY_PATH": f"{old}:{new}"}, "3.4.21"),
        ({"LD_LIBRARY_PATH": old, "LD_PRELOAD": f"/nothing.so:{new}/{NAME}"}, "3.4.28"),
    ):
        assert find_libstdcxx(["3.4.28"], layout(tmp_path), environ, root=str(root)).value == version


def test_a_library_for_another_machine_or_no_library_is_passed_over(tmp_path: Path, root: Path) -> None:
    other = Path(place(tmp_path / "other", OLD)) / NAME
    other.write_bytes(other.read_bytes()[:18] + struct.pack("<H", 183) + other.read_bytes()[20:])
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / NAME).write_text("GROUP ( libstdc++.so )")
    environ = {"LD_LIBRARY_PATH": f"{tmp_path}/other:{tmp_path}/text:relative\0"}
    assert find_libstdcxx(["3.4.21"], layout(tmp_path), environ, root=str(root)).value == "3.4.28"


def test_in_a_conda_environment_either_may_be_loaded(tmp_path: Path, root: Path) -> None:
    place(tmp_path / "conda" / "lib", OLD)
    conda = layout(tmp_path / "conda", "conda")
    assert find_libstdcxx(["3.4.20"], conda, {}, root=str(root)).value == "3.4.21"  # enough in both
    assert find_libstdcxx(["3.4.29"], conda, {}, root=str(root)).value == "3.4.28"  # too little in both
    between = find_libstdcxx(["3.4.20", "3.4.26"], conda, {}, root=str(root)).value
    assert isinstance(between, Unknown)
    assert "which is loaded depends on what is first" in between.reason
    preloaded = {"LD_PRELOAD": str(NEW)}
    assert find_libstdcxx(["3.4.26"], conda, preloaded, root=str(root)).value == "3.4.28"


def test_where_none_can_be_read_it_is_unknown(tmp_path: Path) -> None:
    assert isinstance(find_libstdcxx(["3.4.21"], layout(tmp_path), {}, root=str(tmp_path)).value, Unknown)


def test_it_is_not_looked_for_when_nothing_asks_for_it(tmp_path: Path) -> None:
    extensions = Records(({"package": "x", "glibcxx_needs": ABSENT},))
    for value in (Records(()), extensions, Unknown("not read")):
        assert one(libstdcxx, layout(tmp_path), {"extension": value}).value == Unknown(
            "no extension asks for a version of it"
        )


def test_the_cache_behind_the_older_format_is_found(tmp_path: Path) -> None:
    loader_cache(
        tmp_path, [(NAME, "/a/" + NAME), ("other", "/b"), (NAME, "/c/" + NAME)], before=b"ld.so-1.7.0" + bytes(9)
    )
    assert cached_library(NAME, str(tmp_path / "etc" / "ld.so.cache")) == [f"/a/{NAME}", f"/c/{NAME}"]


@pytest.mark.skipif(not os.path.exists("/etc/ld.so.cache"), reason="no loader cache here")
def test_the_cache_of_this_machine_is_understood() -> None:
    assert all(os.path.isabs(path) for path in cached_library("libc.so.6"))
    assert cached_library("libc.so.6")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_a_hostile_loader_cache_names_nothing_or_paths(tmp_path: Path, noise: bytes, count: int) -> None:
    path = tmp_path / "cache"
    path.write_bytes(b"glibc-ld.so.cache1.1" + struct.pack("<I", count) + bytes(24) + noise)
    assert all(one.startswith("/") for one in cached_library(NAME, str(path)))
