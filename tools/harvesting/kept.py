"""What was fetched of the package index, kept in a work folder: nothing is asked for twice, one file at a time.

A wheel is read by byte ranges: its list of members, and of these only what is wanted, neighbours in one request. An
sdist is fetched as a whole when it is no larger than :data:`LARGEST`. An interrupted harvest goes on where it was.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urljoin
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from package_index import Index
from pip._internal.models.link import Link
from pip._internal.network.lazy_wheel import HTTPRangeRequestUnsupported, LazyZipOverHTTP

from harvesting.metadata import installed, modules
from harvesting.releases import File, Release

__all__ = ["LARGEST", "Kept", "Listing"]

#: Bytes of a file that may be fetched as a whole.
LARGEST = 50_000_000
#: Members of a wheel that lie nearer together than this are fetched in one request.
_GAP = 1 << 16
#: A member larger than this is data.
_LARGEST_MEMBER = 4 << 20
_DAY_ONE = ZipInfo().date_time

#: Names of all members of a release's file (its own top folder left out), and the text of those that were wanted.
Listing = tuple[list[str], dict[str, bytes]]


class _NotReadable(Exception):
    """No file of the release can be read: too large, or broken."""


class Kept:
    """The work folder. ``pause`` in seconds is kept between requests."""

    def __init__(self, work: Path, pause: float = 0.1) -> None:
        self.work = work
        self.pause = pause
        self._index: Index | None = None

    def files(self, project: str, *, fresh: bool = False) -> list[File]:
        """Return the files of a project; ``fresh`` asks again what was answered before."""
        path = self.work / "index" / f"{project}.json"
        if fresh or not path.is_file():
            _write(path, json.dumps([file._asdict() for file in self._ask(project)], indent=0).encode())
        return [File(**entry) for entry in json.loads(path.read_bytes())]

    def metadata(self, project: str, release: Release, *, sources: bool = False) -> tuple[str, list[str]] | None:
        """METADATA of a release (of an sdist PKG-INFO with its requirements) and the names of its members; None when no
        file of it says what it requires. With ``sources`` its Python files are fetched in the same go."""
        path, archive = self._metadata_of(project, release), self.sources(project, release)
        if not path.is_file() or (sources and not archive.is_file()):
            described = next((file for file in release.files if file.described), None)
            names, members, why = [], {}, ""
            if sources or described is None:
                try:
                    names, members = self._listing(
                        release, lambda name: _is_metadata(name) or (sources and _is_code(name))
                    )
                except _NotReadable as error:
                    why = str(error)
            if described is not None and not sources:
                members = {"METADATA": self._get(described.url + ".metadata")}
            if sources:
                _write(archive, _zipped(names, members))
            if not path.is_file():
                text = _header(members)
                _write(path, json.dumps({"metadata": text, "names": names, "why": why}, indent=0).encode())
        kept = json.loads(path.read_bytes())
        return None if kept["metadata"] is None else (kept["metadata"], kept["names"])

    def reading(self, project: str, release: Release, kind: str, key: str, read: Callable[[str, set[str]], Any]) -> Any:
        """What ``read`` finds in the files of a release, given the folder where they lie as installed and its top-level
        modules; kept as JSON under a key that says how it was read. None when there are no files. The sources were
        fetched with the release's metadata before."""
        path = self.work / "read" / kind / project / f"{release.version}.json"
        if path.is_file():
            kept = json.loads(path.read_bytes())
            if kept["key"] == key:
                return kept["found"]
        found = None
        with ZipFile(self.sources(project, release)) as sources, TemporaryDirectory(dir=self.work) as folder:
            if sources.namelist():
                sources.extractall(folder)  # noqa: S202  a zip of our own
                found = read(folder, modules(sources.namelist()))
        _write(path, json.dumps({"key": key, "found": found}, indent=0).encode())
        return found

    def _metadata_of(self, project: str, release: Release) -> Path:
        return self.work / "metadata" / project / f"{release.version}.json"

    def sources(self, project: str, release: Release) -> Path:
        """Return Python files and stubs, and empty ones for what is compiled, at their paths when installed."""
        return self.work / "sources" / project / f"{release.version}.zip"

    def _listing(self, release: Release, wanted: Callable[[str], bool]) -> Listing:
        """List the first file of a release that can be read. Raises :class:`_NotReadable`."""
        why = "it has no file"
        for file in release.files:
            try:
                if file.is_wheel:
                    return self._wheel(file, wanted)
                if file.size > LARGEST:
                    why = f"{file.name} has {file.size:,} bytes"
                    continue
                return _sdist(self._get(file.url), wanted)
            except (BadZipFile, tarfile.TarError, EOFError, HTTPRangeRequestUnsupported) as error:
                why = f"{file.name}: {error}"
        raise _NotReadable(why)

    def _wheel(self, file: File, wanted: Callable[[str], bool]) -> Listing:
        with (
            self._turn(),
            LazyZipOverHTTP(file.url, self.index.client) as lazy,
            ZipFile(lazy) as wheel,  # type: ignore[arg-type]
        ):
            infos = sorted(wheel.infolist(), key=lambda info: info.header_offset)
            ends = [*(info.header_offset for info in infos[1:]), wheel.start_dir]
            spans = [
                (info.header_offset, end - 1, info)
                for info, end in zip(infos, ends, strict=True)
                if wanted(info.filename) and info.file_size <= _LARGEST_MEMBER
            ]
            for start, end in _merged((start, end) for start, end, _ in spans):
                lazy._download(start, end)
            return [info.filename for info in infos], {info.filename: wheel.read(info) for *_, info in spans}

    @property
    def index(self) -> Index:
        """Return pip's own client, made on first use."""
        if self._index is None:
            self._index = Index()
        return self._index

    def _ask(self, project: str) -> Iterator[File]:
        """Ask the indexes that answer by HTTP, in JSON (PEP 691) with days (PEP 700)."""
        seen: set[str] = set()
        for url in self.index.finder.search_scope.get_index_urls_locations(project):
            if not url.startswith("http"):
                continue
            with self._turn():
                page = self.index.finder._link_collector.fetch_response(Link(url))
            if page is None:
                continue
            if "json" not in page.content_type:
                raise SystemExit(f"{url} answers in {page.content_type}: an index that speaks JSON (PEP 691) is needed")
            for entry in json.loads(page.content)["files"]:
                if entry["filename"] not in seen and "upload-time" in entry:
                    seen.add(entry["filename"])
                    yield File(
                        entry["filename"],
                        urljoin(page.url, entry["url"]),
                        entry.get("size", 0),
                        entry.get("requires-python") or "",
                        entry["upload-time"][:10],
                        bool(entry.get("yanked")),
                        bool(entry.get("core-metadata", entry.get("data-dist-info-metadata"))),
                    )

    def _get(self, url: str) -> bytes:
        with self._turn():
            response = self.index.client.get(url)
        response.raise_for_status()
        data: bytes = response.content
        return data

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the folder's lock for one file: several harvests of different packages use the folder."""
        self.work.mkdir(parents=True, exist_ok=True)
        with open(self.work / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            time.sleep(self.pause)
            yield


def _write(path: Path, data: bytes) -> None:
    """Write the whole file, or nothing if interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    os.replace(part, path)


def _merged(spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans in order; merge those that lie near each other."""
    last: tuple[int, int] | None = None
    for start, end in spans:
        if last is not None and start - last[1] <= _GAP:
            last = last[0], end
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last


def _sdist(data: bytes, wanted: Callable[[str], bool]) -> Listing:
    names, members = [], {}
    if data[:2] == b"PK":
        with ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                name = info.filename.partition("/")[2]
                names.append(name)
                if wanted(name) and info.file_size <= _LARGEST_MEMBER:
                    members[name] = archive.read(info)
        return names, members
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            names.append(name)
            if member.isfile() and wanted(name) and member.size <= _LARGEST_MEMBER:
                file = tar.extractfile(member)
                members[name] = file.read() if file is not None else b""
    return names, members


def _is_metadata(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    if folder.endswith(".dist-info"):
        return "/" not in folder and last == "METADATA"
    return name == "PKG-INFO" or (folder.endswith(".egg-info") and last in ("requires.txt", "top_level.txt"))


def _is_code(name: str) -> bool:
    return name.endswith((".py", ".pyi"))


def _zipped(names: Iterable[str], members: Mapping[str, bytes]) -> bytes:
    """Return the code among the members, and empty files for what is compiled."""
    kept = {name: b"" for name in names if name.endswith((".so", ".pyd"))}
    kept |= {name: data for name, data in members.items() if _is_code(name)}
    archive = io.BytesIO()
    with ZipFile(archive, "w") as file:
        for name in sorted(kept):
            file.writestr(ZipInfo(installed(name), _DAY_ONE), kept[name], ZIP_DEFLATED, compresslevel=1)
    return archive.getvalue()


def _header(members: Mapping[str, bytes]) -> str | None:
    """Return the header of METADATA, or of an sdist's PKG-INFO with its requirements; None if these are unknown."""
    name = next((name for name in sorted(members) if name.endswith(("METADATA", "PKG-INFO"))), None)
    if name is None:
        return None
    header = members[name].decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0] + "\n"
    required = _required(header, members) if name == "PKG-INFO" else ""
    return None if required is None else header + required


def _required(header: str, members: Mapping[str, bytes]) -> str | None:
    """Return the requirements that setuptools wrote beside an sdist's own header, which leaves them out; None if these
    are unknown."""
    told = re.match(r"(?s)Metadata-Version: (?:2\.[2-9]|[3-9])(?!.*\nDynamic: Requires-Dist)", header)  # PEP 643
    if told or "\nRequires-Dist:" in header:
        return ""
    text = next((members[name] for name in sorted(members) if name.endswith("requires.txt")), None)
    if text is None:
        return None
    lines, marker = [], ""
    for line in map(str.strip, text.decode("utf-8", "replace").splitlines()):
        if line.startswith("["):
            extra, _, marker = line.strip("[]").partition(":")
            marker = f"extra == '{extra}'" if extra else marker
        elif line:
            lines.append(f"Requires-Dist: {line}" + (f" ; {marker}" if marker else ""))
    return "".join(f"{line}\n" for line in lines)
