"""How quick and how small is ``envdoctor check``? Ratios against other tools, measured side by side in one run.

    python benchmarks/check.py REQUIREMENTS [--env DIR] [--extension-env DIR] [--runs 9]

REQUIREMENTS is a list of ``name==version`` lines. The environment is built in DIR (default ``.benchmark-env``), or
reused when it is there; the checkout's wheel is installed into it. A second one is built of ``extension-env.txt``
(default ``.benchmark-extension-env``; ``--no-extensions`` leaves it out): it has real extensions of torch, whose check
is timed without and with envdoctor's cache. Commands are run in turn, round by round, so that a machine that gets
slower or faster meanwhile does the same to all of them. Wall time is the median of the rounds, a ratio or a difference
of two commands the median of those of the rounds; memory is the largest peak RSS the kernel accounts to the process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from operator import sub, truediv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: The largest private set: how many rules a big organisation might keep, and how many are shipped today or soon.
SMALL, LARGE = 250, 2000
#: Some containers switch bytecode off; then nothing would ever be warm.
WITH_BYTECODE = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def main() -> int:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("--env", type=Path, default=ROOT / ".benchmark-env")
    parser.add_argument("--extension-env", type=Path, default=ROOT / ".benchmark-extension-env")
    parser.add_argument("--no-extensions", action="store_true")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    env = options.env.absolute()
    build_environment(env, options.requirements)
    install_envdoctor(env)
    python = str(env / "bin" / "python")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        links = links_of(python, scratch / "cache", options.runs)
        results = measure(commands_of(env, python, scratch), options.runs, scratch)
    report(results, links, env, options.runs)
    if not options.no_extensions:
        extension_env = options.extension_env.absolute()
        build_environment(extension_env, ROOT / "benchmarks" / "extension-env.txt")
        with tempfile.TemporaryDirectory() as folder:
            report_extensions(python, extension_env, Path(folder), options.runs)
    return 0


def build_environment(env: Path, requirements: Path) -> None:
    """Create the environment once."""
    if not (env / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
        install = [str(env / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps"]
        subprocess.run([*install, "-r", str(requirements)], check=True)


def install_envdoctor(env: Path) -> None:
    """Install this checkout's wheel."""
    with tempfile.TemporaryDirectory() as wheels:
        pip = [str(env / "bin" / "python"), "-m", "pip"]
        subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", wheels, str(ROOT)], check=True)
        wheel = next(Path(wheels).glob("envdoctor-*.whl"))
        subprocess.run([*pip, "install", "-q", "--no-deps", "--force-reinstall", str(wheel)], check=True)


def commands_of(env: Path, python: str, scratch: Path) -> dict[str, dict[str, Any]]:
    """Every command by the name it is reported under. All run the environment's own interpreter."""
    uv = shutil.which("uv", path=f"{env / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    (installed,) = (env / "lib").glob("python3*/site-packages/envdoctor")
    cached = {"XDG_CACHE_HOME": str(scratch / "cache")}  # with the imports that links_of followed
    check = [python, "-m", "envdoctor", "check", "--no-config", "--exit-zero"]
    commands = {
        "python -c pass": command(python, "-c", "pass"),
        "python -c 'import click'": command(python, "-c", "import click"),
        "pip check": command(python, "-m", "pip", "check"),
        "collect_env": command(python, "-m", "torch.utils.collect_env"),
        "envdoctor check, cold bytecode": command(
            *check, env={**cached, "PYTHONDONTWRITEBYTECODE": "1"}, remove=str(installed)
        ),
        "envdoctor check, filling bytecode": command(*check, env=cached),
        "envdoctor check, warm": command(*check, env=cached),
        "envdoctor check with a model": command(*check, "--model", "THUDM/glm-4-9b-chat-hf", env=cached),
    }
    if uv is not None:
        commands["uv pip check"] = command(uv, "pip", "check", "--python", python)
    for count in (SMALL, LARGE):
        package = synthetic_package(installed, scratch / str(count), count)
        commands[f"envdoctor check, {count} rules"] = command(*check, env={**cached, "PYTHONPATH": str(package)})
    return commands


def command(*argv: str, env: Mapping[str, str] | None = None, remove: str | None = None) -> dict[str, Any]:
    """A command as ``measure.py`` reads it."""
    return {"argv": list(argv), "env": dict(env or {}), "remove": remove}


def links_of(python: str, cache: Path, runs: int) -> dict[str, dict[str, float]]:
    """What following the imports takes, alone: the first time (nothing kept), and as often when it was kept."""
    timed = [python, "-I", str(ROOT / "benchmarks" / "observers.py"), python]
    found: dict[str, list[dict[str, float]]] = {"first": [], "kept": []}
    for number in range(runs + 1):  # the first round fills the cache and warms the disk's
        if number < 3:
            found["first"].append(observed(*timed, "-", "packages.link:link"))
        found["kept"].append(observed(*timed, str(cache), "packages.link:link"))
    return {
        state: {key: statistics.median(one[key] for one in samples[1:]) for key in ("ms", "cpu")}
        for state, samples in found.items()
    }


def observed(*command: str) -> dict[str, float]:
    """What observers.py prints."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=WITH_BYTECODE).stdout
    result: dict[str, float] = json.loads(output)
    return result


def synthetic_package(installed: Path, folder: Path, count: int) -> Path:
    """A copy of the installed envdoctor whose compiled matrix holds ``count`` rules: the shipped ones again and again
    under other ids, each with its own copy of the texts."""
    package = folder / "envdoctor"
    shutil.copytree(installed, package)
    index = package / "_matrix" / "index.jsonl"
    head, *lines = map(json.loads, index.read_text().splitlines())
    texts = (package / "_matrix" / "texts.jsonl").read_bytes()
    shipped = [(line, rule) for line, rules in enumerate(lines) for rule in rules]
    shipped.sort(key=lambda one: one[1][0])  # of every scope its share, however many there are to be
    parts: list[list[Any]] = [head, *([] for _ in lines)]
    copies, end = [], 0
    for number in range(count):
        line, rule = shipped[number % len(shipped)]
        offset, length = rule[-1]
        parts[1 + line].append([f"{rule[0]}-{number}", *rule[1:-1], [end, length]])
        copies.append(texts[offset : offset + length] + b"\n")
        end += length + 1
    index.write_text("".join(json.dumps(part, separators=(",", ":")) + "\n" for part in parts))
    (package / "_matrix" / "texts.jsonl").write_bytes(b"".join(copies))
    return folder


def measure(commands: Mapping[str, Mapping[str, Any]], runs: int, scratch: Path) -> dict[str, list[list[float]]]:
    """``[wall seconds, CPU seconds, peak KiB]`` of every round, by command."""
    listing = scratch / "commands.json"
    listing.write_text(json.dumps(commands))
    script = [sys.executable, "-I", "-S", str(ROOT / "benchmarks" / "measure.py"), str(listing), str(runs)]
    results: dict[str, list[list[float]]] = json.loads(
        subprocess.run(script, check=True, stdout=subprocess.PIPE).stdout
    )
    return results


def report(
    results: Mapping[str, list[list[float]]], links: Mapping[str, Mapping[str, float]], env: Path, runs: int
) -> None:
    """The table, and the bars with what was measured."""
    wall = {name: statistics.median(sample[0] for sample in samples) for name, samples in results.items()}
    peak = {name: max(sample[2] for sample in samples) / 1024 for name, samples in results.items()}
    count = sum(1 for _ in (env / "lib").glob("python3*/site-packages/*.dist-info"))
    print(f"{count} distributions, Python {platform.python_version()}, {os.cpu_count()} cores, {runs} rounds")
    print(f"{'command':<40}{'median s':>10}{'min s':>10}{'max s':>10}{'cpu s':>10}{'peak MiB':>10}")
    for name, samples in results.items():
        seconds = [sample[0] for sample in samples]
        cpu = statistics.median(sample[1] for sample in samples)
        print(f"{name:<40}{wall[name]:>10.3f}{min(seconds):>10.3f}{max(seconds):>10.3f}{cpu:>10.3f}{peak[name]:>10.1f}")
    print()
    warm, bare = "envdoctor check, warm", "python -c pass"

    def by_round(compare: Callable[[float, float], float], one: str, other: str) -> float:
        """Two commands compared round by round, when the machine was as quick for both: the median."""
        rounds = zip(results[one], results[other], strict=True)
        return statistics.median(compare(mine[0], its[0]) for mine, its in rounds)

    more = 1000 * by_round(sub, f"envdoctor check, {LARGE} rules", f"envdoctor check, {SMALL} rules")
    rows = [
        ("warm / python -c pass", by_round(truediv, warm, bare), 10.0),
        ("peak RSS above python -c pass, MiB", peak[warm] - peak[bare], 12.0),
        (f"{LARGE} rules instead of {SMALL}, ms more", more, 25.0),
        ("imports followed the first time, s", links["first"]["ms"] / 1000, 3.0),
        ("imports followed before, ms more", links["kept"]["ms"], 25.0),
    ]
    if "uv pip check" in wall:
        rows.insert(0, ("warm / uv pip check", by_round(truediv, warm, "uv pip check"), 4.0))
    for name, value, bar in rows:
        print(f"{name:<40}{value:>10.2f}   bar: at most {bar:g}   {'met' if value <= bar else 'NOT MET'}")
    faster = by_round(truediv, "collect_env", warm)  # it is in the requirements: torch is there
    print(f"{'CPU of the imports, first and kept, ms':<40}{links['first']['cpu']:>10.0f}{links['kept']['cpu']:>10.0f}")
    print(f"{'collect_env / warm':<40}{faster:>10.2f}   bar: at least 12   {'met' if faster >= 12 else 'NOT MET'}")


def report_extensions(python: str, env: Path, scratch: Path, runs: int) -> None:
    """Check an environment of real extensions: the ABI alone, and the whole command."""
    target, cache = str(env / "bin" / "python"), scratch / "cache"
    abi = [python, "-I", str(ROOT / "benchmarks" / "observers.py"), target, "-"]
    # The first round warms the disk's cache.
    found = [observed(*abi, "binaries.extension:extension", "binaries.loading:libstdcxx") for _ in range(runs + 1)][1:]
    counts = found[0]
    print()
    print(
        f"{counts['packages']} packages with {counts['files']} files that ask for {counts['symbols']} symbols of torch"
    )
    milliseconds = [one["ms"] for one in found]
    abi_ms = statistics.median(milliseconds)
    cpu = statistics.median(one["cpu"] for one in found)
    print(f"ABI check: {abi_ms:.2f} ms ({min(milliseconds):.2f} to {max(milliseconds):.2f}), {cpu:.2f} ms of CPU")
    check = [python, "-m", "envdoctor", "check", "--no-config", "--exit-zero", "--python", target]
    variables = {"XDG_CACHE_HOME": str(cache)}
    whole = measure(
        {
            "python -c pass": command(python, "-c", "pass"),
            "cold": command(*check, "--no-cache"),
            "cached": command(*check, env=variables),
        },
        runs,
        scratch,
    )
    wall = {name: statistics.median(sample[0] for sample in samples) for name, samples in whole.items()}
    rows = [
        ("ABI check, ms per 1,000 symbols", 1000 * abi_ms / counts["symbols"], 60.0),
        ("check of it, cached / python -c pass", wall["cached"] / wall["python -c pass"], 12.0),
    ]
    for name, value, bar in rows:
        print(f"{name:<40}{value:>10.2f}   bar: at most {bar:g}   {'met' if value <= bar else 'NOT MET'}")
    print(f"{'check of it, cold / cached':<40}{wall['cold'] / wall['cached']:>10.2f}")


if __name__ == "__main__":
    sys.exit(main())
