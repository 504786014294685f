"""The fact ``extension``: what the compiled files of packages built against torch need, and whether this torch has it.

One item a package, because one wrong build is one cause however many files it has. What a package says that it was
built for (in a file of its own, its wheel's name, or its local version) explains a finding; whether it fits is decided
by its symbols where they can be read: which of them are torch's, and which no library of torch defines.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, NOT_KNOWN, Records, Unknown, Value
from envdoctor.observe.binaries.elf_file import ElfError, ElfFile, newest
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.packages.version_files import listed_libraries
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, said_by
from envdoctor.versions.pep440 import rank
from envdoctor.versions.requirement import BuiltFor, said_by_tag

#: What its files tell if they can be read.
_COLUMNS = ("arch", "glibc_needs", "glibcxx_needs", "unresolved", "example", "missing_library")
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
    first: dict[str, Mapping[str, Value]] = {}
    for dist in dists:
        if dist.get("name") in modules:
            first.setdefault(str(dist["name"]), dist)
    incomplete = dists.incomplete
    chosen: list[tuple[Mapping[str, Value], _Package]] = []
    room = _MOST_NAMES
    for name, dist in first.items():
        metadata, kind = str(dist.get("path")), str(dist.get("kind"))
        listed, partly = compiled_files(metadata, kind, modules[name], layout.site_packages, layout.files)
        package = read_package(listed, layout.files, room)
        room -= sum(len(symbol) for file in package.files for symbol in file.symbols)
        incomplete = incomplete or partly or package.unread
        chosen.append((dist, package))
    packages = [package for _, package in chosen]
    missing = request.value("torch.missing_files")
    if any(item["package"] == "torch" and item["fails"] is True for item in request.items("package_damage")):
        missing = ("torch/lib",)
    asks = any(package.files for package in packages)
    torch = _Torch(_torch_libraries(layout, missing) if asks else {}, layout.files)
    try:
        items = [_item(dist, package, torch, packages, layout.files) for dist, package in chosen]
    finally:
        for library in torch.opened:
            library.close()
    origin = Message("compiled files") if first else Message("installed packages")
    return [("extension", Records(tuple(filter(None, items)), incomplete), origin)]


def _item(
    dist: Mapping[str, Value],
    package: "_Package",
    torch: "_Torch",
    packages: Sequence["_Package"],
    files: Files,
) -> dict[str, Value] | None:
    """Return what the compiled files of a distribution tell; None if they ask nothing of torch, and are for any
    Python."""
    members, problem, unread, tags = package
    if not (members or problem or unread or tags):
        return None
    name, version = str(dist.get("name")), dist.get("version", NOT_KNOWN)
    item: dict[str, Value] = {"package": name, "version": version, "python_tag": ", ".join(tags) or ABSENT}
    item |= {"problem": problem[2] if problem else ABSENT, **dict.fromkeys(_COLUMNS, ABSENT)}
    linked: Value = ABSENT
    if members:
        item |= _needs(members, torch, packages, files)
        runtimes = sorted({file.cuda for file in members if file.cuda}, key=int)
        linked = runtimes[0] if runtimes else ABSENT
        if len(runtimes) > 1:
            linked = Unknown(Message("its files are linked to CUDA {}", " and ".join(runtimes)))
    elif reason := Message("none of its files could be read") if problem else unread:
        linked = Unknown(reason)
        item |= dict.fromkeys(_COLUMNS if problem else (*_COLUMNS, "problem"), linked)
    if problem:
        item |= {"path": problem[0], "file": problem[1]}
    build = built_for(name, version if isinstance(version, str) else "", str(dist.get("path")), files)
    item["built_torch"] = build.torch or ABSENT
    item["built_says"] = build.says or ABSENT
    item["built_abi"] = ABSENT  # its symbols tell
    # What a file is linked to is what the loader asks for; the text tells the minor version too.
    if build.cuda and (not isinstance(linked, str) or build.cuda.partition(".")[0] == linked):
        item["built_cuda"] = build.cuda
    else:
        item["built_cuda"] = linked
        if isinstance(linked, str):
            item["built_says"] = build.says or f"libcudart.so.{linked} in its compiled files"
    return item


def _needs(
    compiled: Sequence["_CompiledFile"], torch: "_Torch", packages: Sequence["_Package"], files: Files
) -> dict[str, Value]:
    """Return the columns of files that could be read, and the file that lacks most."""
    worst, verdict = compiled[0], _looked_up(compiled, torch, packages, files)
    item: dict[str, Value] = {
        "arch": ", ".join(sorted({file.machine for file in compiled})),
        "glibc_needs": max((file.glibc for file in compiled if file.glibc), key=rank, default=ABSENT),
        "glibcxx_needs": max((file.glibcxx for file in compiled if file.glibcxx), key=rank, default=ABSENT),
    }
    if isinstance(verdict, Unknown):
        item |= dict.fromkeys(("unresolved", "example", "missing_library"), verdict)
    else:
        lacking = list(dict.fromkeys(library for _, libraries, _ in verdict for library in libraries))
        open_names = list(dict.fromkeys(symbol for _, _, symbols in verdict for symbol in symbols))
        worst = max(verdict, key=lambda entry: (len(entry[1]), len(entry[2])))[0]
        item["unresolved"] = len(open_names)
        item["example"] = spelled(open_names[0]) if open_names else ABSENT
        item["missing_library"] = ", ".join(lacking[:_SHOWN]) or ABSENT
    return item | {"path": worst.path, "file": worst.name}


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
    compiled: list[tuple[str, str]] = []
    for folder in folders:
        compiled += _beside(folder, modules, files)
    return compiled[:MOST_FILES], _too_many(len(compiled))


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
        build = _read(os.path.join(os.path.dirname(metadata), *own[0].split("/")), own[1], files)
        if build.torch or build.cuda:
            return build._replace(says=own[0])
    build = _read(os.path.join(metadata, "direct_url.json"), _wheel_name, files)
    tagged = said_by_tag(version.partition("+")[2])
    if build.torch or (build.cuda and not tagged.torch):
        return build._replace(says="the name of its wheel")
    return tagged._replace(says=Message("its local version")) if tagged.torch or tagged.cuda else BuiltFor()


def _read(path: str, parse: Callable[[str], BuiltFor], files: Files) -> BuiltFor:
    try:
        return parse(files.text(path, _LIMIT))
    except (OSError, ValueError, RecursionError):  # a ValueError is text that is no JSON
        return BuiltFor()


def _xformers(text: str) -> BuiltFor:
    match json.loads(text):
        case {"version": dict(build)}:
            torch, cuda = build.get("torch"), build.get("cuda")
        case _:
            return BuiltFor()
    release = torch.partition("+")[0] if isinstance(torch, str) else ""
    plain = re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}", release)
    # CUDA as nvcc numbers it: 1208
    number = cuda if isinstance(cuda, int) and 1000 <= cuda < 10000 else None
    return BuiltFor(release if plain else None, f"{number // 100}.{number % 100}" if number else None)


def _deepspeed(text: str) -> BuiltFor:
    match = re.search(_DEEPSPEED, text, re.MULTILINE)
    versions = {key: value for key, value in re.findall(_PAIR, match[1]) if value != "0.0"} if match else {}
    return BuiltFor(versions.get("version"), versions.get("cuda_version"))


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


_STEMS = ("libc10", "libtorch")
_LONGEST = 40
CORE = ("libc10.so", "libtorch_cpu.so")
#: Names in the namespaces c10, at, torch and caffe2 by the Itanium ABI (virtual tables and guards too), the C functions
#: of the stable ABI (aoti_torch_..., torch_call_dispatcher), and what the Python binding exports (THPVariable_Wrap).
_OURS = re.compile(
    rb"_Z(?:T[VTIS]|G[VR])?N[KVrRO]*(?:3c10|2at|5torch|6caffe2)[\dA-Za-z]|(?:aoti_)?torch_[a-z]|_Z\d+THP|THP[A-Z]"
)
_PREFIX = re.compile(r"_Z(?:T[VTISC]|G[VR])?N[KVrRO]*")
_PART = re.compile(r"(\d{1,3})([A-Za-z_]\w*)")
_PRINTABLE = re.compile(r"[\w.$@]+\Z", re.ASCII)
_SHOWN = 4  # libraries named in one value
#: A package uses a few symbols of its own in the names of torch; one that lacks more than this has another cause.
_MOST_OF_SIBLINGS = 4096
#: Bytes of symbols in one environment; all files of vllm together have less than 2 MB.
_MOST_NAMES = 48 << 20
_CUDART = re.compile(r"libcudart\.so\.(\d{1,2})(?:\.0)?\Z")


def is_of_torch(library: str) -> bool:
    """Return whether a library's name is one of torch's: libc10.so, libtorch_cuda_cu.so; not libtorchaudio.so."""
    if not library.startswith(_STEMS) or not library.endswith(".so"):
        return False
    stem, _, rest = library[:-3].partition("_")
    plain = rest.replace("_", "").isalpha() and rest.islower() and len(rest) <= _LONGEST
    return stem in _STEMS and (plain or not rest)


def _torch_libraries(layout: Layout, missing: Value | None) -> dict[str, str] | Message:
    """Paths of torch's libraries by name; or why there is nothing to compare with.

    ``missing`` is the fact ``torch.missing_files``.
    """
    files = layout.files
    home = next(
        (folder for folder in layout.site_packages if files.is_file(os.path.join(folder, "torch", "version.py"))), None
    )
    if home is None:
        return Message("there is no torch to compare with")
    if isinstance(missing, tuple) and missing:
        return Message("libraries of torch itself are missing")
    folders = [os.path.join(home, "torch", "lib")]
    if layout.kind == "conda":
        folders.append(os.path.join(layout.prefix, "lib"))
    paths: dict[str, str] = {}
    for folder in folders:
        for name in files.names_or_none(folder):
            if is_of_torch(name):
                paths.setdefault(name, os.path.join(folder, name))
    lacking = [name for name in CORE if name not in paths]
    return Message("torch/lib has no {}", lacking[0]) if lacking else paths


def spelled(name: bytes) -> str:
    """Return the qualified name inside a mangled one (``c10::cuda::SetDevice``), without its arguments; at most 100
    characters. What cannot be told apart is left as it is."""
    text = name[:400].decode("ascii", "replace")
    if not _PRINTABLE.match(text):
        return Message("a symbol with odd characters")
    match = _PREFIX.match(text)
    parts: list[str] = []
    rest = text[match.end() :] if match else ""
    while part := _PART.match(rest):
        length = int(part[1])
        if length == 0 or length > len(part[2]):
            break
        parts.append(part[2][:length])
        rest = part[2][length:] + rest[part.end() :]
    if rest[:2] in ("C1", "C2") and parts:
        parts.append(parts[-1])
    return "::".join(parts)[:100] if len(parts) > 1 else text[:100]


class _CompiledFile(NamedTuple):
    """One compiled file: the torch symbols and torch libraries it asks for, the versions of the C and C++ libraries,
    and the CUDA major of the runtime library it is linked to."""

    path: str
    name: str
    machine: str
    symbols: list[bytes]
    libraries: list[str]
    glibc: str | None
    glibcxx: str | None
    cuda: str | None


class _Package(NamedTuple):
    """What was read of one package. ``problem`` is (path, name, reason) of a damaged file, ``unread`` why a file that
    need not be damaged was not read; ``tags`` are the Pythons that its files are named for."""

    files: list[_CompiledFile]
    problem: tuple[str, str, Message] | None
    unread: Message | None
    tags: list[str]


class _Torch:
    """Torch's libraries, opened. ``lacks`` says why nothing can be looked up in them; None when it can."""

    def __init__(self, paths: Mapping[str, str] | Message, files: Files) -> None:
        self.lacks = paths if isinstance(paths, Message) else None
        places: Mapping[str, str] = {} if isinstance(paths, Message) else paths
        self.names = frozenset(places)
        self.opened: list[ElfFile] = []
        self._known: dict[bytes, bool] = {}  # files of one package ask for the same names
        # Most symbols are of libtorch_cpu and libc10.
        for name in sorted(places, key=lambda name: (name not in CORE[::-1], name)):
            try:
                self.opened.append(ElfFile(places[name], files))
            except (ElfError, OSError) as error:
                self.lacks = Message("torch/lib/{} cannot be read: {}", name, because_of(error))
                break

    def lacking(self, names: Iterable[bytes]) -> list[bytes]:
        """Return the names that no library defines, in order. Raises ``ElfError`` and ``OSError`` of the libraries."""
        missing: list[bytes] = []
        for name in names:
            if name not in self._known:
                self._known[name] = any(library.exports(name) for library in self.opened)
            if not self._known[name]:
                missing.append(name)
        return missing


def _looked_up(
    compiled: Sequence[_CompiledFile], torch: _Torch, packages: Sequence[_Package], files: Files
) -> list[tuple[_CompiledFile, list[str], list[bytes]]] | Unknown:
    """Return each file with the torch libraries and the symbols that it lacks."""
    if torch.lacks is not None:
        return Unknown(torch.lacks)
    machines = {library.machine for library in torch.opened}
    siblings = {os.path.basename(other.name) for package in packages for other in package.files}
    verdict: list[tuple[_CompiledFile, list[str], list[bytes]]] = []
    for file in compiled:
        if file.machine not in machines:
            return Unknown(Message("{} is for {}, torch for {}", file.name, file.machine, ", ".join(sorted(machines))))
        try:
            symbols = torch.lacking(file.symbols)
        except (ElfError, OSError) as error:
            return Unknown(Message("a library of torch cannot be read: {}", because_of(error)))
        libraries = [library for library in file.libraries if library not in torch.names | siblings]
        verdict.append((file, libraries, symbols))
    from_siblings = _of_siblings({name for _, _, names in verdict for name in names}, packages, files)
    return [
        (file, libraries, [name for name in names if name not in from_siblings]) for file, libraries, names in verdict
    ]


def _of_siblings(symbols: set[bytes], packages: Sequence[_Package], files: Files) -> set[bytes]:
    """Return those that some extension gives: one file of a package may define what another one uses."""
    defined: set[bytes] = set()
    if len(symbols) > _MOST_OF_SIBLINGS:
        return defined
    for package in packages:
        for other in package.files:
            lacking = sorted(symbols - defined)
            if not lacking:
                return defined
            try:
                with ElfFile(other.path, files) as file:
                    defined.update([name for name in lacking if file.exports(name)])
            except (ElfError, OSError):
                continue
    return defined


def read_package(paths: Sequence[tuple[str, str]], files: Files, room: int = _MOST_NAMES) -> _Package:
    """Read the files (path, name) of a distribution. Those that ask nothing of torch are left out, and those that come
    when ``room`` bytes of symbols were read. Never raises for what a file holds."""
    compiled: list[_CompiledFile] = []
    problem: tuple[str, str, Message] | None = None
    unread: Message | None = None
    for path, name in paths:
        if room <= 0:
            unread = unread or Message("{} was not read: the files before it ask for too many symbols", name)
            break
        if name.endswith(".pyd"):
            unread = unread or Message("compiled files for Windows are not read: {}", name)
            continue
        try:
            with ElfFile(path, files) as file:
                libraries = [library for library in file.needed if is_of_torch(library)]
                symbols = [symbol for symbol in file.undefined() if _OURS.match(symbol)]
                versions = file.versions()
                glibc, glibcxx = newest(versions, "GLIBC"), newest(versions, "GLIBCXX")
                cuda = next((match[1] for library in file.needed if (match := _CUDART.match(library))), None)
                item = _CompiledFile(path, name, file.machine, symbols, libraries, glibc, glibcxx, cuda)
        except ElfError as error:
            if error.damaged:
                problem = problem or (path, name, said_by(error))
            else:
                unread = unread or Message("{} was not read: {}", name, error)
            continue
        except (OSError, ValueError) as error:
            reason = because_of(error) if isinstance(error, OSError) else Message("its name is no path")
            unread = unread or Message("{} cannot be read: {}", name, reason)
            continue
        if item.symbols or item.libraries:
            compiled.append(item)
            room -= sum(map(len, item.symbols))
    return _Package(compiled, problem, unread, sorted({tag for _, name in paths if (tag := python_tag(name))}))
