"""The NVIDIA driver without NVML: what the kernel module writes into ``/proc`` and ``/sys``.

Which of the machine's GPUs a CUDA process would see say ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``.
"""

import os
import re
from collections.abc import Mapping, Sequence

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.machine.system import container, is_wsl
from envdoctor.observe.request import Request
from envdoctor.system.message import Message

Item = Mapping[str, Value]

#: Like C's strtoul: leading digits count, and what does not begin with a number is no device.
_ORDINAL = r"\+?(\d{1,9})"
KEYS = ("driver.version", "driver.max_cuda", "driver.mismatch", "gpu", "gpu.visible_missing")

WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"

#: Signs of a Tegra board (Jetson), whose GPU is not on PCI and is not listed in /proc/driver/nvidia.
_TEGRA = ("/etc/nv_tegra_release", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/nvmap")


def visible(environ: Mapping[str, str], items: Sequence[Item], incomplete: Message | None = None) -> Records:
    """The items that ``CUDA_VISIBLE_DEVICES`` leaves, in its order, as a CUDA process numbers them.

    ``items`` are all GPUs in NVML's order. Where the variable cannot be translated into NVML's order the list stays as
    it is and says that it may hold too much. The meaning of the variable is that of the CUDA programming guide:
    empty or -1 hides everything, the first invalid entry ends the list, a repeated entry leaves nothing, a UUID may be
    shortened as long as it is unique.
    """
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return Records(tuple(items), incomplete)
    entries = _entries(environ)
    by_uuid = entries[0].startswith("GPU-")
    unread = _not_read(entries[:1], items)
    if unread is not None:
        return Records(tuple(items), unread)
    chosen: list[int] = []
    for entry in entries:
        places = _places(entry, items) if entry.startswith("GPU-") == by_uuid else []
        if len(places) != 1:
            break
        if places[0] in chosen:
            return Records((), incomplete)
        chosen += places
    if not by_uuid and 0 < len(chosen) < len(items) and not _same_order(environ, items):
        incomplete = Message(
            "CUDA_VISIBLE_DEVICES counts in CUDA's own order (fastest first), which is not known for GPUs "
            "of several kinds; CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain"
        )
        return Records(tuple(items), incomplete)
    return Records(tuple(items[place] for place in chosen), incomplete)


def missing(environ: Mapping[str, str], items: Sequence[Item], incomplete: Message | None = None) -> Value:
    """Entries of ``CUDA_VISIBLE_DEVICES`` that name no GPU, comma-separated; absent when each names one.

    Words that are no device at all (``-1``, ``NoDevFiles``, ``none``) hide the GPUs on purpose and are not among them.
    """
    entries = _entries(environ)
    unread = _not_read(entries, items)
    if unread is not None:
        return Unknown(unread)
    devices = [entry for entry in entries if entry.startswith("GPU-") or re.match(_ORDINAL, entry)]
    lost = [entry[:60] for entry in devices if not _places(entry, items)]
    if lost and incomplete is not None:
        return Unknown(incomplete)
    return ",".join(dict.fromkeys(lost))[:200] if lost else ABSENT


def _entries(environ: Mapping[str, str]) -> list[str]:
    return [entry.strip() for entry in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")][:4096]


def _not_read(entries: Sequence[str], items: Sequence[Item]) -> Message | None:
    """Why an entry cannot be held against the GPUs."""
    for entry in entries:
        if entry.startswith("MIG-"):
            return Message("CUDA_VISIBLE_DEVICES names a MIG slice, and slices are not read")
        if entry.startswith("GPU-") and not all(isinstance(item.get("uuid"), str) for item in items):
            return Message("CUDA_VISIBLE_DEVICES names UUIDs, and the GPUs' UUIDs could not be read")
    return None


def _places(entry: str, items: Sequence[Item]) -> list[int]:
    """Places of the GPUs that an entry names: by the beginning of their UUID, or by its leading digits."""
    if entry.startswith("GPU-"):
        return [place for place, item in enumerate(items) if str(item.get("uuid")).startswith(entry)]
    number = re.match(_ORDINAL, entry)
    return [int(number[1])] if number and int(number[1]) < len(items) else []


def _same_order(environ: Mapping[str, str], items: Sequence[Item]) -> bool:
    """Whether CUDA's ordinals are NVML's, as far as anything that is reported can differ."""
    if environ.get("CUDA_DEVICE_ORDER", "").strip() == "PCI_BUS_ID":
        return True
    kinds = {str(item.get("name")) for item in items}
    return len(kinds) == 1 and not any(isinstance(item.get("name"), Unknown) for item in items)


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
    folders = os.path.join(system, "System32"), os.path.join(programs, "NVIDIA Corporation", "NVSMI")
    return next(filter(os.path.isfile, (os.path.join(folder, "nvml.dll") for folder in folders)), "")


def observe(request: Request, problem: Message | None = None) -> list[Fact]:
    """Driver version, and the GPUs' names and UUIDs; the highest CUDA version and compute capabilities stay unknown.

    Without a trace of a driver all of it is plainly none. ``problem`` says why NVML did not answer.
    """
    if not driver_traces(request):
        origin = Message("no NVIDIA driver: /proc/driver/nvidia, /sys/module/nvidia, /dev/nvidia*")
        nobody = Unknown(Message("there is no NVIDIA driver"))
        named: Value = nobody if request.environ.get("CUDA_VISIBLE_DEVICES") else ABSENT
        none: tuple[Value, ...] = (ABSENT, ABSENT, ABSENT, Records(()), named)
        return [Fact(key, value, origin, "machine") for key, value in zip(KEYS, none, strict=True)]
    problem = problem or Message("only NVML tells it")
    version, place = kernel_module(request)
    gpus, unnamed = _gpus(request, problem)
    return [
        Fact("driver.version", version or Unknown(problem), place, "machine"),
        Fact("driver.max_cuda", Unknown(problem), place, "machine"),
        Fact("driver.mismatch", Unknown(problem), place, "machine"),
        Fact("gpu", gpus, "/proc/driver/nvidia/gpus", "machine"),
        Fact("gpu.visible_missing", unnamed, "/proc/driver/nvidia/gpus", "machine"),
    ]


def kernel_module(request: Request) -> tuple[str | None, str]:
    """Version of the loaded kernel module, and where it is written; None where it is not (WSL, a container without
    it)."""
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …"; the open module has "… for x86_64  550.54.15".
    text = request.text("/proc/driver/nvidia/version")
    match = re.search(r"^NVRM version:.*?\s(\d{2,5}(?:\.\d{1,5}){1,3})\s", text, re.MULTILINE)
    if match:
        return match.group(1), "/proc/driver/nvidia/version"
    text = request.text("/sys/module/nvidia/version").strip()
    if re.match(r"\d{2,5}(?:\.\d{1,5}){1,3}\Z", text):
        return text, "/sys/module/nvidia/version"
    return None, "/proc/driver/nvidia"


def _gpus(request: Request, problem: Message) -> tuple[Value, Value]:
    """The visible GPUs, and the entries of CUDA_VISIBLE_DEVICES that name none."""
    folder = "/proc/driver/nvidia/gpus"
    places = request.names(folder)
    if not places:
        return Unknown(problem), Unknown(problem)
    nodes = set(request.names("/dev"))
    # /proc is the host's also where a container was given no GPU; the device nodes are what was given to it.
    if "nvidiactl" not in nodes and container(request) is not ABSENT:
        return Records(()), missing(request.environ, ())
    items: list[dict[str, Value]] = []
    for index, place in enumerate(places):
        text = request.text(os.path.join(folder, place, "information"))
        fields = {key: said.strip() for key, said in re.findall(r"^([A-Za-z ]{1,40}):(.*)", text, re.MULTILINE)}
        node = "nvidia" + fields.get("Device Minor", "")
        if container(request) is not ABSENT and node != "nvidia" and node not in nodes:
            continue
        uuid = fields.get("GPU UUID", "")
        items.append(
            {
                "index": index,
                "name": fields.get("Model") or Unknown(Message("/proc/driver/nvidia does not name it")),
                **dict.fromkeys(("cc", "memory_gib", "free_gib", "processes"), Unknown(problem)),
                # Before the first use of a GPU its UUID is printed as question marks.
                "uuid": uuid if uuid and "?" not in uuid else Unknown(Message("/proc/driver/nvidia does not say it")),
            }
        )
    return visible(request.environ, items), missing(request.environ, items)
