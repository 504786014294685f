"""The fact ``extension``: what the compiled files of packages built against torch need, and whether this torch has it.

One item a package, because one wrong build is one cause however many files it has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from envdoctor.facts.values import ABSENT, NOT_KNOWN, Absent, Fact, Records, Unknown, Value
from envdoctor.observe.binaries.reading.built_for import built_for
from envdoctor.observe.packages.reading.file_list import listed_libraries
from envdoctor.observe.request import Request
from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

KEPT = True
KEYS = ("extension",)
NEEDS = ("dist", "torch.missing_files", "package_damage")
_COLUMNS = ("problem", "arch", "glibc_needs", "glibcxx_needs", "unresolved", "example", "missing_library")
#: More than any package has (vllm 0.12 has 12); what is beyond is not read, and said.
MOST_FILES = 64
_ENDINGS = (".so", ".pyd")
#: Names looked at in a folder: thirty times what the largest packages have.
_MOST_LISTED = 4000


def observe(request: Request) -> list[Fact]:
    """``extension``, one item for each installed package of the table torch-extensions. Never raises for what a file
    holds."""
    dists, layout = request.value("dist"), request.place
    if not isinstance(dists, Records):
        return [Fact("extension", Unknown(Message("the installed packages are not known")), "", "environment")]
    modules = {row["name"]: row["modules"] for row in request.rows("torch-extensions", "package")}
    named: dict[str, Mapping[str, Value]] = {}
    for dist in dists:
        if dist.get("name") in modules:
            named.setdefault(str(dist["name"]), dist)
    incomplete = dists.incomplete
    chosen: list[tuple[Mapping[str, Value], list[tuple[str, str]]]] = []
    for name, dist in named.items():
        metadata, kind = str(dist.get("path")), str(dist.get("kind"))
        found, partly = compiled_files(metadata, kind, modules[name], layout.site_packages, layout.files)
        incomplete = incomplete or partly
        if found:
            chosen.append((dist, found))
    records: list[Mapping[str, Value]] = []
    if chosen:
        from envdoctor.observe.binaries.reading.extension_check import check_extensions, find_torch_libraries

        missing = request.value("torch.missing_files")
        if any(item["package"] == "torch" and item["fails"] is True for item in request.items("package_damage")):
            missing = ("torch/lib",)
        torch = find_torch_libraries(layout, missing)
        items, unread = check_extensions([found for _, found in chosen], torch, layout.files)
        incomplete = incomplete or unread
        records = [
            _item(dist, found, columns or {}, layout.files)
            for (dist, found), columns in zip(chosen, items, strict=True)
            if columns is not None or any(python_tag(name) for _, name in found)
        ]
    origin = Message("compiled files") if named else Message("installed packages")
    return [Fact("extension", Records(tuple(records), incomplete), origin, "environment")]


def _item(
    dist: Mapping[str, Value], found: Sequence[tuple[str, str]], columns: Mapping[str, Value], files: Files
) -> dict[str, Value]:
    name, version = str(dist.get("name")), dist.get("version", NOT_KNOWN)
    item: dict[str, Value] = {
        "package": name,
        "version": version,
        "python_tag": ", ".join(sorted({tag for _, file in found if (tag := python_tag(file))})) or ABSENT,
        **dict.fromkeys(_COLUMNS, ABSENT),
        **columns,
    }
    said = built_for(name, version if isinstance(version, str) else "", str(dist.get("path")), files)
    linked = item.get("built_cuda", ABSENT)
    item["built_torch"] = said.torch or ABSENT
    item["built_says"] = said.says or ABSENT
    item["built_abi"] = ABSENT  # its symbols tell
    # What a file is linked to is what the loader asks for; the text tells the minor version too.
    if said.cuda and (not isinstance(linked, str) or said.cuda.partition(".")[0] == linked):
        item["built_cuda"] = said.cuda
    elif isinstance(linked, str):
        item["built_says"] = said.says or f"libcudart.so.{linked} in its compiled files"
    else:
        item["built_cuda"] = ABSENT if isinstance(linked, Absent) else linked
    return item


def compiled_files(
    metadata: str, kind: str, modules: Sequence[str], folders: Sequence[str], files: Files
) -> tuple[list[tuple[str, str]], Message | None]:
    """The compiled files of a distribution as (path, name below its folder of packages), and why some may be missing.

    ``metadata`` is its metadata directory and ``kind`` dist-info, egg-info or conda. Libraries that a wheel brings
    along (``torchvision.libs``) are left out: nobody built those against torch.
    """
    if kind == "dist-info":
        try:
            names = {one.name for one in listed_libraries(metadata, files) if one.name.endswith(_ENDINGS)}
            own = sorted(name for name in names if not name.partition("/")[0].endswith(".libs"))
            there = [(os.path.join(os.path.dirname(metadata), *name.split("/")), name) for name in own[:MOST_FILES]]
            # What is gone was built for no torch at all: that an installation is incomplete is for others to say.
            return [entry for entry in there if files.is_file(entry[0])], _too_many(len(own))
        except FileNotFoundError:
            pass
        except OSError as error:
            return [], Message("RECORD of {} cannot be read: {}", os.path.basename(metadata), because_of(error))
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


def _too_many(count: int) -> Message | None:
    return Message("only {} of the compiled files of one package were read", MOST_FILES) if count > MOST_FILES else None
