"""Work that this process and a copy of it divide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from envdoctor.sandbox.two import by_two

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be copied here")


def run(work: str) -> Any:
    """``by_two(20, work, …)`` in an interpreter of its own, without other threads: what it gives, and the process ids
    of those that worked. Each of both begins when the other has something to do too."""
    code = (
        "import json, os\n"
        "from envdoctor.sandbox.two import by_two\n"
        "me, mine, there, back = os.getpid(), [], os.pipe(), os.pipe()\n"
        "def begun():\n"
        "    if not mine:\n"
        "        mine.append(1)\n"
        "        told, heard = (there[1], back[0]) if os.getpid() == me else (back[1], there[0])\n"
        "        os.write(told, b'.')\n"
        "        os.read(heard, 1)\n"
        f"def work(number):\n    begun()\n    {work}\n"
        "done, more = by_two(20, work, os.getpid)\n"
        "print(json.dumps([sorted(done.items()), more, me]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@forks
def test_everything_is_done_once_by_one_of_two() -> None:
    done, more, me = run("return [number * number, os.getpid()]")
    assert [(number, value[0]) for number, value in done] == [(number, number * number) for number in range(20)]
    assert {value[1] for _, value in done} == {me, more} and more != me


@forks
@pytest.mark.parametrize("end", ["os._exit(9)", "os.kill(os.getpid(), 9)", "raise RuntimeError"])
def test_what_a_copy_did_not_finish_is_done_here(end: str) -> None:
    done, more, _ = run(f"if os.getpid() != me: {end}\n    return number")
    assert [value for _, value in done] == list(range(20)) and more is None


def test_without_a_copy_it_is_all_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork", raising=False)
    assert by_two(3, str, lambda: "never") == ({0: "0", 1: "1", 2: "2"}, None)
    assert by_two(0, str, lambda: "never") == ({}, None)
