"""The operating system: platform, architecture, C library, kernel, WSL, container; memory, open files and locked memory
that this process may use; the variables that change what the training stack does; and what extensions are built with:
the compilers that torch and triton would call, the CUDA toolkit, ninja and Python's headers, by names and files."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.clean import without_credentials, without_url_credentials
from envdoctor.system.files import Files, because_of
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


#: g++-12, x86_64-linux-gnu-g++-12, gcc-13.2
_VERSIONED = re.compile(r"(?:\A|-)(?:gcc|g\+\+|c\+\+|cc)-(\d{1,2}(?:\.\d{1,2}){0,2})\Z")
_VERSION_FOLDER = r"\d{1,2}(?:\.\d{1,2}){0,2}\Z"
#: Stand-ins that start the compiler of the same name further on.
_CACHES = frozenset({"ccache", "sccache", "distcc"})
_MAX_LINKS = 20


@observes("machine", "build.c_compiler build.gcc")
def compilers(request: Request) -> Found:
    """Find the C compiler that triton takes, and the version of torch's C++ compiler.

    triton (runtime/build.py, 3.5 to 3.9): CC, else gcc, else clang. torch (utils/cpp_extension.py, 2.13): CXX, else
    c++; and CC, when it is set, under nvcc. Nothing is started: a gcc tells its version by the name that its link leads
    to (g++-12) or by the one folder of its own library (lib/gcc/x86_64-redhat-linux/8).
    """
    if request.platform != "linux":
        return Unknown(Message("compilers are looked for on Linux only"))
    cc, cc_origin = _chosen(request, "CC", ("gcc", "clang"))
    cxx, cxx_origin = _chosen(request, "CXX", ("c++", "g++"))
    return [
        ("build.c_compiler", os.path.basename(cc) if isinstance(cc, str) else cc, cc_origin),
        ("build.gcc", _version(cc if "CC" in request.environ else None, cxx), cxx_origin),
    ]


def _chosen(request: Request, variable: str, instead: tuple[str, ...]) -> tuple[Value, str]:
    """Path of the compiler that the variable or else PATH gives."""
    setting = request.environ.get(variable)
    if setting is None:
        program = next((path for name in instead if (path := _on_path(name, request))), None)
        return program or ABSENT, "PATH"
    import shlex

    try:
        words = shlex.split(setting)
    except ValueError:
        words = []
    # "ccache g++ -m64": the compiler is what comes after the stand-in, and options follow it
    words = [word for word in words if os.path.basename(word) not in _CACHES]
    path = _on_path(words[0], request) if words else None
    return path or Unknown(Message("{} names no program that was found", variable)), variable


def _on_path(name: str, request: Request) -> str | None:
    """Return the program of that name or at that path, compiler caches skipped; None when there is none."""
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
    version = _gcc_version(cxx)
    if cc is not None and not isinstance(version, Unknown):
        other = _gcc_version(cc) if isinstance(cc, str) else cc
        if other != version:
            name = os.path.basename(cxx)
            return Unknown(Message("CC and CXX are not known to be of one version ({} is {})", name, version))
    return version


def _gcc_version(path: str) -> Value:
    """Version of the gcc at ``path``: 12, 13.2 or 12.4.0, as exact as its files say."""
    step = path
    for _ in range(_MAX_LINKS):
        if match := _VERSIONED.search(os.path.basename(step)):
            return match[1]
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


_NVCC_TIMEOUT = 5.0
#: Where a toolkit says its version.
_VERSION_FILES = {
    "version.json": r"^(\d{1,3}\.\d{1,3})(?:\.|$)",
    "version.txt": r"CUDA Version (\d{1,3}\.\d{1,3})",
    "include/cuda.h": r"^#define\s+CUDA_VERSION\s+(\d{4,6})\b",
}
_LONGEST = 1 << 16


@observes("machine", "cuda.toolkit")
def cuda_toolkit(request: Request) -> Found:
    """Return ``cuda.toolkit`` as ``major.minor``, ABSENT when there is no nvcc.

    The places and their order are those of ``torch.utils.cpp_extension``: CUDA_HOME, CUDA_PATH, the nvcc on PATH,
    /usr/local/cuda. A folder without nvcc (a runtime image) is passed over. Version files are read first; nvcc is
    started, for at most five seconds, only when they do not tell.
    """
    for origin, nvcc in _candidates(request):
        if os.path.isfile(nvcc):
            pair = next(filter(None, map(_version_from_files, _roots(nvcc))), None)
            version, where = pair or (_ask_nvcc(nvcc, request), "nvcc --version")
            return [("cuda.toolkit", version, Message("{}: {}", origin, where))]
    return [("cuda.toolkit", ABSENT, "CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda")]


def _candidates(request: Request) -> Iterator[tuple[str, str]]:
    """Yield where nvcc may be, as (origin, path), without relative places, which depend on the working directory."""
    nvcc = "nvcc.exe" if request.platform == "windows" else "nvcc"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        home = request.environ.get(name, "")
        if os.path.isabs(home) and "\0" not in home:
            yield name, os.path.join(home, "bin", nvcc)
    if path := _on_path(nvcc, request):
        yield "PATH", path
    if request.platform != "windows":
        yield "/usr/local/cuda", request.path("/usr/local/cuda/bin/nvcc")


def _roots(nvcc: str) -> list[str]:
    """Return the toolkit's folder: as the path says, with links followed, and where a script there passes on to.

    Distributions and clusters put a link or a few lines of shell (``exec /usr/lib/cuda/bin/nvcc "$@"``) on PATH.
    """
    paths = [nvcc, os.path.realpath(nvcc)]
    script = Files().text_or_empty(nvcc, 2048)
    if script.startswith("#!"):
        paths += re.findall(r"(?<![\w$}./+-])(/[\w./+-]{1,200}/bin/nvcc)(?![\w./-])", script)
    return list(dict.fromkeys(os.path.dirname(os.path.dirname(path)) for path in paths))


def _version_from_files(root: str) -> tuple[Value, str] | None:
    """Return version and file: version.json (CUDA 11 on), version.txt (before), or cuda.h (distributions)."""
    import json

    texts = {name: Files().text_or_empty(os.path.join(root, name), _LONGEST) for name in _VERSION_FILES}
    try:
        parts = json.loads(texts["version.json"])
        # The compiler's own version counts; the toolkit's is the same release in NVIDIA's installers.
        versions = [parts.get(name, {}).get("version") for name in ("cuda_nvcc", "cuda")]
        texts["version.json"] = "\n".join(version for version in versions if isinstance(version, str))
    except (ValueError, AttributeError, RecursionError, MemoryError):
        texts["version.json"] = ""
    for name, pattern in _VERSION_FILES.items():
        if match := re.search(pattern, texts[name], re.MULTILINE):
            number = match[1]
            # cuda.h: CUDA_VERSION is 1000 * major + 10 * minor.
            return number if "." in number else f"{int(number) // 1000}.{int(number) % 1000 // 10}", name
    return None


def _ask_nvcc(nvcc: str, request: Request) -> Value:
    from envdoctor.system.asking import Limits, ask_program, minimal_environment

    limits = Limits(_NVCC_TIMEOUT, mib=512, output=1 << 16)
    environ, folder = minimal_environment(request.environ), os.path.dirname(nvcc)
    text, problem = ask_program([nvcc, "--version"], limits, environ=environ, cwd=folder)
    if problem is not None and problem.kind in ("unstarted", "timeout"):
        return Unknown(Message("nvcc {}", problem.clause()))
    match = re.search(r"\brelease (\d{1,3}\.\d{1,3})\b", text)
    return match.group(1) if match else Unknown(Message("nvcc is there, but nvcc --version does not say a release"))


_OPS = "deepspeed/ops"
#: deepspeed/ops/adam/cpu_adam_op.cpython-311-x86_64-linux-gnu.so, in a wheel built with DS_BUILD_OPS
_COMPILED = r"(\w+?)_op\.[^/]*\.so\Z"
_FEW = 200


@observes("environment", "build.ninja build.python_headers build.compiled")
def build_parts(request: Request) -> Found:
    """Find what an environment that would run here has for compiling: ninja, headers, ops that are compiled."""
    if not sys.platform.startswith("linux") or not request.place.live:
        where = Message("on Linux only") if request.place.live else Message("where the environment runs")
        return Unknown(Message("compiling is looked at {}", where))
    layout, environ = request.place, request.environ
    headers, place = _headers(layout, environ)
    compiled, folder = _compiled(layout, request.value("pkg.deepspeed"), environ)
    # On PATH, or among the environment's own programs, which are on PATH once it is activated.
    folders = [path for path in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(path)]
    folders.append(os.path.join(layout.prefix, "bin"))
    ninja = any(os.access(os.path.join(path, "ninja"), os.X_OK) for path in folders if "\0" not in path)
    return [
        ("build.ninja", ninja, "PATH"),
        ("build.python_headers", headers, place),
        ("build.compiled", compiled, folder),
    ]


def _headers(layout: Layout, environ: Mapping[str, str]) -> tuple[Value, str]:
    """Return whether ``Python.h`` is where the interpreter says (sysconfig's "include", below its base prefix).

    The base prefix of a virtual environment is that of the interpreter its ``python`` is a link to.
    """
    if layout.executable is None or isinstance(layout.python_version, Unknown):
        return Unknown(Message("the interpreter is not known")), ""
    name = "python" + ".".join(layout.python_version.split(".")[:2])
    real = layout.files.resolved(layout.executable)
    prefixes = list(dict.fromkeys([os.path.dirname(os.path.dirname(real)), layout.prefix]))
    for prefix in prefixes:
        for folder in (name, name + "t"):
            path = os.path.join(prefix, "include", folder, "Python.h")
            if layout.files.is_file(path):
                return True, path
    expected = os.path.join(prefixes[0], "include", name)
    if any(environ.get(variable) for variable in ("CPATH", "C_INCLUDE_PATH")):
        return Unknown(Message("it is not in {}, but CPATH or C_INCLUDE_PATH names other folders", expected)), ""
    if layout.files.resolved(os.path.join(prefixes[0], "bin")) != os.path.dirname(real) or layout.kind == "path":
        return Unknown(Message("the interpreter's own folder is not known")), ""
    return False, expected


def _compiled(layout: Layout, deepspeed: Value, environ: Mapping[str, str]) -> tuple[Value, str]:
    """DeepSpeed's ops that need no compiling any more: those of its wheel, and those in torch's cache."""
    if not isinstance(deepspeed, str):
        return (), Message("deepspeed is not installed")
    operators: set[str] = set()
    for top in (os.path.join(site, *_OPS.split("/")) for site in layout.site_packages):
        for folder in layout.files.names_or_none(top)[:_FEW]:
            if "." not in folder and not folder.startswith("__"):
                names = layout.files.names_or_none(os.path.join(top, folder))[:_FEW]
                operators.update(match[1] for name in names if (match := re.match(_COMPILED, name)))
    home = environ.get("HOME", "")
    cache = environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(home, ".cache", "torch_extensions")
    if os.path.isabs(cache) and "\0" not in cache:
        try:
            operators |= _in_cache(cache, layout)
        except OSError as error:
            return Unknown(Message("torch's cache of compiled extensions cannot be read: {}", because_of(error))), cache
    return tuple(sorted(operators)), _OPS


def _in_cache(cache: str, layout: Layout) -> set[str]:
    """Names of extensions below ``cache``/py311_cu124 or, as TORCH_EXTENSIONS_DIR has it, ``cache`` itself."""
    if not os.path.isdir(cache):
        return set()
    version = layout.python_version if isinstance(layout.python_version, str) else ""
    mine = "py" + "".join(version.split(".")[:2]) + "_"
    names = sorted(os.listdir(cache))[:_FEW]
    operators = {name for name in names if os.path.isfile(os.path.join(cache, name, f"{name}.so"))}
    for folder in (os.path.join(cache, name) for name in names if name.startswith(mine)):
        inner = sorted(os.listdir(folder))[:_FEW] if os.path.isdir(folder) else []
        operators |= {name for name in inner if os.path.isfile(os.path.join(folder, name, f"{name}.so"))}
    return operators
