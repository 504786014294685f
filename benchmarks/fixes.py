"""Do the plans cure? Breaks environments at random, runs the plan that `check` prints, and repeats the imports.

    python benchmarks/fixes.py [--count 60] [--seed 1 2 ...] [--keep DIR] [--uv UV] [--again N ...]

Two stacks are built from real wheels (pip and uv with their configured index; torch for the CPU where that index has
it), in a temporary folder unless ``--keep`` names one. Each case is a copy of one of them, made of hard links, in which
one or two packages are replaced by releases drawn at random from the newest ones with a wheel for this Python
(``uv pip install --no-deps``). Everything in IMPORTS is really imported, `envdoctor check` is asked, the commands
of its plan are run, and the imports and the check are repeated. Cases are drawn until ``--count`` of each seed fail to
be imported. The results are printed as Markdown. With ``--keep`` a run goes on where it was ended, so that several
seeds may be run beside each other and printed together; ``--again`` repeats the named cases.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from package_index import Index  # noqa: E402 (a script beside this one's folder)

TORCH = "torch==2.13.0"
#: What the two stacks are made of: releases of autumn 2026, and of autumn 2025.
STACKS: Mapping[str, str] = {
    "2026": """
        transformers==5.23.0 peft==0.21.2 trl==1.16.0 datasets==5.2.0 accelerate==1.15.0 pandas==3.1.1 pyarrow==26.0.1
        numpy==2.4.6 pydantic==2.14.3 huggingface-hub==2.4.0 tokenizers==0.23.3 safetensors==0.8.0
    """,
    "2025": """
        transformers==4.57.6 peft==0.17.1 trl==0.23.1 datasets==4.1.1 accelerate==1.10.1 pandas==2.3.3 pyarrow==21.0.0
        numpy==2.2.6 pydantic==2.11.10 huggingface-hub==0.36.2 tokenizers==0.22.2 safetensors==0.6.2
    """,
}
#: What may be replaced, where the stack has it.
REPLACED = """
    transformers tokenizers huggingface-hub safetensors accelerate peft trl datasets numpy pandas pyarrow pydantic
    pydantic-core fsspec dill multiprocess httpx requests typing-extensions packaging filelock regex tqdm jinja2
"""
#: How many of a package's newest releases are drawn from.
NEWEST = 60
IMPORTS = """
    numpy pandas pyarrow pydantic torch tokenizers safetensors.torch huggingface_hub accelerate datasets
    transformers:AutoModelForCausalLM,AutoTokenizer,Trainer peft:LoraConfig,get_peft_model trl:SFTTrainer
"""
TRY = """
import importlib, json, sys, warnings
warnings.filterwarnings("ignore")
failed = {}
for name in sys.argv[1:]:
    module, _, names = name.partition(":")
    try:
        found = importlib.import_module(module)
        for part in filter(None, names.split(",")):
            getattr(found, part)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}"
print(json.dumps(failed))
"""


def main() -> int:
    """Draw, break, cure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="broken environments of a seed")
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--keep", type=Path, help="a folder for environments, the cache of uv, and results")
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--again", type=int, nargs="*", default=[], help="numbers of cases to repeat")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = (options.keep or Path(scratch)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        os.environ["PATH"] = f"{Path(options.uv).resolve().parent}{os.pathsep}{os.environ['PATH']}"
        os.environ["UV_CACHE_DIR"] = str(home / "uv-cache")
        cases = [case for seed in options.seed for case in run(home, options.count, seed, options.again)]
    print(table(cases))
    return 0


def run(home: Path, count: int, seed: int, again: Sequence[int]) -> list[dict[str, Any]]:
    """The cases in order, up to the one with which ``count`` are broken."""
    stacks = {name: built(home, name, packages.split()) for name, packages in STACKS.items()}
    results = home / f"results-{seed}"
    results.mkdir(exist_ok=True)
    drawn = replacements(seed, stacks)
    cases: list[dict[str, Any]] = []
    while sum(bool(case["before"]) for case in cases) < count:
        stack, pins = next(drawn)
        path = results / f"{len(cases):03}.json"
        if not path.exists() or len(cases) in again:
            path.write_text(json.dumps(one_case(home, home / f"case-{seed}", stack, pins), indent=1))
        cases.append({"number": f"{seed}-{len(cases)}", **json.loads(path.read_text())})
        print(summary(cases[-1]), file=sys.stderr, flush=True)
    return cases


def replacements(seed: int, stacks: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Stacks without end, each with the one or two packages that are replaced in it by releases drawn at random."""
    draw = random.Random(seed)
    index, releases = Index(), dict[str, list[str]]()
    while True:
        stack = draw.choice(sorted(STACKS))
        present = [name for name in REPLACED.split() if name in stacks[stack]]
        names = draw.sample(present, draw.choice((1, 2, 2)))
        for name in names:
            releases.setdefault(name, drawable(index, name))
        yield stack, [f"{name}=={draw.choice(releases[name])}" for name in names]


def built(home: Path, name: str, packages: Sequence[str]) -> dict[str, str]:
    """The packages of a stack with their versions; it is built when it is not there."""
    folder = home / f"stack-{name}"
    if not (folder / "sound").exists():
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was ended
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(folder / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", TORCH], check=True)
        torch = installed(folder)["torch"]
        subprocess.run(["uv", "pip", "install", "-q", "--python", python, f"torch=={torch}", *packages], check=True)
        failed = imports(folder)
        if failed:
            raise SystemExit(f"the stack {name} is broken by itself: {failed}")
        (folder / "sound").touch()
    return installed(folder)


def installed(folder: Path) -> dict[str, str]:
    """Names and versions of what is installed."""
    command = ["uv", "pip", "list", "-q", "--format", "json", "--python", str(folder / "bin" / "python")]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {item["name"]: item["version"] for item in found}


def drawable(index: Index, name: str) -> list[str]:
    """The newest releases with a wheel for this Python and machine, in rising order."""
    tags = set(sys_tags())
    found: set[Version] = set()
    for file in index.files(name):
        try:
            _, version, _, wheel_tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue
        if not version.is_prerelease and file.yanked_reason is None and tags & wheel_tags:
            found.add(version)
    return [str(version) for version in sorted(found)[-NEWEST:]]


def one_case(home: Path, folder: Path, stack: str, pins: Sequence[str]) -> dict[str, Any]:
    """Break a copy of the stack, ask, cure, and look again."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-al", home / f"stack-{stack}", folder], check=True)
    case: dict[str, Any] = {"stack": stack, "pins": list(pins)}
    python = str(folder / "bin" / "python")
    done = subprocess.run(
        ["uv", "pip", "install", "-q", "--no-deps", "--python", python, *pins],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {**case, "before": {}, "note": f"not installed: {done.stderr.strip()[-200:]}", "errors": []}
    case["before"] = imports(folder)
    report = checked(folder)
    case["errors"] = errors(report)
    case["said"] = {finding["id"]: finding["message"] for finding in report["findings"]}
    plan = report.get("plan")
    if not plan:
        return case
    case["plan"] = plan["commands"]
    case["leaves"] = [finding["id"] for finding in plan["leaves"]]
    was = installed(folder)
    case["run"] = [failure for command in plan["commands"] if (failure := ran(command))]
    now = installed(folder)
    case["changed"] = {
        name: [was.get(name), now.get(name)] for name in sorted({*was, *now}) if was.get(name) != now.get(name)
    }
    case["after"] = imports(folder)
    again = checked(folder)
    case["errors_after"] = errors(again)
    case["warnings_after"] = {
        finding["id"]: finding["message"] for finding in again["findings"] if finding["severity"] == "warning"
    }
    return case


def ran(command: str) -> str | None:
    """What a command of the plan said when it failed."""
    words = [word for word in shlex.split(command) if word != "--torch-backend=cpu"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stderr.strip()[-600:] if done.returncode else None


def imports(folder: Path) -> dict[str, str]:
    """What cannot be imported, with the reason."""
    command = [str(folder / "bin" / "python"), "-I", "-c", TRY, *IMPORTS.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    try:
        failed: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"the interpreter": done.stderr.strip()[-200:] or f"ended with {done.returncode}"}
    return failed


def checked(folder: Path) -> Any:
    """The report of `envdoctor check` as JSON."""
    options = ["--python", str(folder / "bin" / "python"), "--no-gpu", "--no-config", "--format", "json"]
    command = [sys.executable, "-m", "envdoctor", "check", *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout)


def errors(report: Any) -> list[str]:
    """The errors that are shown."""
    return [
        finding["id"]
        for finding in report["findings"]
        if finding["severity"] == "error" and "superseded_by" not in finding and "ignored" not in finding
    ]


def verdict(case: Mapping[str, Any]) -> str:
    """What became of a case."""
    if case.get("note"):
        return "not built"
    if not case["errors"]:
        return "silent" if case["before"] else "sound"
    if not case.get("plan"):
        return "no plan"
    if set(case["after"]) - set(case["before"]):
        return "new break"
    if case["after"]:
        return "still broken"
    return "works" if case["before"] else "still works"


def summary(case: Mapping[str, Any]) -> str:
    """One line."""
    clean = "" if "errors_after" not in case else ", check clean" if not case["errors_after"] else ", check not clean"
    return f"{case['number']} {case['stack']} {' '.join(case['pins'])}: {verdict(case)}{clean}"


def table(cases: Iterable[Mapping[str, Any]]) -> str:
    """The counts, then the cases with an error."""
    cases = list(cases)
    broken = [case for case in cases if case["before"]]
    named = [case for case in broken if case["errors"]]
    planned = [case for case in cases if case.get("plan")]
    works = [case for case in named if verdict(case) == "works"]
    breaks = [case for case in planned if set(case["after"]) - set(case["before"])]
    clean = [case for case in planned if not case["errors_after"]]
    needless = [case for case in cases if case["errors"] and not case["before"]]
    lines = [
        f"{len(cases)} environments drawn, {len(broken)} of them cannot be imported whole.",
        "",
        "| what | number |",
        "|---|---|",
        f"| broken, and check says an error | {len(named)} of {len(broken)} |",
        f"| of these, everything imports after the plan | {len(works)} of {len(named)}"
        f" ({100 * len(works) / max(1, len(named)):.0f} %) |",
        f"| plans after which something else fails to import | {len(breaks)} of {len(planned)} |",
        f"| plans after which check has no error | {len(clean)} of {len(planned)} |",
        f"| an error where everything imports | {len(needless)} |",
        "",
        "| case | stack | replaced | cannot be imported | errors | plan | afterwards |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in broken + needless:
        plan = "; ".join(
            command.partition("--python ")[2].partition(" ")[2] or command for command in case.get("plan", ())
        )
        cells = [
            case["number"],
            case["stack"],
            ", ".join(case["pins"]),
            ", ".join(name.partition(":")[0] for name in case["before"]) or "-",
            ", ".join(dict.fromkeys(case["errors"])) or "-",
            plan or "-",
            verdict(case),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
