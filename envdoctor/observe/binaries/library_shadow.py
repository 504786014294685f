"""The fact ``library_shadow``: CUDA libraries that the loader would take from elsewhere than torch's wheels.

The dynamic loader of glibc is followed, from torch's own libraries on: a library of the same name that was loaded
before, then DT_RPATH of the file that asks and of those that loaded it (unless it has a DT_RUNPATH), then
LD_LIBRARY_PATH, then its DT_RUNPATH (ld.so(8)). What torch loads by hand before is not known here.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.matrix.cuda_wheels import component_of
from envdoctor.observe.request import Request
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

KEYS = ("library_shadow",)
NEEDS = ("dist",)
#: What importing torch loads, in this order: torch/__init__.py opens the first one, its extension the others.
_ROOTS = ("libtorch_global_deps.so", "libtorch_python.so", "libtorch_cuda.so")
_MOST_FILES = 200
_IN_NAME = re.compile(r"\.so\.(\d{1,9}(?:\.\d{1,9}){1,5})\Z")
_IN_FOLDER = re.compile(r"/cuda-(\d{1,3}\.\d{1,3})/")


def observe(request: Request) -> list[Fact]:
    """``library_shadow``. Nothing is read when no variable points the loader elsewhere, outside of conda."""
    layout, environ = request.place, request.environ
    if not layout.live or not sys.platform.startswith("linux"):
        return _fact(Unknown(Message("the loader's variables are those of the machine that it runs on")))
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if folder]
    preloaded = [path for path in environ.get("LD_PRELOAD", "").replace(":", " ").split() if "/" in path]
    conda = os.path.join(layout.prefix, "lib") if layout.kind == "conda" else None
    if not folders and not preloaded and conda is None:
        return _fact(Records(()))
    files = layout.files
    home = next((place for place in layout.site_packages if files.is_folder(os.path.join(place, "torch", "lib"))), None)
    wheels: dict[str, str] = {}  # the libraries of NVIDIA's wheels by file name
    if home is not None:
        nvidia = os.path.join(home, "nvidia")
        for part in files.names_or_none(nvidia):
            folder = os.path.join(nvidia, part, "lib")
            wheels.update({name: os.path.join(folder, name) for name in files.names_or_none(folder) if ".so" in name})
    elsewhere = {name for place in (*folders, *([conda] if conda else ())) for name in files.names_or_none(place)}
    elsewhere.update(os.path.basename(path) for path in preloaded)
    if home is None or not elsewhere.intersection(wheels):
        return _fact(Records(()))
    loader = _Loader(folders, conda, files)
    for path in preloaded:
        name = os.path.basename(path)
        loader.loaded.add(name)
        if files.is_file(path):
            loader.taken[name] = ("LD_PRELOAD", path)
    folder = os.path.join(home, "torch", "lib")
    there = files.names_or_none(folder)
    for name in _ROOTS:
        if name in there and name not in loader.loaded:
            loader.load(os.path.join(folder, name))
    owners = _owners(request)
    items = tuple(
        _record(name, source, path, wheels[name], owners)
        for name, (source, path) in sorted(loader.taken.items())
        if name in wheels and not _same_file(path, wheels[name], files)
    )
    return _fact(Records(items, loader.trouble))


def _fact(value: Value) -> list[Fact]:
    return [Fact("library_shadow", value, "LD_LIBRARY_PATH, LD_PRELOAD", "environment")]


def _owners(request: Request) -> dict[str, Mapping[str, Value]]:
    """NVIDIA's wheels by component: of two for one component that of the later CUDA major."""
    found: dict[str, Mapping[str, Value]] = {}
    for item in sorted(request.items("dist"), key=lambda item: str(item["name"])):
        named = component_of(str(item["name"]))
        if named is not None:
            found[named[0]] = item
    return found


class _Loaded(NamedTuple):
    """One file in the loader's list: where it is, its search paths, and who loaded it."""

    path: str
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    needed: tuple[str, ...]
    loader: "_Loaded | None"


class _Loader:
    """The loader's list while torch is imported, and what it took from outside of the wheels: from the ``folders`` of
    LD_LIBRARY_PATH, or the library folder of a ``conda`` environment, whose interpreter names it in its DT_RPATH."""

    def __init__(self, folders: Sequence[str], conda: str | None, files: Files) -> None:
        self._variables, self._conda, self._files = folders, conda, files
        self.loaded: set[str] = set()
        self.taken: dict[str, tuple[str, str]] = {}
        self.trouble: Message | None = None

    def load(self, path: str) -> None:
        """Load a file and what it needs, breadth first as the loader does."""
        waiting = [self._open(path, None)]
        self.loaded.add(os.path.basename(path))
        while waiting and len(self.loaded) < _MOST_FILES:
            one = waiting.pop(0)
            if one is None:
                continue
            for name in one.needed:
                if name not in self.loaded:
                    self.loaded.add(name)
                    found = self._find(name, one)
                    if found is not None:
                        waiting.append(self._open(found, one))
            # cuDNN opens its other parts by name when it is used.
            if os.path.basename(one.path).startswith("libcudnn.so."):
                self._parts(one)

    def _parts(self, one: _Loaded) -> None:
        folder, name = os.path.split(one.path)
        ending = name[len("libcudnn") :]
        for part in self._files.names_or_none(folder):
            if part.startswith("libcudnn_") and part.endswith(ending) and part not in self.loaded:
                self.loaded.add(part)
                self._find(part, one)

    def _find(self, name: str, asker: _Loaded) -> str | None:
        """The file that is taken for a name; None when it is one of the system's, or nowhere."""
        if not asker.runpath:
            one: _Loaded | None = asker
            while one is not None:
                path = None if one.runpath else self._in(one.rpath, name, os.path.dirname(one.path))
                if path is not None:
                    return path
                one = one.loader
            if self._conda is not None and (path := self._in((self._conda,), name)) is not None:
                self.taken[name] = ("conda", path)
                return path
        path = self._in(self._variables, name)
        if path is not None:
            self.taken[name] = ("LD_LIBRARY_PATH", path)
            return path
        return self._in(asker.runpath, name, os.path.dirname(asker.path))

    def _in(self, folders: Sequence[str], name: str, origin: str = "") -> str | None:
        for folder in folders:
            place = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) if origin else folder
            if name in self._files.names_or_none(os.path.normpath(place)):
                path = os.path.join(os.path.normpath(place), name)
                if self._files.is_file(path):
                    return path
        return None

    def _open(self, path: str, loader: _Loaded | None) -> _Loaded | None:
        from envdoctor.observe.binaries.reading.elf_file import ElfError, ElfFile

        try:
            with ElfFile(path, self._files) as file:
                return _Loaded(path, *file.search_paths(), file.needed, loader)
        except (ElfError, OSError) as error:
            self.trouble = self.trouble or Message("{} cannot be read: {}", os.path.basename(path), because_of(error))
            return None


def _same_file(one: str, other: str, files: Files) -> bool:
    try:
        return os.path.samestat(files.status(one), files.status(other))
    except OSError:
        return False


def _record(
    name: str, source: str, path: str, wheel: str, owners: Mapping[str, Mapping[str, Value]]
) -> Mapping[str, Value]:
    version = _version(path)
    owner = _owner(name, wheel, owners)
    own = owner.get("version", Unknown(Message("the wheel that it is of is not known")))
    return {
        "library": name,
        "source": source,
        "path": path,
        "version": version,
        "wheel": owner.get("name", ABSENT),
        "wheel_version": own,
        "order": _order(version, own),
    }


def _version(path: str) -> Value:
    """By the name of the file that the link leads to, else by the toolkit's folder that it lies in."""
    real = os.path.realpath(path)
    match = _IN_NAME.search(real) or _IN_FOLDER.search(real)
    return match[1] if match else Unknown(Message("neither its file nor its folder carries a version"))


def _owner(name: str, wheel: str, owners: Mapping[str, Mapping[str, Value]]) -> Mapping[str, Value]:
    """The distribution whose wheel brought the file: by its folder (nvidia/cudnn/lib), or from CUDA 13 on, where one
    folder holds several, by its name."""
    folder = os.path.basename(os.path.dirname(os.path.dirname(wheel))).replace("_", "-")
    if folder in owners:
        return owners[folder]
    stem = name.lower().removeprefix("lib").partition(".")[0]
    stem = {"cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "cupti": "cuda-cupti"}.get(stem, stem)
    fitting = [component for component in owners if stem.startswith(component)]
    return owners[max(fitting, key=len)] if fitting else {}


def _order(version: Value, own: Value) -> Value:
    """As far as both say: 9.1.0 against 9.1.0.70 is the same, and the 12.1 of a folder says nothing about cuFFT 11."""
    if not isinstance(version, str) or not isinstance(own, str):
        return version if isinstance(version, Unknown) else Unknown(Message("the version of the wheel is not known"))
    one, other = ([int(part) for part in text.split(".") if part.isdecimal()] for text in (version, own))
    if len(other) != own.count(".") + 1:
        return Unknown(Message("the version of the wheel is no plain one"))
    if one[0] != other[0] and len(one) == 2:
        return Unknown(Message("the folder's version is that of CUDA, and this library counts its own"))
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return "same"
    return "older" if one < other else "newer"
