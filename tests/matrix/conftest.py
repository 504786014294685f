"""Folders of rules written by hand, beside the shipped registry of fact keys."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_matrix import facts, matrix_of, registry  # noqa: F401 (fixtures)

ROOT = Path(__file__).resolve().parents[2]

RULE = """tests = [{{ match = {{ "pkg.torch" = "2.5.0" }} }}]
rule = {{ severity = "error", confidence = "upstream", effect = "crash", added = 2026-11-01, \
modified = 2026-11-0{day}, open_ended = true }}
affects = [{{ "pkg.torch" = "==2.5.0" }}]
message = {{ en = "torch {{pkg.torch}} fails" }}
why = {{ en = "it was built so" }}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A matrices folder without rules and nearly without tables."""
    home = tmp_path / "matrices"
    (home / "rules").mkdir(parents=True)
    (home / "tables").mkdir()
    for file in ("facts.toml", "tables/framework-models.toml"):
        shutil.copy(ROOT / "matrices" / file, home / file)
    (home / "schema").symlink_to(ROOT / "matrices" / "schema")
    return home


@pytest.fixture
def write_rule() -> Callable[..., Path]:
    """Write a sound rule (or ``text``) to a file."""

    def write(path: Path, text: str | None = None, day: int = 1) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RULE.format(day=day) if text is None else text, encoding="utf-8")
        return path

    return write
