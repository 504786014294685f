"""Answers from a small ledger."""

from collections.abc import Callable
from copy import copy
from pathlib import Path

import pytest
from harvesting.ledger_format import complaints

from envdoctor.facts import Fact, FactSet
from envdoctor.matrix import Ledger, Matrix
from envdoctor.observe import read_error
from envdoctor.remedy import Answer, Situation, answer_to


@pytest.fixture
def ask(tmp_path: Path, matrix: Matrix) -> Callable[..., Answer]:
    """The answer to a text from a ledger with these texts by package, for packages with their versions."""
    small = copy(matrix)
    small.ledger = Ledger(tmp_path)

    def go(text: str, ledger: dict[str, str], **installed: str) -> Answer:
        for name, told in ledger.items():
            assert list(complaints(name, told.encode())) == []
            (tmp_path / f"{name}.txt").write_text(told)
        facts = FactSet(Fact(f"pkg.{name}", version, "test", "given") for name, version in installed.items())
        return answer_to(read_error(text), Situation(small, facts))

    return go
