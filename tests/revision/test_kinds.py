"""Each kind of change is judged by a rule, or a row of the table revision-kinds says why it has no effect."""

from __future__ import annotations

from typing import Any

import pytest
from comparing import judged_kinds
from observing import shipped

from envdoctor.matrix import Matrix
from envdoctor.revision import AREAS, effect_of

REGISTERED = next(spec for spec in shipped().registry if spec.key == "change").columns["kind"].values
#: Code that changed and that no rule judges is told with its lines: "changed, not judged".
SHOWN = {
    *("attention-class-added", "call-keyword-changed", "default-changed", "definition-added", "definition-changed"),
    *("definition-removed", "gradient-checkpointing-hook-removed", "import-added", "import-removed"),
    *("signature-extended", "unparsable"),
}


@pytest.mark.parametrize("kind", [kind for kind in REGISTERED if kind not in SHOWN])
def test_each_kind_is_judged_or_has_a_reason_to_be_left_alone(matrix: Matrix, kind: str) -> None:
    judged = {area for area, known in judged_kinds() if known == kind}
    assert judged or any(effect_of(area, kind, matrix) for area in AREAS)


def test_no_row_excuses_a_kind_that_nobody_knows(matrix: Matrix) -> None:
    rows: Any = matrix.rows("revision-kinds", "kind")
    assert {kind for row in rows for kind in row["kinds"]} <= set(REGISTERED)
    assert {area for row in rows for area in row["areas"]} <= set(AREAS)


def test_a_kind_with_an_effect_has_no_excuse(matrix: Matrix) -> None:
    assert effect_of("config", "rope-changed", matrix) is None
    assert effect_of("code", "definition-changed", matrix) is None
    assert "no loader acts on this key" in (effect_of("config", "noise", matrix) or {}).values()
