"""A small matrix and facts for the tests of whole commands."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envdoctor.app import Sources
from envdoctor.matrix import Matrix, load_source

ROOT = Path(__file__).resolve().parents[2]

RULE = """schema = 1
rule = {{ status = "active", severity = "{severity}", confidence = "upstream", effect = "crash", \
added = 2026-11-01, modified = 2026-11-01, open_ended = true }}
affects = [{{ {condition} }}]
message = {{ en = "it fails" }}
why = {{ en = "it was built so" }}
"""


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Matrix]:
    """A matrix of rules: id → condition, or (condition, severity); ``retired`` is the text of retired.toml."""

    def build(retired: str = "", **rules: str | tuple[str, str]) -> Matrix:
        home = tmp_path / "matrices"
        (home / "rules").mkdir(parents=True)
        shutil.copy(ROOT / "matrices" / "facts.toml", home)
        (home / "retired.toml").write_text(retired)
        for name, what in rules.items():
            condition, severity = what if isinstance(what, tuple) else (what, "error")
            text = RULE.format(condition=condition, severity=severity)
            (home / "rules" / f"{name.replace('_', '-')}.toml").write_text(text)
        return load_source(home, source="test")

    return build


@pytest.fixture
def given(facts_file: Callable[..., str]) -> Callable[..., Sources]:
    """Sources from facts; keyword arguments are those of Sources."""

    def build(facts: dict[str, Any], **more: Any) -> Sources:
        return Sources(facts=facts_file(facts), **more)

    return build
