"""The compilers that torch and triton would call on this machine, and their versions, read from names and folders."""

import os
import re

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.request import Request
from envdoctor.system.files import Files
from envdoctor.system.message import Message

KEYS = ("build.c_compiler", "build.gcc")

#: g++-12, x86_64-linux-gnu-g++-12, gcc-13.2
_VERSIONED = re.compile(r"(?:\A|-)(?:gcc|g\+\+|c\+\+|cc)-(\d{1,2}(?:\.\d{1,2}){0,2})\Z")
_VERSION_FOLDER = r"\d{1,2}(?:\.\d{1,2}){0,2}\Z"
#: Stand-ins that start the compiler of the same name further on.
_CACHES = frozenset({"ccache", "sccache", "distcc"})
_MAX_LINKS = 20


def observe(request: Request) -> list[Fact]:
    """``build.c_compiler``, the C compiler that triton takes, and ``build.gcc``, the version of torch's C++ compiler.

    triton (runtime/build.py, 3.5 to 3.9): CC, else gcc, else clang. torch (utils/cpp_extension.py, 2.13): CXX, else
    c++; and CC, when it is set, under nvcc. Nothing is started: a gcc tells its version by the name that its link leads
    to (g++-12) or by the one folder of its own library (lib/gcc/x86_64-redhat-linux/8).
    """
    if request.platform != "linux":
        reason = Unknown(Message("compilers are looked for on Linux only"))
        return [Fact(key, reason, "", "machine") for key in KEYS]
    cc, cc_origin = _chosen(request, "CC", ("gcc", "clang"))
    cxx, cxx_origin = _chosen(request, "CXX", ("c++", "g++"))
    return [
        Fact("build.c_compiler", os.path.basename(cc) if isinstance(cc, str) else cc, cc_origin, "machine"),
        Fact("build.gcc", _version(cc if "CC" in request.environ else None, cxx), cxx_origin, "machine"),
    ]


def _chosen(request: Request, variable: str, instead: tuple[str, ...]) -> tuple[Value, str]:
    """Path of the compiler that the variable or else PATH gives."""
    given = request.environ.get(variable)
    if given is None:
        found = next((path for name in instead if (path := on_path(name, request))), None)
        return found or ABSENT, "PATH"
    import shlex

    try:
        words = shlex.split(given)
    except ValueError:
        words = []
    # "ccache g++ -m64": the compiler is what comes after the stand-in, and options follow it
    words = [word for word in words if os.path.basename(word) not in _CACHES]
    path = on_path(words[0], request) if words else None
    return path or Unknown(Message("{} names no program that was found", variable)), variable


def on_path(name: str, request: Request) -> str | None:
    """The program of that name, or at that path; None when there is none. A compiler cache in its place is skipped."""
    if os.path.isabs(name):
        return name if _runs(name) else None
    if os.sep in name:
        return None  # depends on the working directory
    for folder in request.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isabs(folder) and _runs(path) and os.path.basename(os.path.realpath(path)) not in _CACHES:
            return path
    return None


def _runs(path: str) -> bool:
    try:
        return os.access(path, os.X_OK) and os.path.isfile(path)
    except ValueError:  # an embedded NUL
        return False


def _version(cc: Value | None, cxx: Value) -> Value:
    """Version of the C++ compiler; unknown when a C compiler that was set is another one, since nvcc takes that."""
    if not isinstance(cxx, str):
        return cxx
    version = gcc_version(cxx)
    if cc is not None and not isinstance(version, Unknown):
        other = gcc_version(cc) if isinstance(cc, str) else cc
        if other != version:
            name = os.path.basename(cxx)
            return Unknown(Message("CC and CXX are not known to be of one version ({} is {})", name, version))
    return version


def gcc_version(path: str) -> Value:
    """Version of the gcc at ``path``: 12, 13.2 or 12.4.0, as exact as its files say."""
    step = path
    for _ in range(_MAX_LINKS):
        match = _VERSIONED.search(os.path.basename(step))
        if match:
            return match.group(1)
        try:
            step = os.path.join(os.path.dirname(step), os.readlink(step))
        except (OSError, ValueError):
            break
    name = os.path.basename(step)
    if "clang" in name:
        return Unknown(Message("{} is {}, not gcc", os.path.basename(path), name))
    library = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(path))), "lib", "gcc")
    machine, files = os.uname().machine, Files()
    versions = {
        version
        for triple in files.names_or_none(library)[:64]
        if triple.startswith(machine) and "linux" in triple
        for version in files.names_or_none(os.path.join(library, triple))[:64]
        if re.match(_VERSION_FOLDER, version)
    }
    if len(versions) == 1:
        return versions.pop()
    return Unknown(Message("neither the name of {} nor its library folder tells one version", os.path.basename(path)))
