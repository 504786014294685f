"""Which compiled files a distribution has: by its list of files, or by looking where its modules are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from envdoctor.text.files import Files, because_of

__all__ = ["compiled_files", "python_tag"]

#: More than any package has (vllm 0.12 has 12); what is beyond is not read, and said.
MOST_FILES = 64
_RECORD_LIMIT = 32 << 20
_ENDINGS = (".so", ".pyd")
_LONGEST_NAME = 400
#: Names looked at, in a folder or in a list of files: thirty times what the largest packages have.
_MOST_LISTED = 4000


def compiled_files(
    metadata: str, kind: str, modules: Sequence[str], folders: Sequence[str], files: Files
) -> tuple[list[tuple[str, str]], str | None]:
    """The compiled files of a distribution as (path, name below its folder of packages), and why some may be missing.

    ``metadata`` is its metadata directory and ``kind`` dist-info, egg-info or conda. Libraries that a wheel brings
    along (``torchvision.libs``) are left out: nobody built those against torch.
    """
    if kind == "dist-info":
        try:
            record = files.head(os.path.join(metadata, "RECORD"), _RECORD_LIMIT)
        except FileNotFoundError:
            record = b""
        except OSError as error:
            return [], f"RECORD of {os.path.basename(metadata)} cannot be read: {because_of(error)}"
        if record:
            return _listed(record, os.path.dirname(metadata), files)
    found: list[tuple[str, str]] = []
    for folder in folders:
        found += _beside(folder, modules, files)
    return found[:MOST_FILES], _too_many(len(found))


def python_tag(name: str) -> str | None:
    """The Python that a module's file name is for (``cp311``, ``cp313t`` without its t); None when it is for any."""
    base = name.rpartition("/")[2]
    for mark in (".cpython-", ".cp"):
        digits = base.partition(mark)[2].partition("-")[0].rstrip("tdm")
        if digits.isdecimal() and 2 <= len(digits) <= 4:
            return f"cp{digits}"
    return None


def _listed(record: bytes, folder: str, files: Files) -> tuple[list[tuple[str, str]], str | None]:
    found: set[str] = set()
    for ending in _ENDINGS:
        for name in _ending_in(record, ending.encode()):
            if _is_own(name):
                found.add(name)
            if len(found) > MOST_FILES:
                break
    names = sorted(found)
    there = [(os.path.join(folder, *name.split("/")), name) for name in names[:MOST_FILES]]
    # What is gone was built for no torch at all: that an installation is incomplete is not for this fact to say.
    return [entry for entry in there if files.is_file(entry[0])], _too_many(len(names))


def _ending_in(record: bytes, ending: bytes) -> Iterator[str]:
    """Paths with this ending, of at most so many lines. A line is the path, its hash and its size; quoted paths hold
    commas or quotes, which no module's name does."""
    place = record.find(ending + b",")
    for _ in range(_MOST_LISTED):
        if place < 0:
            return
        earliest = place - _LONGEST_NAME - 1
        start = record.rfind(b"\n", max(0, earliest), place) + 1
        name = record[start : place + len(ending)] if start or earliest < 0 else b","
        if b"," not in name and b'"' not in name:
            yield name.decode("utf-8", "replace")
        line_end = record.find(b"\n", place)
        place = record.find(ending + b",", line_end) if line_end >= 0 else -1


def _is_own(name: str) -> bool:
    parts = name.split("/")
    return ".." not in parts and not name.startswith("/") and "\0" not in name and not parts[0].endswith(".libs")


def _beside(folder: str, modules: Sequence[str], files: Files) -> Iterator[tuple[str, str]]:
    """Compiled files of modules in one folder of packages, when nothing lists them."""
    names = files.names_or_none(folder)
    for name in names:
        if name.endswith(_ENDINGS) and name.partition(".")[0] in modules:
            yield os.path.join(folder, name), name
    room = _MOST_LISTED
    waiting = [module for module in modules if module in names]
    while waiting and room > 0:
        inner = waiting.pop()
        for name in files.names_or_none(os.path.join(folder, *inner.split("/"))):
            room -= 1
            if name.endswith(_ENDINGS):
                yield os.path.join(folder, *inner.split("/"), name), f"{inner}/{name}"
            elif "." not in name and inner.count("/") < 4:
                waiting.append(f"{inner}/{name}")


def _too_many(count: int) -> str | None:
    return f"only {MOST_FILES} of the compiled files of one package were read" if count > MOST_FILES else None
