"""How torch was built, and whether its libraries are there."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observing import a_layout, ask, installed, values, write
from rooms import observer

from envdoctor.facts import ABSENT, Unknown, Value

torch_build = observer("torch_build")

VERSION = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '2.5.1+cu124'
debug = False
cuda: Optional[str] = '12.4'
git_version = 'a8d6afb511a69687bbb2b7e88a3cf67917e1697e'
hip: Optional[str] = None
xpu: Optional[str] = None
"""
NEW = b"\0_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\0"
OLD = b"\0_ZN3c105ErrorC2ENS_14SourceLocationESs\0"
HIP = {"'12.4'": "None", "hip: Optional[str] = None": "hip: Optional[str] = '6.2.41133-dd7f95766'"}
GONE = ("torch/lib/libtorch_cpu.so",)


@pytest.fixture
def torch(bare: Path, make_dist) -> Path:
    """A torch of three libraries that its RECORD lists; its folder of packages."""
    record = "\n".join(
        ["torch/__init__.py,sha256=x,1"]
        + [f"torch/lib/{name},sha256=x,1" for name in ("libc10.so", "libgomp.so.1", "libtorch_cpu.so")]
        + ["torch/lib/libtorchbind_test.so,sha256=x,1", "torch/lib/libshm/core.h,sha256=x,1", "torch/version.py,,"]
    )
    make_dist(bare, "torch", "2.5.1", RECORD=record + "\n")
    libraries = {"libgomp.so.1": b"x", "libtorch_cpu.so": b"x", "libc10.so": b"\x7fELF" + b"y" * 300_000 + NEW}
    return write(bare, {"torch/version.py": VERSION, **{f"torch/lib/{name}": libraries[name] for name in libraries}})


def build(folder: Path) -> Mapping[str, Value]:
    """What is said of the torch in the folder."""
    found = values(torch_build.observe(ask(a_layout(folder), facts=installed(folder))))
    assert found.keys() == set(torch_build.keys)
    return {key.removeprefix("torch."): value for key, value in found.items()}


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        (
            {},
            {
                "cuda": "12.4",
                "hip": ABSENT,
                "git": "a8d6afb511a69687bbb2b7e88a3cf67917e1697e",
                "cxx11_abi": True,
                "missing_files": (),
            },
        ),
        ({"'12.4'": "None"}, {"cuda": ABSENT}),
        (HIP, {"hip": "6.2.41133", "cuda": ABSENT}),
        *(({"'12.4'": value}, {"cuda": Unknown}) for value in ("'twelve'", "''", "True", "'12.4' or None", "['12.4']")),
    ],
)
def test_what_the_version_file_says_of_the_build(torch: Path, edits: dict[str, str], found: dict[str, object]) -> None:
    text = VERSION
    for old, new in edits.items():
        text = text.replace(old, new)
    (torch / "torch" / "version.py").write_text(text)
    said = build(torch)
    assert {key: Unknown if isinstance(said[key], Unknown) else said[key] for key in found} == found


@pytest.mark.parametrize(
    ("content", "abi"),
    [(OLD, False), (b"nothing", None)]
    + [(b"y" * before + NEW + b"z" * 1000, True) for before in range((1 << 18) - 80, (1 << 18) + 2, 9)],
)
def test_the_abi_is_that_of_the_string_in_a_symbol(torch: Path, content: bytes, abi: bool | None) -> None:
    (torch / "torch" / "lib" / "libc10.so").write_bytes(content)
    found = build(torch)["cxx11_abi"]
    assert isinstance(found, Unknown) if abi is None else found is abi


def test_macos_has_no_libstdcxx(torch: Path) -> None:
    (torch / "torch" / "lib" / "libc10.so").rename(torch / "torch" / "lib" / "libc10.dylib")
    assert build(torch)["cxx11_abi"] is ABSENT


def unlink(*names: str) -> Callable[[Path], object]:
    return lambda site: [(site / name).unlink() for name in names]


RECORD, C10, CPU = "torch-2.5.1.dist-info/RECORD", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so"


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda site: None, ()),
        # one library of the pair tells that the other is gone; without both they may be elsewhere
        (unlink(CPU), GONE),
        (lambda site: ((site / CPU).unlink(), (site / CPU).symlink_to("gone.so")), GONE),
        (unlink(C10), (C10,)),
        (unlink(C10, CPU), ()),
    ],
)
def test_libraries_that_are_gone_are_named(torch: Path, change, missing: tuple[str, ...]) -> None:
    change(torch)
    found = build(torch)
    assert found["missing_files"] == missing
    assert isinstance(found["cxx11_abi"], Unknown) or (torch / C10).exists()


def test_without_torch_or_its_version_file_everything_is_unknown_and_says_why(bare: Path, make_dist) -> None:
    make_dist(bare, "numpy", "1.0")
    assert set(build(bare).values()) == {Unknown("torch is not installed")}
    make_dist(bare, "torch", "2.5.1")
    assert set(build(bare).values()) == {Unknown("there is no torch/version.py")}


PARTS = st.sampled_from([b"torch/lib/libc10.so", b",", b"\n", b'"', b"\xff", b"torch/lib/", b"/../x.so"])


@given(st.text(max_size=400).map(lambda text: text.encode("utf-8", "replace")), st.lists(PARTS, max_size=30))
def test_any_version_file_and_record_give_plain_values_and_names_of_libraries(text: bytes, parts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        head = "Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1\n\n"
        files = {"torch/version.py": text, "torch/lib/x": "", RECORD: b"".join(parts)}
        found = build(write(Path(name), {**files, "torch-2.5.1.dist-info/METADATA": head}))
    assert all(value is ABSENT or isinstance(value, (str, bool, tuple, Unknown)) for value in found.values())
    for listed in () if isinstance(found["missing_files"], Unknown) else found["missing_files"]:
        library = listed.removeprefix("torch/lib/")
        assert "/" not in library and ".so" in library
