"""Who presses Ctrl-C waits for no child: foreign code that is being parsed ends at once."""

import subprocess
import sys

import pytest
from processes import gone

CODE = """
import os, signal, sys, threading
from envdoctor.revision import CodeSource, parse

reading = sys.modules[parse.__module__]
reading._LIMITS = reading._LIMITS._replace(seconds=600.0, in_all=600.0)  # the children would hang for so long

def children():
    tasks = [f"/proc/self/task/{task}/children" for task in os.listdir("/proc/self/task")]
    found = [int(child) for task in tasks for child in open(task).read().split()]
    # Not before they have become the program and worked for a while: until then who starts them may not hold them yet.
    return [child for child in found if int(open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[11]) > 4]

def hang_them_and_interrupt():
    while not (found := children()):
        pass
    for child in found:
        os.kill(child, signal.SIGSTOP)
    print(*found, flush=True)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=hang_them_and_interrupt, daemon=True).start()
parse([CodeSource(name, b"a = 1\\n" * 100000) for name in ("a.py", "b.py")])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interrupt_ends_the_parsing_of_foreign_code() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert done.stdout
    assert all(gone(int(child)) for child in done.stdout.split())
