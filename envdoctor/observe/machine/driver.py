"""The NVIDIA driver and the GPUs: NVML's answers, what ``/proc`` and ``/sys`` tell without it, and the libraries of the
driver that a process would load. Which GPUs it would see say ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.observe.machine.system import container, is_wsl
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted

Item = Mapping[str, Value]
#: Values by key, each with its origin.
_Told = dict[str, tuple[Value, str]]
#: A library as a loader would find it: its path, and the version in its file's name (None without one).
_Library = tuple[str, str | None]
_DRIVER = ("driver.version", "driver.max_cuda", "driver.mismatch", "gpu", "gpu.visible_missing")
_LIBRARIES = ("driver.library", "driver.compat")
#: Like C's strtoul: leading digits count, and what does not begin with a number is no device.
_ORDINAL = r"\+?(\d{1,9})"
_WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
#: Signs of a driver; the last are those of a Tegra board (Jetson), whose GPU is not on PCI and is not listed in
#: /proc/driver/nvidia.
_SIGNS = (
    *("/proc/driver/nvidia/version", "/sys/module/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0"),
    *("/etc/nv_tegra_release", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/nvmap"),
)
#: Where loaders look without being told, and where containers, WSL and NixOS put the driver's libraries.
_USUAL = (
    *("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64"),
    *("/usr/lib", "/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"),
)
_VERSION = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d{3}(?:\.\d{1,4}){1,2})\Z")
#: Folders of 32-bit libraries, which no Python that torch is built for would load.
_FOR_32_BITS = re.compile(r"/i[3-6]86-linux-gnu|/lib32\b")
_MOST_FOLDERS = 128


@observes("machine", " ".join((*_DRIVER, *_LIBRARIES, "machine.accelerators")))
def driver(request: Request) -> Found:
    """Find driver, libraries and GPUs; NVML is asked if a driver leaves a trace. Of other accelerators only their signs
    are told, so that a report can say that they are not covered yet."""
    platforms = ["nvidia"] if _leaves_traces(request) else []
    values: _Told
    if not request.gpu:
        values = dict.fromkeys((*_DRIVER, *_LIBRARIES), (Unknown(Message("--no-gpu was given")), "--no-gpu"))
    elif not platforms and not request.nvml_library:
        values = {**_without_driver(request), **dict.fromkeys(_LIBRARIES, (ABSENT, Message("no NVIDIA driver")))}
    else:
        values = _from_nvml(request)
        version, origin = values["driver.version"]
        values |= _libraries(request, version if origin == "NVML" and isinstance(version, str) else None)
        compat = values["driver.compat"][0]
        if isinstance(compat, str) and not is_wsl(request):  # NVML tells what the libcuda supports that it finds
            text = "libcuda.so.{} of a forward-compatibility package is in front of the driver's own"
            values["driver.max_cuda"] = Unknown(Message(text, compat)), origin
    if request.platform == "linux":
        devices = request.names("/dev")
        if any(name.startswith("davinci") for name in devices) or os.path.exists(request.path("/usr/local/Ascend")):
            platforms.append("ascend")
        if "kfd" in devices or os.path.exists(request.path("/opt/rocm")):
            platforms.append("rocm")
    values["machine.accelerators"] = tuple(platforms), Message("/dev, /proc, installation folders")
    return [(key, *value) for key, value in values.items()]


def _from_nvml(request: Request) -> _Told:
    """Return what NVML says; what it cannot tell by ``/proc``, where that does."""
    try:
        from envdoctor.observe.machine.nvml import ask_nvml
    except ImportError as error:  # Python is built without ctypes where libffi was missing
        return _from_proc(request, Message("NVML could not be used: {}", type(error).__name__))
    libraries = [_WSL_LIBRARY] * is_wsl(request) + ["libnvidia-ml.so.1"]
    if request.platform == "windows":
        libraries = list(filter(None, [_windows_library(request)]))
    values = ask_nvml(request, [request.nvml_library] if request.nvml_library else libraries)
    gpus = values["gpu"]
    values["gpu.visible_missing"] = gpus
    if isinstance(gpus, Records):
        values["gpu"] = _visible(request.environ, gpus.items, gpus.incomplete)
        values["gpu.visible_missing"] = _missing(request.environ, gpus.items, gpus.incomplete)
    pairs: _Told = {key: (values[key], "NVML") for key in _DRIVER}
    problems = {key: value.reason for key, (value, _) in pairs.items() if isinstance(value, Unknown)}
    if problems:
        instead = _from_proc(request, problems.get("gpu") or next(iter(problems.values())))
        pairs.update((key, instead[key]) for key in problems if not isinstance(instead[key][0], Unknown))
    return pairs


def _visible(environ: Mapping[str, str], items: Sequence[Item], incomplete: Message | None = None) -> Records:
    """Return the items that ``CUDA_VISIBLE_DEVICES`` leaves, in its order, as a CUDA process numbers them.

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
    kinds = {str(item.get("name")) for item in items}
    alike = len(kinds) == 1 and not any(isinstance(item.get("name"), Unknown) for item in items)
    in_order = alike or environ.get("CUDA_DEVICE_ORDER", "").strip() == "PCI_BUS_ID"
    if not by_uuid and 0 < len(chosen) < len(items) and not in_order:
        incomplete = Message(
            "CUDA_VISIBLE_DEVICES counts in CUDA's own order (fastest first), which is not known for GPUs "
            "of several kinds; CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain"
        )
        return Records(tuple(items), incomplete)
    return Records(tuple(items[place] for place in chosen), incomplete)


def _missing(environ: Mapping[str, str], items: Sequence[Item], incomplete: Message | None = None) -> Value:
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
    """Return why an entry cannot be held against the GPUs."""
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


def _leaves_traces(request: Request) -> bool:
    """Return whether anything suggests an NVIDIA driver; without a trace NVML need not be loaded to know that."""
    if request.platform != "linux":
        return request.platform == "windows" and bool(_windows_library(request))
    signs = (*_SIGNS, _WSL_LIBRARY) if is_wsl(request) else _SIGNS
    return any(os.path.exists(request.path(sign)) for sign in signs)


def _windows_library(request: Request) -> str:
    """Return ``nvml.dll`` where the driver's installer puts it, never from the search path; empty without it."""
    environ = request.environ
    system, programs = environ.get("SystemRoot", r"C:\Windows"), environ.get("ProgramFiles", r"C:\Program Files")
    folders = os.path.join(system, "System32"), os.path.join(programs, "NVIDIA Corporation", "NVSMI")
    return next(filter(os.path.isfile, (os.path.join(folder, "nvml.dll") for folder in folders)), "")


def _without_driver(request: Request) -> _Told:
    origin = Message("no NVIDIA driver: /proc/driver/nvidia, /sys/module/nvidia, /dev/nvidia*")
    unnamed = Unknown(Message("there is no NVIDIA driver")) if request.environ.get("CUDA_VISIBLE_DEVICES") else ABSENT
    return {**dict.fromkeys(_DRIVER, (ABSENT, origin)), "gpu": (Records(()), origin), _DRIVER[-1]: (unnamed, origin)}


def _from_proc(request: Request, problem: Message) -> _Told:
    """Driver version, and the GPUs' names and UUIDs; the highest CUDA version and compute capabilities stay unknown.

    ``problem`` says why NVML did not answer.
    """
    if not _leaves_traces(request):
        return _without_driver(request)
    version, place = _kernel_module(request)
    gpus = "/proc/driver/nvidia/gpus"
    pairs: _Told = dict.fromkeys(_DRIVER, (Unknown(problem), place))
    pairs.update(zip(_DRIVER[-2:], ((value, gpus) for value in _gpus(request, gpus, problem)), strict=True))
    return pairs | {"driver.version": (version, place)} if version else pairs


def _kernel_module(request: Request) -> tuple[str | None, str]:
    """Return the version of the loaded kernel module, if it is written (not so in WSL, containers), and where."""
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …"; the open module has "… for x86_64  550.54.15".
    text = request.text("/proc/driver/nvidia/version")
    match = re.search(r"^NVRM version:.*?\s(\d{2,5}(?:\.\d{1,5}){1,3})\s", text, re.MULTILINE)
    if match:
        return match.group(1), "/proc/driver/nvidia/version"
    text = request.text("/sys/module/nvidia/version").strip()
    if re.match(r"\d{2,5}(?:\.\d{1,5}){1,3}\Z", text):
        return text, "/sys/module/nvidia/version"
    return None, "/proc/driver/nvidia"


def _gpus(request: Request, folder: str, problem: Message) -> tuple[Value, Value]:
    """Return the visible GPUs, and the entries of CUDA_VISIBLE_DEVICES that name none."""
    places = request.names(folder)
    if not places:
        return Unknown(problem), Unknown(problem)
    nodes = set(request.names("/dev"))
    # /proc is the host's also where a container was given no GPU; the device nodes are what was given to it.
    if "nvidiactl" not in nodes and container(request) is not ABSENT:
        return Records(()), _missing(request.environ, ())
    items: list[dict[str, Value]] = []
    for index, place in enumerate(places):
        text = request.text(os.path.join(folder, place, "information"))
        fields = {key: value.strip() for key, value in re.findall(r"^([A-Za-z ]{1,40}):(.*)", text, re.MULTILINE)}
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
    return _visible(request.environ, items), _missing(request.environ, items)


def _libraries(request: Request, driver: str | None) -> _Told:
    """Return ``driver.library`` and ``driver.compat``. Nothing is loaded: links are followed and names are read.
    ``driver`` is the version of which NVML is, so that any other libcuda comes from a package."""
    if request.platform != "linux" or not _leaves_traces(request):
        windows = request.platform == "windows" and _leaves_traces(request)
        unknown = Unknown(Message("Windows' libraries do not carry the driver's version in their names"))
        compat = ABSENT, Message("cuda-compat is for Linux with a driver")
        return {"driver.library": (unknown if windows else ABSENT, ""), "driver.compat": compat}
    management, cuda = _find("libnvidia-ml.so.1", request), _find("libcuda.so.1", request)
    of_driver = ("", driver) if driver else management
    in_front = _compat(cuda, of_driver, driver or _kernel_module(request)[0])
    # A compat package brings no libnvidia-ml, which therefore is the driver's own in any case.
    path, version = management or (None if isinstance(in_front, str) else cuda) or ("", None)
    nothing = ABSENT if management is None and cuda is None else Unknown(Message("its file name holds no version"))
    folders = Message("the loader's folders")
    return {
        "driver.library": (version or nothing, path or folders),
        "driver.compat": (in_front, cuda[0] if cuda else folders),
    }


def _compat(cuda: _Library | None, management: _Library | None, module: str | None) -> Value:
    if cuda is None:
        return ABSENT
    in_compat_folder = "compat" in os.path.realpath(cuda[0]).split(os.sep)[:-1] or "compat" in cuda[0].split(os.sep)
    if cuda[1] is None:
        return Unknown(Message("{} does not carry a version in its name", cuda[0])) if in_compat_folder else ABSENT
    own = module or (management[1] if management is not None else None)
    if own is None:
        return cuda[1] if in_compat_folder else ABSENT
    if dotted(cuda[1]) == dotted(own):
        return ABSENT
    # In its usual folder and of another version: a container that mounted the package's files over the driver's has
    # a libnvidia-ml that fits; otherwise the whole driver is of another version than the module.
    fits = management is not None and management[1] is not None and dotted(management[1]) == dotted(own)
    return cuda[1] if in_compat_folder or fits else ABSENT


def _find(name: str, request: Request) -> _Library | None:
    for folder in _folders(request):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            match = _VERSION.match(os.path.basename(os.path.realpath(path)))
            return path, match[1] if match else None
    return None


def _folders(request: Request) -> Iterator[str]:
    """Yield LD_LIBRARY_PATH, the folders of ld.so.conf, and the usual ones, in the loader's order."""
    for folder in request.environ.get("LD_LIBRARY_PATH", "").split(":")[:_MOST_FOLDERS]:
        if os.path.isabs(folder) and "\0" not in folder:
            yield folder
    names = [name for name in request.names("/etc/ld.so.conf.d")[:_MOST_FOLDERS] if name.endswith(".conf")]
    for path in ("/etc/ld.so.conf", *(f"/etc/ld.so.conf.d/{name}" for name in names)):
        for line in request.text(path).splitlines()[:_MOST_FOLDERS]:
            place = line.partition("#")[0].strip()
            if place.startswith("/") and "\0" not in place and not _FOR_32_BITS.search(place):
                yield request.path(place)
    yield from map(request.path, _USUAL)
