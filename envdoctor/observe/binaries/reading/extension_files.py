"""Which compiled files a distribution has: by its list of files, or by looking where its modules are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from envdoctor.observe.packages.reading.file_list import listed_libraries
from envdoctor.text.files import Files, because_of

__all__ = ["compiled_files", "python_tag"]

#: More than any package has (vllm 0.12 has 12); what is beyond is not read, and said.
MOST_FILES = 64
_ENDINGS = (".so", ".pyd")
#: Names looked at in a folder: thirty times what the largest packages have.
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
            own = sorted({one.name for one in listed_libraries(metadata, files) if _is_own(one.name)})
            there = [(os.path.join(os.path.dirname(metadata), *name.split("/")), name) for name in own[:MOST_FILES]]
            # What is gone was built for no torch at all: that an installation is incomplete is for others to say.
            return [entry for entry in there if files.is_file(entry[0])], _too_many(len(own))
        except FileNotFoundError:
            pass
        except OSError as error:
            return [], f"RECORD of {os.path.basename(metadata)} cannot be read: {because_of(error)}"
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


def _is_own(name: str) -> bool:
    return name.endswith(_ENDINGS) and not name.partition("/")[0].endswith(".libs")


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
