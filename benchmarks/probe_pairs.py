"""Do the probes give on released versions the answers that are known for them? Fails there, passes here.

    python benchmarks/probe_pairs.py [--keep DIR] [--python PYTHON] [--torch 2.13.0]

Builds environments with torch 2.4.1, 2.5.0 and 2.13.0 and several releases of transformers (pip, with its configured
index, in a temporary folder unless ``--keep`` names one), runs some probes in each on the CPU and prints a table of
what came out beside what is expected. ``--torch`` runs some of these environments only. Exit code 1 when they differ.

PYTHON must be one that all three torch releases support (3.9 to 3.12; default: the one that runs this). The Linux
wheels of the older releases are CUDA builds: they compute on a CPU but do not import without most of NVIDIA's
libraries, so that each environment takes some 4.5 GB and 2.5 GB of downloads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from envdoctor.probe.grouping import Case, cases_of
from envdoctor.probe.recording import read_recording

ROOT = Path(__file__).resolve().parents[1]


#: Requirements of torch without which it imports and computes on a CPU: each of the others was taken away, and torch
#: 2.4.1 and 2.5.0 did not import (2.5.0 does without nvtx as well).
UNNEEDED = ("triton", "nvidia-cuda-nvrtc-cu12", "nvidia-cusolver-cu12")


class Environment(NamedTuple):
    """What is installed; the later ``transformers`` replace the first one in turn, with what they require. ``numpy`` is
    a specifier."""

    torch: str
    transformers: tuple[str, ...]
    accelerate: str
    numpy: str = ""


ENVIRONMENTS = (
    Environment("2.4.1", ("4.48.0", "4.48.1"), "1.3.0"),
    Environment("2.5.0", ("4.48.0", "4.48.1"), "1.3.0"),
    Environment("2.13.0", ("5.17.0",), "1.15.0"),
    Environment("2.13.0", ("4.38.2", "4.40.2", "4.41.2"), "0.30.1", "<2"),
    Environment("2.13.0", ("4.45.2", "4.46.3", "4.51.3", "4.52.4", "4.55.0"), "1.3.0"),
)


class Question(NamedTuple):
    """Cases of a probe in a ``suite``, and the (torch, transformers) on which some of them must fail; ``None`` is any
    release. It is asked with one release of ``torch``, or with all."""

    title: str
    probe: str
    backend: str | None
    dtype: str | None
    cases: str
    wrong: tuple[tuple[str | None, str | None], ...]
    suite: str = "quick"
    torch: str | None = None


def _from(*releases: str) -> tuple[tuple[None, str], ...]:
    """These releases of transformers with any torch."""
    return tuple((None, release) for release in releases)


#: Measured before on the same releases: catalogue of pairs in the documentation of the probes.
QUESTIONS = (
    Question("NaN honesty, default", "nan-honesty", "default", None, "row", (("2.5.0", None),)),
    Question("dead rows, bool mask, bf16", "dead-rows", "default", "bf16", "bool_left ", (("2.4.1", None),)),
    Question("dead rows, bool mask, fp16", "dead-rows", "default", "fp16", "bool_left ", (("2.4.1", None),)),
    Question("half accuracy, default bf16", "half-accuracy", "default", "bf16", "", ()),
    Question("half accuracy, default fp16", "half-accuracy", "default", "fp16", "", (("2.4.1", None),)),
    Question("half accuracy, math bf16", "half-accuracy", "math", "bf16", "", (("2.4.1", None),)),
    Question("half accuracy, math fp16", "half-accuracy", "math", "fp16", "", (("2.4.1", None),)),
    Question("rms_norm range, fp16", "rms-norm", None, "fp16", "inputs x 300", (("2.4.1", None), ("2.5.0", None))),
    Question("rms_norm epsilon, bf16", "rms-norm", None, "bf16", "epsilon", (("2.4.1", None), ("2.5.0", None))),
    Question(
        "gradient accumulation",
        "grad-accumulation",
        None,
        None,
        "",
        _from("4.38.2", "4.40.2", "4.41.2", "4.45.2", "4.48.0"),
    ),
    # Found by the experiments themselves, in a sweep over releases of transformers with torch 2.13.0.
    Question("Mistral's window in sdpa", "model-code", None, "fp32", "mistral", _from("4.38.2"), "full", "2.13.0"),
    Question(
        "logits beside attention's weights",
        "eval-mode",
        None,
        None,
        "llama: attentions",
        _from("4.40.2"),
        "full",
        "2.13.0",
    ),
    Question(
        "Gemma 2: cache of a window",
        *("eval-mode", None, None, "gemma2: cached"),
        _from("4.45.2", "4.46.3", "4.51.3"),
        "full",
        "2.13.0",
    ),
    Question(
        "Gemma 2: softcap in sdpa",
        *("eval-mode", None, None, "gemma2: attentions"),
        _from("4.45.2", "4.46.3", "4.51.3", "4.52.4"),
        "full",
        "2.13.0",
    ),
)


def main() -> int:
    """Build, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the environments, which stay there for the next time")
    parser.add_argument("--python", default=sys.executable, help="the base interpreter of the environments")
    parser.add_argument("--torch", action="append", help="only the environments with this torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="probe-pairs-") as temporary:
        folder = options.keep or Path(temporary)
        columns: dict[tuple[str, str], list[Case]] = {}
        for environment in ENVIRONMENTS:
            if options.torch and environment.torch not in options.torch:
                continue
            name = f"torch-{environment.torch}-accelerate-{environment.accelerate}"
            python = built(environment, folder.absolute() / name, options.python)
            for transformers in environment.transformers:
                pip(python, f"transformers=={transformers}", f"numpy{environment.numpy}")
                columns[(environment.torch, transformers)] = cases(python, Path(temporary))
                print(f"torch {environment.torch}, transformers {transformers}: done", file=sys.stderr)
    return report(columns)


def built(environment: Environment, folder: Path, base: str) -> Path:
    """The interpreter of the environment, made when it is not there yet."""
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    pip(python, "--no-deps", f"torch=={environment.torch}")
    pip(python, *needed_by_torch(python), f"numpy{environment.numpy}", "psutil")
    pip(python, f"transformers=={environment.transformers[0]}")
    pip(python, "--no-deps", f"accelerate=={environment.accelerate}")
    (folder / "complete").touch()
    return python


def needed_by_torch(python: Path) -> list[str]:
    """torch's requirements as far as its import needs them on a CPU."""
    from packaging.requirements import Requirement

    code = "import json; from importlib.metadata import requires; print(json.dumps(requires('torch')))"
    said = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout
    wanted = [Requirement(text) for text in json.loads(said)]
    return [
        f"{entry.name}{entry.specifier}"
        for entry in wanted
        if entry.name not in UNNEEDED and (entry.marker is None or entry.marker.evaluate({"extra": ""}))
    ]


def pip(python: Path, *arguments: str) -> None:
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-cache-dir", *arguments], check=True)


def cases(python: Path, scratch: Path) -> list[Case]:
    """Every case of the probes that the questions are about, with its verdict."""
    found: list[Case] = []
    for suite in dict.fromkeys(question.suite for question in QUESTIONS):
        recording = scratch / f"{suite}.jsonl"
        command = [
            sys.executable,
            "-m",
            "envdoctor",
            "probe",
            "--python",
            str(python),
            "--device",
            "cpu",
            "--exit-zero",
        ]
        for name in dict.fromkeys(question.probe for question in QUESTIONS if question.suite == suite):
            command += ["--only", name]
        command += ["--suite", suite, "--record", str(recording)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        found += cases_of(read_recording(recording).outcomes)
    return found


def report(columns: Mapping[tuple[str, str], Sequence[Case]]) -> int:
    """Print the table; 1 when an answer is not the expected one."""
    differ = 0
    heads = [f"torch {torch}, transformers {transformers}" for torch, transformers in columns]
    print("| question | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    for question in QUESTIONS:
        cells = []
        for (torch, transformers), found in columns.items():
            if question.torch not in (None, torch):
                cells.append("not asked")
                continue
            wrong = any(one in (None, torch) and other in (None, transformers) for one, other in question.wrong)
            got, evidence = answer(question, found)
            if got != ("FAIL" if wrong else "PASS"):
                differ += 1
                evidence += ", **NOT AS EXPECTED**"
            cells.append(f"{got}: {evidence}")
        print(f"| {question.title} | " + " | ".join(cells) + " |")
    total = sum(question.torch in (None, torch) for question in QUESTIONS for torch, _ in columns)
    print(f"\n{total - differ} of {total} answers are as expected.")
    return 1 if differ else 0


def answer(question: Question, found: Sequence[Case]) -> tuple[str, str]:
    """PASS or FAIL, or why there is no answer, with the number that says how far off it is."""
    asked = [case for case in found if _is_about(case, question)]
    judged = [case for case in asked if case.verdict.verdict in ("pass", "warn", "fail")]
    if not judged:
        return "no answer", asked[0].verdict.why if asked else "nothing ran"
    failed = [case for case in judged if case.verdict.verdict == "fail"]
    return ("FAIL" if failed else "PASS"), "; ".join(dict.fromkeys(_number(case) for case in failed or judged))


def _is_about(case: Case, question: Question) -> bool:
    seen = case.observation
    return (
        seen.get("probe") == question.probe
        and question.backend in (None, seen.get("backend"))
        and question.dtype in (None, seen.get("dtype"))
        and question.cases in f"{seen.get('case')} "
    )


def _number(case: Case) -> str:
    """What was measured, short."""
    seen, verdict = case.observation, case.verdict
    if seen.get("judge") == "honesty":
        return f"{seen['row_nan']} of {seen['expected']} NaN"
    if seen.get("judge") == "change":
        times = str(seen.get("detail", "")).partition(",")[0]
        return f"{100 * float(seen['relative']):.3g} % off" + (f" ({times})" if times else "")
    if seen.get("nonfinite"):
        return ", ".join(f"{count} NaN in {name}" for name, count in seen["nonfinite"].items())
    return f"ratio {verdict.ratio:.3g}" if verdict.ratio is not None else verdict.why


if __name__ == "__main__":
    raise SystemExit(main())
