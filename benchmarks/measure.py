"""Times whole processes in turn; a process of its own, because the kernel counts a parent's memory into its children.

    python -I -S benchmarks/measure.py COMMANDS.json RUNS    prints {name: [[seconds, cpu seconds, peak KiB], ...]}

A command is ``{"argv": [...], "env": {...}, "remove": DIR or null}``; ``remove`` names a folder whose bytecode is
deleted before each run.
"""

import json
import os
import sys
import time

#: Some containers switch bytecode off; then nothing would ever be warm.
ENVIRON = {
    key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
}


def main() -> int:
    """Measure round by round; the first round warms the disk cache and is not reported."""
    with open(sys.argv[1]) as file:
        commands = json.load(file)
    runs = int(sys.argv[2])
    os.chdir(os.path.dirname(sys.argv[1]))  # not in a checkout, where `-m envdoctor` would find the sources
    results: dict[str, list[list[float]]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            sample = measure(command)
            if number:
                results[name].append(sample)
            print(f"\r{name:<40}{number}/{runs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(json.dumps(results))
    return 0


def measure(command: dict) -> list[float]:
    """One process: wall seconds, CPU seconds, peak RSS in KiB."""
    if command["remove"]:
        remove_bytecode(command["remove"])
    argv = command["argv"]
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, target) for target in (0, 1, 2)]
    started = time.perf_counter()
    child = os.posix_spawn(argv[0], argv, {**ENVIRON, **command["env"]}, file_actions=actions)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - started
    os.close(null)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: findings, broken requirements
        raise SystemExit(f"{' '.join(argv)}: exit code {os.waitstatus_to_exitcode(status)}")
    return [seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]


def remove_bytecode(folder: str) -> None:
    """Delete every .pyc below ``folder``."""
    for path, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".pyc"):
                os.unlink(os.path.join(path, name))


if __name__ == "__main__":
    sys.exit(main())
