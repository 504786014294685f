"""The operating system: platform, architecture, C library, kernel, WSL, container."""

from __future__ import annotations

import os
import re
import sys

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.machine.reading.text_file import names, read_text
from envdoctor.observe.request import Request
from envdoctor.text.message import Message

KEYS = ("os.platform", "os.arch", "os.libc", "os.libc_version", "os.kernel", "os.wsl", "os.container")

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64"}
_CONTAINER_NAME = r"[a-z][a-z0-9-]{0,31}\Z"
#: What container managers write into the path of the first process' control group.
_CGROUP_MARKS = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
    ("garden", "garden"),
    ("containerd", "containerd"),
)


def observe(request: Request) -> list[Fact]:
    """Platform facts; see ``facts.toml`` for the words they use."""
    libc, version, libc_origin = _libc(request)
    kernel = _kernel(request)
    values: list[tuple[str, Value, str]] = [
        ("os.platform", request.platform or Unknown(Message("the platform was not named")), "sys.platform"),
        ("os.arch", _arch(request), "uname"),
        ("os.libc", libc, libc_origin),
        ("os.libc_version", version, libc_origin),
        ("os.kernel", kernel, "uname"),
        ("os.wsl", is_wsl(request), "/proc/sys/kernel/osrelease"),
        ("os.container", container(request), "/proc, /run"),
    ]
    return [Fact(key, value, origin, "machine") for key, value, origin in values]


def _arch(request: Request) -> Value:
    if request.platform == "windows":
        # A 32-bit process is told its own architecture in the second name and the machine's in the first.
        name = request.environ.get("PROCESSOR_ARCHITEW6432") or request.environ.get("PROCESSOR_ARCHITECTURE") or ""
    else:
        name = os.uname().machine
    name = name.lower()
    return _ARCHITECTURES.get(name, name) or Unknown(Message("the operating system does not say"))


def _kernel(request: Request) -> Value:
    if request.platform == "linux":
        text = read_text(request.path("/proc/sys/kernel/osrelease"))
        if text and text.strip():
            return text.strip()
    if sys.platform == "win32":
        version = sys.getwindowsversion()
        return f"{version.major}.{version.minor}.{version.build}"
    return os.uname().release or Unknown(Message("the operating system does not say"))


def is_wsl(request: Request) -> bool:
    """Whether this Linux runs inside Windows (Windows Subsystem for Linux)."""
    if request.platform != "linux":
        return False
    release = read_text(request.path("/proc/sys/kernel/osrelease")) or ""
    # A kernel that the user built himself need not be named after Microsoft.
    return "microsoft" in release.lower() or os.path.exists(request.path("/proc/sys/fs/binfmt_misc/WSLInterop"))


def _libc(request: Request) -> tuple[Value, Value, str]:
    """Name, version and origin of the C library that this interpreter uses."""
    if request.platform != "linux":
        return ABSENT, ABSENT, "sys.platform"
    if request.root == "/":
        glibc = _glibc()
        if glibc is not None:
            return "glibc", glibc, "confstr"
    if any(name.startswith("ld-musl-") for name in names(request.path("/lib"))):
        return "musl", _musl_version(request), "/lib/ld-musl-*"
    if hasattr(sys, "getandroidapilevel"):
        return ABSENT, ABSENT, "sys"
    reason = Unknown(Message("neither glibc's confstr nor /lib/ld-musl-* answered"))
    return reason, reason, "confstr"


def _glibc() -> str | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):
        return None
    name, _, version = text.partition(" ")
    return version if name == "glibc" and re.match(r"\d+(\.\d+)+\Z", version) else None


def _musl_version(request: Request) -> Value:
    """musl tells its version only when its loader is started; Alpine's package list has it as text."""
    installed = read_text(request.path("/lib/apk/db/installed"), 16 << 20) or ""
    match = re.search(r"^P:musl\nV:(\d+(?:\.\d+)+)", installed, re.MULTILINE)
    return match.group(1) if match else Unknown(Message("musl is not a package of /lib/apk/db/installed"))


def container(request: Request) -> Value:
    """The kind of container around this process, ABSENT outside one, unknown when the signs contradict each other."""
    if request.platform != "linux":
        return ABSENT
    environ = request.environ
    if environ.get("KUBERNETES_SERVICE_HOST") or os.path.exists(request.path("/run/secrets/kubernetes.io")):
        return "kubernetes"
    if os.path.exists(request.path("/run/.containerenv")):
        return "podman"
    if os.path.exists(request.path("/.dockerenv")):
        return "docker"
    if environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    manager = (environ.get("container") or read_text(request.path("/run/systemd/container")) or "").strip().lower()
    if manager:
        return manager if re.match(_CONTAINER_NAME, manager) else "unnamed"
    groups = read_text(request.path("/proc/1/cgroup")) or ""
    for mark, kind in _CGROUP_MARKS:
        if mark in groups:
            return kind
    mounts = read_text(request.path("/proc/self/mounts")) or ""
    if re.search(r"^overlay / overlay ", mounts, re.MULTILINE):
        return Unknown(
            Message("the root file system is an overlay, as in a container, but no container manager left a sign")
        )
    return ABSENT
