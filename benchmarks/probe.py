"""Time and memory of the experiments: quick and full suite, each probe, one process at a time against two.

    python benchmarks/probe.py --python PATH [--suite quick,full] [--device auto|cpu|cuda] [--workers 1,2]

Seconds of a suite are those of a clock, with imports and everything; those of a probe are of its process, where the
first of those that share one pays for the import of torch. CPU seconds do not depend on what else the machine does.
Peak memory is that of the largest process, mapped files included; beside it stands that of envdoctor itself.
The bars (DESIGN.md, budgets): quick suite 30 s on two CPU cores and 1 GB, full suite 10 minutes.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

from envdoctor.app import Sources
from envdoctor.app.probe import ProbeRequest, probe

BARS = {"quick": (30.0, 1000.0), "full": (600.0, float("inf"))}


def main() -> int:
    """Run and print; 1 when a bar is missed by the default number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--suite", default="quick,full")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", default="", help="numbers of processes to compare; default: as envdoctor chooses")
    options = parser.parse_args()
    python = platform.python_version()
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {python}")
    missed = False
    for suite in options.suite.split(","):
        for workers in [int(text) for text in options.workers.split(",") if text] or [None]:
            missed |= measure(suite, options.python, options.device, workers) and workers is None
    return int(missed)


def measure(suite: str, python: str, device: str, workers: int | None) -> bool:
    """Run one suite and print what it cost; whether a bar was missed."""
    started = time.perf_counter()
    report = probe(ProbeRequest(suite=suite, device=device, workers=workers, sources=Sources(python=python)))
    seconds = time.perf_counter() - started
    section = report.probe
    assert section is not None
    build, found = section["environment"].get("build", {}), section["environment"].get("device", {})
    where = ", ".join(
        str(word) for word in (section["device"], found.get("name"), f"torch {build.get('torch')}") if word
    )
    print(
        f"\n{suite} suite on {where}, processes at a time: {workers or 'as envdoctor chooses'}, exit {report.exit_code}"
    )
    computed = sum(entry["cpu_seconds"] or 0.0 for entry in section["probes"])
    print(f"  {section['cases']} cases, {section['wrong']} not right: {seconds:.1f} s, {computed:.1f} CPU s")
    print(f"  peak of a process {section['peak_mib']:.0f} MiB, of envdoctor {own_peak_mib():.0f} MiB")
    if found.get("context_s") is not None:
        print(f"  CUDA context: {found['context_s']:.1f} s, {found['context_mib']} MiB")
    print(f"  {'':<44}{'cases':>7}{'s':>8}{'CPU s':>8}{'MiB':>7}")
    for entry in section["probes"]:
        name = " ".join(str(entry[key]) for key in ("name", "dtype", "backend") if entry[key])
        cases = sum(entry["counts"].values())
        cost = f"{entry['seconds']:>8.1f}{entry['cpu_seconds'] or 0:>8.1f}{entry['peak_mib'] or 0:>7.0f}"
        print(f"  {name:<44}{cases:>7}{cost}" + ("" if entry["ending"] == "ok" else f"  {entry['ending']}"))
    for notice in report.notices:
        print(f"  {notice.level}: {notice.text}")
    most_seconds, most_mib = BARS.get(suite, (float("inf"), float("inf")))
    missed = seconds > most_seconds or section["peak_mib"] > most_mib
    if missed:
        print(f"  above the bar of {most_seconds:g} s and {most_mib:g} MB")
    return missed


def own_peak_mib() -> float:
    """The largest memory of this process."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


if __name__ == "__main__":
    sys.exit(main())
