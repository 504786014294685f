"""Work that this process and a copy of it divide, or that the copy does ahead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from envdoctor.sandbox.two import Ahead, by_two

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


def run_ahead(work: str, then: str) -> Any:
    """``Ahead(work)`` in an interpreter of its own, without other threads, and what is done with it."""
    code = (
        "import json, os\n"
        "from envdoctor.sandbox.two import Ahead\n"
        f"def work():\n    {work}\n"
        "ahead = Ahead(work)\n"
        "def wait(name):\n"
        "    while (found := ahead.take(name)) is None: pass\n"
        "    return len(found), found[:3].decode()\n"
        f"{then}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@forks
def test_what_is_done_ahead_comes_once_and_whole() -> None:
    found = run_ahead(
        "yield from ((f'\\udcff{size}', b'abc' * size) for size in (0, 1, 1_000_000, 7))",
        "sizes = [wait(f'\\udcff{size}') for size in (1_000_000, 1, 0, 7)]\n"
        "print(json.dumps([sizes, ahead.take('\\udcff7'), ahead.take('never')]))",
    )
    assert found == [[[3_000_000, "abc"], [3, "abc"], [0, ""], [21, "abc"]], None, None]


@forks
@pytest.mark.parametrize("end", ["os._exit(9)", "os.kill(os.getpid(), 9)", "raise RuntimeError"])
def test_a_copy_that_breaks_off_tells_no_more(end: str) -> None:
    then = "while ahead._copy: ahead.take('b')\nprint(json.dumps([ahead.take('b'), ahead.end()]))"
    assert run_ahead(f"yield 'a', b'1'; {end}", then) == [None, None]


@forks
def test_nothing_of_the_copy_is_left() -> None:
    then = (
        "wait('0')\nahead.end()\n"
        "try: os.waitpid(-1, 0)\n"
        "except ChildProcessError: print(json.dumps([ahead.take('x' * 9)]))"
    )
    assert run_ahead("yield from ((str(number), bytes(9)) for number in range(10 ** 9))", then) == [None]


def test_nothing_is_done_ahead_where_no_process_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork", raising=False)
    ahead = Ahead(lambda: [("a", b"1")])
    assert ahead.take("a") is None
    ahead.end()
