"""The first code in every child: it does what only a process can do to itself, and then becomes the program.

    python -I -S -B launcher.py PARENT MEMORY_MIB SECONDS PROGRAM ARGUMENTS...

On Linux the child ends with the process PARENT (its id), however that ends, and the kernel ends it before the user's
training when memory runs out. If MEMORY_MIB is not 0 it has that much address space and SECONDS of processor time,
cannot write a byte to a file, and leaves no core. PROGRAM is started in its place; instead of a program, a function of
envdoctor (``module:NAME:FUNCTION``) answers the questions on stdin, and imports from the ARGUMENTS.
"""

import os
import sys

#: The prefix of a PROGRAM that is a function of envdoctor.
MODULE = "module:"
#: The exit code, and the beginning of standard error, when there is no such program.
NOT_STARTED = 127
REFUSED = "it cannot be started: "
#: 0 … 1000.
_OOM_SCORE = "800"


def main() -> None:
    """Prepare this process, and become the program."""
    parent, memory_mib, seconds = map(int, sys.argv[1:4])
    program, *arguments = sys.argv[4:]
    if sys.platform == "linux":
        _end_with(parent)
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write(_OOM_SCORE)
        except OSError:
            pass
    if memory_mib:
        _limit(memory_mib, seconds)
    if program.startswith(MODULE):
        sys.path += arguments
        _answer(*program[len(MODULE) :].split(":"))
    import signal

    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and the program would inherit that
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvpe(program, [program, *arguments], os.environ)  # noqa: S606 (no shell is wanted)
    except (OSError, ValueError) as error:
        os.write(2, f"{REFUSED}{getattr(error, 'strerror', None) or error}".encode("utf-8", "replace"))
        os._exit(NOT_STARTED)


def _answer(module: str, name: str) -> None:
    """Answer each question as soon as it is there, and end at once behind the last. A line of JSON says its keyword
    arguments and how many bytes follow, its first argument; another is the answer: ``[value]``, or ``[null, names of
    the exception's classes, line]``."""
    import gc
    import json
    from importlib import import_module

    gc.disable()  # syntax trees are many small objects without circles: collecting takes half of the time
    function = getattr(import_module(module), name)
    while head := sys.stdin.buffer.readline():
        arguments, length = json.loads(head)
        content = () if length is None else (sys.stdin.buffer.read(length),)
        try:
            line = json.dumps([function(*content, **arguments)], separators=(",", ":"))
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            line = json.dumps([None, kinds, getattr(error, "lineno", None) or 1])
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    os._exit(0)  # taking the trees of thousands of modules down one by one takes a tenth of the time


def _end_with(parent: int) -> None:
    import ctypes
    import signal

    try:
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG: outlives the start of the program
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def _limit(memory_mib: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:  # Windows: there only time and output are bounded
        return
    for name, value in (
        ("RLIMIT_AS", memory_mib << 20),
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_CORE", 0),
    ):
        kind = getattr(resource, name, None)
        try:
            if kind is not None:
                # At the hard limit of time a process is killed, as for want of memory; the soft limit says why.
                resource.setrlimit(kind, (value, value + (name == "RLIMIT_CPU")))
        except (OSError, ValueError):
            pass  # the limit is lower already, or this system has it in name only


if __name__ == "__main__":
    main()
