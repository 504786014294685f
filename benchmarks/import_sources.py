"""The stacks and releases of `import_cases.py` as far as `check` reads them: source and metadata; of everything else
the names and sizes. Of large wheels no more is fetched, by byte ranges. Nothing of it can be imported.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from zipfile import ZipFile, ZipInfo

import tomllib
from import_cases import STACKS, TORCH, Case, Workshop
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from pip._vendor.requests import RequestException

#: Packages of which the names of the files will do: large, never replaced here, and no statement is about them.
NAMES_ALONE = ("networkx", "pygments", "scikit-learn", "scipy", "setuptools", "sympy")
#: Smaller wheels are fetched whole.
SMALL = 1 << 17
#: What is fetched at the end of a wheel, where the list of its members stands.
END = 1 << 14
#: Bytes that are fetched without need rather than asking once more.
GAP = 1 << 15


class Unreachable(Exception):
    """The package index does not answer, or has not what was asked for."""


class Wheel(NamedTuple):
    """A released file of so many bytes."""

    url: str
    size: int

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]


class Sources(Workshop):
    """A workshop in which :meth:`fetch` has put what the cases need."""

    def fetch(self, cases: Iterable[Case]) -> None:
        """Raises :class:`Unreachable`."""
        folders: dict[Wheel, list[Path]] = {}
        for stack in {case.stack for case in cases}:
            site = self.home / f"stack-{stack}" / "lib" / "python3.11" / "site-packages"
            for wheel in self._wheels([TORCH, *STACKS[stack].read_text().split()]).values():
                folders.setdefault(wheel, []).append(site)
        wanted = {pin for case in cases for pin in case.pins.items()}
        while wanted:  # of each package one release at a time
            some = dict(wanted)
            for name, wheel in self._wheels([f"{name}=={version}" for name, version in some.items()]).items():
                folders.setdefault(wheel, []).append(self.home / "unpacked" / f"{name}-{some[name]}")
            wanted -= some.items()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._unpack, folders.keys(), folders.values()))

    def _wheels(self, releases: Iterable[str]) -> dict[str, Wheel]:
        """The wheel of each release that fits here best, by the name of the package."""
        lock = self.home / "pylock.toml"
        command = [self.uv, "pip", "compile", "--no-deps", "--only-binary", ":all:", "--python", sys.executable]
        command += ["--quiet", "--format", "pylock.toml", "-o", str(lock), "-"]
        lock.unlink(missing_ok=True)
        done = subprocess.run(command, input="\n".join(releases), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unreachable(done.stderr.strip()[-300:])
        better = {tag: place for place, tag in enumerate(sys_tags())}
        found = {}
        for package in tomllib.loads(lock.read_text())["packages"]:
            fit = []
            for file in package["wheels"]:
                wheel = Wheel(file["url"], file["size"])
                fit += [(better[tag], wheel) for tag in parse_wheel_filename(wheel.name)[3] if tag in better]
            found[canonicalize_name(package["name"])] = min(fit)[1]
        return found

    def _unpack(self, wheel: Wheel, folders: Sequence[Path]) -> None:
        """Write what is read of a wheel below these folders, and files of zeros for all else."""
        with TemporaryFile() as file:
            file.truncate(wheel.size)
            archive = self._opened(wheel, file)
            members = [one for one in archive.infolist() if not one.is_dir() and not _is_elsewhere(one)]
            alone = parse_wheel_filename(wheel.name)[0] in NAMES_ALONE
            read = [one for one in members if _is_read(one, alone)]
            if wheel.size > SMALL:
                for start, end in _ranges(read, archive):
                    self._read(wheel, file, start, end)
            wanted = set(read)
            for one in members:
                content = archive.read(one) if one in wanted else b""
                for folder in folders:
                    path = folder / one.filename
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as written:
                        written.write(content)
                        written.truncate(one.file_size)

    def _opened(self, wheel: Wheel, file: IO[bytes]) -> ZipFile:
        """A wheel of which the list of members has been fetched."""
        fetched = 0 if wheel.size <= SMALL else wheel.size - END
        self._read(wheel, file, fetched, wheel.size)
        file.seek(-6, os.SEEK_END)  # a wheel has no comment: the last numbers are where the list begins, and 0
        (start,) = struct.unpack("<L", file.read(4))
        if start < fetched:
            self._read(wheel, file, start, fetched)
        return ZipFile(file)

    def _read(self, wheel: Wheel, file: IO[bytes], start: int, end: int) -> None:
        """Fetch the bytes from ``start`` to before ``end``."""
        client: Any = self.index.client
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        try:
            answer = client.get(wheel.url, headers=headers)
            answer.raise_for_status()
        except RequestException as error:
            raise Unreachable(str(error)) from None
        if len(answer.content) != end - start:
            raise Unreachable(f"{wheel.url} cannot be had in parts")
        file.seek(start)
        file.write(answer.content)


def _is_elsewhere(member: ZipInfo) -> bool:
    """Scripts, headers and data, which are installed beside site-packages."""
    return ".data/" in member.filename or ".." in member.filename


def _is_read(member: ZipInfo, alone: bool) -> bool:
    """Whether `check` may read the content; ``alone``: of a package whose names will do."""
    name = member.filename
    return ".dist-info/" in name or (name.endswith(".py") and not alone and "/tests/" not in name)


def _ranges(wanted: list[ZipInfo], archive: ZipFile) -> Iterator[tuple[int, int]]:
    """The bytes of members, those together that lie near each other."""
    starts = sorted(one.header_offset for one in archive.infolist())
    ends = dict(zip(starts, [*starts[1:], archive.start_dir], strict=True))
    first = last = 0
    for start in sorted(one.header_offset for one in wanted):
        if start > last + GAP:
            if last:
                yield first, last
            first = start
        last = ends[start]
    if last:
        yield first, last
