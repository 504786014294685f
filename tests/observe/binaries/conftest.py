"""Environments with compiled files: the small ones of fixtures/elf, laid out as wheels lay them out."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from observing import choose, observe, one, write
from rooms import observer

from envdoctor.facts import Records

extension = observer("extension")

ELF = Path(__file__).resolve().parents[3] / "fixtures" / "elf"


@pytest.fixture(scope="session")
def elf() -> Path:
    """The folder of small ELF files."""
    return ELF


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with a torch whose libraries are libc10.so and libtorch_cpu.so."""
    libraries = {f"torch/lib/{name}": (ELF / name).read_bytes() for name in ("libc10.so", "libtorch_cpu.so")}
    version = "__version__ = '2.13.0+cpu'\ncuda = None\nhip = None\n"
    folder = write(tmp_path / "packages", {"torch/version.py": version, **libraries})
    metadata(folder, "torch", "2.13.0", list(libraries))
    return folder


def metadata(folder: Path, name: str, version: str, record: list[str] | None) -> Path:
    """A metadata directory with a RECORD of these files; None: without RECORD."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n")
    if record is not None:
        (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in record))
    return info


@pytest.fixture
def install(site: Path) -> Callable[..., Path]:
    """Install a package: ``install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "good.so"})``; values name files of
    fixtures/elf or are the bytes themselves. Returns its metadata directory."""

    def run(name: str, version: str, files: Mapping[str, str | bytes], *, record: bool = True) -> Path:
        held = (
            (name, content if isinstance(content, bytes) else (ELF / content).read_bytes())
            for name, content in files.items()
        )
        write(site, dict(held))
        return metadata(site, name, version, list(files) if record else None)

    return run


@pytest.fixture
def extensions(site: Path) -> Callable[[], Records]:
    """The value of ``extension`` of the environment as it is now."""

    def read() -> Records:
        layout = choose(path=site)
        value = one(extension, layout, observe(layout).seen).value
        assert isinstance(value, Records)
        return value

    return read


@pytest.fixture
def item(extensions: Callable[[], Records]) -> Callable[[], Mapping[str, Any]]:
    """What is said of the only package."""

    def only() -> Mapping[str, Any]:
        (found,) = extensions()
        return found

    return only


@pytest.fixture(scope="session")
def loader_cache() -> Callable[..., None]:
    """Write an /etc/ld.so.cache of these names and paths."""

    def write_cache(root: Path, entries: list[tuple[str, str]], before: bytes = b"") -> None:
        places, strings = [], b""
        start = 48 + 24 * len(entries)
        for name, path in entries:
            places.append((1, start + len(strings), start + len(strings) + len(name) + 1, 0, 0))
            strings += name.encode() + b"\0" + path.encode() + b"\0"
        head = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries), len(strings)) + bytes(20)
        table = b"".join(struct.pack("<iIIIQ", *entry) for entry in places)
        write(root, {"etc/ld.so.cache": before + head + table + strings})

    return write_cache
