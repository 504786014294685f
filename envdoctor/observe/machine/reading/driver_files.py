"""The driver's libraries that a process would load: versions by file name, and whether cuda-compat is in front."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.machine.reading.proc_driver import driver_traces, kernel_module
from envdoctor.observe.machine.system import is_wsl
from envdoctor.observe.request import Request
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted

#: Where loaders look without being told, and where containers, WSL and NixOS put the driver's libraries.
_USUAL = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)
_VERSION = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3}(?:\.\d{1,4}){1,2})\Z")
#: Folders of 32-bit libraries, which no Python that torch is built for would load.
_FOR_32_BITS = re.compile(r"/i[3-6]86-linux-gnu|/lib32\b")
_MOST_FOLDERS = 128


class DriverLibrary(NamedTuple):
    """A library as a loader would find it: the path, and the version in its file's name (None when it has none)."""

    path: str
    version: str | None


def observe(request: Request) -> list[Fact]:
    """``driver.library`` and ``driver.compat``. Nothing is loaded: links are followed and names are read."""
    if request.platform != "linux" or not driver_traces(request):
        reason: Value = ABSENT
        if request.platform == "windows" and driver_traces(request):
            reason = Unknown(Message("Windows' libraries do not carry the driver's version in their names"))
        return [
            Fact("driver.library", reason, "", "machine"),
            Fact("driver.compat", ABSENT, Message("cuda-compat is for Linux with a driver"), "machine"),
        ]
    management, cuda = _find("libnvidia-ml.so.1", request), _find("libcuda.so.1", request)
    module, _ = kernel_module(request)
    compat = _compat(cuda, management, module)
    # A compat package brings no libnvidia-ml, which therefore is the driver's own in any case.
    own = management or (None if isinstance(compat, str) else cuda)
    library: Value = (
        ABSENT if management is None and cuda is None else Unknown(Message("its file name holds no version"))
    )
    if own is not None and own.version is not None:
        library = own.version
    return [
        Fact("driver.library", library, own.path if own else Message("the loader's folders"), "machine"),
        Fact("driver.compat", compat, cuda.path if cuda else Message("the loader's folders"), "machine"),
    ]


def compat_library(request: Request, driver: str) -> str | None:
    """The version of a libcuda other than the driver's own that a process would load; None when it is the driver's.

    ``driver`` is the version of which NVML is, so that any other libcuda comes from a package.
    """
    if request.platform != "linux" or is_wsl(request):
        return None
    compat = _compat(_find("libcuda.so.1", request), DriverLibrary("", driver), driver)
    return compat if isinstance(compat, str) else None


def _compat(cuda: DriverLibrary | None, management: DriverLibrary | None, module: str | None) -> Value:
    if cuda is None:
        return ABSENT
    in_compat_folder = "compat" in os.path.realpath(cuda.path).split(os.sep)[:-1] or "compat" in cuda.path.split(os.sep)
    if cuda.version is None:
        return Unknown(Message("{} does not carry a version in its name", cuda.path)) if in_compat_folder else ABSENT
    own = module or (management.version if management is not None else None)
    if own is None:
        return cuda.version if in_compat_folder else ABSENT
    if dotted(cuda.version) == dotted(own):
        return ABSENT
    # In its usual folder and of another version: a container that mounted the package's files over the driver's has
    # a libnvidia-ml that fits; otherwise the whole driver is of another version than the module.
    fits = management is not None and management.version is not None and dotted(management.version) == dotted(own)
    return cuda.version if in_compat_folder or fits else ABSENT


def _find(name: str, request: Request) -> DriverLibrary | None:
    for folder in _folders(request):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            match = _VERSION.match(os.path.basename(os.path.realpath(path)))
            return DriverLibrary(path, match[1] if match else None)
    return None


def _folders(request: Request) -> Iterator[str]:
    """LD_LIBRARY_PATH, the folders of ld.so.conf, and the usual ones, in the loader's order."""
    for folder in request.environ.get("LD_LIBRARY_PATH", "").split(":")[:_MOST_FOLDERS]:
        if os.path.isabs(folder) and "\0" not in folder:
            yield folder
    for folder in _configured(request):
        yield request.path(folder)
    for folder in _USUAL:
        yield request.path(folder)


def _configured(request: Request) -> Iterator[str]:
    texts = [request.text("/etc/ld.so.conf")]
    folder = "/etc/ld.so.conf.d"
    names = [name for name in request.names(folder)[:_MOST_FOLDERS] if name.endswith(".conf")]
    texts += [request.text(os.path.join(folder, name)) for name in names]
    for text in texts:
        for line in text.splitlines()[:_MOST_FOLDERS]:
            place = line.partition("#")[0].strip()
            if place.startswith("/") and "\0" not in place and not _FOR_32_BITS.search(place):
                yield place
