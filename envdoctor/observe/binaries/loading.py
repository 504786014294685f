"""What a process would load with torch: libraries that are missing or damaged, CUDA libraries from elsewhere than
torch's wheels, the C++ library; and the GPU architectures that torch was built for. Nothing is loaded."""

import os
import re
import stat
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import rank
from envdoctor.versions.requirement import component_of

#: What importing torch loads, in this order: torch/__init__.py opens the first one, its extension the others.
_ROOTS = ("libtorch_global_deps.so", "libtorch_python.so", "libtorch_cuda.so")
_MOST_FILES = 200
_IN_NAME = re.compile(r"\.so\.(\d{1,9}(?:\.\d{1,9}){1,5})\Z")
_IN_FOLDER = re.compile(r"/cuda-(\d{1,3}\.\d{1,3})/")


@observes("environment", "library_shadow")
def library_shadow(request: Request) -> Found:
    """CUDA libraries that the loader would take from elsewhere than torch's wheels, and files in front of torch's own
    libraries, or the system's, that lack what torch takes of these.

    The dynamic loader of glibc is followed, from torch's own libraries on: a library of the same name that was loaded
    before, then DT_RPATH of the file that asks and of those that loaded it (unless it has a DT_RUNPATH), then
    LD_LIBRARY_PATH, then its DT_RUNPATH (ld.so(8)). What torch loads by hand before is not known here. Nothing is read
    when no variable points the loader elsewhere, outside of conda.
    """
    layout = request.place
    if not layout.live or not sys.platform.startswith("linux"):
        return Unknown(Message("the loader's variables are those of the machine that it runs on"))
    origin = "LD_LIBRARY_PATH, LD_PRELOAD"
    folders, preloaded = _variables(request)
    preloaded = [path for path in preloaded if "/" in path]
    conda = os.path.join(layout.prefix, "lib") if layout.kind == "conda" else None
    if not folders and not preloaded and conda is None:
        return [("library_shadow", Records(()), origin)]
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
    folder = os.path.join(home or "", "torch", "lib")
    there = files.names_or_none(folder) if home is not None else []
    if home is None or not any(".so" in name for name in elsewhere):
        return [("library_shadow", Records(()), origin)]
    loader = _Loader(folders, conda, files)
    for path in preloaded:
        name = os.path.basename(path)
        loader.loaded.add(name)
        if files.is_file(path):
            loader.taken[name] = ("LD_PRELOAD", path)
    for name in _ROOTS:
        if name in there and name not in loader.loaded:
            loader.load(os.path.join(folder, name))
    owners: dict[str, Mapping[str, Value]] = {}  # NVIDIA's wheels by component; of two that of the later CUDA major
    for item in sorted(request.items("dist"), key=lambda item: str(item["name"])):
        if (component := component_of(str(item["name"]))) is not None:
            owners[component[0]] = item
    items = tuple(
        _record(name, source, path, wheels[name], owners)
        for name, (source, path) in sorted(loader.taken.items())
        if name in wheels and not _same_file(path, wheels[name], files)
    )
    unfit = tuple(
        {"library": name, "source": source, "path": path, "lacks": lacks}
        for name, (source, path) in sorted(loader.taken.items())
        if name not in wheels
        for own in ([os.path.join(folder, name)] if name in there else of_system(name, request))[:1]
        if not _same_file(path, own, files) and (lacks := _lacking(name, path, own, folder, files)) is not None
    )
    return [("library_shadow", Records((*items, *unfit), loader.trouble), origin)]


def _lacking(name: str, path: str, passed: str, folder: str, files: Files) -> str | None:
    """Return a function of the library that is ``passed`` over, which torch's libraries take and ``path`` lacks."""
    from envdoctor.observe.binaries.elf_file import ElfError, ElfFile
    from envdoctor.observe.binaries.extension import spelled

    try:
        with ElfFile(path, files) as front, ElfFile(passed, Files()) as own:
            there = files.names_or_none(folder) if front.machine == own.machine else []  # else it is passed over
            for asking in (library for library in _LOADED if library in there):
                with ElfFile(os.path.join(folder, asking), files) as asker:
                    for symbol in asker.undefined() if name in asker.needed else ():
                        if own.exports(symbol) and not front.exports(symbol):
                            return spelled(symbol)
    except (ElfError, OSError):
        pass  # damaged files are told elsewhere
    return None


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
            file = waiting.pop(0)
            if file is None:
                continue
            for name in file.needed:
                if name not in self.loaded:
                    self.loaded.add(name)
                    place = self._find(name, file)
                    if place is not None:
                        waiting.append(self._open(place, file))
            # cuDNN opens its other parts by name when it is used.
            if os.path.basename(file.path).startswith("libcudnn.so."):
                self._parts(file)

    def _parts(self, file: _Loaded) -> None:
        folder, name = os.path.split(file.path)
        ending = name[len("libcudnn") :]
        for part in self._files.names_or_none(folder):
            if part.startswith("libcudnn_") and part.endswith(ending) and part not in self.loaded:
                self.loaded.add(part)
                self._find(part, file)

    def _find(self, name: str, asker: _Loaded) -> str | None:
        """Return the file that is taken for a name; None when it is one of the system's, or nowhere."""
        if not asker.runpath:
            library: _Loaded | None = asker
            while library is not None:
                path = None if library.runpath else self._in(library.rpath, name, os.path.dirname(library.path))
                if path is not None:
                    return path
                library = library.loader
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
            place = _place(folder, origin or "$ORIGIN")
            path = os.path.join(place, name)
            if name in self._files.names_or_none(place) and self._files.is_file(path):
                return path
        return None

    def _open(self, path: str, loader: _Loaded | None) -> _Loaded | None:
        from envdoctor.observe.binaries.elf_file import ElfError, ElfFile

        try:
            with ElfFile(path, self._files) as file:
                return _Loaded(path, *file.search_paths(), file.needed, loader)
        except (ElfError, OSError) as error:
            self.trouble = self.trouble or Message("{} cannot be read: {}", os.path.basename(path), because_of(error))
            return None


def _same_file(path: str, other: str, files: Files) -> bool:
    try:
        return os.path.samestat(files.status(path), files.status(other))
    except OSError:
        return False


def _record(
    name: str, source: str, path: str, wheel: str, owners: Mapping[str, Mapping[str, Value]]
) -> Mapping[str, Value]:
    # By the name of the file that the link leads to, else by the toolkit's folder that it lies in.
    match = _IN_NAME.search(real := os.path.realpath(path)) or _IN_FOLDER.search(real)
    version = match[1] if match else Unknown(Message("neither its file nor its folder carries a version"))
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


def _owner(name: str, wheel: str, owners: Mapping[str, Mapping[str, Value]]) -> Mapping[str, Value]:
    """Return the distribution of a file: by its folder (nvidia/cudnn/lib), or, if that holds several, by its name."""
    folder = os.path.basename(os.path.dirname(os.path.dirname(wheel))).replace("_", "-")
    if folder in owners:
        return owners[folder]
    stem = name.lower().removeprefix("lib").partition(".")[0]
    stem = {"cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "cupti": "cuda-cupti"}.get(stem, stem)
    fitting = [component for component in owners if stem.startswith(component)]
    return owners[max(fitting, key=len)] if fitting else {}


def _order(version: Value, own: Value) -> Value:
    """Return which is newer, if both say: 9.1.0 and 9.1.0.70 are the same, a folder's 12.1 says nothing of cuFFT 11."""
    if not isinstance(version, str) or not isinstance(own, str):
        return version if isinstance(version, Unknown) else Unknown(Message("the version of the wheel is not known"))
    wheel, other = ([int(part) for part in text.split(".") if part.isdecimal()] for text in (version, own))
    if len(other) != own.count(".") + 1:
        return Unknown(Message("the version of the wheel is no plain one"))
    if wheel[0] != other[0] and len(wheel) == 2:
        return Unknown(Message("the folder's version is that of CUDA, and this library counts its own"))
    length = min(len(wheel), len(other))
    if wheel[:length] == other[:length]:
        return "same"
    return "older" if wheel < other else "newer"


#: What importing torch loads, in all wheels for Linux from 2.0 on; those for CUDA are in CUDA builds only.
_LOADED = (
    "libtorch_global_deps.so",
    "libc10.so",
    "libtorch_cpu.so",
    "libtorch.so",
    "libtorch_python.so",
    "libc10_cuda.so",
    "libtorch_cuda.so",
)
#: Names of NVIDIA's wheels. What is bundled with torch has a hash in its name (libcusparseLt-294d6944.so.0).
_OF_NVIDIA = re.compile(
    r"lib(?:cudart|cublas|cublasLt|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|cusparseLt|nccl|nvJitLink|nvrtc"
    r"|nvshmem_host|nvToolsExt)\.so\.\d+\Z"
)
_MOST_FOLDERS = 256
_LIB = "torch/lib"


@observes("environment", "torch.damaged_files torch.missing_libraries")
def torch_loading(request: Request) -> Found:
    """Find which of torch's own libraries are damaged, and which of NVIDIA's that they ask for are missing.

    The search is wider than the loader's (ld.so(8)): a library counts as there when it lies in any folder that torch's
    files name, in NVIDIA's wheels along the import path, in LD_LIBRARY_PATH, in a conda environment, or with the
    system. torch itself looks through sys.path for the wheels when its first library does not load
    (``_preload_cuda_deps`` in torch/__init__.py of 2.4.1 to 2.9.1). Nothing is said without torch.
    """
    if "pkg.torch" not in request.facts:
        return []
    layout, files = request.place, request.place.files
    # Then it is told there, with all that differs from its list.
    is_told = any(item["package"] == "torch" for item in request.items("package_damage"))
    home = next((folder for folder in layout.site_packages if "torch" in files.names_or_none(folder)), "")
    folder = os.path.join(home, "torch", "lib")
    there = files.names_or_none(folder) if home else []
    names = [name for name in _LOADED if name in there]
    if not names:
        unknown = Unknown(Message("torch/lib has no library for Linux"))
        return [("torch.damaged_files", () if is_told else unknown, _LIB), ("torch.missing_libraries", unknown, _LIB)]
    from envdoctor.observe.binaries.elf_file import ElfError, ElfFile

    damaged: list[str] = []
    libraries: dict[str, None] = {}
    paths: dict[str, None] = {}
    for name in names:
        path = os.path.join(folder, name)
        try:
            status = files.status(path)
            if not stat.S_ISREG(status.st_mode):
                damaged.append(Message("torch/lib/{} (it is not a regular file)", name))
            elif not status.st_size:
                damaged.append(Message("torch/lib/{} (it is empty)", name))
            else:
                with ElfFile(path, files) as file:
                    libraries.update(dict.fromkeys(library for library in file.needed if _OF_NVIDIA.match(library)))
                    paths.update(dict.fromkeys(place for places in file.search_paths() for place in places))
        except ElfError as error:
            if error.damaged:
                damaged.append(f"torch/lib/{name} ({error})")
        except OSError:
            continue  # gone, or not for us to read: package_damage
    missing: Value
    if not (layout.live and sys.platform.startswith("linux") and isinstance(request.value("torch.cuda"), str)):
        missing = Unknown(Message("only a CUDA build that would run on this Linux machine is looked at"))
    elif not any("/nvidia/" in path for path in paths):
        missing = Unknown(Message("this torch does not look for its CUDA libraries in NVIDIA's wheels"))
    else:
        missing = _nowhere(list(libraries), list(paths), folder, request)
        if missing and layout.incomplete is not None:
            missing = Unknown(layout.incomplete)
    states = () if is_told else tuple(damaged)
    return [("torch.damaged_files", states, _LIB), ("torch.missing_libraries", missing, _LIB)]


def _nowhere(names: list[str], paths: Sequence[str], home: str, request: Request) -> tuple[str, ...]:
    """Return the names that are in no folder that torch may look into, not preloaded, and not with the system.
    ``paths`` are those that the files in ``home`` name."""
    from envdoctor.observe.binaries.elf_file import SYSTEM_FOLDERS, cached_library

    layout, files = request.place, request.place.files
    names = _not_in([_place(path, home) for path in paths], names, files)
    if not names:
        return ()
    # A torch that is reached by a link: what lies beside its real folder counts too.
    origins = [os.path.dirname(files.resolved(os.path.join(home, "libtorch_cuda.so")))]
    origins += [os.path.join(site, "torch", "lib") for site in layout.site_packages]
    folders = [_place(path, origin) for origin in origins for path in paths]
    for nvidia in (os.path.join(site, "nvidia") for site in layout.site_packages):
        folders += [os.path.join(nvidia, part, "lib") for part in files.names_or_none(nvidia)[:_MOST_FOLDERS]]
    variables, preloaded = _variables(request)
    folders += [*variables, os.path.join(layout.prefix, "lib"), *map(request.path, SYSTEM_FOLDERS)]
    loaded = {os.path.basename(path) for path in preloaded}
    return tuple(
        name
        for name in _not_in(folders, [name for name in names if name not in loaded], files)
        if not any(map(os.path.isfile, cached_library(name, request)))
    )


def _variables(request: Request) -> tuple[list[str], list[str]]:
    """Return the folders of LD_LIBRARY_PATH, and the files of LD_PRELOAD, as glibc's loader parts them."""
    folders = request.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    return list(filter(None, folders)), request.environ.get("LD_PRELOAD", "").replace(":", " ").split()


def _place(path: str, origin: str) -> str:
    return os.path.normpath(path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))


def _not_in(folders: list[str], names: list[str], files: Files) -> list[str]:
    """Return the names that no folder has; a link whose file is gone does not count."""
    for folder in dict.fromkeys(folders):
        there = files.names_or_none(folder) if names else []
        names = [name for name in names if name not in there or not files.is_file(os.path.join(folder, name))]
    return names


_LIBSTDCXX = "libstdc++.so.6"


@observes("machine", "os.libstdcxx")
def libstdcxx(request: Request) -> Found:
    """Return which GLIBCXX versions the C++ library has that a process of an environment on this machine would load.

    The order is the loader's (ld.so(8)): LD_PRELOAD, LD_LIBRARY_PATH, then the system's cache of libraries. In a conda
    environment it is usually conda's own, by the path that is written into conda's programs, and the system's when a
    library from elsewhere was loaded first: there the answer is given only if it is the same for both.
    """
    layout = request.place
    if not layout.live:
        return Unknown(Message("the environment does not run here"))
    needs = [version for item in request.items("extension") if isinstance(version := item.get("glibcxx_needs"), str)]
    if not needs:
        return Unknown(Message("no extension asks for a version of it"))
    folders, loaded = _variables(request)
    preloaded = [path for path in loaded if path.endswith("/" + _LIBSTDCXX)]
    own = [os.path.join(layout.prefix, "lib", _LIBSTDCXX)] if layout.kind == "conda" and not preloaded else []
    first, conda = _first([*preloaded, *(f"{folder}/{_LIBSTDCXX}" for folder in folders)]), _first(own)
    if first is None:
        first = _first(of_system(_LIBSTDCXX, request))
    libraries = sorted((library for library in (conda, first) if library is not None), key=lambda pair: rank(pair[0]))
    if not libraries:
        return Unknown(Message("no {} of this machine could be read", _LIBSTDCXX))
    low, high = libraries[0], libraries[-1]
    if any(rank(low[0]) < rank(version) <= rank(high[0]) for version in needs):
        text = "{} has {}, {} has {}: which is loaded depends on what is first"
        return Unknown(Message(text, low[1], low[0], high[1], high[0]))
    # Either is enough, or neither is: then the higher one says how much is missing.
    return [("os.libstdcxx", *(high if any(rank(version) > rank(high[0]) for version in needs) else low))]


def of_system(name: str, request: Request) -> list[str]:
    """Return where the loader finds a library that no variable and no file names a folder for; not all are there."""
    from envdoctor.observe.binaries.elf_file import SYSTEM_FOLDERS, cached_library

    return [*cached_library(name, request), *(request.path(f"{folder}/{name}") for folder in SYSTEM_FOLDERS)]


def _first(paths: Sequence[str]) -> tuple[str, str] | None:
    """Return version and path of the first file that can be read and is for this machine, as the loader does."""
    from envdoctor.observe.binaries.elf_file import ElfError, ElfFile, newest

    machine = os.uname().machine if hasattr(os, "uname") else ""
    files = Files()
    for path in paths:
        try:
            with ElfFile(path, files) as file:
                version = newest(file.defined_versions(), "GLIBCXX") if file.machine == machine else None
        except (ElfError, OSError, ValueError):
            continue
        if version:
            return version, path
    return None


_ORIGIN = "torch/lib/libtorch_python.so"
_LIBRARY = os.path.join(*_ORIGIN.split("/"))
# The constants of libtorch_python.so are 1.0 MB in torch 2.14.1; a reading of more would not be quick.
_MOST_CONSTANTS = 24 << 20
_MOST_SECTIONS = 256
_MOST_NAMES = 1 << 16
_LONGEST_LIST = 400
_LIST = re.compile(rb"(?:sm|compute)_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?){0,40}\Z")


@observes("environment", "torch.arch_list")
def torch_archs(request: Request) -> Found:
    """Return ``torch.arch_list`` as torch's library says; nothing when there is no such library (Windows, macOS)."""
    gpus = request.value("gpu")
    if not isinstance(request.value("torch.cuda"), str) or (isinstance(gpus, Records) and not len(gpus)):
        return []
    files = request.place.files
    paths = (os.path.join(folder, _LIBRARY) for folder in request.place.site_packages)
    path = next(filter(files.is_file, paths), None)
    return [] if path is None else [("torch.arch_list", _read(path, files), _ORIGIN)]


def _read(path: str, files: Files) -> Value:
    try:
        lists = set(_lists(_constants(path, files)))
    except (OSError, ValueError) as error:
        return Unknown(Message("libtorch_python.so cannot be read: {}", because_of(error)))
    # A build for one architecture only has a list of one word, which other constants may look like.
    several = {text for text in lists if b" " in text} or lists
    if len(several) != 1:
        return Unknown(Message("libtorch_python.so names no list of architectures, or several"))
    return tuple(several.pop().decode("ascii").split())


def _lists(constants: bytes) -> Iterator[bytes]:
    at = constants.find(b"sm_")
    while at >= 0:
        start = constants.rfind(b"\0", max(0, at - _LONGEST_LIST), at) + 1
        end = constants.find(b"\0", at, at + _LONGEST_LIST)
        if start and end > 0 and _LIST.match(constants[start:end]):
            yield constants[start:end]
        at = constants.find(b"sm_", end if end > 0 else at + _LONGEST_LIST)


def _constants(path: str, files: Files) -> bytes:
    """Return the section .rodata of a 64-bit little-endian ELF file. Raises ValueError for others, and OSError."""

    def part(offset: int, length: int) -> bytes:
        if offset + length >= 1 << 63:
            raise ValueError(Message("it is cut off"))
        return files.ranges(path, [(offset, length)])[0]

    head = part(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError(Message("it is no 64-bit little-endian ELF file"))
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, names_at = struct.unpack_from("<HHH", head, 58)
    if size != 64 or not names_at < count <= _MOST_SECTIONS:
        raise ValueError(Message("it has no table of sections"))
    sections = list(struct.iter_unpack("<IIQQQQIIQQ", part(table, 64 * count)))
    names = part(sections[names_at][4], min(sections[names_at][5], _MOST_NAMES))
    for name, kind, _, _, offset, length, *_ in sections:
        if names[name : name + 8] == b".rodata\0" and kind == 1:
            if length > _MOST_CONSTANTS:
                raise ValueError(Message("its constants are too large"))
            return part(offset, length)
    raise ValueError(Message("it has no constants"))
