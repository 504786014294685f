"""The comparison of two revisions as text, in both languages."""

from __future__ import annotations

import pytest

from envdoctor.hub import Unread
from envdoctor.judge import Finding, Text
from envdoctor.report import Cost, Introduced, Moved, Report, RevisionSection, Side, render
from envdoctor.revision import Change
from envdoctor.text import Message

_EQUAL = Message("{} of {} weight files by {} ({})", 7, 7, "sha256", "12.5 GB")
SECTION = RevisionSection(
    weights="identical",
    weights_equal=_EQUAL,
    old=Side("zai-org/chatglm3-6b @ b098244", "zai-org/chatglm3-6b", "b098244a71fbe69ce149682d9072a7629f7e908c"),
    new=Side("zai-org/chatglm3-6b @ main", "zai-org/chatglm3-6b", "e9e0406d062cdb887444fe5bd546833920abd4ac"),
    changes=(
        Change(
            "code", "definition-added", "modeling.py", "A.f", None, "(self)", detail=Message("needed to load the file")
        ),
    ),
    unread=(),
    equal=(_EQUAL,),
    amounts={},
    introduced=(),
    cost=Cost(12, 345_678),
)


@pytest.fixture
def compared(report: Report) -> Report:
    return report.changed(findings=(), not_checked=(), exit_code=0, revision=SECTION)


def first_line(report: Report, lang: str = "en") -> str:
    return render(report, lang).splitlines()[0]


def found(report: Report, message: str, **changed: object) -> Finding:
    return report.findings[0]._replace(message=Text(message, f"中文 {message}"), **changed)  # type: ignore[arg-type]


def test_without_findings_the_verdict_says_so(compared: Report) -> None:
    weights = "weights identical: 7 of 7 weight files by sha256 (12.5 GB)"
    assert first_line(compared) == f"{weights}; nothing changed that is known to hurt a fine-tune"
    nothing = compared.changed(revision=SECTION._replace(changes=()))
    assert first_line(nothing) == f"{weights}; nothing else changed"


def test_the_verdict_is_chinese_in_a_chinese_report(compared: Report) -> None:
    assert first_line(compared, "zh") == (
        "权重完全相同：7 个权重文件中的 7 个（按 sha256，12.5 GB）；没有已知会影响微调的变化"
    )


def test_the_verdict_names_two_causes_and_counts_the_rest(report: Report, compared: Report) -> None:
    findings = (
        *(found(report, f"one {number}", id="one", fingerprint=str(number)) for number in range(3)),
        found(report, "two", id="two", confidence="reproduced"),
        found(report, "low", id="low", severity="note"),
    )
    judged = compared.changed(findings=findings, revision=SECTION._replace(pin="b098244a71fb", weights="changed"))
    assert first_line(judged) == "weights changed; two; one 0; 3 more findings; pin b098244"
    assert first_line(judged, "zh") == "权重有变化；中文 two；中文 one 0；另有 3 个发现；请固定到 b098244"


def test_what_could_not_be_read_is_in_the_verdict_and_below(compared: Report) -> None:
    section = SECTION._replace(
        weights="unknown", unread=(Unread("a.py", Message("it cannot be read: {}", "Permission denied")),)
    )
    unread = compared.changed(exit_code=3, revision=section)
    assert first_line(unread).endswith("; 1 part could not be read")
    assert "Not read     a.py: it cannot be read: Permission denied\n" in render(unread)
    assert "未读取       a.py: 无法读取：Permission denied\n" in render(unread, "zh")


def test_changes_are_named_in_the_language_of_the_report(compared: Report) -> None:
    assert "  code: definition-added modeling.py A.f: (self) (needed to load the file)\n" in render(compared)
    assert "  代码：新增定义 modeling.py A.f: (self)（加载文件时必需）\n" in render(compared, "zh")
    assert "变更         代码 1\n" in render(compared, "zh")


def test_revisions_moves_commits_and_costs_are_told(report: Report, compared: Report) -> None:
    section = SECTION._replace(
        introduced=(Introduced("9f2c1d", "e9e0406 (2024-01-02) Fix"),), moved=Moved("THUDM/x", "zai-org/x")
    )
    text = render(compared.changed(findings=report.findings[:1], revision=section))
    assert "Old          zai-org/chatglm3-6b @ b098244 (b098244a71fbe69ce149682d9072a7629f7e908c)\n" in text
    assert "  THUDM/x has moved: it is now zai-org/x\n" in text
    assert "Since        torch-2-5-0-glm4-batch-nan: e9e0406 (2024-01-02) Fix\n" in text
    assert "12 requests, 345.7 kB read, no weights\n" in text
