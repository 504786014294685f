"""The operating system: platform, architecture, C library, kernel, WSL, container; memory, open
files and locked memory that this process may use; and the variables that change what the training stack does."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.clean import without_credentials, without_url_credentials
from envdoctor.system.message import Message

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64"}
#: By kind of container: variables, and a file.
_SIGNS = (
    ("kubernetes", ("KUBERNETES_SERVICE_HOST",), "/run/secrets/kubernetes.io"),
    ("podman", (), "/run/.containerenv"),
    ("docker", (), "/.dockerenv"),
    ("apptainer", ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"), ""),
)
_CONTAINER_NAME = r"[a-z][a-z0-9-]{0,31}\Z"
#: What container managers write into the path of the first process' control group, and those that are called otherwise.
_CGROUP_MARKS = ("kubepods", "docker", "libpod", "lxc", "garden", "containerd")
_CALLED = {"kubepods": "kubernetes", "libpod": "podman"}
#: Characters of a variable.
_LIMIT = 4096
_GIB = 1 << 30
_SHM = "/dev/shm"  # noqa: S108 - its size is read, nothing is put there
#: cgroup v1 writes "no limit" as the largest multiple of a page below 2**63.
_NO_LIMIT = 1 << 60


@observes(
    "machine",
    "os.platform os.arch os.libc os.libc_version os.kernel os.wsl os.container os.memory_gib os.shm_gib "
    "os.open_files os.locked_memory_gib",
)
def system(request: Request) -> Found:
    """Find the facts of the platform; sizes are in GiB (2**30 bytes), limits the soft ones that ``ulimit`` shows."""
    libc, version, libc_origin = _libc(request)
    memory, memory_origin = _memory(request)
    return [
        ("os.platform", request.platform or Unknown(Message("the platform was not named")), "sys.platform"),
        ("os.arch", _arch(request), "uname"),
        ("os.libc", libc, libc_origin),
        ("os.libc_version", version, libc_origin),
        ("os.kernel", _kernel(request), "uname"),
        ("os.wsl", is_wsl(request), "/proc/sys/kernel/osrelease"),
        ("os.container", container(request), "/proc, /run"),
        ("os.memory_gib", memory, memory_origin),
        ("os.shm_gib", _shared_memory(request), _SHM),
        ("os.open_files", _soft_limit("RLIMIT_NOFILE", 1), Message("ulimit -n")),
        ("os.locked_memory_gib", _soft_limit("RLIMIT_MEMLOCK", _GIB), Message("ulimit -l")),
    ]


def _arch(request: Request) -> Value:
    if request.platform == "windows":
        # A 32-bit process is told its own architecture in the second name and the machine's in the first.
        name = request.environ.get("PROCESSOR_ARCHITEW6432") or request.environ.get("PROCESSOR_ARCHITECTURE") or ""
    else:
        name = os.uname().machine
    name = name.lower()
    return _ARCHITECTURES.get(name, name) or Unknown(Message("the operating system does not say"))


def _kernel(request: Request) -> Value:
    if request.platform == "linux" and (text := request.text("/proc/sys/kernel/osrelease").strip()):
        return text
    if sys.platform == "win32":
        version = sys.getwindowsversion()
        return f"{version.major}.{version.minor}.{version.build}"
    return os.uname().release or Unknown(Message("the operating system does not say"))


def is_wsl(request: Request) -> bool:
    """Return whether this Linux runs inside Windows (Windows Subsystem for Linux)."""
    if request.platform != "linux":
        return False
    release = request.text("/proc/sys/kernel/osrelease")
    # A kernel that the user built himself need not be named after Microsoft.
    return "microsoft" in release.lower() or os.path.exists(request.path("/proc/sys/fs/binfmt_misc/WSLInterop"))


def _libc(request: Request) -> tuple[Value, Value, str]:
    """Name, version and origin of the C library that this interpreter uses."""
    if request.platform != "linux":
        return ABSENT, ABSENT, "sys.platform"
    try:
        name, _, glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        name = glibc = ""
    if request.root == "/" and name == "glibc" and re.match(r"\d+(\.\d+)+\Z", glibc):
        return "glibc", glibc, "confstr"
    if any(name.startswith("ld-musl-") for name in request.names("/lib")):
        # musl tells its version only when its loader is started; Alpine's package list has it as text.
        installed = request.text("/lib/apk/db/installed", 16 << 20)
        match = re.search(r"^P:musl\nV:(\d+(?:\.\d+)+)", installed, re.MULTILINE)
        unknown = Unknown(Message("musl is not a package of /lib/apk/db/installed"))
        return "musl", match[1] if match else unknown, "/lib/ld-musl-*"
    reason = Unknown(Message("neither glibc's confstr nor /lib/ld-musl-* answered"))
    return reason, reason, "confstr"


def container(request: Request) -> Value:
    """Return the kind of container around this process; ABSENT outside one, unknown when the signs contradict."""
    if request.platform != "linux":
        return ABSENT
    environ = request.environ
    for kind, variables, sign in _SIGNS:
        if any(map(environ.get, variables)) or (sign and os.path.exists(request.path(sign))):
            return kind
    manager = (environ.get("container") or request.text("/run/systemd/container")).strip().lower()
    if manager:
        return manager if re.match(_CONTAINER_NAME, manager) else "unnamed"
    groups = request.text("/proc/1/cgroup")
    for mark in _CGROUP_MARKS:
        if mark in groups:
            return _CALLED.get(mark, mark)
    mounts = request.text("/proc/self/mounts")
    if re.search(r"^overlay / overlay ", mounts, re.MULTILINE):
        reason = Message("the root file system is an overlay, as in a container, but no container manager left a sign")
        return Unknown(reason)
    return ABSENT


def _memory(request: Request) -> tuple[Value, str]:
    """Main memory, or the smaller limit of this process' control group, and where that is written."""
    installed: int | None = None
    limit, origin = None, "sysconf"
    if request.platform == "linux":
        origin, limit = "/proc/meminfo", _cgroup_limit(request)
        match = re.search(r"^MemTotal:\s*(\d{1,15}) kB", request.text(origin), re.MULTILINE)
        installed = int(match[1]) * 1024 if match else None
    elif request.platform == "windows":
        installed, origin = _windows_memory(), "GlobalMemoryStatusEx"
    else:
        with suppress(AttributeError, OSError, ValueError):
            installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if limit is not None and (installed is None or limit < installed):
        return _gib(limit), Message("cgroup memory limit")
    return Unknown(Message("the operating system does not say")) if installed is None else _gib(installed), origin


def _windows_memory() -> int | None:
    if sys.platform != "win32":
        return None
    import ctypes

    # MEMORYSTATUSEX: two 32-bit fields (size, load), then seven 64-bit ones of which the first is the total.
    status = (ctypes.c_uint64 * 8)()
    ctypes.cast(status, ctypes.POINTER(ctypes.c_uint32))[0] = ctypes.sizeof(status)
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status[1])


def _cgroup_limit(request: Request) -> int | None:
    """Return the smallest memory limit, in bytes, of this process' control group and those above it (v2 and v1)."""
    limits: list[int] = []
    for line in request.text("/proc/self/cgroup").splitlines():
        controllers, colon, group = line.partition(":")[2].partition(":")
        if not colon or (controllers and "memory" not in controllers.split(",")):
            continue
        mount, name = ("/memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        # In a container the path may be the host's, which is not mounted here: the walk ends at the mount's own file.
        parts = [part for part in group.split("/") if part not in ("", ".", "..")][:64]
        for depth in range(len(parts), -1, -1):
            text = request.text("/".join([f"/sys/fs/cgroup{mount}", *parts[:depth], name])).strip()
            if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _NO_LIMIT:
                limits.append(int(text))
    return min(limits, default=None)


def _shared_memory(request: Request) -> Value:
    path = request.path(_SHM)
    if request.platform != "linux" or not os.path.exists(path):
        return ABSENT
    try:
        status = os.statvfs(path)
    except OSError as error:
        return Unknown(Message("{} cannot be asked for its size: {}", _SHM, error.strerror))
    return _gib(status.f_blocks * status.f_frsize)


def _soft_limit(name: str, unit: int) -> Value:
    """Return a resource limit in units; ABSENT when there is none, or an operating system without limits."""
    try:
        import resource

        soft = resource.getrlimit(getattr(resource, name))[0]
    except (ImportError, AttributeError):
        return ABSENT
    if soft == resource.RLIM_INFINITY:
        return ABSENT
    return soft if unit == 1 else round(soft / unit, 6)


def _gib(size: int) -> float:
    return round(size / _GIB, 3)


@observes("machine", "env.*")
def variables(request: Request) -> Iterator[tuple[str, Value, str]]:
    """Find each variable of the registry: its value without credentials, or ABSENT when it is not set."""
    for name, privacy in request.variables.items():
        value: Value = ABSENT
        if (text := request.environ.get(name)) is not None and len(text) > _LIMIT:
            value = Unknown(Message("{} is {} characters long; at most {} are read", name, len(text), _LIMIT))
        elif text is not None:
            # Python keeps bytes of the environment that are not UTF-8 as lone surrogates, which no output could encode.
            text = text.encode("utf-8", "replace").decode("utf-8")
            value = without_url_credentials(text) if privacy == "host" else without_credentials(text)
        yield f"env.{name}", value, Message("environment variables")
