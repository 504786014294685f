"""What an installer would have put beside engines and trainers on a day: versions that uv resolves.

    python tools/record_stacks.py tests/truth/official_stacks.json

The file says what was asked for and until which day releases count; both stay, the versions are written again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from envdoctor.versions import normalise

PINNED = re.compile(r"(?m)^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;]+)")


def resolved(asked: list[str], until: str) -> dict[str, str]:
    """Return the versions by name, for Python 3.11 on Linux. Raises ``CalledProcessError`` if uv finds none."""
    command = ["uv", "pip", "compile", "-q", "--no-header", "--no-annotate", "--python-version", "3.11"]
    command += ["--python-platform", "x86_64-manylinux_2_34", "--exclude-newer", until, "-"]
    done = subprocess.run(command, input="\n".join(asked), capture_output=True, text=True, check=True)
    return {normalise(name): version for name, version in PINNED.findall(done.stdout)}


def main(path: Path) -> None:
    """Write the versions of every stack in the file again."""
    stacks = json.loads(path.read_text(encoding="utf-8"))
    for name, stack in stacks.items():
        print(name, file=sys.stderr)
        stack["packages"] = resolved(stack["asked"], stack["until"])
    path.write_text(json.dumps(stacks, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
