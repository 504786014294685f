"""Put what the program prints today into the examples of the READMEs and the chapters in docs/.

    python tools/update_examples.py

An example is a console block between ``<!-- example -->`` and ``<!-- end -->``. ``$ cat FILE`` in it makes FILE. Output
with "…" is an excerpt, which a person shortens: the tool only names it when the program prints something else.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = re.compile(r"(?<=<!-- example -->\n```console\n).*?(?=```\n<!-- end -->)", re.DOTALL)
#: A command, over lines that end with a backslash, and what stands below it.
_STEP = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
#: The lines from this one on count rules and seconds: a new rule must not touch a document.
_COUNTS = re.compile(r"(?m)^.*(?: rules checked in |已检查 )")


def documents() -> dict[str, str]:
    """Return the language of every README and chapter by its path in the checkout."""
    english = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    return {path: lang for pair in map(pair_of, english) for path, lang in zip(pair, ("en", "zh"), strict=True)}


def pair_of(english: str) -> tuple[str, str]:
    """Return the path of a document and that of its Chinese."""
    return english, "README.zh-CN.md" if english == "README.md" else english.replace("docs/", "docs/zh/")


def replay(example: str, folder: Path, run: Callable[[list[str], Path], str]) -> Iterator[tuple[str, str, str]]:
    """Yield each command of an example, the output that stands there, and the output of today.

    Commands run in the checkout, but in `folder` when the example makes files.
    """
    place = ROOT
    for command, shown in _STEP.findall(example):
        program, *words = shlex.split(command.replace("\\\n", " "))
        if program == "cat":
            place = folder
            (folder / words[0]).write_text(shown, encoding="utf-8")
        yield command, shown, shown if program == "cat" else run(words, place)


def fits(shown: str, printed: str) -> bool:
    """Tell whether an output, which may be an excerpt, is what was printed, apart from counts of rules and seconds."""
    shown, printed = (_COUNTS.split(text)[0].rstrip() for text in (shown, printed))
    return re.fullmatch(".*?".join(map(re.escape, shown.split("…"))), printed, re.DOTALL) is not None


def main() -> int:
    """Renew every example; return 1 when an excerpt is out of date."""
    stale = False
    for name, lang in documents().items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for example in EXAMPLE.findall(text):
            new = ""
            with tempfile.TemporaryDirectory() as folder:
                for command, shown, printed in replay(example, Path(folder), partial(_printed, lang)):
                    new += f"$ {command}\n{shown if '…' in shown else printed}"
                    if "…" in shown and not fits(shown, printed):
                        print(f"{name}: shorten anew what this prints: {command}")
                        stale = True
            text = text.replace(example, new)
        (ROOT / name).write_text(text, encoding="utf-8")
    return int(stale)


def _printed(lang: str, words: list[str], place: Path) -> str:
    command = [sys.executable, "-m", "envdoctor", *words, "--no-config", "--lang", lang]
    environ = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    options = {"cwd": place, "env": environ, "capture_output": True, "encoding": "utf-8"}
    return subprocess.run(command, check=False, **options).stdout


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    sys.exit(main())
