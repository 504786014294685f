"""Do the probes give on released versions the answers that are known for them? Fails there, passes here.

    python benchmarks/probe_pairs.py [--keep DIR] [--python PYTHON] [--about models ...]

Builds environments with torch 2.4.1, 2.5.0 and 2.13.0 and several releases of transformers, peft and trl (uv, with its
configured index, in a temporary folder unless ``--keep`` names one), runs some probes in each on the CPU and prints a
table of what came out beside what is expected. ``--about`` runs some of these environments only. Exit code 1 when they
differ.

PYTHON must be one that all three torch releases support (3.9 to 3.12; default: the one that runs this). The Linux
wheels of the older releases are CUDA builds: they compute on a CPU but do not import without most of NVIDIA's
libraries, so that each of these environments takes some 4.5 GB and 2.5 GB of downloads.
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

from envdoctor.experiments import JudgedCase, cases_of, read_recording

ROOT = Path(__file__).resolve().parents[1]


#: Requirements of torch without which it imports and computes on a CPU: each of the others was taken away, and torch
#: 2.4.1 and 2.5.0 did not import (2.5.0 does without nvtx as well).
UNNEEDED = ("triton", "nvidia-cuda-nvrtc-cu12", "nvidia-cusolver-cu12")


class Environment(NamedTuple):
    """What is installed beside ``torch``, with what it requires: ``turns`` one after another, each with ``others``.
    ``about`` are the questions that are asked there."""

    about: str
    torch: str
    turns: tuple[str, ...]
    others: tuple[str, ...]


_TRL = ("rich",)  # which trl 0.11 to 0.13 import and do not require
ENVIRONMENTS = (
    Environment("torch", "2.4.1", ("transformers==4.48.0", "transformers==4.48.1"), ("accelerate==1.3.0",)),
    Environment("torch", "2.5.0", ("transformers==4.48.0", "transformers==4.48.1"), ("accelerate==1.3.0",)),
    Environment("torch", "2.13.0", ("transformers==5.17.0",), ("accelerate==1.15.0",)),
    Environment(
        "models",
        "2.13.0",
        ("transformers==4.38.2", "transformers==4.40.2", "transformers==4.41.2"),
        ("accelerate==0.30.1", "numpy<2"),
    ),
    Environment(
        "windows",
        "2.13.0",
        tuple(f"transformers=={release}" for release in ("4.45.2", "4.46.3", "4.51.3", "4.52.4", "4.55.0")),
        ("accelerate==1.3.0",),
    ),
    Environment(
        "peft",
        "2.13.0",
        ("peft==0.19.1", "peft==0.21.2"),
        ("transformers==4.57.6", "accelerate==1.12.0"),
    ),
    Environment("trl", "2.13.0", ("trl==0.19.1", "trl==0.20.0"), ("transformers==4.53.3", "accelerate==1.8.1", *_TRL)),
    Environment("dpo", "2.13.0", ("trl==0.13.0", "trl==0.14.0"), ("transformers==4.48.3", "accelerate==1.3.0", *_TRL)),
    Environment(
        "loss",
        "2.13.0",
        ("transformers==5.8.1", "transformers==5.10.1"),
        ("trl==1.5.1", "accelerate==1.14.0", *_TRL),
    ),
)


class Question(NamedTuple):
    """Cases of a probe in a ``suite``, and the (torch, turn of the environment) on which some of them must fail;
    ``None`` is any of these. It is asked in the environments that are ``about`` one of these words; ``failing`` are the
    verdicts that say that the bug is there."""

    title: str
    probe: str
    backend: str | None
    dtype: str | None
    cases: str
    wrong: tuple[tuple[str | None, str | None], ...]
    suite: str = "quick"
    about: tuple[str, ...] = ("torch",)
    failing: tuple[str, ...] = ("fail",)


def _from(package: str, *releases: str) -> tuple[tuple[None, str], ...]:
    """These releases of a package with any torch."""
    return tuple((None, f"{package}=={release}") for release in releases)


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
        *("grad-accumulation", None, None, ""),
        _from("transformers", "4.38.2", "4.40.2", "4.41.2", "4.45.2", "4.48.0"),
        about=("torch", "models", "windows"),
    ),
    # Found by the experiments themselves, in sweeps over releases with torch 2.13.0.
    Question(
        "Mistral's window",
        *("model-code", None, "fp32", "mistral"),
        _from("transformers", "4.38.2", "4.40.2", "4.41.2"),
        *("full", ("models", "windows")),
    ),
    Question(
        "logits beside attention's weights",
        *("eval-mode", None, None, "llama: attentions"),
        _from("transformers", "4.40.2"),
        *("full", ("models", "windows")),
    ),
    Question(
        "Gemma 2: cache of a window",
        *("eval-mode", None, None, "gemma2: cached"),
        _from("transformers", "4.45.2", "4.46.3", "4.51.3"),
        *("full", ("windows",)),
    ),
    Question(
        "Gemma 2: softcap in sdpa",
        *("eval-mode", None, None, "gemma2: attentions"),
        _from("transformers", "4.45.2", "4.46.3", "4.51.3", "4.52.4"),
        *("full", ("windows",)),
    ),
    Question(
        "two DoRA adapters, merged",
        *("lora", None, None, "merged for good, DoRA, two adapters"),
        _from("peft", "0.19.1"),
        *("full", ("peft",)),
    ),
    Question(
        "DoRA in GPT-2's layers, unmerged",
        *("lora", None, None, "unmerged again, DoRA, transposed"),
        _from("peft", "0.19.1"),
        *("full", ("peft",), ("fail", "error")),
    ),
    Question(
        "labels of packed samples",
        *("trl-training", None, None, "in one row"),
        _from("trl", "0.19.1"),
        *("full", ("trl",)),
    ),
    Question(
        "DPO: gradient accumulation",
        *("trl-training", None, None, "DPO, reference beside, one step of 2 x 2"),
        _from("trl", "0.13.0"),
        *("full", ("dpo",)),
    ),
    Question(
        "first labels in the mean of a batch",
        *("trl-training", None, None, "whole texts"),
        _from("transformers", "5.8.1"),
        *("full", ("loss",), ("fail", "warn")),
    ),
)


def main() -> int:
    """Build, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the environments, which stay there for the next time")
    parser.add_argument("--python", default=sys.executable, help="the base interpreter of the environments")
    parser.add_argument("--about", action="append", help="only the environments that are about this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="probe-pairs-") as temporary:
        folder = options.keep or Path(temporary)
        columns: dict[Column, list[JudgedCase]] = {}
        for number, environment in enumerate(ENVIRONMENTS):
            if options.about and environment.about not in options.about:
                continue
            python = built(environment, folder.absolute() / f"{number}-{environment.about}", options.python)
            for turn in environment.turns:
                left = python.parent.parent / "without-torch.txt"
                install(python, "--override", str(left), turn, *environment.others)
                column = Column(environment.about, environment.torch, turn)
                columns[column] = cases(python, Path(temporary), environment.about)
                print(f"{column.head}: done", file=sys.stderr)
    return report(columns)


class Column(NamedTuple):
    """Where questions were asked."""

    about: str
    torch: str
    turn: str

    @property
    def head(self) -> str:
        """``torch 2.13.0, peft 0.19.1``."""
        return f"torch {self.torch}, {self.turn.replace('==', ' ')}"


def built(environment: Environment, folder: Path, base: str) -> Path:
    """The interpreter of the environment, made with its torch when it is not there yet."""
    python = folder / "bin" / "python"
    if not python.exists():
        uv("venv", "--python", base, str(folder))
        install(python, "--no-deps", f"torch=={environment.torch}")
        install(python, *needed_by_torch(python), "psutil", "setuptools")
        (folder / "without-torch.txt").write_text("torch; python_version < '3'\n", encoding="utf-8")
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


def install(python: Path, *arguments: str) -> None:
    uv("pip", "install", "--python", str(python), *arguments)


def uv(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", *arguments, "-q"], check=True)


def cases(python: Path, scratch: Path, about: str) -> list[JudgedCase]:
    """Every case of the probes that the questions there are about, with its verdict."""
    found: list[JudgedCase] = []
    asked = [question for question in QUESTIONS if about in question.about]
    for suite in dict.fromkeys(question.suite for question in asked):
        recording = scratch / f"{suite}.jsonl"
        command = [sys.executable, "-m", "envdoctor", "probe", "--python", str(python), "--device", "cpu"]
        for name in dict.fromkeys(question.probe for question in asked if question.suite == suite):
            command += ["--only", name]
        command += ["--suite", suite, "--record", str(recording), "--exit-zero"]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        found += cases_of(read_recording(recording).outcomes)
    return found


def report(columns: Mapping[Column, Sequence[JudgedCase]]) -> int:
    """Print a table for the environments about each subject; 1 when an answer is not the expected one."""
    asked = differ = 0
    for about in dict.fromkeys(column.about for column in columns):
        there = {column: found for column, found in columns.items() if column.about == about}
        print("\n| question | " + " | ".join(column.head for column in there) + " |")
        print("|---" * (len(there) + 1) + "|")
        for question in QUESTIONS:
            if about not in question.about:
                continue
            cells = []
            for column, found in there.items():
                wrong = any(one in (None, column.torch) and turn in (None, column.turn) for one, turn in question.wrong)
                got, evidence = answer(question, found)
                asked += 1
                if got != ("FAIL" if wrong else "PASS"):
                    differ += 1
                    evidence += ", **NOT AS EXPECTED**"
                cells.append(f"{got}: {evidence}")
            print(f"| {question.title} | " + " | ".join(cells) + " |")
    print(f"\n{asked - differ} of {asked} answers are as expected.")
    return 1 if differ else 0


def answer(question: Question, found: Sequence[JudgedCase]) -> tuple[str, str]:
    """PASS or FAIL, or why there is no answer, with the number that says how far off it is."""
    asked = [case for case in found if _is_about(case, question)]
    judged = [case for case in asked if case.verdict.verdict in ("pass", "warn", "fail", *question.failing)]
    if not judged:
        return "no answer", asked[0].verdict.why if asked else "nothing ran"
    failed = [case for case in judged if case.verdict.verdict in question.failing]
    return ("FAIL" if failed else "PASS"), "; ".join(dict.fromkeys(_number(case) for case in failed or judged))


def _is_about(case: JudgedCase, question: Question) -> bool:
    seen = case.observation
    return (
        seen.get("probe") == question.probe
        and question.backend in (None, seen.get("backend"))
        and question.dtype in (None, seen.get("dtype"))
        and question.cases in f"{seen.get('case')} "
    )


def _number(case: JudgedCase) -> str:
    """What was measured, short."""
    seen, verdict = case.observation, case.verdict
    if seen.get("judge") == "honesty":
        return f"{seen['row_nan']} of {seen['expected']} NaN"
    if seen.get("judge") == "change" and "relative" in seen:
        times = str(seen.get("detail", "")).partition(",")[0]
        return f"{100 * float(seen['relative']):.3g} % off" + (f" ({times})" if times.startswith("the step") else "")
    if seen.get("judge") == "exact":
        return str(seen.get("detail"))
    if seen.get("nonfinite"):
        return ", ".join(f"{count} NaN in {name}" for name, count in seen["nonfinite"].items())
    return f"ratio {verdict.ratio:.3g}" if verdict.ratio is not None else verdict.why


if __name__ == "__main__":
    raise SystemExit(main())
