"""Reports built by hand: the situations of the design's mock-ups, over the shipped registry."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import envdoctor.report
from envdoctor.facts import ABSENT, Fact, FactSet, Origin, Records, Registry, Unknown
from envdoctor.judge import Assumption, Evidence, Finding, FoundFact, NotChecked, OfferedFix, Text
from envdoctor.matrix import parse_toml
from envdoctor.observe import Target
from envdoctor.report import Report
from envdoctor.system import Message

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = Path(envdoctor.report.__file__).parent / "schemas"


@pytest.fixture(scope="session")
def registry() -> Registry:
    path = ROOT / "matrices" / "facts.toml"
    return Registry.from_mapping(parse_toml(path.read_bytes(), str(path)))


@pytest.fixture(scope="session")
def validate() -> Callable[[str, Any], None]:
    """Check a document against one of the published schemas, and that schema against its own standard."""
    from jsonschema import Draft202012Validator

    def check(name: str, document: Any) -> None:
        schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(closed(schema)).validate(document)

    return check


def closed(schema: Any) -> Any:
    """The schema without room for unknown keys. The published one leaves it, so that a later 1.x may add fields."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {key: closed(value) for key, value in schema.items()}
    if isinstance(shut.get("properties"), dict) and "type" in shut:
        shut.setdefault("additionalProperties", False)
    return shut


def gpus(count: int) -> Records:
    one = {"name": "NVIDIA A100-SXM4-80GB", "cc": "8.0", "memory_gib": 79.15}
    uuids = (f"GPU-0000000{number}-1111-2222-3333-444444444444" for number in range(count))
    return Records(tuple({"index": number, "uuid": uuid, **one} for number, uuid in enumerate(uuids)))


@pytest.fixture
def facts() -> FactSet:
    """An environment with torch 2.5.0 for CUDA 11.8 on eight A100s, a GLM-4 model and a recipe file."""
    facts = FactSet()
    for key, value, origin, source in (
        ("environment.path", "/home/li/.venvs/glm", "VIRTUAL_ENV", "environment"),
        ("environment.kind", "venv", "pyvenv.cfg", "environment"),
        ("python.version", "3.11.9", "pyvenv.cfg", "environment"),
        ("python.implementation", "cpython", "pyvenv.cfg", "environment"),
        ("python.executable", "/home/li/.venvs/glm/bin/python", "pyvenv.cfg", "environment"),
        ("pkg.torch", "2.5.0+cu118", "torch/version.py", "environment"),
        ("pkg.transformers", "4.48.0", "transformers-4.48.0.dist-info", "environment"),
        ("pkg.rich", "14.0.0", "rich-14.0.0.dist-info", "environment"),
        ("torch.cuda", "11.8", "torch/version.py", "environment"),
        ("torch.hip", ABSENT, "torch/version.py", "environment"),
        ("torch.arch_list", ("sm_80", "sm_90"), "torch/lib/libtorch_cuda.so", "environment"),
        ("os.platform", "linux", "sys.platform", "machine"),
        ("os.arch", "x86_64", "uname", "machine"),
        ("os.libc", "glibc", "confstr", "machine"),
        ("os.libc_version", "2.35", "confstr", "machine"),
        ("gpu", gpus(8), "NVML", "machine"),
        ("driver.version", "520.61.05", "NVML", "machine"),
        ("driver.max_cuda", "11.8", "NVML", "machine"),
        ("cuda.toolkit", Unknown("nvcc was found but did not answer"), "/usr/local/cuda", "machine"),
        ("model.repo", "THUDM/glm-4-9b-chat-hf", "--model", "model"),
        ("model.revision", "8599336fc6c125203efb2360bfaf4c80eef1d1bf", "refs/main", "model"),
        ("model.family", "glm4", "families.toml", "derived"),
        ("model.type", "glm", "config.json", "model"),
        ("recipe.stage", "dpo", Origin("train.yaml", 3), "recipe"),
        ("recipe.dtype", "bf16", Origin("train.yaml", 21), "recipe"),
        ("recipe.batch_size", 2, Origin("train.yaml", 14), "recipe"),
        ("env.PYTORCH_CUDA_ALLOC_CONF", ABSENT, "the environment variables", "machine"),
    ):
        facts.add(Fact(key, value, origin, source))
    facts.declare_complete("pkg", "site-packages")
    return facts


def nan_finding() -> Finding:
    torch = "pip install torch==2.4.1+cu118 --extra-index-url https://download.pytorch.org/whl/cu118"
    use_old, one = Text("use torch 2.4.1", "改用 torch 2.4.1"), Text("train with one sample per step")
    why = {"withheld": Message("it would bring {}: {}", "torch-2-5-1-x", Text("something else", "别的问题"))}
    issue, notes = "zai-org/GLM-4/issues/724", "pytorch/pytorch/releases/tag/v2.5.1"
    return Finding(
        *("torch-2-5-0-glm4-batch-nan", "active", "error", "reported", "wrong-numbers"),
        title=Text("torch ... gives NaN loss for GLM-4 when batch size is above 1"),
        message=Text(
            "torch 2.5.0+cu118 gives NaN loss for GLM-4 when batch size is above 1",
            "torch 2.5.0+cu118 在 batch size 大于 1 时会让 GLM-4 的 loss 变成 NaN",
        ),
        why=Text(
            "Rows with padding come back as NaN, so the loss is NaN from step 1.",
            "带 padding 的行会返回 NaN，所以从第 1 步起 loss 就是 NaN。",
        ),
        subjects=("pkg.torch", "model.family", "recipe.batch_size"),
        facts=(
            FoundFact("pkg.torch", "2.5.0+cu118", "torch/version.py"),
            FoundFact("model.family", "glm4", "families.toml"),
            FoundFact("recipe.batch_size", "2", Origin("train.yaml", 14)),
        ),
        fingerprint="9f2c1d",
        locations=(Origin("requirements.txt", 3),),
        fixes=(
            OfferedFix("constraint", "review", use_old, ("torch==2.4.1",), commands=(torch,)),
            OfferedFix("set", "safe", one, set={"recipe.batch_size": "1"}),
            OfferedFix("constraint", "review", Text("use torch 2.5.1"), ("torch==2.5.1",), **why),
        ),
        evidence=(
            Evidence("issue", f"https://github.com/{issue}", "the symptom and the failing version", "2026-11-20"),
            Evidence("release-notes", f"https://github.com/{notes}", "the fix", "2026-11-20"),
        ),
        probe="padding-nan",
        origin="rules/torch/torch-2-5-0-glm4-batch-nan.toml",
        gate=True,
    )


def oom_finding() -> Finding:
    flash = ("pip install flash-attn==2.6.3 --no-build-isolation",)
    return Finding(
        *("dpo-attention-materialised-oom", "active", "error", "reproduced", "oom"),
        message=Text("DPO at 6000 tokens without flash attention needs about 104 GiB per GPU"),
        why=Text(""),
        subjects=("recipe.attn", "gpu.memory_gib"),
        facts=(
            FoundFact("recipe.attn", "eager", Origin("train.yaml", 9)),
            FoundFact("recipe.max_length", "6000", Origin("train.yaml", 15)),
            FoundFact("gpu.memory_gib", "79.15", "NVML"),
            FoundFact("pkg.flash-attn", "absent", "site-packages"),
        ),
        fingerprint="aa31",
        assumed=(Assumption("recipe.gradient_accumulation", "8", Text("it is TrainingArguments' default"), True),),
        caveats=("2.5.0a0+nv24.08 is a vendor build and was judged as its base release",),
        item={"name": "NVIDIA A100-SXM4-80GB", "index": "0"},
        locations=(Origin("train.yaml", 9),),
        fixes=(
            OfferedFix("set", "safe", Text("use attn_implementation: sdpa"), set={"recipe.attn": "sdpa"}),
            OfferedFix("command", "review", Text("install flash-attn"), commands=flash),
        ),
        evidence=(Evidence("reproduced", "https://example.org/runs/0142", "the peak", "2026-11-18"),),
        gate=True,
    )


def alloc_finding() -> Finding:
    export = ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",)
    grow = {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "commands": export}
    return Finding(
        *("alloc-conf-fragmentation", "preview", "warning", "upstream", "slow"),
        message=Text("PYTORCH_CUDA_ALLOC_CONF is not set; long mixed lengths fragment GPU memory"),
        why=Text("", None),
        subjects=("env.PYTORCH_CUDA_ALLOC_CONF",),
        facts=(FoundFact("env.PYTORCH_CUDA_ALLOC_CONF", "absent", "the environment variables"),),
        fingerprint="bb42",
        fixes=(OfferedFix("env", "safe", Text("let segments grow"), **grow),),
        evidence=(Evidence("docs", "https://pytorch.org/docs/stable/notes/cuda.html", "", "2026-11-20"),),
    )


NOT_CHECKED = (
    NotChecked("b-needs-model", "error", {"model.family": "not given"}, ("model",)),
    NotChecked("a-needs-model", "warning", {"model.type": "not given"}, ("model",)),
    NotChecked("needs-both", "error", {"model.family": "not given", "recipe.attn": "not given"}, ("model", "recipe")),
    NotChecked("no-help", "note", {"torch.git": "torch/version.py names none"}),
    NotChecked("unreadable", "", {}, reason="unknown key 'foo'"),
)


@pytest.fixture
def report(facts: FactSet, registry: Registry) -> Report:
    """Two errors and one warning, one ignored and one superseded finding, five rules that could not be checked."""
    ignored = alloc_finding()._replace(id="accepted-slow", ignored="we measured it", fingerprint="cc")
    twin = nan_finding()._replace(id="older-nan", superseded_by="torch-2-5-0-glm4-batch-nan", gate=False)
    return Report(
        command="check",
        target=Target("environment", "/home/li/.venvs/glm", "the active virtual environment (VIRTUAL_ENV)"),
        facts=facts,
        registry=registry,
        matrix_version="2026.11.20",
        matrix_source="bundled",
        findings=(nan_finding(), oom_finding(), alloc_finding(), ignored, twin),
        not_checked=NOT_CHECKED,
        rules_checked=124,
        exit_code=1,
        elapsed_seconds=0.46,
    )
