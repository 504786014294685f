"""What does ``check`` say of the training scripts of published repositories, with their own list, on their own day?

    python benchmarks/repositories.py CLONES [--seed 91] [--each 3]

CLONES holds git repositories. Of each, scripts that train are drawn at random and judged as by ``check SCRIPT --lock
LIST --as-of DAY``, where LIST is the nearest above the script (those without one are left out) and DAY that of the last
commit, for Python 3.10 and an A100 of 80 GB, or eight of them where the script starts several processes. Such a script
ran once, with releases of its own day: an error is false until somebody has tried it with the real installer or read
the code.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from examples import draw_of, judged

_LIST = re.compile(r"requirements.*\.txt|pyproject\.toml|environment\.ya?ml")
_TRAINS = re.compile(r"TrainingArguments|SFTConfig|DPOConfig|GRPOConfig|FastLanguageModel|\.backward\(")
_STARTS = re.compile(r"(?m)^\s*(?:[A-Z_]+=\S+ )*(?:torchrun|deepspeed|accelerate launch|python3?)\b")
_OF_TRAINING = re.compile(r"train|tune|sft|lora|dpo")
_LARGEST = 200_000


def main() -> int:
    """Judge the drawn scripts and print what is said."""
    clones, drawing, each = draw_of(__doc__, seed=91, each=3)
    drawn = []
    for clone in sorted(path for path in clones.iterdir() if (path / ".git").exists()):
        runs = [path for path in sorted(clone.rglob("*")) if path.is_file() and _is_run(path)]
        there = [(clone, path, found) for path in runs if (found := _list_of(clone, path)) is not None]
        drawn += sorted(drawing.sample(there, min(each, len(there))))
    with ThreadPoolExecutor(2) as workers:
        codes = Counter(workers.map(lambda one: _judged(*one), drawn))
    print(f"\n{len(drawn)} scripts of {len({clone for clone, *_ in drawn})} repositories, exit codes {dict(codes)}")
    return 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[:_LARGEST]


def _is_run(path: Path) -> bool:
    """Return whether a script or notebook trains, or a shell script starts what does."""
    if path.suffix == ".sh":
        return bool(_STARTS.search(text := _text(path)) and _OF_TRAINING.search(text))
    if path.suffix not in (".py", ".ipynb"):
        return False
    return bool(_TRAINS.search(text := _text(path)) and (path.suffix == ".ipynb" or "__main__" in text))


def _list_of(clone: Path, script: Path) -> Path | None:
    """Return the nearest list above a script, requirements.txt before others."""
    for folder in script.parents[: len(script.relative_to(clone).parts)]:
        lists = sorted(path for path in folder.iterdir() if _LIST.fullmatch(path.name))
        if lists:
            return min(lists, key=lambda path: (path.name != "requirements.txt", path.name.startswith("py")))
    return None


def _judged(clone: Path, script: Path, lock: Path) -> int:
    """Print what is said of one script; return the exit code."""
    shown = ["git", "-C", str(clone), "log", "-1", "--format=%cs"]
    day = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip()
    several = re.search("deepspeed|torchrun", _text(script)) is not None
    target = ["--target-python", "3.10", "--target-platform", "linux-x86_64"]
    target += ["--target-gpu", "8xA100-80GB" if several else "A100-80GB"]
    name = str(script.relative_to(clone))
    told = judged(name, name, "--lock", str(lock.relative_to(clone)), "--as-of", day, *target, cwd=clone)
    lines = [f"\n## {clone.name} {name} ({day}): {told.code}", *([told.refused] if told.refused else [])]
    lines += [f"- {severity}[{rule}] {message}" for severity, rule, message in told.found]
    print("\n".join(lines), flush=True)
    return told.code


if __name__ == "__main__":
    sys.exit(main())
