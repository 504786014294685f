"""What this process may use: main memory, shared memory, open files, locked memory."""

from __future__ import annotations

import os
import re
import sys

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.machine.reading.text_file import read_text
from envdoctor.observe.request import Request
from envdoctor.text.message import Message

KEYS = ("os.memory_gib", "os.shm_gib", "os.open_files", "os.locked_memory_gib")

_GIB = 1 << 30
_SHM = "/dev/shm"  # noqa: S108 - its size is read, nothing is put there
#: cgroup v1 writes "no limit" as the largest multiple of a page below 2**63.
_NO_LIMIT = 1 << 60


def observe(request: Request) -> list[Fact]:
    """Memory sizes in GiB (2**30 bytes, three decimals) and the soft limits that ``ulimit`` shows."""
    memory, origin = _memory(request)
    values: list[tuple[str, Value, str]] = [
        ("os.memory_gib", memory, origin),
        ("os.shm_gib", _shared_memory(request), _SHM),
        ("os.open_files", _soft_limit("RLIMIT_NOFILE", 1), Message("ulimit -n")),
        ("os.locked_memory_gib", _soft_limit("RLIMIT_MEMLOCK", _GIB), Message("ulimit -l")),
    ]
    return [Fact(key, value, origin, "machine") for key, value, origin in values]


def _memory(request: Request) -> tuple[Value, str]:
    installed, origin = _installed_memory(request)
    limit = _cgroup_limit(request) if request.platform == "linux" else None
    if limit is not None and (installed is None or limit < installed):
        return _gib(limit), Message("cgroup memory limit")
    if installed is None:
        return Unknown(Message("the operating system does not say")), origin
    return _gib(installed), origin


def _installed_memory(request: Request) -> tuple[int | None, str]:
    """Bytes of main memory and where that is written."""
    if request.platform == "linux":
        match = re.search(r"^MemTotal:\s*(\d{1,15}) kB", read_text(request.path("/proc/meminfo")) or "", re.MULTILINE)
        return (int(match.group(1)) * 1024 if match else None), "/proc/meminfo"
    if request.platform == "windows":
        return _windows_memory(), "GlobalMemoryStatusEx"
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "sysconf"
    except (AttributeError, OSError, ValueError):
        return None, "sysconf"


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
    """The smallest memory limit in bytes of this process' control group and the groups above it (cgroup v2 and v1)."""
    limits: list[int] = []
    for line in (read_text(request.path("/proc/self/cgroup")) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, group = rest.partition(":")
        if not colon:
            continue
        if not controllers:
            limits += _limits_up(request, "/sys/fs/cgroup", group, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits_up(request, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes")
    return min(limits, default=None)


def _limits_up(request: Request, mount: str, group: str, name: str) -> list[int]:
    # In a container the path may be the host's, which is not mounted here: the walk then ends at the mount's own file.
    parts = [part for part in group.split("/") if part not in ("", ".", "..")][:64]
    found: list[int] = []
    for depth in range(len(parts), -1, -1):
        text = (read_text(request.path("/".join([mount, *parts[:depth], name]))) or "").strip()
        if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _NO_LIMIT:
            found.append(int(text))
    return found


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
    """A resource limit in units, ABSENT when there is none (unlimited, or an operating system without limits)."""
    try:
        import resource
    except ImportError:
        return ABSENT
    kind = getattr(resource, name, None)
    if kind is None:
        return ABSENT
    soft = resource.getrlimit(kind)[0]
    if soft == resource.RLIM_INFINITY:
        return ABSENT
    return soft if unit == 1 else round(soft / unit, 6)


def _gib(size: int) -> float:
    return round(size / _GIB, 3)
