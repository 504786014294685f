"""The NVIDIA driver without NVML: what the kernel module writes into ``/proc`` and ``/sys``."""

from __future__ import annotations

import os
import re

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.machine.reading.text_file import names, read_text
from envdoctor.observe.machine.reading.visible_devices import missing, visible
from envdoctor.observe.machine.system import container, is_wsl
from envdoctor.observe.request import Request
from envdoctor.text.message import Message

KEYS = ("driver.version", "driver.max_cuda", "driver.mismatch", "gpu", "gpu.visible_missing")

WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"

#: Signs of a Tegra board (Jetson), whose GPU is not on PCI and is not listed in /proc/driver/nvidia.
_TEGRA = ("/etc/nv_tegra_release", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/nvmap")


def driver_traces(request: Request) -> bool:
    """Whether anything suggests an NVIDIA driver; without a trace NVML need not be loaded to know that."""
    if request.platform == "windows":
        return bool(windows_library(request))
    if request.platform != "linux":
        return False
    if is_wsl(request) and os.path.exists(request.path(WSL_LIBRARY)):
        return True
    signs = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", *_TEGRA)
    return any(os.path.exists(request.path(sign)) for sign in signs)


def windows_library(request: Request) -> str:
    """``nvml.dll`` where the driver's installer puts it, never from the search path; empty when it is not there."""
    environ = request.environ
    system, programs = environ.get("SystemRoot", r"C:\Windows"), environ.get("ProgramFiles", r"C:\Program Files")
    for path in (
        os.path.join(system, "System32", "nvml.dll"),
        os.path.join(programs, "NVIDIA Corporation", "NVSMI", "nvml.dll"),
    ):
        if os.path.isfile(path):
            return path
    return ""


def observe(request: Request) -> list[Fact]:
    """Driver version, and the GPUs' names and UUIDs; the highest CUDA version and compute capabilities stay unknown.

    Without a trace of a driver all of it is plainly none. ``request.nvml_problem`` is the reason of unknown values.
    """
    if not driver_traces(request):
        origin = Message("no NVIDIA driver: /proc/driver/nvidia, /sys/module/nvidia, /dev/nvidia*")
        named: Value = (
            Unknown(Message("there is no NVIDIA driver")) if request.environ.get("CUDA_VISIBLE_DEVICES") else ABSENT
        )
        none: tuple[Value, ...] = (ABSENT, ABSENT, ABSENT, Records(()), named)
        return [Fact(key, value, origin, "machine") for key, value in zip(KEYS, none, strict=True)]
    problem = request.nvml_problem or Message("only NVML tells it")
    version, place = _version(request, problem)
    gpus, unnamed = _gpus(request, problem)
    return [
        Fact("driver.version", version, place, "machine"),
        Fact("driver.max_cuda", Unknown(problem), place, "machine"),
        Fact("driver.mismatch", Unknown(problem), place, "machine"),
        Fact("gpu", gpus, "/proc/driver/nvidia/gpus", "machine"),
        Fact("gpu.visible_missing", unnamed, "/proc/driver/nvidia/gpus", "machine"),
    ]


def kernel_module(request: Request) -> str | None:
    """Version of the loaded kernel module; None where it is not written down (WSL, a container without it)."""
    version, _ = _version(request, Message("only NVML tells it"))
    return version if isinstance(version, str) else None


def _version(request: Request, problem: Message) -> tuple[Value, str]:
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …"; the open module has "… for x86_64  550.54.15".
    text = read_text(request.path("/proc/driver/nvidia/version")) or ""
    match = re.search(r"^NVRM version:.*?\s(\d{2,5}(?:\.\d{1,5}){1,3})\s", text, re.MULTILINE)
    if match:
        return match.group(1), "/proc/driver/nvidia/version"
    text = (read_text(request.path("/sys/module/nvidia/version")) or "").strip()
    if re.match(r"\d{2,5}(?:\.\d{1,5}){1,3}\Z", text):
        return text, "/sys/module/nvidia/version"
    return Unknown(problem), "/proc/driver/nvidia"


def _gpus(request: Request, problem: Message) -> tuple[Value, Value]:
    """The visible GPUs, and the entries of CUDA_VISIBLE_DEVICES that name none."""
    folder = request.path("/proc/driver/nvidia/gpus")
    places = names(folder)
    if not places:
        return Unknown(problem), Unknown(problem)
    nodes = set(names(request.path("/dev")))
    # /proc is the host's also where a container was given no GPU; the device nodes are what was given to it.
    if "nvidiactl" not in nodes and container(request) is not ABSENT:
        return Records(()), missing(request.environ, ())
    items: list[dict[str, Value]] = []
    for index, place in enumerate(places):
        text = read_text(os.path.join(folder, place, "information")) or ""
        fields = {key: said.strip() for key, said in re.findall(r"^([A-Za-z ]{1,40}):(.*)", text, re.MULTILINE)}
        node = "nvidia" + fields.get("Device Minor", "")
        if container(request) is not ABSENT and node != "nvidia" and node not in nodes:
            continue
        uuid = fields.get("GPU UUID", "")
        items.append(
            {
                "index": index,
                "name": fields.get("Model") or Unknown(Message("/proc/driver/nvidia does not name it")),
                "cc": Unknown(problem),
                "memory_gib": Unknown(problem),
                "free_gib": Unknown(problem),
                "processes": Unknown(problem),
                # Before the first use of a GPU its UUID is printed as question marks.
                "uuid": uuid if uuid and "?" not in uuid else Unknown(Message("/proc/driver/nvidia does not say it")),
            }
        )
    return visible(request.environ, items), missing(request.environ, items)
