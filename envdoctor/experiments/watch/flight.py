"""The flight record: the event, its versions and settings, judged by the matrix; a JSON file and lines for the log."""

import json
import logging
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import parse_value
from envdoctor.facts.values import Fact
from envdoctor.judge.finding import Finding, Policy
from envdoctor.judge.judging import judge
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.observe.documents.facts_file import FLIGHT_SCHEMA
from envdoctor.system.clean import clean

_ARGUMENTS = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "bf16", "fp16", "max_grad_norm"),
    *("gradient_checkpointing", "optim", "logging_nan_inf_filter", "seed"),
)
_PLAIN = (bool, int, float, str)


def judged(facts: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings of the shipped rules about watched runs, worst first. ``facts`` are values by ``watch.*``."""
    rules = _rules()
    factset = FactSet()
    for key, raw in facts.items():
        spec = rules.registry.find(key)
        if spec is not None:
            factset.add(Fact(key, parse_value(spec, raw), "the watched run", "watch"))
    findings = judge(factset, rules, Policy()).findings
    return tuple(finding for finding in findings if finding.superseded_by is None)


@lru_cache(maxsize=1)
def _rules() -> Matrix:
    return load_matrix(()).of_scopes("watch")


def tell(facts: Mapping[str, Any], details: Mapping[str, Any], args: Any, folder: Path, logger: logging.Logger) -> str:
    """Write the record, which is a facts file as well, and log the findings. Returns both in a few words."""
    findings = judged(facts)
    record = {
        "schema": FLIGHT_SCHEMA,
        "facts": {**facts, **_versions()},
        "details": {key: value for key, value in details.items() if value not in (None, {}, [])},
        "arguments": {name: value for name in _ARGUMENTS if isinstance(value := getattr(args, name, None), _PLAIN)},
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
        where = f"flight record in {path}"
    except OSError as error:
        where = f"{path} cannot be written: {error.strerror}"
    logger.warning("envdoctor.experiments.watch: %s", where)
    summary = clean(findings[0].message.en) if findings else f"{facts['watch.event']} in step {facts['watch.step']}"
    return f"{summary} ({where})"


def _versions() -> dict[str, str]:
    """Return facts about the installed packages."""
    from importlib import metadata

    import torch

    versions = {"python.version": platform.python_version(), "pkg.torch": str(torch.__version__)}
    for name in _rules().registry.first("pkg")[1:]:
        with suppress(metadata.PackageNotFoundError):
            versions[f"pkg.{name}"] = metadata.version(name)
    return versions
