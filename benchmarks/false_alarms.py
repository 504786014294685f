"""How often does ``check`` call something broken that its makers published to be used together?

    python benchmarks/false_alarms.py [--seed 1] [--stacks 60] [--keep DIR]        needs uv and a package index
    python benchmarks/false_alarms.py [--seed 1] --published                      needs neither

A stack is what an installer took on the day on which a release of a framework came out: uv resolves it with
``--exclude-newer``. Frameworks and releases are drawn at random from the ledger (those of two years), for each a model
whose type that transformers has, a GPU, and the framework as the recipe's. Each is judged as by ``check --lock``. Such
a set may be broken all the same: an error is false only after somebody has read it. What uv cannot resolve from wheels
is drawn again, and counted. ``--published`` takes the inventories of fixtures/inventories instead, each of which names
its public source, with a model, a GPU and a framework that is in it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from envdoctor.app import Sources  # noqa: E402
from envdoctor.app.check import check  # noqa: E402
from envdoctor.matrix import (  # noqa: E402
    Matrix,
    ModelTypes,
    load_matrix,
)
from envdoctor.remedy import NoResolver, Wanted, resolve  # noqa: E402

#: Frameworks with what their recipe is called; those without such a name are judged as transformers.
FRAMEWORKS = {
    **dict.fromkeys(("trl", "llamafactory", "ms-swift", "axolotl", "unsloth", "vllm", "sglang", "torchtune"), ""),
    **dict.fromkeys(("peft", "transformers", "sentence-transformers", "verl", "lmdeploy", "openrlhf"), ""),
}
#: SGLang asks for torch and transformers in an extra alone.
EXTRAS = {"sglang": "all"}
#: What these frameworks ask for and what is published as source alone, with what it asks for itself: uv is told, so
#: that nothing is built.
SOURCE_ONLY = {
    **dict.fromkeys(("antlr4-python3-runtime", "crcmod", "docopt", "future", "jieba", "word2number"), ()),
    **dict.fromkeys(("fire",), ("termcolor",)),
    **dict.fromkeys(("attrdict", "langdetect", "rouge-chinese"), ("six",)),
    "aliyun-python-sdk-core": ("jmespath", "cryptography"),
    "aliyun-python-sdk-kms": ("aliyun-python-sdk-core",),
    "binpacking": ("future", "numpy"),
    "deepspeed": (
        *("einops", "hjson", "msgpack", "ninja", "numpy", "packaging", "psutil", "py-cpuinfo", "pydantic>=2", "torch"),
        "tqdm",
    ),
    "flash-attn": ("torch", "einops"),
    "flashinfer-python": ("torch", "numpy", "ninja"),
    "oss2": ("requests", "crcmod", "pycryptodome", "six", "aliyun-python-sdk-core", "aliyun-python-sdk-kms"),
    "rouge-score": ("absl-py", "nltk", "numpy", "six"),
    "transformers-stream-generator": ("transformers",),
}
NAMED = {"trl", "llamafactory", "ms-swift", "axolotl", "unsloth", "vllm", "sglang", "lmdeploy", "openrlhf", "torchtune"}
MODELS = {
    "zai-org/glm-4-9b-chat-hf": "glm",
    "zai-org/GLM-4-9B-0414": "glm4",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2",
    "Qwen/Qwen3-8B": "qwen3",
    "Qwen/Qwen2.5-VL-7B-Instruct": "qwen2_5_vl",
    "meta-llama/Llama-3.1-8B-Instruct": "llama",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral",
    "google/gemma-2-9b-it": "gemma2",
    "google/gemma-3-4b-it": "gemma3",
    "microsoft/Phi-3-mini-4k-instruct": "phi3",
    "microsoft/phi-4": "phi3",
    "openai/gpt-oss-20b": "gpt_oss",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
}
GPUS = ("A100-80GB", "H100", "RTX 4090")
PYTHONS = ("3.12", "3.11", "3.10")


def releases(matrix: Matrix, name: str) -> list[tuple[str, str]]:
    """Releases of the last two years that were not withdrawn, with their days."""
    package = matrix.ledger.package(name)
    end = max(one.date for one in package.releases) if package else ""
    begin = (datetime.date.fromisoformat(end) - datetime.timedelta(days=730)).isoformat() if end else ""
    return [
        (one.version, one.date) for one in (package.releases if package else ()) if not one.yanked and one.date >= begin
    ]


class Stack(NamedTuple):
    """What is judged: where it comes from in words, the sources of the judgement, the framework of the recipe, the
    release of transformers, and models in the order in which they are tried."""

    name: str
    sources: Sources
    framework: str
    transformers: str
    models: list[str]


def resolved(draw: random.Random, matrix: Matrix, folder: Path) -> Iterator[Stack | None]:
    """Stacks that uv resolves; None for one that it cannot."""
    seen = set[tuple[str, str]]()
    told_uv = folder / "uv.toml"
    told_uv.write_text(
        "".join(
            f'[[dependency-metadata]]\nname = "{name}"\nrequires-dist = {json.dumps(asks)}\n'
            for name, asks in SOURCE_ONLY.items()
        ),
        encoding="utf-8",
    )
    for number in count():
        name = draw.choice(list(FRAMEWORKS))
        version, day = draw.choice(releases(matrix, name))
        python, gpu, models = draw.choice(PYTHONS), draw.choice(GPUS), draw.sample(list(MODELS), len(MODELS))
        if (name, version) in seen:
            continue
        seen.add((name, version))
        after = (datetime.date.fromisoformat(day) + datetime.timedelta(days=1)).isoformat()
        try:
            environ = {**os.environ, "UV_EXCLUDE_NEWER": after, "UV_CONFIG_FILE": str(told_uv)}
            asked = f"{name}[{EXTRAS[name]}]" if name in EXTRAS else name
            lines = [
                *(f"--no-binary {one}" for one in SOURCE_ONLY),
                f"{asked}=={version}",
                "torch",
                "transformers[torch]",
            ]
            found: tuple[str, ...] | str = resolve(Wanted(lines, python, "linux", "x86_64"), environ, str(folder))
        except NoResolver as error:
            found = str(error)
        if isinstance(found, str):
            print(f"not resolved: {name} {version} (Python {python}): {found[:160]}", file=sys.stderr)
            yield None
            continue
        path = folder / f"{number:03}-{name}-{version}.requirements.txt"
        path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        has = next(line.partition("==")[2] for line in found if line.startswith("transformers=="))
        target = {"python": python, "platform": "linux-x86_64", "gpu": gpu, "driver": "580.65.06"}
        told = f"{name} {version} ({day}, Python {python}, {gpu})"
        yield Stack(told, Sources(lock=f"{path}[whole]", target=target), name, has, models)


def published(draw: random.Random) -> Iterator[Stack | None]:
    """The published inventories that have transformers."""
    for path in sorted((ROOT / "fixtures" / "inventories").glob("*.json")):
        facts, gpu = json.loads(path.read_text(encoding="utf-8"))["facts"], draw.choice(GPUS)
        has = facts.get("pkg.transformers")
        if isinstance(has, str):
            there = [name for name in FRAMEWORKS if f"pkg.{name}" in facts]
            given = [f"gpu.name={gpu}", "driver.version=580.65.06"]
            sources = Sources(facts=str(path), assignments=given)
            framework, models = draw.choice(there or ["transformers"]), draw.sample(list(MODELS), len(MODELS))
            yield Stack(f"{path.stem} ({gpu})", sources, framework, has, models)


def main() -> int:
    """Draw, resolve, judge, and print what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stacks", type=int, default=60)
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--published", action="store_true")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    draw, matrix = random.Random(given.seed), load_matrix()
    types, lost, said = ModelTypes(matrix), 0, Counter[tuple[str, str]]()
    clean = done = 0
    print("| stack | model | errors | warnings |\n|---|---|---|---|")
    for stack in published(draw) if given.published else resolved(draw, matrix, folder):
        if stack is None:
            lost += 1
            continue
        model = next((model for model in stack.models if types.has(MODELS[model], stack.transformers) is True), None)
        framework = stack.framework if stack.framework in NAMED else "transformers"
        assignments = [*stack.sources.assignments, f"recipe.framework={framework}"]
        report = check(stack.sources._replace(model=model, assignments=assignments), matrix=matrix)
        shown = [(one.severity, one.id) for one in report.shown() if one.severity in ("error", "warning")]
        said.update(shown)
        errors, warnings = ([rule for level, rule in shown if level == wanted] for wanted in ("error", "warning"))
        clean += not errors
        done += 1
        print(f"| {stack.name}, {framework} | {model} | {', '.join(errors)} | {', '.join(warnings)} |")
        sys.stdout.flush()
        if not given.published and done == given.stacks:
            break
    print(f"\n{clean} of {done} stacks without an error; {lost} drawn that uv could not resolve from wheels")
    for (severity, rule), times in said.most_common():
        print(f"- {times} x {severity} {rule}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
