"""`envdoctor check` about many environments that have most files in common, each of which is parsed once.

    python benchmarks/import_asking.py    (started by :class:`Asking`; any CPython with fork)

Every line of standard input is ``{"arguments": [...], "report": FILE}``; when the report is written as JSON, a line
with the exit code is the answer. The process answers the first question for itself and keeps what it parsed; then it
forks for every question. What is asked is the command, but for two things: what else would follow imports in a bounded
child of its own does so here, and without a limit of time.
"""

from __future__ import annotations

import functools
import gc
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


class Asking:
    """A process that is asked about environments with many files in common."""

    def __init__(self, folder: Path) -> None:
        self._report = folder / "report.json"
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def report(self, *source: str) -> Any:
        """What ``check`` says of an environment, as JSON."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": source, "report": str(self._report)}) + "\n")
        self._process.stdin.flush()
        code = self._process.stdout.readline().strip()
        if code not in ("0", "1", "3"):
            raise SystemExit(f"envdoctor check {' '.join(source)}: exit code {code}")
        return json.loads(self._report.read_text())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Answer until standard input ends."""
    from envdoctor.source import library
    from envdoctor.system import asking

    changed: Any = library
    changed._parsed, changed.trimmed = functools.cache(changed._parsed), functools.cache(changed.trimmed)
    changed = asking
    changed.ask = functools.partial(followed_here, asking.ask)
    sys.setrecursionlimit(12_000)
    gc.disable()  # as the child does; and a collection would copy every page that the forks share
    warm = False
    for line in sys.stdin:
        asked = json.loads(line)
        if not warm:
            checked(asked["arguments"], asked["report"])
            warm = True
        child = os.fork()
        if not child:
            os._exit(checked(asked["arguments"], asked["report"]))
        print(code_of(child), flush=True)


def code_of(child: int) -> int:
    """How a fork ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def checked(source: Sequence[str], report: str) -> int:
    """Run the command; its exit code."""
    from envdoctor.cli.main import main as command

    words = [*source, "--no-gpu", "--no-config", "--format", "json", "--output", f"json={report}"]
    sys.argv = ["envdoctor", "check", *words]
    try:
        with redirect_stdout(io.StringIO()):
            command()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def followed_here(ask: Callable[..., Iterable[Any]], function: str, questions: Any, *limits: Any, **more: Any) -> Any:
    """What the bounded child answers that follows imports; another child does so itself."""
    from envdoctor.observe.packages import followed

    if not function.startswith(followed.__name__):
        return ask(function, questions, *limits, **more)
    return [json.loads(json.dumps(followed.followed(asked))) for asked, _ in questions]


if __name__ == "__main__":
    main()
