"""Who names the cause? envdoctor and its peers on the same real environments, broken or sound by the real import.

    python benchmarks/peers.py --keep DIR [--seed 1] [--broken 5] [--sound 5] [--uv UV] [--full]

The two stacks of `fixes.py`, with bitsandbytes. In turn a case is a *release* (one or two packages are replaced by
other releases, as in `fixes.py`) or a *damage* (one of the kinds of `damage.py`); cases are drawn until ``--broken``
of each sort fail an import and ``--sound`` import everything with nothing wrong in them: all declared requirements are
met, or the damage is none. Others (an unmet requirement that no import minds, a damaged file that no import opens) are
not asked. Each peer that the index has is installed into an environment of its own and run as its documentation says;
one that must import the target's packages runs in the target's interpreter, with its own packages at the end of the
path. Each has been asked about the untouched stacks before, and what it says there (no GPU, no driver) is no complaint.

A *complaint* is a line that is not said of the stack and has a word of trouble. It *names the cause* when it has the
name of a package that was replaced or damaged, of the damaged file, or of what the exception could not find; it
*misleads* when it says of an installed package that it is not. ``--full`` prints the complaints, to be read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import damage
import fixes
from import_cases import remove, requirements_of, site_of, unmet
from import_verdicts import parsed
from package_index import Index
from packaging.utils import canonicalize_name

#: Runs a function of a module as a command, in any interpreter, after that one's own packages.
_INSIDE = (
    "import importlib, sys; site, entry, *words = sys.argv[1:]; sys.path.append(site); module, _, name ="
    " entry.partition(':'); sys.argv = [module, *words]; sys.exit(getattr(importlib.import_module(module), name)())"
)


class Peer(NamedTuple):
    """A tool: what is installed for it (empty: the target has it), and its command."""

    name: str
    package: str
    command: str


PEERS = (
    Peer("envdoctor check (first)", "", "{self} -m envdoctor check --python {python}"),
    Peer("envdoctor check (again)", "", "{self} -m envdoctor check --python {python}"),
    Peer("pip check", "pip", "{own}/pip --python {python} check"),
    Peer("uv pip check", "uv", "{own}/uv pip check --python {python}"),
    Peer("pipdeptree", "pipdeptree", "{own}/pipdeptree --python {python} --warn fail --summary"),
    Peer("env-doctor", "env-doctor", "{inside} env_doctor.cli:main check --ci"),
    Peer("mlenvdoctor", "mlenvdoctor", "{inside} mlenvdoctor.cli:app diagnose --json -"),
    Peer("cuda-doctor", "cuda-doctor", "{inside} cuda_doctor.cli:main diagnose --verbose"),
    Peer("ai-infradr", "ai-infradr", "{inside} ai_infradr.cli.main:main --fail-on medium"),
    Peer("computefence", "computefence", "{inside} computefence.cli:main doctor"),
    Peer("gpu-doctor", "gpu-doctor", "{inside} gpu_doctor.__main__:main --check"),
    Peer("envforage", "envforage", "{own}/envforage diagnose"),
    Peer("torch collect_env", "", "{python} -m torch.utils.collect_env"),
    Peer("transformers env", "", "{python} {bin}/transformers env"),
    Peer("accelerate env", "", "{python} {bin}/accelerate env"),
    Peer("bitsandbytes", "", "{python} -m bitsandbytes"),
)
MORE = ("bitsandbytes==0.50.2",)
_TROUBLE = re.compile(
    r"error|fail|conflict|compatible|broken|missing|not[ _]installed|not[ _]found|cannot|can't|mismatch|requires?\b|"
    r"required|has requirement|damaged|invalid|unable|no module|critical|not importable|not judged|warning|unreadable|"
    r"interrupted|differ|✗|⚠",
    re.IGNORECASE,
)
_ABSENT = re.compile(r"not[ _-]installed|not[ _]found|not[ _]detected", re.IGNORECASE)
_PATIENCE = 180


class Case(NamedTuple):
    """An environment: what was done to it, the words that name this, and the imports that fail."""

    number: int
    stack: str
    sort: str
    what: str
    causes: frozenset[str]
    failed: Mapping[str, str]
    sound: bool


def main() -> int:
    """Draw, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, help="a folder for environments, tools and answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broken", type=int, default=5, help="broken environments of each sort")
    parser.add_argument("--sound", type=int, default=5, help="sound environments")
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--full", action="store_true", help="print what each says of each environment")
    options = parser.parse_args()
    home = options.keep.resolve()
    (home / "home").mkdir(parents=True, exist_ok=True)
    (home / "home" / ".computefence_no_telemetry").touch()
    os.environ["PATH"] = f"{Path(options.uv).resolve().parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["UV_CACHE_DIR"] = str(home / "uv-cache")
    kept = home / f"answers-{options.seed}.json"
    if not kept.exists():
        versions = {peer.name: installed(home, peer) for peer in PEERS if peer.package}
        kept.write_text(json.dumps([versions, list(run(home, options.seed, options.broken, options.sound))], indent=1))
    versions, answers = json.loads(kept.read_text())
    print(table(versions, answers))
    if options.full:
        print(full(answers))
    return 0


def installed(home: Path, peer: Peer) -> str:
    """The version of a peer's newest release, in its environment."""
    folder = home / "tools" / peer.package
    if not folder.exists():
        python = str(folder / "bin" / "python")
        subprocess.run(["uv", "venv", "-q", "--python", sys.executable, folder], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "--python", python, peer.package], check=True)
    return requirements_of(site_of(folder))[peer.package][0]


def run(home: Path, seed: int, broken: int, sound: int) -> Iterator[dict[str, Any]]:
    """The answers of all peers: first of the stacks, then of each case that is asked about."""
    envs: dict[str, damage.Env] = {}
    for stack, packages in fixes.STACKS.items():
        fixes.built(home, stack, [*packages.split(), *MORE])
        envs[stack] = damage.look(home / f"stack-{stack}", None)
        yield {"stack": stack, "sort": "stack", "said": asked(home, home / f"stack-{stack}")}
    for stack, env in envs.items():
        envs[stack] = env._replace(others=next(one.site for name, one in envs.items() if name != stack))
    index, releases = Index(), dict[str, list[str]]()
    wanted = {"release": broken, "damage": broken, "sound": sound}
    number = -1
    while any(wanted.values()):
        number += 1
        chance = random.Random(f"{seed}/{number}")
        folder = home / f"case-{seed}"
        if folder.exists():
            remove(folder)
        stack = chance.choice(sorted(envs))
        subprocess.run(["cp", "-al", home / f"stack-{stack}", folder], check=True)
        env = envs[stack]._replace(python=folder / "bin" / "python", site=site_of(folder))
        with tempfile.TemporaryDirectory(dir=home) as spare:
            if number % 2:
                case = damaged(env, number, stack, chance, Path(spare))
            else:
                case = replaced(env, number, stack, chance, index, releases)
            kind = "sound" if case.sound else case.sort if case.failed else ""
            print(case.number, stack, case.what, kind or "not asked", file=sys.stderr, flush=True)
            if wanted.get(kind):
                wanted[kind] -= 1
                yield {**case._asdict(), "causes": sorted(case.causes), "said": asked(home, folder)}


def replaced(
    env: damage.Env, number: int, stack: str, chance: random.Random, index: Index, releases: dict[str, list[str]]
) -> Case:
    """One or two packages in other releases."""
    present = requirements_of(env.site)
    names = chance.sample([name for name in fixes.REPLACED.split() if name in present], chance.choice((1, 2, 2)))
    for name in names:
        releases.setdefault(name, fixes.drawable(index, name))
    pins = [f"{name}=={chance.choice(releases[name])}" for name in names]
    subprocess.run(["uv", "pip", "install", "-q", "--no-deps", "--python", str(env.python), *pins], check=True)
    failed, _ = damage.truth(env.python)
    sound = not failed and not any(unmet(requirements_of(env.site)))
    return Case(number, stack, "release", " ".join(pins), frozenset(names) | causes(failed), failed, sound)


def damaged(env: damage.Env, number: int, stack: str, chance: random.Random, spare: Path) -> Case:
    """One kind of damage."""
    while True:
        kind = chance.choice(damage.KINDS)
        name = chance.choice(env.opened if chance.random() < 0.5 else sorted(env.listed))
        undo = damage.Undo(spare)
        if kind(env, name, undo, chance):
            break
        undo.back()
    failed, _ = damage.truth(env.python)
    moved = [str(path.relative_to(env.site)) for _, path in undo.moved if path.is_relative_to(env.site)]
    named = {env.listed[one].package for one in (name, *moved) if one in env.listed} | set(moved[:1] or [name])
    if kind is damage.upgrade_interrupted:
        named = {moved[0]}
    harmless = kind in (damage.times_changed, damage.file_added)
    what = f"{kind.__name__.replace('_', ' ')} {sorted(named - {'~'})[0] if not harmless else name}"
    return Case(number, stack, "damage", what, frozenset(named) | causes(failed), failed, harmless and not failed)


def causes(failed: Mapping[str, str]) -> frozenset[str]:
    """The names and modules that the exceptions could not find."""
    return frozenset(name or module for error in failed.values() for name, module in parsed(error))


def asked(home: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """What each peer says of an environment, in how many seconds and MiB."""
    remove(home / "home" / ".cache") if (home / "home" / ".cache").exists() else None
    settings = {**os.environ, **damage.QUIET, "HOME": str(home / "home"), "NO_COLOR": "1", "TERM": "dumb"}
    settings |= {"COLUMNS": "500", "PYTHONPATH": str(fixes.ROOT), "XDG_CACHE_HOME": str(home / "home" / ".cache")}
    said = {}
    for peer in PEERS:
        own = home / "tools" / peer.package / "bin"
        python = str(folder / "bin" / "python")
        inside = [python, "-c", _INSIDE, str(site_of(own.parent))] if peer.package else []
        words: list[str] = []
        for word in peer.command.split():
            filled = word.format(self=sys.executable, own=own, python=python, bin=folder / "bin", inside="")
            words += inside if word == "{inside}" else [filled]
        if words[0] != sys.executable:
            settings.pop("PYTHONPATH", None)
        said[peer.name] = ran([*damage.BOUNDED, *words], settings, folder)
        settings["PYTHONPATH"] = str(fixes.ROOT)
    return said


def ran(words: list[str], settings: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """The exit code, the lines, seconds, and MiB of the largest process."""
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=dict(settings), cwd="/")
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended or time.monotonic() - started > _PATIENCE:
                break
            time.sleep(0.005)
        seconds = time.monotonic() - started
        if not ended:
            process.kill()
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace(str(folder), "ENV").replace("}, {", "},\n{")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return {"code": process.returncode, "lines": lines, "seconds": seconds, "mib": usage.ru_maxrss / 1024}


def complaints(said: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """The lines of trouble that were not said of the stack."""
    old = {re.sub(r"\d+", "0", line) for line in before["lines"]}
    new = [line for line in said["lines"] if re.sub(r"\d+", "0", line) not in old]
    return [line for line in dict.fromkeys(new) if _TROUBLE.search(line)]


def outcome(case: Mapping[str, Any], said: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """``names``, ``misleads``, ``other`` (a complaint about something else), ``stops`` (a traceback instead of a
    report) or ``silent``."""
    if "Traceback (most recent call last):" in said["lines"] and said["code"]:
        return "stops"
    lines = complaints(said, before)
    named = [line for line in lines if any(_has(line, cause) for cause in case["causes"])]
    if any(not _ABSENT.search(line) for line in named):
        return "names"
    return "misleads" if named else "other" if lines or said["code"] != before["code"] else "silent"


def _has(line: str, cause: str) -> bool:
    words = {canonicalize_name(word) for word in re.findall(r"[A-Za-z0-9_][\w./+-]*\w", line)}
    return canonicalize_name(cause) in words or ("/" in cause and cause in line)


def table(versions: Mapping[str, str], answers: list[dict[str, Any]]) -> str:
    """A row for each peer."""
    stacks = {one["stack"]: one["said"] for one in answers if one["sort"] == "stack"}
    cases = [one for one in answers if one["sort"] != "stack"]
    outcomes = {
        peer.name: [
            (one, outcome(one, one["said"][peer.name], stacks[one["stack"]][peer.name])) for one in cases
        ]
        for peer in PEERS
    }  # fmt: skip
    lines = ["| tool | names: releases | names: damage | misleads | stops | another complaint | silent", ""]
    lines[0] += " | sound: a complaint | sound: exit code not 0 | seconds, median | MiB |"
    lines[1] = "|---" * 11 + "|"
    for peer in PEERS:
        broken = [(one["sort"], what) for one, what in outcomes[peer.name] if not one["sound"]]
        sound = [(one["said"][peer.name], what) for one, what in outcomes[peer.name] if one["sound"]]
        said = [one["said"][peer.name] for one in cases]
        cells: list[object] = [f"{peer.name} {versions.get(peer.name, '')}".strip()]
        cells += [sum(one == (sort, "names") for one in broken) for sort in ("release", "damage")]
        cells += [sum(one[1] == what for one in broken) for what in ("misleads", "stops", "other", "silent")]
        cells += [sum(what != "silent" for _, what in sound), sum(one["code"] != 0 for one, _ in sound)]
        cells += [f"{statistics.median(one['seconds'] for one in said):.2f}"]
        cells += [f"{statistics.median(one['mib'] for one in said):.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "| case | stack | what | fails | " + " | ".join(peer.name for peer in PEERS) + " |"]
    lines += ["|---" * (4 + len(PEERS)) + "|"]
    for place, one in enumerate(cases):
        error = next(iter(one["failed"].values()), "-").replace("|", "/")[:90]
        row = [one["number"], one["stack"], one["what"], error]
        lines.append(f"| {' | '.join(map(str, [*row, *(outcomes[peer.name][place][1] for peer in PEERS)]))} |")
    return "\n".join(lines)


def full(answers: list[dict[str, Any]]) -> str:
    """All complaints."""
    stacks = {one["stack"]: one["said"] for one in answers if one["sort"] == "stack"}
    lines = []
    for one in answers:
        if one["sort"] == "stack":
            continue
        lines += ["", f"{one['number']} {one['stack']} {one['what']}, named by {one['causes']}"]
        lines += [f"    {statement}: {error}" for statement, error in one["failed"].items()]
        for peer in PEERS:
            said, before = one["said"][peer.name], stacks[one["stack"]][peer.name]
            lines.append(f"  {peer.name}: exit {said['code']}, {outcome(one, said, before)}")
            lines += [f"    {line[:300]}" for line in complaints(said, before)[:8]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
