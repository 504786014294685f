"""Does `envdoctor fix` leave a whole environment, or the one that was there? Broken real environments, fixed for real.

    python benchmarks/fix.py --keep DIR [--count 30] [--seed 135] [--uv UV] [--faults 6]

The environments are drawn as those of `fixes.py`: a copy of one of two stacks of real wheels, made of hard links, in
which one or two packages are replaced by releases drawn at random (``uv pip install --no-deps``). Cases are drawn until
``--count`` of them cannot be imported whole. On each `envdoctor fix --yes` is run, with a home, a folder for temporary
files and a working folder of its own; then everything in IMPORTS is really imported. What is not whole must be as it
was: names, kinds, modes, times, links and bytes of every file are compared. So are the stacks, whose files the copies
share, and the folders around.

The first ``--faults`` of them are also fixed with an installer that does its work and then fails, ends envdoctor
(SIGTERM), kills it (SIGKILL, after which a second `fix` finds the copy), or leaves a module that cannot be imported;
and on a file system of their own (a tmpfs, which root may mount) that has 512 KiB left when the installer starts, and
nothing when it ends: each time everything must be as it was. Printed as Markdown.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from fixes import STACKS, built, imports, installed, replacements

#: Stands in for uv: does what is asked, and what FAULT says around every install that is no dry run.
FAULTY = """#!/bin/sh
case "$*" in *--dry-run*) exec "$UV" "$@" ;; esac
if [ "$FAULT" = full ]; then
  cat /dev/zero > "$ENVIRONMENT.filling"
  truncate -s -512K "$ENVIRONMENT.filling"
fi 2> /dev/null
"$UV" "$@" || exit $?
case "$FAULT" in
  fails) exit 1 ;;
  full) cat /dev/zero >> "$ENVIRONMENT.filling"; exit 1 ;;
  ends) kill -TERM $PPID; exec tail -f /dev/null ;;
  kills) kill -KILL $PPID; exec tail -f /dev/null ;;
esac
for word in "$@"; do
  case "$word" in pip | install | -* | */*) continue ;; esac
  name=$(echo "${word%%[=<>!~]*}" | tr - _)
  for path in "$ENVIRONMENT"/lib/python3*/site-packages/$name/__init__.py \
    "$ENVIRONMENT"/lib/python3*/site-packages/$name.py; do
    [ -f "$path" ] && rm "$path" && echo 'raise ImportError("planted")' > "$path"
  done
done
exit 0
"""
FAULTS = ("fails", "ends", "kills", "imports", "full")


def main() -> int:
    """Draw, break, fix, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keep", type=Path, required=True, help="a folder for environments and results")
    parser.add_argument("--count", type=int, default=30, help="broken environments")
    parser.add_argument("--seed", type=int, default=135)
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--faults", type=int, default=6, help="environments that faulty installers are tried on")
    options = parser.parse_args()
    home = options.keep.resolve()
    home.mkdir(parents=True, exist_ok=True)
    os.environ |= {"UV": str(Path(options.uv).resolve()), "UV_CACHE_DIR": str(home / "uv-cache")}
    os.environ["PATH"] = f"{Path(options.uv).resolve().parent}{os.pathsep}{os.environ['PATH']}"
    stacks = {name: built(home, name, packages.split()) for name, packages in STACKS.items()}
    shared = {name: digests(home / f"stack-{name}") for name in STACKS}
    cases = run(home, options.count, options.seed, stacks, options.faults)
    changed = [name for name in STACKS if shared[name] != digests(home / f"stack-{name}")]
    print(table(cases, changed))
    return int(bool(changed) or any(case["outcome"] == "neither" for case in cases if case["before"]))


def run(
    home: Path, count: int, seed: int, stacks: Mapping[str, Mapping[str, str]], faults: int
) -> list[dict[str, Any]]:
    """The cases in order, up to the one with which ``count`` are broken; what was tried is not tried again."""
    results = home / f"fix-{seed}"
    results.mkdir(exist_ok=True)
    drawn = replacements(seed, stacks)
    cases: list[dict[str, Any]] = []
    while sum(bool(case["before"]) for case in cases) < count:
        stack, pins = next(drawn)
        path = results / f"{len(cases):03}.json"
        if not path.exists():
            with_faults = sum(bool(case["before"]) for case in cases) < faults
            found = one_case(home, home / f"fix-{seed}-case", stack, pins, FAULTS if with_faults else ())
            path.write_text(json.dumps(found, indent=1))
        cases.append({"number": f"{seed}-{len(cases)}", **json.loads(path.read_text())})
        print(f"{cases[-1]['number']} {stack} {' '.join(pins)}: {cases[-1]['outcome']}", file=sys.stderr, flush=True)
    return cases


def one_case(home: Path, folder: Path, stack: str, pins: Sequence[str], faults: Sequence[str]) -> dict[str, Any]:
    """Break a copy of the stack, fix it with the faults and without, and look again."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-al", home / f"stack-{stack}", folder], check=True)
    case: dict[str, Any] = {"stack": stack, "pins": list(pins), "before": {}, "outcome": "sound"}
    uv = [os.environ["UV"], "pip", "install", "-q", "--no-deps", "--python", folder / "bin" / "python", *pins]
    done = subprocess.run(uv, capture_output=True, text=True, check=False)
    if done.returncode:
        return {**case, "outcome": "not built", "said": done.stderr.strip()[-300:]}
    case["before"] = imports(folder)
    if not case["before"]:
        return case
    kept = folder.with_name(f"{folder.name}-kept")
    shutil.rmtree(kept, ignore_errors=True)
    subprocess.run(["cp", "-al", folder, kept], check=True)
    before, was = listed(folder), installed(folder)
    case["faults"] = {}
    for fault in faults:
        with disk_of_its_own(folder) if fault == "full" else nullcontext(folder) as place:
            code, said, _ = fixed(home, place, fault)
            if fault == "kills":  # the copy is found by the next one, whose installer fails as well
                code, said, _ = fixed(home, place, "fails")
            differs = differing(before, kept, place)
        case["faults"][fault] = {"as it was": not differs, "differs": differs[:20], "code": code, "said": said[-400:]}
        if differs:  # the next fault finds what the first one found
            shutil.rmtree(folder)
            subprocess.run(["cp", "-al", kept, folder], check=True)
    case["code"], case["said"], case["around"] = fixed(home, folder, "")
    case["differs"] = differing(before, kept, folder)[:20]
    case["after"] = imports(folder)
    now = installed(folder)
    case["changed"] = {name: [was.get(name), now.get(name)] for name in {*was, *now} if was.get(name) != now.get(name)}
    case["outcome"] = "whole" if not case["after"] else "as it was" if not case["differs"] else "neither"
    return case


@contextmanager
def disk_of_its_own(folder: Path) -> Iterator[Path]:
    """A copy of the environment on a file system with little room."""
    disk = folder.with_name(f"{folder.name}-disk")
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", disk], check=True)
    try:
        subprocess.run(["cp", "-a", folder, disk / "env"], check=True)
        yield disk / "env"
    finally:
        subprocess.run(["umount", disk], check=True)


def fixed(home: Path, environment: Path, fault: str) -> tuple[int, str, list[str]]:
    """Run `envdoctor fix --yes`: the exit code, what it said, and the files that it left elsewhere."""
    around = environment.with_name(f"{environment.name}-around")
    shutil.rmtree(around, ignore_errors=True)
    folders = {name: around / name for name in ("home", "tmp", "here", "bin")}
    for path in folders.values():
        path.mkdir(parents=True)
    variables = {**os.environ, "HOME": str(folders["home"]), "TMPDIR": str(folders["tmp"]), "FAULT": fault}
    variables["ENVIRONMENT"] = str(environment)
    variables["XDG_CACHE_HOME"] = str(home / "envdoctor-cache")
    if fault:
        (folders["bin"] / "uv").write_text(FAULTY)
        (folders["bin"] / "uv").chmod(0o755)
        variables["PATH"] = f"{folders['bin']}{os.pathsep}{variables['PATH']}"
    options = ["--python", str(environment / "bin" / "python"), "--yes", "--no-gpu", "--no-config"]
    command = [sys.executable, "-m", "envdoctor", "fix", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folders["here"], env=variables)
    left = [str(path.relative_to(around)) for path in around.rglob("*") if path.is_file() and path.name != "uv"]
    return done.returncode, (done.stdout + done.stderr).replace(str(environment), "ENV"), left


def listed(folder: Path) -> dict[str, os.stat_result]:
    """Everything in a folder."""
    return {str(path.relative_to(folder)): path.lstat() for path in [folder, *folder.rglob("*")]}


def differing(before: Mapping[str, os.stat_result], kept: Path, folder: Path) -> list[str]:
    """The paths that are not what they were: there, of that kind and mode, of that time, and with the same bytes.
    ``kept`` has hard links to the files as they were: a file that is the same is not read, and one that was written
    into has another time."""
    after = listed(folder)
    found = list(before.keys() ^ after.keys())
    for path in before.keys() & after.keys():
        old, new = before[path], after[path]
        same = (old.st_mode, old.st_mtime_ns) == (new.st_mode, new.st_mtime_ns)
        if same and (folder / path).is_symlink():
            same = os.readlink(folder / path) == os.readlink(kept / path)
        elif same and stat.S_ISREG(new.st_mode):
            linked = os.path.samefile(folder / path, kept / path)
            same = old.st_size == new.st_size and (linked or filecmp.cmp(folder / path, kept / path, shallow=False))
        if not same:
            found.append(path)
    return sorted(found)


def digests(folder: Path) -> dict[str, str]:
    """The content of every file in a folder, but for bytecode, which the imports of a stack itself may write."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            with path.open("rb") as file:
                found[str(path)] = hashlib.file_digest(file, "blake2b").hexdigest()
    return found


def table(cases: Sequence[Mapping[str, Any]], changed: Sequence[str]) -> str:
    """The counts, then the cases."""
    broken = [case for case in cases if case["before"]]
    counts = Counter(case["outcome"] for case in broken)
    faults = {name: [case["faults"][name]["as it was"] for case in broken if name in case["faults"]] for name in FAULTS}
    around = sorted({path for case in broken for path in case["around"]})
    lines = [
        f"{len(cases)} environments drawn, {len(broken)} of them cannot be imported whole.",
        "",
        "| what | number |",
        "|---|---|",
        f"| whole afterwards, by the real imports | {counts['whole']} of {len(broken)} |",
        f"| as it was, to the byte | {counts['as it was']} of {len(broken)} |",
        f"| neither | {counts['neither']} of {len(broken)} |",
        *(f"| as it was after the fault '{name}' | {sum(seen)} of {len(seen)} |" for name, seen in faults.items()),
        f"| stacks of which a file that the environments share was changed | {len(changed)} of {len(STACKS)} |",
        f"| files left in the home, the temporary and the working folder | {', '.join(around) or 'none'} |",
        "",
        "| case | stack | replaced | cannot be imported | changed by fix | afterwards |",
        "|---|---|---|---|---|---|",
    ]
    for case in broken:
        moves = [f"{name} {old or '-'} → {new or '-'}" for name, (old, new) in sorted(case["changed"].items())]
        failed = ", ".join(name.partition(":")[0] for name in case["before"])
        cells = [
            case["number"],
            case["stack"],
            ", ".join(case["pins"]),
            failed,
            ", ".join(moves) or "-",
            case["outcome"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Not whole:", ""]
    for case in broken:
        if case["outcome"] != "whole":
            said = " ".join(case["said"].split())[-700:]
            lines.append(f"- {case['number']}: exit code {case['code']}; {said}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
