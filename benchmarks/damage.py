"""Is a broken environment ever green? One random damage at a time in real environments, against the real import.

    python benchmarks/damage.py --env DIR [--others DIR] [--env DIR --others DIR] --seed 1 --cases 100 [--envdoctor CMD]

DIR is a virtual environment that nobody else uses: each case changes it, and puts it back. ``--others`` is a folder of
packages of other releases, for an older file that is put back and an upgrade that was interrupted. Half of the files
are drawn from those that ``STATEMENTS`` open, half from all that RECORD lists. The truth is what the statements do in a
fresh process of the environment, without the capabilities that read files whatever their mode says; envdoctor runs
without them too, and without its cache. Cases are dealt to the environments in turn.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

STATEMENTS = (
    "import torch",
    "import transformers",
    "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments",
    "import peft; from peft import LoraConfig, get_peft_model",
    "import datasets; from datasets import load_dataset",
    "import accelerate",
    "from trl import SFTTrainer",
    "import bitsandbytes",
)
_TRUTH = """
import json, os, sys
opened = set()
if sys.argv[2] == "listen":
    sys.addaudithook(lambda event, about: event == "open" and isinstance(about[0], str) and opened.add(about[0]))
failed = {}
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for statement in json.loads(sys.argv[1]):
    try:
        exec(statement, {})
    except BaseException as error:
        failed[statement] = f"{type(error).__name__}: {error}"[:300]
if sys.argv[2] == "listen":
    opened |= {one.__file__ for one in list(sys.modules.values()) if isinstance(getattr(one, "__file__", 0), str)}
    with open("/proc/self/maps") as maps:
        opened |= {line.split(None, 5)[5].strip() for line in maps if line.count("/") > 1}
json.dump([failed, sorted(opened)], answer)
answer.flush()
os._exit(0)
"""
#: Without them root is refused what a file's mode refuses.
BOUNDED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")
_PATIENCE = 300
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
_OURS = ("pip", "setuptools", "wheel")


class Listed(NamedTuple):
    """A file that RECORD of a distribution lists: its sha256 (base64) and size, empty where they are not told."""

    package: str
    digest: str
    size: str


class Env(NamedTuple):
    """An environment: its folder of packages, what RECORD lists by name below it, what the statements open."""

    python: Path
    site: Path
    others: Path | None
    listed: dict[str, Listed]
    opened: list[str]
    healthy: frozenset[str]


class Undo:
    """Puts back what was moved away; what is written in its place is removed."""

    def __init__(self, spare: Path) -> None:
        self._spare, self.moved, self._made = spare, [], []  # type: Path, list[tuple[Path, Path]], list[Path]

    def away(self, path: Path) -> Path:
        """Move a file or folder out of the environment; gives where it is now."""
        kept = self._spare / str(len(self.moved))
        path.rename(kept)
        self.moved.append((kept, path))
        return kept

    def write(self, path: Path, content: bytes) -> None:
        """A file with this content, changed now, instead of what is there."""
        mode = 0o644
        if path.exists():
            mode = self.away(path).stat().st_mode
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode & 0o777)
        self.made(path)

    def made(self, path: Path) -> None:
        """Note a file or folder to be removed."""
        self._made.append(path)

    def back(self) -> None:
        """Everything as it was."""
        for path in reversed(self._made):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        for kept, path in reversed(self.moved):
            path.parent.mkdir(parents=True, exist_ok=True)
            kept.rename(path)


Damage = Callable[[Env, str, Undo, random.Random], bool]


def removed(env: Env, name: str, undo: Undo, _: random.Random) -> bool:
    undo.away(env.site / name)
    return True


def emptied(env: Env, name: str, undo: Undo, _: random.Random) -> bool:
    return _rewritten(env, name, undo, lambda content: b"")


def zeroed(env: Env, name: str, undo: Undo, _: random.Random) -> bool:
    return _rewritten(env, name, undo, lambda content: bytes(len(content)))


def halved(env: Env, name: str, undo: Undo, _: random.Random) -> bool:
    return _rewritten(env, name, undo, lambda content: content[: len(content) // 2])


def byte_changed(env: Env, name: str, undo: Undo, chance: random.Random) -> bool:
    def change(content: bytes) -> bytes:
        at = chance.randrange(len(content)) if content else 0
        return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :] if content else b""

    return _rewritten(env, name, undo, change)


def unreadable(env: Env, name: str, undo: Undo, chance: random.Random) -> bool:
    path = env.site / name
    if chance.random() < 0.3 and path.parent != env.site:
        kept = undo.away(path.parent)
        path.parent.mkdir()  # what is in it cannot be listed anyway
        undo.made(path.parent)
        path.parent.chmod(0)
        return kept.is_dir()
    _rewritten(env, name, undo, lambda content: content + b" ")
    path.write_bytes(path.read_bytes()[:-1])
    path.chmod(0)
    return True


def folder_renamed(env: Env, name: str, undo: Undo, _: random.Random) -> bool:
    folder = (env.site / name).parent
    if folder == env.site or folder.name.endswith(".dist-info"):
        return False
    folder.rename(folder.with_name(f"{folder.name}_old"))
    undo.back = lambda: folder.with_name(f"{folder.name}_old").rename(folder)  # type: ignore[method-assign]
    return True


def older_file(env: Env, name: str, undo: Undo, chance: random.Random) -> bool:
    if env.others is None:
        return False
    if not (env.others / name).is_file():  # another one that both have
        pool = env.opened if name in env.opened else list(env.listed)
        name = next((one for one in chance.sample(pool, len(pool)) if (env.others / one).is_file()), "")
    content = (env.others / name).read_bytes() if name else b""
    return bool(name) and _rewritten(env, name, undo, lambda _: content)


def uninstall_interrupted(env: Env, name: str, undo: Undo, chance: random.Random) -> bool:
    files = sorted(one for one, listed in env.listed.items() if listed.package == env.listed[name].package)
    for one in files[: 1 + int(chance.random() * len(files))]:
        if (env.site / one).is_file():
            undo.away(env.site / one)
    return True


def upgrade_interrupted(env: Env, name: str, undo: Undo, chance: random.Random) -> bool:
    """pip has moved the old release away to folders that begin with ``~``, and has written a part of the other one."""
    infos = [] if env.others is None else sorted(env.others.glob("*.dist-info"))
    infos = [one for one in infos if list(env.site.glob(f"{one.name.partition('-')[0]}-*.dist-info"))]
    infos = [one for one in infos if (env.site / one.name.partition("-")[0]).is_dir()]  # pyyaml's is yaml
    if env.others is None or not infos:
        return False
    info = chance.choice(infos)
    package = info.name.partition("-")[0]
    old = next(env.site.glob(f"{package}-*.dist-info"))
    for folder in (env.site / package, old):
        hidden = env.site / f"~{folder.name[1:]}"
        shutil.copytree(undo.away(folder), hidden)
        undo.made(hidden)
    new = [row[0] for row in csv.reader((info / "RECORD").read_text().splitlines())]
    new = [one for one in new if not one.startswith("..") and (env.others / one).is_file()]
    undo.made(env.site / package)
    for one in new[: 1 + int(chance.random() * len(new))]:
        if one.startswith(f"{package}/"):
            undo.write(env.site / one, (env.others / one).read_bytes())
    return True


def times_changed(env: Env, name: str, undo: Undo, _: random.Random) -> bool:
    """No damage: the file as it was, written again."""
    return _rewritten(env, name, undo, lambda content: content)


def file_added(env: Env, name: str, undo: Undo, _: random.Random) -> bool:
    """No damage: a file of the user's own beside it, and the bytecode is gone."""
    path = (env.site / name).parent
    undo.write(path / "notes_of_mine.txt", b"mine\n")
    if (path / "__pycache__").is_dir():
        undo.away(path / "__pycache__")
    return True


KINDS: tuple[Damage, ...] = (
    *(removed, emptied, zeroed, halved, byte_changed, unreadable, folder_renamed, older_file, uninstall_interrupted),
    *(upgrade_interrupted, times_changed, file_added),
)


def _rewritten(env: Env, name: str, undo: Undo, change: Callable[[bytes], bytes]) -> bool:
    content = (env.site / name).read_bytes()
    undo.write(env.site / name, change(content))
    return True


def look(folder: Path, others: Path | None) -> Env:
    """Read an environment whose statements all work."""
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*/site-packages"))
    listed = {}
    for info in sorted(site.glob("*.dist-info")):
        package = info.name.partition("-")[0]
        for name, digest, size in csv.reader((info / "RECORD").read_text().splitlines()):
            if package not in _OURS and not name.startswith("..") and not name.endswith(".pyc"):
                listed[name] = Listed(package, digest.removeprefix("sha256="), size)
    listed = {name: one for name, one in listed.items() if (site / name).is_file()}
    failed, paths = truth(python, listen=True)
    if failed:
        sys.exit(f"{folder} is not healthy: {failed}")
    inside = {os.path.relpath(path, site) for path in paths if path.startswith(f"{site}/")}
    opened = sorted({_source(name) for name in inside} & listed.keys())
    env = Env(python, site, others, listed, opened, frozenset())
    return env._replace(healthy=frozenset(verdict(env, _command(None))["told"]))


def _source(name: str) -> str:
    if name.endswith(".pyc") and "/__pycache__/" in name:
        folder, _, base = name.partition("/__pycache__/")
        return f"{folder}/{base.partition('.')[0]}.py"
    return name


def truth(python: Path, *, listen: bool = False) -> tuple[dict[str, str], list[str]]:
    """The statements that fail, each with its error; and what was opened."""
    command = [*BOUNDED, str(python), "-c", _TRUTH, json.dumps(STATEMENTS), "listen" if listen else "-"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PATIENCE, env={**os.environ, **QUIET}, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        return {"all": "they do not end"}, []
    try:
        failed, opened = json.loads(done.stdout)
    except ValueError:
        return {"all": f"the process ended with {done.returncode}"}, []
    return failed, opened


def _command(text: str | None) -> list[str]:
    return shlex.split(text) if text else [sys.executable, "-m", "envdoctor"]


def verdict(env: Env, command: list[str]) -> dict[str, Any]:
    """What ``check`` says: its exit code, the findings by severity, the sentences about what was not judged."""
    asked = [*BOUNDED, *command, "check", "--no-cache", "--format", "json", "--python", str(env.python)]
    started = time.monotonic()
    done = subprocess.run(asked, capture_output=True, timeout=_PATIENCE, cwd="/", check=False)
    seconds = time.monotonic() - started
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"code": done.returncode, "told": [], "unjudged": [done.stderr.decode()[-300:]], "seconds": seconds}
    told = [f"{one['severity']} {one['id']}: {one['message']}" for one in report["findings"]]
    return {"code": done.returncode, "told": told, "unjudged": report.get("unjudged", []), "seconds": seconds}


def state(env: Env, names: list[str]) -> Iterator[str]:
    """In how many ways these files differ from RECORD, and whether that can be seen."""
    opened = set(env.opened)
    for name in names:
        path, listed = env.site / name, env.listed[name]
        try:
            if any(not one.stat().st_mode & 0o400 for one in (path, path.parent)):
                yield "unreadable"
                continue
            content = path.read_bytes()
        except OSError:
            yield "missing"
            continue
        if listed.size and len(content) != int(listed.size):
            yield "size"
        elif listed.digest and urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode() != listed.digest:
            if not content.strip(b"\0"):
                yield "zeros"
            elif not name.endswith(".py"):
                yield "invisible"
            else:
                try:
                    ast.parse(content)
                    yield "sha256" if name in opened else "unopened"
                except (SyntaxError, ValueError):
                    yield "syntax"


def case(env: Env, number: int, seed: int, command: list[str]) -> dict[str, Any]:
    """Damage, ask both, put back."""
    chance = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory(dir=env.site.parent) as spare:
        while True:
            kind = KINDS[number % len(KINDS)]
            drawn = chance.choice(env.opened if chance.random() < 0.5 else sorted(env.listed))
            undo = Undo(Path(spare))
            if kind(env, drawn, undo, chance):
                break
            undo.back()
        try:
            asked = verdict(env, command)
            failed, _ = truth(env.python)
            differs = Counter(state(env, list(env.listed)))
        finally:
            undo.back()
    told = [one for one in asked["told"] if one not in env.healthy]
    if asked["code"] not in (0, 1):
        answer = "exit 3" if asked["code"] == 3 else f"exit {asked['code']}"
    elif any(one.startswith("error") for one in told):
        answer = "error"
    else:
        answer = "warning" if any(one.startswith("warning") for one in told) else "green"
    return {
        "env": env.python.parts[-3], "number": number, "kind": kind.__name__, "file": drawn,
        "opened": drawn in env.opened,
        "failed": failed, "answer": answer, "told": told, "unjudged": asked["unjudged"], "differs": dict(differs),
        "seconds": asked["seconds"],
    }  # fmt: skip


def report(cases: list[dict[str, Any]]) -> None:
    """Print the table and what is wrong in it."""
    answers = ("error", "exit 3", "warning", "green")
    print("| kind | cases | failing | " + " | ".join(f"failing: {one}" for one in answers), end=" | ")
    print(" | ".join(f"working: {one}" for one in answers) + " |")
    print("|---" * (3 + 2 * len(answers)) + "|")
    for kind in (*(one.__name__ for one in KINDS), ""):
        these = [one for one in cases if not kind or one["kind"] == kind]
        count = Counter((bool(one["failed"]), one["answer"]) for one in these)
        failing = sum(bool(one["failed"]) for one in these)
        numbers = [count[broken, answer] for broken in (True, False) for answer in answers]
        print(f"| {(kind or 'all').replace('_', ' ')} | {len(these)} | {failing} | {' | '.join(map(str, numbers))} |")
    failing = [one for one in cases if one["failed"]]
    green = [one for one in failing if one["answer"] == "green"]
    seen = [one for one in green if set(one["differs"]) - {"invisible", "unopened"}]
    print(f"\ngreen with a failing import: {len(green)} of {len(failing)}, visible {len(seen)}", end=", ")
    print(f"invisible {len(green) - len(seen)} ({(len(green) - len(seen)) / max(1, len(failing)):.0%})")
    accused = [one for one in cases if not one["failed"] and one["answer"] == "error"]
    print(f"accused where every import works: RECORD agrees {sum(not one['differs'] for one in accused)}", end=", ")
    print(f"RECORD does not agree {sum(bool(one['differs']) for one in accused)}")
    quiet = [one for one in cases if not one["failed"] and not one["differs"] and one["answer"] != "green"]
    print(f"anything said where every import works and RECORD agrees: {len(quiet)}")
    print(f"seconds of a check, median: {sorted(one['seconds'] for one in cases)[len(cases) // 2]:.2f}")
    odd = (*green, *(one for one in failing if one["answer"] == "warning"), *accused, *quiet)
    for one in odd:
        print(f"\n{one['env']} {one['number']} {one['kind']} {one['file']} {one['differs']} -> {one['answer']}")
        for text in (*list(one["failed"].values())[:1], *one["told"][:3], *map(str, one["unjudged"][:2])):
            print(f"    {' '.join(text.split())[:200]}")


def main() -> int:
    """Draw, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", type=Path, action="append", required=True)
    parser.add_argument("--others", type=Path, action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--only", type=int, action="append", help="the numbers of cases to run, all without it")
    parser.add_argument("--envdoctor", help="a command line that runs envdoctor; this interpreter's without it")
    parser.add_argument("--json", type=Path, help="write all cases to this file")
    options = parser.parse_args()
    others = [*(one.absolute() for one in options.others), *[None] * len(options.env)]
    envs = [look(env.absolute(), other) for env, other in zip(options.env, others, strict=False)]
    for env in envs:
        print(f"{env.site}: {len(env.listed)} files listed, {len(env.opened)} opened", file=sys.stderr)

    def all_of(place: int) -> list[dict[str, Any]]:
        found = []
        for number in options.only or range(options.cases):
            # Whole rounds of all kinds go to one environment, the next to the other one.
            if number // len(KINDS) % len(envs) == place:
                found.append(case(envs[place], number, options.seed, _command(options.envdoctor)))
                print(*(found[-1][key] for key in ("number", "kind", "file", "answer")), file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor() as pool:
        cases = [one for found in pool.map(all_of, range(len(envs))) for one in found]
    if options.json:
        options.json.write_text(json.dumps(cases, indent=1))
    print(f"seed {options.seed}, {len(cases)} cases\n")
    report(cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
