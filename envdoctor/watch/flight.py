"""The flight record: what was seen, on what, judged by the matrix; a JSON file and a few lines for the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import parse_value
from envdoctor.facts.values import Fact
from envdoctor.judge.finding import Finding
from envdoctor.judge.judging import judge
from envdoctor.judge.policy import Policy
from envdoctor.knowledge.matrix import load_matrix
from envdoctor.text.clean import clean

__all__ = ["SCHEMA", "judged", "tell"]

SCHEMA = "envdoctor.flight/1"
#: Versions that belong in every report about numbers.
_PACKAGES = ("torch", "transformers", "accelerate", "peft", "trl", "deepspeed", "flash-attn")
_ARGUMENTS = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "bf16", "fp16", "max_grad_norm"),
    *("gradient_checkpointing", "optim", "logging_nan_inf_filter", "seed"),
)


def judged(facts: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings of the shipped rules about watched runs, worst first. ``facts`` are plain values by ``watch.*``."""
    matrix = load_matrix(())
    known = FactSet()
    for key, raw in facts.items():
        spec = matrix.registry.find(key)
        if spec is not None:
            known.add(Fact(key, parse_value(spec, raw), "the watched run", "watch"))
    found = judge(known, matrix.only(lambda rule: rule.scope == "watch"), Policy()).findings
    return tuple(finding for finding in found if finding.superseded_by is None)


def tell(
    facts: Mapping[str, Any], details: Mapping[str, Any], args: Any, folder: Path, logger: logging.Logger
) -> Path | None:
    """Write the record and log the findings. Returns where it lies; None when nothing could be written."""
    findings = judged(facts)
    record = {
        "schema": SCHEMA,
        "facts": dict(facts),
        "details": {key: value for key, value in details.items() if value not in (None, {}, [])},
        "arguments": {name: value for name in _ARGUMENTS if _plain(value := getattr(args, name, None))},
        "versions": _versions(),
        "findings": [
            {
                "id": finding.id,
                "severity": finding.severity,
                "message": finding.message.en,
                "why": finding.why.en,
                "fixes": [fix.summary.en for fix in finding.fixes],
                "evidence": [entry.url for entry in finding.evidence],
            }
            for finding in findings
        ],
    }
    for finding in findings:
        logger.warning("%s[%s] %s", finding.severity, finding.id, clean(finding.message.en))
        for fix in finding.fixes:
            logger.warning("  fix: %s", clean(fix.summary.en))
    by = f"-rank{details['rank']}" if "rank" in details else ""
    path = folder / f"envdoctor-flight-{facts['watch.step']}-{facts['watch.event']}{by}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1, default=str, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        logger.warning("envdoctor.watch: %s cannot be written: %s", path, error.strerror)
        return None
    logger.warning("envdoctor.watch: flight record in %s", path)
    return path


def _plain(value: object) -> bool:
    return isinstance(value, (bool, int, float, str))


def _versions() -> dict[str, str]:
    from importlib import metadata

    import torch

    versions = {"torch": str(torch.__version__)}
    for name in _PACKAGES[1:]:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return {**versions, **({"cudnn": str(cudnn)} if cudnn else {})}
