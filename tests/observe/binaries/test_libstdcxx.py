"""Which libstdc++ a process would load."""

import platform
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import a_layout, one
from rooms import observer

from envdoctor.facts import ABSENT, Records, Unknown

libstdcxx = observer("libstdcxx")

ELF = Path(__file__).resolve().parents[3] / "fixtures" / "elf"
NEW, OLD = ELF / "libstdc++.so.6", ELF / "old-libstdc++.so.6"  # 3.4.28 and 3.4.21
NAME = "libstdc++.so.6"
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the files are for x86_64")


def place(folder: Path, library: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, folder / NAME)
    return str(folder)


@pytest.fixture
def root(tmp_path: Path, loader_cache) -> Path:
    """A system whose loader knows the newer library."""
    place(tmp_path / "system" / "usr" / "lib64", NEW)
    loader_cache(tmp_path / "system", [("libc.so.6", "/lib64/libc.so.6"), (NAME, f"/usr/lib64/{NAME}")])
    return tmp_path / "system"


def found(root: Path, *wanted: str, kind: str = "venv", **environ: str):
    """The version that is found, where ``wanted`` ones are asked for, and its file."""
    extensions = Records(tuple({"package": "x", "glibcxx_needs": version} for version in wanted))
    layout = a_layout(root.parent / "env", kind=kind)
    fact = one(libstdcxx, layout, {"extension": extensions}, environ=environ, root=str(root))
    return fact.value, fact.origin


def test_without_anything_else_it_is_the_one_of_the_loaders_cache_or_the_usual_folder(root: Path) -> None:
    assert found(root, "3.4.21") == ("3.4.28", f"{root}/usr/lib64/{NAME}")
    (root / "etc" / "ld.so.cache").unlink()
    assert found(root, "3.4.21")[0] == "3.4.28"


def test_the_variables_of_the_loader_come_first_in_its_order(tmp_path: Path, root: Path) -> None:
    old, new = place(tmp_path / "old", OLD), place(tmp_path / "new", NEW)
    (tmp_path / "empty").mkdir()
    for environ, version in (
        ({"LD_LIBRARY_PATH": f"{tmp_path}/empty:{old}"}, "3.4.21"),
        ({"LD_LIBRARY_PATH": f"{old}:{new}"}, "3.4.21"),
        ({"LD_LIBRARY_PATH": old, "LD_PRELOAD": f"/nothing.so:{new}/{NAME}"}, "3.4.28"),
    ):
        assert found(root, "3.4.28", **environ)[0] == version


def test_a_library_for_another_machine_or_no_library_is_passed_over(tmp_path: Path, root: Path) -> None:
    other = Path(place(tmp_path / "other", OLD)) / NAME
    other.write_bytes(other.read_bytes()[:18] + struct.pack("<H", 183) + other.read_bytes()[20:])
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / NAME).write_text("GROUP ( libstdc++.so )")
    assert found(root, "3.4.21", LD_LIBRARY_PATH=f"{tmp_path}/other:{tmp_path}/text:relative\0")[0] == "3.4.28"


def test_in_a_conda_environment_either_may_be_loaded(tmp_path: Path, root: Path) -> None:
    place(tmp_path / "env" / "lib", OLD)
    assert found(root, "3.4.20", kind="conda")[0] == "3.4.21"  # enough in both
    assert found(root, "3.4.29", kind="conda")[0] == "3.4.28"  # too little in both
    between = found(root, "3.4.20", "3.4.26", kind="conda")[0]
    assert isinstance(between, Unknown)
    assert "which is loaded depends on what is first" in between.reason
    assert found(root, "3.4.26", kind="conda", LD_PRELOAD=str(NEW))[0] == "3.4.28"


def test_where_none_can_be_read_it_is_unknown(tmp_path: Path) -> None:
    assert isinstance(found(tmp_path, "3.4.21")[0], Unknown)


def test_it_is_not_looked_for_when_nothing_asks_for_it(tmp_path: Path) -> None:
    extensions = Records(({"package": "x", "glibcxx_needs": ABSENT},))
    for value in (Records(()), extensions, Unknown("not read")):
        fact = one(libstdcxx, a_layout(tmp_path), {"extension": value})
        assert fact.value == Unknown("no extension asks for a version of it")


def test_the_cache_behind_the_older_format_is_found(tmp_path: Path, loader_cache) -> None:
    entries = [(NAME, f"/gone/{NAME}"), ("other", "/b"), (NAME, f"/c/{NAME}")]
    loader_cache(tmp_path, entries, before=b"ld.so-1.7.0" + bytes(9))
    place(tmp_path / "c", NEW)
    assert found(tmp_path, "3.4.21") == ("3.4.28", f"{tmp_path}/c/{NAME}")


def test_the_cache_of_this_machine_is_understood(tmp_path: Path) -> None:
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    done = subprocess.run([ldconfig or "true", "-p"], capture_output=True, text=True, check=False)
    paths = [line.rpartition(" => ")[2] for line in done.stdout.splitlines() if line.split()[:1] == [NAME]]
    if not paths:
        pytest.skip(f"no loader cache that names {NAME} here")
    assert found(Path("/"), "3.4.21")[1] in paths


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_a_hostile_loader_cache_names_nothing(tmp_path: Path, noise: bytes, count: int) -> None:
    (tmp_path / "etc").mkdir(exist_ok=True)
    path = tmp_path / "etc" / "ld.so.cache"
    path.write_bytes(b"glibc-ld.so.cache1.1" + struct.pack("<I", count) + bytes(24) + noise)
    assert isinstance(found(tmp_path, "3.4.21")[0], Unknown)
