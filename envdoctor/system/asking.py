"""Ask bounded children, with the one list of how they end without an answer.

for path, answer in zip(paths, ask("envdoctor.source.tree:answer", contents, Limits(seconds=10, mib=512))):
    answer      # what the function returned, as JSON has it, or a Problem

The time, the memory and the output of a child are bounded; its whole process group, and every process with its mark
that left the group, ends with it. A program that answers or parses gets few environment variables.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.system.cache import add_looks
from envdoctor.system.files import Looks
from envdoctor.system.launcher import MODULE, NOT_STARTED, REFUSED
from envdoctor.system.message import Message

if TYPE_CHECKING:
    import subprocess

#: A variable in the environment of the child and of all that it starts: its value finds them again, also processes that
#: left the process group.
_MARK = "ENVDOCTOR_CHILD"
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


def _usage_of(pid: int) -> Usage:
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


def _end_all(pid: int, mark: str) -> None:
    """End the group of the process and everything with the mark; the process itself must not be waited for before:
    its number stays its own until then."""
    if not hasattr(os, "killpg"):
        return
    import signal

    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    # A process that is just being started is seen in the second pass, or has no variables for a moment.
    for _ in range(_PASSES if sys.platform == "linux" else 0):
        if not _end_marked(f"{_MARK}={mark}".encode(), signal.SIGKILL):
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


#: Variables that a program may need to start: shared libraries of module systems, pyenv's version, CUDA's place.
_PASSED_ON = (
    *("PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"),
    *("PYENV_ROOT", "PYENV_VERSION", "CUDA_HOME", "CUDA_PATH"),
)
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
_BLOCK = 1 << 16
_STDERR_KEPT = 8192
_STDERR_LIMIT = 256 << 20
_LINE_LIMIT = 1 << 20
#: Seconds between two looks at the clock, and at memory.
_POLL = 0.05
_MEMORY_POLL = 0.2


def minimal_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return only the variables that a program needs to start: no tokens, no proxies, no PYTHON variables."""
    variables = {name: environ[name] for name in _PASSED_ON if name in environ}
    return {"PATH": os.defpath, **variables, **OFFLINE, "LC_ALL": "C.UTF-8"}


class Limits(NamedTuple):
    """The limits of a child: ``seconds`` of processor time, and ``patience`` times as many on the clock (if it only
    computes, a busy machine is no reason to end it); ``mib`` MiB of memory; ``output`` bytes. If a question ends it,
    ``ask`` starts another child behind that question while all together have taken less than ``in_all`` seconds."""

    seconds: float
    mib: int
    output: int = 16 << 20
    patience: float = 1.0
    in_all: float = 0.0


class ChildResult(NamedTuple):
    """The end of a child.

    ``status`` is ``ok`` (exit code 0), ``failed`` (another exit code), ``unstarted`` (there was no such program),
    ``crash`` (a signal), ``timeout``, ``memory`` (more than it may have, a MemoryError, or killed by the system) or
    ``output-limit``. ``stdout`` holds the output until then, never more than the limit; if lines were handed on, only
    the text behind the last one. ``stderr_tail`` is the last 8 KiB of stderr, to be cleaned before it is shown.
    ``code`` is the exit code, negative for a signal (also when a shell in between said 128 + signal), None when it was
    ended from here or not started. ``peak_mib`` is the largest memory of the child and its descendants, as sampled.
    """

    status: str
    stdout: bytes = b""
    stderr_tail: str = ""
    code: int | None = None
    seconds: float = 0.0
    peak_mib: float | None = None


def run_child(
    argv: Sequence[str],
    limits: Limits,
    stdin: bytes = b"",
    *,
    confined: bool = True,
    environ: Mapping[str, str] | None = None,
    cwd: str = os.path.abspath(os.sep),
    on_line: Callable[[bytes], bool] | None = None,
    until: Callable[[Usage], bool] = lambda usage: False,
) -> ChildResult:
    """Run ``argv``, give it ``stdin``, and wait within the limits; never raise for a failure of the child.

    The child has a process group of its own; it is ended whatever happens here, with all that it started. Without
    ``environ`` its variables are few (no proxies, no tokens). A ``confined`` child has that much address space and can
    write to no file (Linux; macOS, where it keeps such limits). The memory of an unconfined child is watched and not
    limited in advance, because CUDA and torch reserve far more addresses than they use: only memory without a file
    behind it counts, of the child and its children (Linux only).

    ``on_line`` gets each line of the output (in another thread) as soon as it is complete, and returns whether it wants
    more. ``until`` is called again and again, and returns whether to end the child now, as by a timeout; it gets what
    an unconfined child has used so far (nothing where the system does not tell).
    The thread that calls this must live as long as the child.
    """
    import subprocess

    mark = os.urandom(8).hex()
    started = time.monotonic()
    # On Windows the launcher, which cannot replace a process there, is for our own modules only.
    bounds = map(str, (os.getpid(), limits.mib if confined else 0, int(limits.seconds) + 2))
    launcher = [sys.executable, "-I", "-S", "-B", "-W", "ignore", _LAUNCHER, *bounds]
    is_launched = sys.executable and (os.name != "nt" or argv[0].startswith(MODULE))
    try:
        process = subprocess.Popen(
            [*(launcher if is_launched else ()), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**(minimal_environment(os.environ) if environ is None else environ), _MARK: mark},
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        return ChildResult("unstarted", stderr_tail=f"{REFUSED}{getattr(error, 'strerror', None) or error}")
    child = _Child(process, stdin, limits.output, on_line)
    try:
        deadline = started + limits.seconds * limits.patience
        status = child.watch(deadline, 0 if confined else limits.mib << 20, until)
    finally:
        _end_all(process.pid, mark)
        child.close()
    if child.full and status == "ok":  # it had ended before all that it gave was read
        status = "output-limit"
    code = process.returncode if status == "ok" else None
    if code is not None and code > 128 and os.name != "nt":
        code = 128 - code
    tail = child.errors.decode("utf-8", "replace")
    if code == NOT_STARTED and tail.startswith(REFUSED):
        code, status = None, "unstarted"
    status = status if code is None else _status(code, tail, confined)
    output, seconds = bytes(child.output[: limits.output]), time.monotonic() - started
    return ChildResult(status, output, tail, code, seconds, round(child.peak / (1 << 20), 1) if child.peak else None)


class _Child:
    """A running child: its three pipes and its end, each waited for by a thread (Windows waits for one at a time)."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        stdin: bytes,
        output_limit: int,
        on_line: Callable[[bytes], bool] | None,
    ) -> None:
        self.process, self.stdin, self.output_limit, self.on_line = process, stdin, output_limit, on_line
        self.output, self.errors = bytearray(), bytearray()
        self.peak = 0
        self.over = threading.Event()  # it has ended, or met a limit of its output
        self.full = False
        roles = (self._read_output, self._read_errors, self._write, self._await_end)
        self.threads = [threading.Thread(target=role, daemon=True) for role in roles]

    def watch(self, deadline: float, memory: int, until: Callable[[Usage], bool]) -> str:
        """Wait for the end of the process itself, not of its pipes; return ``ok``, or the limit that was met."""
        for thread in self.threads:
            thread.start()
        look, used = 0.0, Usage()
        while not self.over.is_set():
            now = time.monotonic()
            if now >= deadline or until(used):
                return "timeout"
            if memory and now >= look:
                look = now + _MEMORY_POLL
                now_used = _usage_of(self.process.pid)
                used = Usage._make(map(max, used, now_used))  # a process that ended is counted no longer
                self.peak = used.everything
                if now_used.own > memory:
                    return "memory"
            self.over.wait(min(_POLL, deadline - now))
        return "output-limit" if self.full else "ok"

    def close(self) -> None:
        """Read the rest of the pipes of a child that was ended, and collect it."""
        self.process.kill()
        self.process.wait()
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(2.0)
        # Closing a pipe under its reader could free the number for another file: then rather leave it open.
        for thread, stream in zip(self.threads[:2], (self.process.stdout, self.process.stderr), strict=True):
            if stream is not None and not thread.is_alive():
                stream.close()

    def _await_end(self) -> None:
        if hasattr(os, "waitid"):
            with suppress(OSError):
                # Without collecting it: until then no other process can get its number, by which its group is ended.
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self.process.wait()
        self.over.set()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        total = 0
        while block := os.read(self.process.stdout.fileno(), _BLOCK):
            total += len(block)
            self.output += block
            more = True
            if self.on_line is not None:
                *lines, self.output = self.output.split(b"\n")
                more = all(self.on_line(bytes(line)) for line in lines) and len(self.output) <= _LINE_LIMIT
            if total > self.output_limit or not more:
                return self._enough()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        total = 0
        while block := os.read(self.process.stderr.fileno(), _BLOCK):
            total += len(block)
            self.errors += block
            del self.errors[:-_STDERR_KEPT]
            if total > _STDERR_LIMIT:
                return self._enough()

    def _enough(self) -> None:
        self.full = True
        self.over.set()

    def _write(self) -> None:
        """Write the input; ignore a child that ends before it has read everything, because its exit says why."""
        assert self.process.stdin is not None
        rest = memoryview(self.stdin)
        with self.process.stdin as pipe, suppress(OSError):
            while rest:
                rest = rest[os.write(pipe.fileno(), rest[:_BLOCK]) :]


def _status(code: int, tail: str, confined: bool) -> str:
    import signal

    if code == 0:
        return "ok"
    if code > 0 or os.name == "nt":
        lines = tail.rstrip().splitlines()
        return "memory" if confined and lines and lines[-1].startswith("MemoryError") else "failed"
    if code == -getattr(signal, "SIGXCPU", 24):
        return "timeout"
    return "memory" if confined and code == -getattr(signal, "SIGKILL", 9) else "crash"


#: The keyword arguments of a function, and perhaps bytes, its first argument.
_Question = tuple[Mapping[str, Any], bytes | None]
#: The words for the end of a child (a status of :class:`ChildResult`), or of its answer (an exception's class), with
#: fields.
_WORDS = {
    "timeout": ("took more than {} s", "seconds"),
    "memory": ("took more than {} MiB", "mib"),
    "output-limit": ("gave too much output",),
    "crash": ("made Python crash",),
    "failed": ("could not be read: envdoctor's reader stopped with an error (please report it)",),
    "unstarted": ("cannot be started: {}", "tail"),
    "unreached": ("came behind files that took all the time",),
    "NeedsPython312": ("needs Python 3.12 or newer (line {}): run envdoctor with such a Python", "line"),
    "SyntaxError": ("is not Python that this interpreter can parse (line {})", "line"),
    "RecursionError": ("is nested too deeply, or took more than {} MiB", "mib"),
    "MemoryError": ("is nested too deeply, or took more than {} MiB", "mib"),
    "NotANotebook": ("is not a notebook (nbformat 3 or 4)",),
    "TooMuch": ("holds too much code",),
}


class ChildProblem(NamedTuple):
    """Why there is no answer: ``kind`` is timeout, memory, output-limit, crash, failed, unreached, unstarted, or the
    name of an exception. ``tail`` is the end of stderr, to be cleaned before it is shown."""

    kind: str
    seconds: float
    mib: int
    tail: str = ""
    line: int = 1

    def clause(self) -> Message:
        """Return the reason, without its subject."""
        words, *fields = _WORDS.get(self.kind, _WORDS["failed"])
        values = self._asdict() | {"seconds": f"{self.seconds:g}"}
        return Message(words, *(values[field] for field in fields))

    def said(self) -> Message:
        """Return the reason as a clause about "it"."""
        return Message("it {}", self.clause())


def ask(function: str, questions: Iterable[_Question], limits: Limits, *, packages: bool = False) -> Iterator[Any]:
    """Yield the answer of one of envdoctor's functions (``module:name``) to each question, or a :class:`ChildProblem`.

    It runs in envdoctor's own interpreter, started without site, user site, ``.pth`` files and PYTHON* variables, and
    neither the working folder nor a script's is on ``sys.path``: only the standard library and envdoctor can be
    imported, and with ``packages`` all that this process can import.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    skipped = (root, os.getcwd())
    folders = [root, *(path for path in sys.path if packages and os.path.isabs(path) and path not in skipped)]
    rest = list(questions)
    deadline = time.monotonic() + max(limits.seconds, limits.in_all)
    problem = None
    while rest and (problem is None or limits.in_all):
        seconds = round(min(limits.seconds, deadline - time.monotonic()), 1)
        if seconds <= 0:
            problem = ChildProblem("unreached", seconds, limits.mib)
            break
        data = b"".join(map(_framed, rest))
        child = run_child([MODULE + function, *folders], limits._replace(seconds=seconds), data)
        lines = child.stdout.split(b"\n")[:-1]
        for received, *problems in map(json.loads, lines):
            if not problems:
                yield received
                continue
            kinds, number = problems
            kind = next((kind for kind in kinds if kind in _WORDS), "failed")
            yield ChildProblem(kind, limits.seconds, limits.mib, kinds[0], number)
        rest = rest[len(lines) :]
        if rest:
            kind = "failed" if child.status == "unstarted" else child.status
            problem = ChildProblem(kind, seconds, limits.mib, child.stderr_tail.strip().rpartition("\n")[2][:200])
            yield problem
            rest = rest[1:]
    yield from [problem] * len(rest)


def ask_once(
    function: str,
    arguments: Mapping[str, Any],
    limits: Limits,
    content: bytes | None = None,
    *,
    packages: bool = False,
    looks: Looks | None = None,
) -> Any:
    """Return the answer to one question. ``looks`` gets the files and folders that the child looked at."""
    (answer,) = ask(function, [(arguments, content)], limits, packages=packages)
    if looks is not None and isinstance(answer, ChildProblem):
        looks.failed = True
    elif looks is not None:
        add_looks(looks, answer["files"], answer["folders"])
    return answer


def ask_program(
    argv: Sequence[str], limits: Limits, stdin: bytes = b"", *, environ: Mapping[str, str], cwd: str
) -> tuple[str, ChildProblem | None]:
    """Return the output of one of the user's programs, and the problem if it failed."""
    child = run_child(argv, limits, stdin, confined=False, environ=environ, cwd=cwd)
    problem = ChildProblem(child.status, limits.seconds, limits.mib, child.stderr_tail.removeprefix(REFUSED))
    return child.stdout.decode("utf-8", "replace"), None if child.status == "ok" else problem


def _framed(question: _Question) -> bytes:
    arguments, content = question
    head = json.dumps([arguments, None if content is None else len(content)])
    return b"%b\n%b" % (head.encode(), content or b"")
