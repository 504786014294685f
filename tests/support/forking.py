"""``python -m envdoctor`` as often as tests ask, without the start of an interpreter and the reading of TOML each time.

One process has imported envdoctor, with the matrix compiled as a wheel carries it, and forks for every call. The fork
has its own folder, variables and streams, runs ``__main__`` and ends as every interpreter ends.
"""

import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

#: Rooms and modules that no command imports: they are for other interpreters, or need transformers.
_OTHERS = {"payload", "watch", "__main__", "guard_callback"}


class Forking:
    """A process that forks, started when it is first asked, by words before its own. ``compiled`` is the folder of the
    compiled matrix."""

    def __init__(self, compiled: Path, *before: str) -> None:
        self._compiled, self._before = compiled, before
        self._server: subprocess.Popen[bytes] | None = None
        self._line: socket.socket

    def run(
        self, arguments: Sequence[str], cwd: Path, environ: Mapping[str, str], seconds: float
    ) -> tuple[int, bytes, bytes]:
        """Exit code, standard output and standard error. Raises :class:`subprocess.TimeoutExpired`."""
        if self._server is None:
            self._start()
        reading, writing = os.pipe()
        late = threading.Timer(seconds, self.end)
        late.start()
        with tempfile.TemporaryFile("w+") as job, tempfile.TemporaryFile() as errors:
            json.dump({"arguments": arguments, "cwd": str(cwd), "environ": dict(environ)}, job)
            job.flush()
            socket.send_fds(self._line, [b"\n"], [job.fileno(), writing, errors.fileno()])
            os.close(writing)
            with open(reading, "rb") as pipe:
                out = pipe.read()
            code = self._line.recv(10)
            late.cancel()
            if not code:
                raise subprocess.TimeoutExpired(["envdoctor", *arguments], seconds, out)
            errors.seek(0)
            return int(code), out, errors.read()

    def _start(self) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [*self._before, sys.executable, __file__, str(theirs.fileno()), str(self._compiled)],
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def end(self) -> None:
        """End it, with what it started."""
        if self._server is not None:
            os.killpg(self._server.pid, 9)
            self._server.wait()
            self._line.close()
            self._server = None


def _serve(line: socket.socket) -> None:
    """Fork for every job and tell its exit code; returns in the forks."""
    while True:
        asked, descriptors, _, _ = socket.recv_fds(line, 1, 3)
        if not asked:
            sys.exit()
        child = os.fork()
        if not child:
            line.close()
            _become(*descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(job: int, out: int, errors: int) -> None:
    """Take folder, variables, streams and arguments of a job."""
    with open(job, encoding="utf-8") as file:
        file.seek(0)
        about = json.load(file)
    os.chdir(about["cwd"])
    os.environ.clear()
    os.environ.update(about["environ"])
    os.dup2(out, 1)
    os.dup2(errors, 2)
    os.close(out)
    os.close(errors)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.argv[1:] = about["arguments"]


if __name__ == "__main__":
    sys.path.pop(0)
    import envdoctor
    from envdoctor.app import Sources
    from envdoctor.matrix import matrix

    matrix._COMPILED = Path(sys.argv[2])
    root = Path(envdoctor.__path__[0])
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).with_suffix("").parts
        if _OTHERS.isdisjoint(place):
            import_module(".".join(("envdoctor", *place)))
    with tempfile.TemporaryDirectory() as folder:  # tables that a first run reads are read once, and not in every fork
        Path(folder, "list.txt").write_text("torch==2.6.0\ntransformers==4.51.3\naccelerate==1.6.0\nnumpy==1.26.4\n")
        Path(folder, "run.sh").write_text("trl sft --model_name_or_path Qwen/Qwen2.5-7B --use_peft --max_length 512\n")
        machine = {"python": "3.11", "platform": "linux-x86_64", "gpu": "A100-80GB"}
        sources = {"lock": "list.txt", "recipe": ("run.sh",), "cwd": folder, "target": machine, "environ": {}}
        envdoctor.check(Sources(**sources, gpu=False))
    gc.freeze()  # a fork neither walks nor copies what it never used
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("envdoctor", run_name="__main__", alter_sys=True)
