"""The fact ``extension``: what the compiled files of packages built against torch need, and whether this torch has it.

One item a package, because one wrong build is one cause however many files it has. What a package says that it was
built for (in a file of its own, its wheel's name, or its local version) explains a finding; whether it fits is decided
by its symbols where they can be read.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from envdoctor.facts.values import ABSENT, NOT_KNOWN, Absent, Records, Unknown, Value
from envdoctor.observe.packages.version_files import listed_libraries
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message
from envdoctor.versions.requirement import BuiltFor, said_by_tag

_COLUMNS = ("problem", "arch", "glibc_needs", "glibcxx_needs", "unresolved", "example", "missing_library")
#: More than any package has (vllm 0.12 has 12); what is beyond is not read, and said.
MOST_FILES = 64
_ENDINGS = (".so", ".pyd")
#: Names looked at in a folder: thirty times what the largest packages have.
_MOST_LISTED = 4000
_LIMIT = 1 << 16
#: The dictionary that deepspeed's setup.py writes: torch_info={'version': '2.1', 'cuda_version': '12.1', …}
_DEEPSPEED = r"^torch_info\s*=\s*\{([^}\n]{0,1000})\}"
_PAIR = r"""['"](version|cuda_version)['"]\s*:\s*['"](\d{1,2}\.\d{1,3})['"]"""


@observes("environment", "extension", kept=True)
def extension(request: Request) -> Found:
    """Find what compiled files of packages of the table torch-extensions need; never raise for what a file holds."""
    dists, layout = request.value("dist"), request.place
    if not isinstance(dists, Records):
        return Unknown(Message("the installed packages are not known"))
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
        from envdoctor.observe.binaries.extension_check import check_extensions, find_torch_libraries

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
    return [("extension", Records(tuple(records), incomplete), origin)]


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
    """Return a distribution's compiled files as (path, name below its folder), and why some may be missing.

    ``metadata`` is its metadata directory and ``kind`` dist-info, egg-info or conda. Libraries that a wheel brings
    along (``torchvision.libs``) are left out: nobody built those against torch.
    """
    if kind == "dist-info":
        try:
            names = {name for name in listed_libraries(metadata, files) if name.endswith(_ENDINGS)}
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
    """Return the Python that a module is named for (``cp311``, ``cp313t`` without its t); None for any Python."""
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


def built_for(name: str, version: str, metadata: str, files: Files) -> BuiltFor:
    """Return what a distribution says of itself: in its own file, else by its wheel's name, else its local version.

    ``metadata`` is its metadata directory; a place that cannot be read says nothing.
    """
    own = _OWN_FILES.get(name)
    if own is not None:
        said = _read(os.path.join(os.path.dirname(metadata), *own[0].split("/")), own[1], files)
        if said.torch or said.cuda:
            return said._replace(says=own[0])
    said = _read(os.path.join(metadata, "direct_url.json"), _wheel_name, files)
    tagged = said_by_tag(version.partition("+")[2])
    if said.torch or (said.cuda and not tagged.torch):
        return said._replace(says="the name of its wheel")
    return tagged._replace(says=Message("its local version")) if tagged.torch or tagged.cuda else BuiltFor()


def _read(path: str, parse: Callable[[str], BuiltFor], files: Files) -> BuiltFor:
    try:
        return parse(files.text(path, _LIMIT))
    except (OSError, ValueError, RecursionError):  # a ValueError is text that is no JSON
        return BuiltFor()


def _xformers(text: str) -> BuiltFor:
    match json.loads(text):
        case {"version": dict(said)}:
            torch, cuda = said.get("torch"), said.get("cuda")
        case _:
            return BuiltFor()
    release = torch.partition("+")[0] if isinstance(torch, str) else ""
    plain = re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}", release)
    # CUDA as nvcc numbers it: 1208
    number = cuda if isinstance(cuda, int) and 1000 <= cuda < 10000 else None
    return BuiltFor(release if plain else None, f"{number // 100}.{number % 100}" if number else None)


def _deepspeed(text: str) -> BuiltFor:
    match = re.search(_DEEPSPEED, text, re.MULTILINE)
    said = {key: value for key, value in re.findall(_PAIR, match[1]) if value != "0.0"} if match else {}
    return BuiltFor(said.get("version"), said.get("cuda_version"))


def _wheel_name(text: str) -> BuiltFor:
    match json.loads(text):
        case {"url": str(url)} if url.endswith(".whl"):
            version = url.rpartition("/")[2].replace("%2B", "+").replace("%2b", "+").split("-")[1:2]
            return said_by_tag(version[0].partition("+")[2]) if version else BuiltFor()
    return BuiltFor()


#: Packages that write what they were built for into a file, by the path below the folder of packages.
_OWN_FILES: dict[str, tuple[str, Callable[[str], BuiltFor]]] = {
    "xformers": ("xformers/cpp_lib.json", _xformers),
    "deepspeed": ("deepspeed/git_version_info_installed.py", _deepspeed),
}
