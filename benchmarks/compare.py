"""Times ``envdoctor compare`` over many recorded files: this machine's own facts, a thousand times.

python benchmarks/compare.py [number of files]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(count: int) -> None:
    """Print the seconds of the command and of an envdoctor that does nothing, and the size of a file."""
    envdoctor = [sys.executable, "-m", "envdoctor"]
    own = subprocess.run([*envdoctor, "facts", "--format", "json"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder, f"node{number}.json")) for number in range(count)]
        for number, name in enumerate(files):
            Path(name).write_text(own.replace("linux", "darwin") if number == 7 else own, encoding="utf-8")
        for what, command in (("two files", files[:2]), (f"{count} files", files)):
            started, computed = time.perf_counter(), _computed()
            subprocess.run([*envdoctor, "compare", *command], capture_output=True, check=False)
            print(f"{what}: {time.perf_counter() - started:.2f} s, {_computed() - computed:.2f} s of a processor")
    print(f"{len(own) / 1000:.0f} kB each")


def _computed() -> float:
    """Processor time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
