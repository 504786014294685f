"""One metadata directory (or file) of a folder of packages, read into a distribution and what is wrong with it."""

import os
import re
from collections.abc import Collection
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, NOT_GIVEN, Absent, Unknown
from envdoctor.system.files import Files, because_of, read_regular
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import is_version, same_release
from envdoctor.versions.requirement import normalise, valid_name

_REQUIRES_LIMIT = 1 << 16
_NAMED = 3
#: ``name-version-py3.8.egg-info``; everything after the name may be missing.
_EGG_NAME = r"(?P<name>[^-]+)(?:-(?P<version>[^-]+)(?:-py[^-]+(?:-.+)?)?)?\Z"
#: The header of 95 % of the 313 files of the benchmark environment ends within it; the longest has 76 KB.
_FIRST_READ = 8192
_HEADER_LIMIT = 1 << 20
#: The first letters of the fields that are read: most lines are others.
_STARTS = "NnVvRr"


class MetadataHeader(NamedTuple):
    """``name`` and ``version`` as written, None when they are not there. ``cut`` is true when the file ends within the
    line of its version, so that the version may have lost its end.

    ``requires`` are the values of Requires-Dist, those of extras too; ``requires_python`` is that of Requires-Python.
    ``partial`` is true when the header is longer than what was read of it, ``utf8`` false
    when it is no UTF-8 text, as far as 1 MiB behind its header."""

    name: str | None
    version: str | None
    cut: bool = False
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    partial: bool = False
    utf8: bool = True


class Distribution(NamedTuple):
    """One installed distribution as one metadata directory describes it.

    ``name`` is normalised; ``version`` is unknown, with the reason, when it is missing or no version by PEP 440.
    ``kind`` is dist-info, egg-info or conda. ``origin`` names the file that the version was read from. ``requires`` are
    its Requires-Dist as written (of an egg-info its requires.txt), without those of extras that no other distribution
    asks for; when they are not all known, ``requires_unknown`` says why. ``said`` is the version that its METADATA
    gives where it is not believed, else empty.
    """

    name: str
    version: str | Unknown
    kind: str
    installer: str | Absent | Unknown
    editable: bool | Unknown
    path: str
    origin: str
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    requires_unknown: Message | None = None
    said: str = ""


class MetadataProblem(NamedTuple):
    """One item of ``metadata_problem``. ``versions`` are those that were found, comma-separated, or absent. ``alone``:
    no other metadata directory names the package."""

    name: str
    kind: str
    detail: str
    versions: str | Absent
    path: str
    alone: bool = True


def checked_version(text: str) -> str | Unknown:
    """Return the version when it is one by PEP 440, else unknown with what was found."""
    if is_version(text):
        return text
    return Unknown(Message("a version by PEP 440 is expected, not {}", repr(text[:60])))


def named_by(entry: str) -> tuple[str, str | None]:
    """Name and version in the name of a metadata directory: ``numpy-2.4.6.dist-info``, ``six-1.16.0-py3.8.egg``."""
    stem, _, kind = entry.rpartition(".")
    if kind == "dist-info":
        name, dash, version = stem.partition("-")
        return (name, version) if dash else (stem, None)
    match = re.match(_EGG_NAME, stem)
    return (match["name"], match["version"]) if match else (stem, None)


def invalid_name(name: str, origin: str, path: str) -> MetadataProblem:
    """Return the problem of a name that is none."""
    detail = Message("{} names {}, which is no valid name of a distribution", readable(origin), repr(name[:200]))
    return MetadataProblem(readable(name), "invalid-name", detail, ABSENT, path)


def readable(name: str) -> str:
    """Return a file's name as text that can be written anywhere: bytes that are not UTF-8 are replaced, 200 characters
    kept. Control characters stay: whoever prints removes them."""
    return name[:200].encode("utf-8", "replace").decode("utf-8")


def first_named(names: list[str]) -> list[str]:
    """Return as many names as a message can hold, and how many more there are."""
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"… +{len(names) - _NAMED}"]


def read_directory(
    path: str, entry: str, kind: str, files: Files, problems: list[MetadataProblem]
) -> Distribution | None:
    """Read the directory at ``path``, called ``entry``; None where it names no distribution.

    What the header does not say is taken from the entry's name. What is wrong goes to ``problems``; nothing is raised.
    """
    header, origin, trouble = _header(path, entry, kind, files)
    name, version = header.name, header.version
    if not header.utf8:
        trouble = "encoding", Message("{} is not UTF-8 text", origin)
    if name is None or version is None or header.cut:
        from_name, from_version = named_by(entry)
        if header.cut and version != from_version:
            version = None
        if trouble is None and (name is None or version is None):
            fields = " and no ".join(field for field, value in (("Name", name), ("Version", version)) if value is None)
            trouble = "no-version", Message("{} has no {}; the name of its folder is taken instead", origin, fields)
        name = name or from_name
        # A directory without METADATA is mostly what an uninstall left: its name is then no evidence of a version.
        if version is None and from_version is not None and trouble is not None and trouble[0] != "no-metadata":
            version, origin = from_version, Message("{} (folder name)", readable(entry))
    valid = valid_name(name)
    if valid is None:
        problems.append(invalid_name(name, origin, path))
        return None
    checked = checked_version(version) if version is not None else Unknown(trouble[1] if trouble else NOT_GIVEN.reason)
    versions: str | Absent = checked if isinstance(checked, str) else ABSENT
    of_folder = (named_by(entry)[1] if kind == "dist-info" else None) or ""
    text = ""
    comparable = trouble is None and isinstance(checked, str) and is_version(of_folder)
    if comparable and not same_release(str(checked), of_folder):
        # An installer writes both: one of them was changed, and nobody knows which is of the code.
        trouble = "mismatch", Message("{} says {}, the name of its folder {}", origin, checked, of_folder)
        text, versions, checked = str(checked), f"{checked}, {of_folder}", Unknown(trouble[1])
    item = Distribution(
        name=valid,
        version=checked,
        kind=kind,
        installer=_installer(path, files),
        editable=_editable(path, files),
        path=path,
        origin=origin,
        requires=header.requires or _requires_text(path, kind, files),
        requires_python=header.requires_python,
        requires_unknown=Message("the header of {} is too long", origin) if header.partial else None,
        said=text,
    )
    if trouble is None and version is not None and isinstance(checked, Unknown):
        trouble = "invalid-version", Message("{}: {}", origin, checked.reason)
    if trouble is not None:
        problems.append(MetadataProblem(valid, *trouble, versions, path))
    return item


def _header(path: str, entry: str, kind: str, files: Files) -> tuple[MetadataHeader, str, tuple[str, Message] | None]:
    """Return the header, the file it was read from, and the kind and detail of what went wrong."""
    metadata = "PKG-INFO" if kind == "egg-info" else "METADATA"
    label = entry if entry.isascii() else readable(entry)
    origin = f"{label}/{metadata}"
    try:
        try:
            descriptor = files.open(f"{path}{os.sep}{metadata}")
        except NotADirectoryError:
            descriptor, origin = files.open(path), label
        try:
            return read_header(descriptor, files), origin, None
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return MetadataHeader(None, None), origin, ("no-metadata", Message("{} has no {}", label, metadata))
    except OSError as error:
        kind = "no-access" if isinstance(error, PermissionError) else "unreadable"
        return MetadataHeader(None, None), origin, (kind, Message("{} cannot be read: {}", origin, because_of(error)))


def _requires_text(path: str, kind: str, files: Files) -> tuple[str, ...]:
    """Return what setuptools writes in ``requires.txt`` of an egg-info: one requirement a line, below ``[:marker]`` or
    ``[extra:marker]`` those for which these must hold."""
    if kind != "egg-info":
        return ()
    lines: list[str] = []
    marker = ""
    for line in map(str.strip, files.text_or_empty(f"{path}{os.sep}requires.txt", _REQUIRES_LIMIT).splitlines()):
        if line.startswith("["):
            name, _, marker = line.strip("[]").partition(":")
            extra = normalise(name.strip())
            marker = " and ".join([f"({marker})"] * bool(marker) + [f"extra == {extra!r}"] * bool(extra))
        elif line and not line.startswith("#"):
            lines.append(f"{line} ; {marker}" if marker else line)
    return tuple(lines)


def _beside(path: str, name: str, limit: int, files: Files) -> bytes | Absent | Unknown:
    """Return the beginning of a file of the metadata directory."""
    try:
        return files.head(f"{path}{os.sep}{name}", limit)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return Unknown(Message("{} cannot be read: {}", name, because_of(error)))


def _installer(path: str, files: Files) -> str | Absent | Unknown:
    content = _beside(path, "INSTALLER", 64, files)
    if not isinstance(content, bytes):
        return content
    return content.decode("utf-8", "replace").partition("\n")[0].strip() or ABSENT


def _editable(path: str, files: Files) -> bool | Unknown:
    """Return whether ``direct_url.json`` (PEP 610) says that it is an editable install."""
    content = _beside(path, "direct_url.json", 1 << 16, files)
    if not isinstance(content, bytes):
        return content if isinstance(content, Unknown) else False
    import json

    try:
        return json.loads(content).get("dir_info", {}).get("editable", False) is True
    except (ValueError, AttributeError, RecursionError):
        return Unknown(Message("direct_url.json is not what PEP 610 describes"))


def read_header(descriptor: int, files: Files) -> MetadataHeader:
    """Read from a file that ``files`` opened; the header ends at the first blank line or after 1 MiB. What follows is
    only looked at for its encoding. Raises ``OSError``."""
    data = os.read(descriptor, _FIRST_READ)
    utf8 = data.isascii() or _is_utf8(data)
    end = _end(data)
    if utf8 and end is None:
        data += read_regular(descriptor, _HEADER_LIMIT - len(data))
        files.use(0, 8 * len(data))  # it is looked through more than once
        end = _end(data)
    partial = end is None and len(data) >= _HEADER_LIMIT
    if utf8:  # importlib.metadata reads it whole
        rest = read_regular(descriptor, _HEADER_LIMIT) if len(data) >= _FIRST_READ else b""
        files.use(0, len(rest))
        end_of_file = b"\n" if len(rest) < _HEADER_LIMIT else b""
        rest = data[data.rfind(b"\n") + 1 :] + rest + end_of_file
        utf8 = rest.isascii() or _is_utf8(rest)
    header = data[:end].decode("utf-8", "replace")
    if "\r" in header:  # what stands behind a carriage return is left out
        header = "\n".join([line.partition("\r")[0] for line in header.split("\n")])
    lines = header.replace("\n ", " ").replace("\n\t", " ").split("\n")
    return _parse(lines, end is not None, partial, utf8)


def _is_utf8(data: bytes) -> bool:
    """Return whether the whole lines of it are; a character may be cut at the end."""
    try:
        data[: data.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        return False
    return True


def _end(data: bytes) -> int | None:
    """Return where the first blank line begins; None without one."""
    end = data.find(b"\n\n")
    windows = data.find(b"\n\r\n", 0, end if end >= 0 else len(data))
    end = windows if windows >= 0 else end
    return end if end >= 0 else None


def _parse(lines: list[str], ended: bool, partial: bool, utf8: bool) -> MetadataHeader:
    first: dict[str, str] = {}
    requires: list[str] = []
    for line in lines:
        if line and line[0] in _STARTS:
            field = line.partition(":")[0].rstrip().lower()
            if field != "requires-dist":
                first.setdefault(field, line)
            else:
                requires.append(line.partition(":")[2].strip())
    name, version, python = (first.get(field, "") for field in ("name", "version", "requires-python"))
    last = None if ended else lines[-1]  # the file may end within it
    value, cut = _value(name) if name is not last else None, version is last and version != ""
    return MetadataHeader(value, _value(version), cut, tuple(requires), _value(python), partial, utf8)


def _value(line: str) -> str | None:
    return line.partition(":")[2].strip() or None


def counts(requirement: str, extras: Collection[str]) -> bool:
    """Return False if the marker has ``extra == "name"`` as a condition that must hold, and none of ``extras``, which
    are normalised. What is less plain is left to whoever evaluates the marker.

    The name of a package may end in the same word, so that only what is behind a semicolon counts.
    """
    marker = requirement.partition(";")[2]
    if "extra == " not in marker or " or " in marker or "''" in marker or '""' in marker:
        return True
    return bool(extras) and any(name in extras for name in normalise(marker).replace('"', "'").split("'"))
