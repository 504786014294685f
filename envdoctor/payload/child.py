"""Child script: run payload scripts in the interpreter that is judged, and answer with one JSON object a line.

Standard input is one JSON object; its tasks run one after another, and after a bad one the process ends::

    {"folder": "/path/of/the/scripts", "tasks": [{"script": "probes/attention.py", "needs": ["torch"],
     "gpu_memory_mib": 8192, "job": {"device": "cpu", "dtype": "bf16"}}]}

A script is a file of that folder with a function ``run(job, emit)``, or one that is named behind a colon
(``probes/training_checks.py:tf32``); it may import what lies beside it relatively. Only ``script`` must be there.
``job`` goes to the script; ``device`` in it may be auto (cuda when torch sees such a device), and with ``begun`` the
script first runs to its first record, which is not told: all it calls has then been called more often.
The answers go to what was standard output when this script began:

* ``{"kind": "begin", "python": ..., "torch": ..., "device": ..., ...}`` when torch is there, if it is needed;
* whatever the script emits;
* ``{"kind": "end", "ending": "ok", "seconds": 1.2, ...}`` as the last line of the task.

``ending`` is ok, no-torch, torch-broken, torch-old, no-device, oom, sticky (an error after which CUDA works no more in
this process) or failed, each but ok with a ``detail``. A process that dies without that line was lost; who started it
names the cause. What libraries print goes to standard error.

Needs the standard library, on Python 3.8 or newer, and torch >= 2.0 where a task needs torch, but not envdoctor.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from contextlib import suppress
from types import ModuleType
from typing import Any

OLDEST_TORCH = (2, 0)
#: Characters of a text that is handed back, and of a line.
LONGEST_TEXT = 2000
LONGEST_LINE = 60000
#: Parts of the messages of CUDA errors that may leave the context of the process unusable: it is then asked.
_SUSPECT = ("CUDA error", "illegal", "device-side", "misaligned", "CUDNN_STATUS_EXEC", "unspecified launch failure")
#: Part of the message of one that says that torch was not compiled for the card.
_NO_KERNEL = "no kernel image"
EXIT_CODES = {"ok": 0, "sticky": 3, "oom": 4, "no-torch": 5, "torch-broken": 5, "torch-old": 5, "no-device": 5}
#: Endings after which nothing that follows in this process would be true.
LAST = ("sticky", "oom", "no-torch", "torch-broken", "torch-old")
PACKAGE = "envdoctor_payload"


def main() -> None:
    """Read the request, run its tasks one after another, end with an exit code of ``EXIT_CODES`` (1 for the rest)."""
    _spare_memory()
    channel = Channel(_private_stdout())
    here = os.path.dirname(os.path.abspath(__file__))
    # Neither this folder's names nor the working directory's may shadow a library.
    sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) != here]
    request = _request()
    package = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    package.__path__ = [request["folder"]]  # what makes it a package, without a folder on sys.path
    ending = "failed"
    for task in request["tasks"]:
        started, computed = time.time(), time.process_time()
        try:
            # Where others follow in this process.
            ending, detail = aside(_work, task, channel) if len(request["tasks"]) > 1 else _work(task, channel)
        except Exception as error:
            ending, detail = _named(error)
        channel.end(ending, detail, time.time() - started, time.process_time() - computed)
        if ending in LAST:
            break
        give_back()
    sys.stdout.flush()
    # A library that hangs in its own shutdown, or threads that are not daemons, have nothing to say any more.
    os._exit(EXIT_CODES.get(ending, 1))


class Channel:
    """Where the answers go: a file descriptor that no library knows of."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def emit(self, record: dict[str, Any]) -> None:
        """Hand back one record, at once. One with ``sticky`` ends the process: nothing after it would be true."""
        self.write(record)
        if record.get("sticky"):
            self.end("sticky", record.get("error", ""))
            os._exit(EXIT_CODES["sticky"])

    def end(self, ending: str, detail: str, seconds: float | None = None, computed: float | None = None) -> None:
        """Say how the task ended, after how many ``seconds``, of which ``computed`` on a processor."""
        line = {"seconds": seconds, "cpu_s": computed, "detail": detail or None, "peak_rss_mib": _peak_rss_mib()}
        known = {key: value for key, value in line.items() if value is not None}
        self.write({"kind": "end", "ending": ending, **known})

    def write(self, record: dict[str, Any]) -> None:
        text = json.dumps(_plain(record, 0), allow_nan=False)
        if len(text) > LONGEST_LINE:
            case = str(record.get("case"))[:200]
            text = json.dumps({"case": case, "error": "the observation is too long to hand back"})
        rest = memoryview((text + "\n").encode("ascii"))
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]


def _private_stdout() -> int:
    """Return a copy of standard output; what anybody prints from now on goes to standard error."""
    sys.stdout.flush()
    descriptor = os.dup(1)  # not inherited by programs that are started from here
    os.dup2(2, 1)
    return descriptor


def _request() -> dict[str, Any]:
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return request


def aside(work: Any, *given: Any) -> Any:
    """Do the work in a thread of its own: what libraries keep for a thread goes with it, such as kernels for shapes."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work, *given).result()


def _work(task: dict[str, Any], channel: Channel) -> tuple[str, str]:
    """Run the script; how that ended, with details."""
    from importlib import import_module

    gc.disable()  # what imports make stays: looking through it again and again costs a quarter of their time
    job = {"device": "cpu", **task.get("job", {})}
    begin: dict[str, Any] = {"kind": "begin", "python": sys.version.split()[0]}
    needs = task.get("needs", [])
    if "torch" in needs:
        ending, detail = _import_torch(begin)
        if ending:
            return ending, detail
        import torch

        if job["device"] != "cpu":
            visible = torch.cuda.is_available()
            if job["device"] == "cuda" and not visible:
                return "no-device", "torch sees no CUDA device"
            job["device"] = "cuda" if visible else "cpu"
    channel.write({"device": job["device"], **begin})  # before other libraries can bring the process down
    missing = [problem for problem in map(_missing, needs) if problem]
    if missing:
        channel.emit({"case": "needs", **missing[0]})
        return "ok", ""
    if "torch" in needs:
        if job["device"] == "cuda" and task.get("gpu_memory_mib"):  # a belt, whatever the script does
            share = task["gpu_memory_mib"] * 1048576.0 / torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, share), 0)
        torch.set_default_dtype(torch.float32)  # as the scripts expect, whatever the environment sets
    path, _, function = task["script"].partition(":")
    script = import_module(PACKAGE + "." + os.path.splitext(path)[0].replace("/", "."))
    gc.freeze()  # nor is it looked through when a script asks what is alive, or behind each task
    gc.enable()
    run = getattr(script, function or "run")
    if job.get("begun"):
        with suppress(_Begun):
            run(job, _stop)
    run(job, channel.emit)
    return "ok", ""


class _Begun(BaseException):
    """A script was begun, and is to begin anew; no script catches this."""


def _stop(record: dict[str, Any]) -> None:
    raise _Begun


def _import_torch(begin: dict[str, Any]) -> tuple[str, str]:
    """Import torch and note what it is; an ending and its detail when it cannot be used."""
    started = time.time()
    first = "torch" not in sys.modules
    try:
        import torch

        version = str(torch.__version__)
        release = tuple(int(part) for part in version.partition("+")[0].split(".")[:2])
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return "no-torch", "torch is not installed"
        return "torch-broken", f"torch cannot be imported: {_said(error)}"
    except MemoryError:
        raise
    except BaseException as error:  # an import may do anything, sys.exit included
        return "torch-broken", f"torch cannot be imported: {_said(error)}"
    begin["torch"] = version
    if first:
        begin.update(import_s=round(time.time() - started, 3), rss_mib=_peak_rss_mib())
    if release < OLDEST_TORCH:
        return "torch-old", f"torch {version} is older than 2.0"
    return "", ""


def _missing(name: str) -> dict[str, Any] | None:
    """Return what to say instead of a record when a library that the script needs is not there, or does not import."""
    from importlib import import_module
    from importlib.util import find_spec

    if name == "torch":
        return None
    try:
        if find_spec(name) is None:
            return {"skip": f"{name} is not installed"}
        import_module(name)
    except MemoryError:
        raise
    except BaseException as error:
        return {"error": f"{name} cannot be imported: {_said(error)}"}
    return None


def _named(error: BaseException) -> tuple[str, str]:
    """Return the ending that an exception stands for."""
    import traceback

    if is_out_of_memory(error):
        return "oom", _said(error)
    if _NO_KERNEL in str(error) and _cuda_in_use():
        return "no-device", _not_built_for_it()
    if is_sticky(error):
        return "sticky", _said(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "failed", f"{_said(error)} ({os.path.basename(last.filename)}:{last.lineno})"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory, of the machine or of the device, was not enough."""
    text, named = str(error), type(error).__name__ == "OutOfMemoryError"
    phrase = "out of memory" in text or "can't allocate memory" in text
    return isinstance(error, MemoryError) or named or phrase


def is_sticky(error: BaseException) -> bool:
    """Return whether CUDA works no more in this process. What is not supported, or was not compiled for the card, says
    "CUDA error" as well and spoils nothing: a context that is spoiled cannot even wait and copy
    (https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html, cudaErrorIllegalAddress)."""
    if not any(part in str(error) for part in _SUSPECT) or not _cuda_in_use():
        return False
    torch: Any = sys.modules["torch"]
    try:
        torch.cuda.synchronize()
        torch.empty(1, device="cuda").cpu()
    except Exception:
        return True
    return False


def _not_built_for_it() -> str:
    torch: Any = sys.modules["torch"]
    card = torch.cuda.get_device_properties(0)
    built = " ".join(torch.cuda.get_arch_list()) or "nothing"
    return f"torch {torch.__version__} has no code for {card.name} (sm_{card.major}{card.minor}), only for {built}"


def _cuda_in_use() -> bool:
    torch: Any = sys.modules.get("torch")
    try:
        return bool(torch.cuda.is_initialized())
    except Exception:
        return False


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST_TEXT]


def _plain(value: Any, depth: int) -> Any:
    """Return the value as JSON: numbers of torch and numpy as numbers, others than finite ones as text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if depth > 6:
        return "..."
    if isinstance(value, dict):
        return {str(key): _plain(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(entry, depth + 1) for entry in value]
    if hasattr(value, "item") and getattr(value, "size", None) is not None:
        with suppress(ValueError, RuntimeError, TypeError):
            return _plain(value.item(), depth + 1)
    return str(value)[:LONGEST_TEXT]


def _spare_memory() -> None:
    """Keep one heap (mallopt(3), M_ARENA_MAX), whose free end goes back from 16 MiB on, and what is larger than 8 MiB
    outside of it: to map each tensor anew takes as long as to compute it. And keep few of oneDNN's kernels for shapes:
    https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8")
    for setting in ((-8, 1), (-3, 1 << 23), (-1, 1 << 24)):
        _libc("mallopt", *setting)


def give_back() -> None:
    """Hand memory that the task left unused back to the system, so that those of one process do not add up: glibc keeps
    it (https://man7.org/linux/man-pages/man3/malloc_trim.3.html)."""
    gc.collect()
    _libc("malloc_trim", 0)


def _libc(name: str, *numbers: int) -> None:
    import ctypes

    with suppress(OSError, AttributeError, TypeError):  # another C library
        getattr(ctypes.CDLL(None), name)(*numbers)


def _peak_rss_mib() -> float | None:
    """Return peak resident memory of this process in MiB. Linux carries a parent's peak over into the ``ru_maxrss`` of
    the child that it starts, so that the peak of the memory this program runs in is read instead
    (https://man7.org/linux/man-pages/man5/proc_pid_status.5.html, VmHWM)."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"VmHWM:"):
                return round(int(line.split()[1]) / 1024.0, 1)
    with suppress(ImportError, OSError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (1048576.0 if sys.platform == "darwin" else 1024.0), 1)
    return None


if __name__ == "__main__":
    main()
