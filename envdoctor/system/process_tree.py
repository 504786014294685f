"""The processes that belong to a child: descendants and their usage, its group, and every process with its mark."""

import os
import sys
import time
from contextlib import suppress
from typing import NamedTuple

#: A variable in the environment of the child and of all that it starts: its value finds them again, also processes that
#: left the process group.
MARK = "ENVDOCTOR_CHILD"
_MOST = 200
_PASSES, _A_MOMENT = 5, 0.002


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Usage(NamedTuple):
    """The usage of a process and its descendants: bytes, ``own`` without mapped files and ``everything`` with them; the
    ``seconds`` of processor time, also of descendants that have ended; and the seconds that their threads waited in the
    ``queue`` for a processor, ready to compute."""

    own: int = 0
    everything: int = 0
    seconds: float = 0.0
    queue: float = 0.0


def usage_of(pid: int) -> Usage:
    """Return the usage of the process and its descendants now; empty if the system does not tell (other than Linux)."""
    if sys.platform != "linux":
        return Usage()
    own = everything = computed = waited = 0
    for member in _family(pid):
        for line in _read(member, "status").splitlines():
            name, *words = line.split() or [""]
            size = int(words[0]) << 10 if len(words) == 2 and words[0].isdigit() else 0
            own += size if name in ("RssAnon:", "RssShmem:") else 0
            everything += size if name == "VmRSS:" else 0
        # From utime to cstime (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html), also of children that have
        # ended; the name before the last bracket may hold anything.
        computed += sum(map(int, _read(member, "stat").rpartition(")")[2].split()[11:15]))
        # How long threads were ready without a processor: https://docs.kernel.org/scheduler/sched-stats.html
        queues = (_read(member, f"task/{task}/schedstat").split()[1:2] for task in _tasks(member))
        waited += sum(int(number) for numbers in queues for number in numbers)
    return Usage(own, everything, computed / os.sysconf("SC_CLK_TCK"), waited / 1e9)


def end_all(pid: int, mark: str) -> None:
    """End the group of the process and everything with the mark; the process itself must not be waited for before:
    its number stays its own until then."""
    if not hasattr(os, "killpg"):
        return
    import signal

    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    # A process that is just being started is seen in the second pass, or has no variables for a moment.
    for _ in range(_PASSES if sys.platform == "linux" else 0):
        if not _end_marked(f"{MARK}={mark}".encode(), signal.SIGKILL):
            break
        time.sleep(_A_MOMENT)


def _end_marked(variable: bytes, kill: int) -> bool:
    """Kill all processes with the mark; return whether there was one, or one that may still get it: a new program has
    no variables until the kernel has written them."""
    is_found = False
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read(1 << 20)
            if variable not in variables.split(b"\0"):
                is_found = is_found or (not variables and bool(os.readlink(f"/proc/{name}/exe")))
                continue
            os.kill(int(name), kill)
            is_found = True
        except OSError:
            pass  # another user's, or gone
    return is_found


def _family(pid: int) -> list[int]:
    """Return the process and its descendants, at most 200."""
    family = [pid]
    for member in family:
        if len(family) > _MOST:
            break
        for task in _tasks(member):
            family += [int(child) for child in _read(member, f"task/{task}/children").split()]
    return family[:_MOST]


def _tasks(pid: int) -> list[str]:
    """Return the threads of a process; an empty list if it is gone."""
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _read(pid: int, name: str) -> str:
    """Read one of the kernel's files about a process; an empty text if it is gone, or if the file cannot be read."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
