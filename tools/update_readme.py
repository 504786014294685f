"""Puts the program's present output into the example of both READMEs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ["check", "--facts", "fixtures/environments/glm4-batch-nan.json"]


def main() -> int:
    """Run the example in both languages and replace it between its marks."""
    environ = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    for lang, name in (("en", "README.md"), ("zh", "README.zh-CN.md")):
        done = subprocess.run(
            [sys.executable, "-m", "envdoctor", *COMMAND, "--no-config", "--lang", lang],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        text = (ROOT / name).read_text(encoding="utf-8")
        block = f"<!-- example -->\n```console\n$ envdoctor {' '.join(COMMAND)}\n{done.stdout}```\n<!-- end -->"
        new = re.sub(r"<!-- example -->.*?<!-- end -->", lambda _, block=block: block, text, count=1, flags=re.DOTALL)
        (ROOT / name).write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    sys.exit(main())
