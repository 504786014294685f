"""The CUDA toolkit that an extension would be built with: where torch looks for ``nvcc``, and its version."""

import os
import re
from collections.abc import Iterator

from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.observe.machine.compilers import on_path
from envdoctor.observe.request import Request
from envdoctor.system.files import Files
from envdoctor.system.message import Message

KEYS = ("cuda.toolkit",)

_NVCC_TIMEOUT = 5.0
_LIMIT = 1 << 16


def observe(request: Request) -> list[Fact]:
    """``cuda.toolkit`` as ``major.minor``, ABSENT when there is no nvcc.

    The places and their order are those of ``torch.utils.cpp_extension``: CUDA_HOME, CUDA_PATH, the nvcc on PATH,
    /usr/local/cuda. A folder without nvcc (a runtime image) is passed over. Version files are read first; nvcc is
    started, for at most five seconds, only when they do not tell.
    """
    value, origin = _toolkit(request)
    return [Fact("cuda.toolkit", value, origin, "machine")]


def _toolkit(request: Request) -> tuple[Value, str]:
    for origin, nvcc in _candidates(request):
        if not os.path.isfile(nvcc):
            continue
        for root in _roots(nvcc):
            version, name = _version_from_files(root)
            if version:
                return version, f"{origin}: {name}"
        return _ask_nvcc(nvcc, request), Message("{}: nvcc --version", origin)
    return ABSENT, "CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda"


def _candidates(request: Request) -> Iterator[tuple[str, str]]:
    """Where nvcc may be, as (origin, path); relative places are left out, for they depend on the working directory."""
    nvcc = "nvcc.exe" if request.platform == "windows" else "nvcc"
    for name in ("CUDA_HOME", "CUDA_PATH"):
        home = request.environ.get(name, "")
        if os.path.isabs(home) and "\0" not in home:
            yield name, os.path.join(home, "bin", nvcc)
    if path := on_path(nvcc, request):
        yield "PATH", path
    if request.platform != "windows":
        yield "/usr/local/cuda", request.path("/usr/local/cuda/bin/nvcc")


def _roots(nvcc: str) -> list[str]:
    """The toolkit's folder: as the path says it, with links followed, and where a script in its place passes on to.

    Distributions and clusters put a link or a few lines of shell (``exec /usr/lib/cuda/bin/nvcc "$@"``) on PATH.
    """
    paths = [nvcc, os.path.realpath(nvcc)]
    script = Files().text_or_empty(nvcc, 2048)
    if script.startswith("#!"):
        paths += re.findall(r"(?<![\w$}./+-])(/[\w./+-]{1,200}/bin/nvcc)(?![\w./-])", script)
    return list(dict.fromkeys(os.path.dirname(os.path.dirname(path)) for path in paths))


def _version_from_files(root: str) -> tuple[str | None, str]:
    """``(version, file)`` from version.json (CUDA 11 on), version.txt (before) or the header cuda.h (distributions)."""
    files = Files()
    version = _from_json(files.text_or_empty(os.path.join(root, "version.json"), _LIMIT))
    if version:
        return version, "version.json"
    for name, pattern in (
        ("version.txt", r"CUDA Version (\d{1,3}\.\d{1,3})"),
        ("include/cuda.h", r"^#define\s+CUDA_VERSION\s+(\d{4,6})\b"),
    ):
        match = re.search(pattern, files.text_or_empty(os.path.join(root, name), _LIMIT), re.MULTILINE)
        if match:
            number = match.group(1)
            # cuda.h: CUDA_VERSION is 1000 * major + 10 * minor.
            return number if "." in number else f"{int(number) // 1000}.{int(number) % 1000 // 10}", name
    return None, ""


def _from_json(text: str) -> str | None:
    import json

    try:
        parts = json.loads(text)
        # The compiler's own version counts; the toolkit's is the same release in NVIDIA's installers.
        for name in ("cuda_nvcc", "cuda"):
            version = parts.get(name, {}).get("version")
            match = re.match(r"(\d{1,3}\.\d{1,3})(?:\.|\Z)", version) if isinstance(version, str) else None
            if match:
                return match.group(1)
    except (ValueError, AttributeError, RecursionError, MemoryError):
        return None
    return None


def _ask_nvcc(nvcc: str, request: Request) -> Value:
    from envdoctor.system.asking import Limits, ask_program
    from envdoctor.system.child import minimal_environment

    limits = Limits(_NVCC_TIMEOUT, mib=512, output=1 << 16)
    environ, folder = minimal_environment(request.environ), os.path.dirname(nvcc)
    text, problem = ask_program([nvcc, "--version"], limits, environ=environ, cwd=folder)
    if problem is not None and problem.kind in ("unstarted", "timeout"):
        return Unknown(Message("nvcc {}", problem.clause()))
    match = re.search(r"\brelease (\d{1,3}\.\d{1,3})\b", text)
    return match.group(1) if match else Unknown(Message("nvcc is there, but nvcc --version does not say a release"))
