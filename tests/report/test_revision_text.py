"""The comparison of two revisions as text, in both languages."""

import pytest

from envdoctor.judge import Finding, Text
from envdoctor.report import Cost, Mended, Report, RevisionSection, Side, load, render
from envdoctor.revision import UNNAMED, Change, Unread
from envdoctor.system import Message

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
    introduced={},
    cost=Cost(12, 345_678),
)


@pytest.fixture
def compared(report: Report) -> Report:
    return report.changed(findings=(), not_checked=(), exit_code=0, revision=SECTION)


def first_line(report: Report, lang: str = "en") -> str:
    return render(report, lang).splitlines()[0]


def found(report: Report, message: str, **changed: object) -> Finding:
    return report.findings[0]._replace(message=Text(message, f"中文 {message}"), **changed)  # type: ignore[arg-type]


WEIGHTS = "weights identical: 7 of 7 weight files by sha256 (12.5 GB)"
(CODE,) = SECTION.changes
NOISE = Change("config", "noise", "config.json", "transformers_version", "4.30", "4.57")
EXCUSED = {"config noise": Text("no loader acts on this key", "没有加载器依据该键行事")}


def test_the_line_calms_only_where_every_change_has_a_stated_reason(compared: Report) -> None:
    calm = SECTION._replace(changes=(NOISE,), effects=EXCUSED)
    assert first_line(compared.changed(revision=calm)) == f"nothing that matters changed; {WEIGHTS} (b098244 -> main)"
    equal = SECTION._replace(changes=())
    assert first_line(compared.changed(revision=equal)) == f"nothing changed; {WEIGHTS} (b098244 -> main)"
    ignored = SECTION._replace(changes=(CODE, NOISE), effects=EXCUSED)
    assert first_line(compared.changed(revision=ignored)).startswith("what changed is ignored or in the baseline; ")


def test_what_was_not_judged_leads_the_line_where_no_error_does(report: Report, compared: Report) -> None:
    forward = CODE._replace(symbol="A.forward", hunk=("@@ -1 +1 @@", "-x = f(x)", "+f(x)"))
    section = SECTION._replace(changes=(NOISE, CODE, forward), unjudged=(CODE, forward), effects=EXCUSED)
    open_ = compared.changed(revision=section)
    assert first_line(open_) == f"changed, not judged: code A.forward (+1 \u22121), A.f; {WEIGHTS} (b098244 -> main)"
    assert first_line(open_, "zh").startswith("有变化但未判断：代码 A.forward（+1 \u22121），A.f；权重完全相同")
    noted = open_.changed(findings=(found(report, "a note", severity="note"),))
    assert "; note: a note; " in first_line(noted) and first_line(noted).startswith("changed, not judged: ")
    warned = open_.changed(findings=(found(report, "a warning", severity="warning"),))
    assert first_line(warned).startswith("warning: a warning; changed, not judged: code A.forward")
    many = section._replace(unjudged=tuple(CODE._replace(symbol=f"A.f{number}") for number in range(9)))
    assert "code A.f0, A.f1 and 7 more; " in first_line(compared.changed(revision=many))


def test_the_line_stays_short_and_counts_what_it_has_no_room_for(report: Report, compared: Report) -> None:
    long_ = tuple(CODE._replace(symbol=f"ALongNameOfAClass{number}.with_a_long_method") for number in range(3))
    section = SECTION._replace(changes=long_, unjudged=long_)
    message = "a sentence about what is wrong that takes up a hundred characters, as the lint allows it to be long"
    line = first_line(compared.changed(findings=(found(report, message),), revision=section))
    assert line == f"error: {message}; changed, not judged: 3 in code; weights identical (b098244 -> main)"


def test_the_verdict_names_two_causes_and_counts_the_rest(report: Report, compared: Report) -> None:
    findings = (
        *(found(report, f"one {number}", id="one", fingerprint=str(number)) for number in range(3)),
        found(report, "two", id="two", confidence="reproduced"),
        found(report, "low", id="low", severity="note"),
    )
    judged = compared.changed(findings=findings, revision=SECTION._replace(pin="b098244a71fb"))
    assert first_line(judged) == f"error: two; one 0; 3 more findings; {WEIGHTS}; pin b098244 (b098244 -> main)"
    assert first_line(judged, "zh").startswith("错误：中文 two；中文 one 0；另有 3 个发现；权重完全相同")


def test_weights_that_are_others_without_a_word_are_not_calmed(compared: Report) -> None:
    section = SECTION._replace(changes=(NOISE,), effects=EXCUSED, weights="changed")
    assert first_line(compared.changed(revision=section)).startswith("changed, not judged: weights; weights changed")


def test_what_could_not_be_read_is_in_the_verdict_and_below_with_its_cause_once(compared: Report) -> None:
    reason = Message("it cannot be read: {}", "Permission denied")
    section = SECTION._replace(weights="unknown", unread=(Unread("a.py", reason), Unread("b.py", reason)))
    unread = compared.changed(exit_code=3, revision=section)
    assert first_line(unread).startswith(
        "not read: a.py and 1 more (it cannot be read: Permission denied); weights could"
    )
    other = section._replace(unread=(*section.unread, Unread("c.py", Message("it has no name"))))
    assert "not read: a.py and 1 more (it cannot be read: Permission denied) and 1 more; " in first_line(
        compared.changed(revision=other)
    )
    assert "Not read     a.py, b.py: it cannot be read: Permission denied\n" in render(unread)
    assert "未读取       a.py，b.py：无法读取：Permission denied\n" in render(unread, "zh")


def test_two_folders_are_told_apart_by_their_last_names(compared: Report) -> None:
    section = SECTION._replace(changes=(), old=Side("./models/january"), new=Side("../today"))
    assert first_line(compared.changed(revision=section)).endswith(" (january -> today)")
    twins = section._replace(new=Side("./other/january"))
    assert first_line(compared.changed(revision=twins)).endswith(" (./models/january -> ./other/january)")


def test_changed_lines_are_shown_twenty_a_function_and_all_when_asked_for(compared: Report) -> None:
    lines = ("@@ -1,30 +1,30 @@", *(f"+    x = {number}" for number in range(30)))
    changes = (CODE._replace(hunk=lines), CODE._replace(kind="default-changed", hunk=lines))
    judged = compared.changed(revision=SECTION._replace(changes=changes, unjudged=changes))
    text = render(judged)
    assert text.count("modeling.py A.f (+30 \u22120)\n") == 1, "a function is shown once, whatever changed in it"
    assert "    +    x = 18\n" in text and "x = 19" not in text and "    11 more lines: --patch\n" in text
    assert "    +    x = 29\n" in render(judged, detail="patch") and "--patch" not in render(judged, detail="patch")
    assert "\x1b[32m+    x = 0\x1b[0m" in render(judged, color=True)
    markdown = load("markdown")(judged)
    assert "```diff\n@@ -1,30 +1,30 @@\n+    x = 0\n" in markdown and "11 more lines: --patch" in markdown.replace(
        "\\", ""
    )


def rewritten(report: Report, compared: Report) -> Report:
    """A comparison of rewritten code: an error, six named causes at two places each, twenty that were not judged."""
    kinds = ["label-shift-changed", *(f"kind-{number}" for number in range(6) for _ in "ab"), *[UNNAMED] * 20]
    changes = [
        CODE._replace(kind=kind, symbol=f"A.f{number}", hunk=("@@", "-a", "@@", f"+{number}"), after=str(number))
        for number, kind in enumerate(kinds)
    ]
    findings = []
    for number, change in enumerate(changes):
        item = dict(zip(("area", "kind", "path", "symbol"), change[:4], strict=True))
        level = "warning" if number else "error"
        about = {"severity": level, "id": level if change.kind != UNNAMED else "a-rule-before-others"}
        about |= {"item": item, "facts": (), "locations": (), "subjects": ("change.kind",), "fingerprint": str(number)}
        findings.append(found(report, f"{change.kind}: {change.symbol} in modeling.py", **about))
    same = CODE._replace(kind="definition-moved", symbol="A.same", hunk=("+y",))
    effects = {"code definition-moved": Text("the same stands in another place")}
    return compared.changed(
        findings=tuple(findings), revision=SECTION._replace(changes=(*changes, same), effects=effects)
    )


def test_of_rewritten_code_what_matters_most_is_told_and_the_rest_is_a_line(report: Report, compared: Report) -> None:
    judged = rewritten(report, compared)
    text = render(judged)
    assert "error[error]\n  label-shift-changed: A.f0 in modeling.py\n" in text and text.index(
        "error[error]"
    ) < text.index("warning[")
    assert "  kind-3: A.f7 in modeling.py\n    also in A.f8\n" in text and "kind-3: A.f8" not in text
    assert "kind-4: A.f9" not in text and UNNAMED not in text, "five causes, those that are known first"
    rest = "24 more findings, 28 more places changed, 20 of them not judged: --patch shows the lines, -v lists all"
    assert f"  {rest}\n" in text and text.splitlines()[0].startswith(
        "error: label-shift-changed: A.f0 in modeling.py; "
    )
    assert text.count("  fix ") == 1, "what is the same for all causes is said once"
    shown = [line.split()[1] for line in text[text.index("Changed lines") :].splitlines() if "modeling.py A.f" in line]
    assert shown == ["A.f0", "A.f1", "A.f3", "A.f5", "A.f7"], "the first place of each cause"
    whole = render(judged, detail="patch")
    assert all(f"modeling.py A.f{number} (" in whole for number in range(33)) and rest not in whole
    assert "modeling.py A.same (" in whole and "  modeling.py A.same (" not in text
    assert all(f"kind-5: A.f{number} in" in render(judged, verbosity=1) for number in (11, 12))


@pytest.mark.parametrize("name", ["markdown", "html", "json", "sarif"])
def test_pages_fold_the_rest_of_rewritten_code_and_programs_get_all(
    report: Report, compared: Report, name: str
) -> None:
    text = load(name)(rewritten(report, compared)).replace("\\", "")
    assert all(f"A.f{number}" in text for number in range(33)) or name == "markdown"
    if name in ("markdown", "html"):
        assert text.count("<summary>24 more findings") == 2 and text.index("kind-0") < text.index("<details>")
        assert "kind-5" not in text[: text.index("<summary>24 more findings")]
    else:
        assert text.count("kind-5: A.f") >= 2 and "more findings" not in text.partition("verdict")[0]


def test_the_lines_of_a_long_function_begin_where_what_is_told_stands(compared: Report) -> None:
    hunk = ("@@ -1 +1 @@", *("-a",) * 30, "@@ -90 +90 @@", "+x = scale(y)")
    section = SECTION._replace(changes=(CODE._replace(after="scale(", hunk=hunk),))
    text = render(compared.changed(revision=section))
    assert "    @@ -90 +90 @@\n    +x = scale(y)\n    31 more lines: --patch\n" in text


@pytest.mark.parametrize("name", ["concise", "github", "junit", "markdown", "html"])
def test_no_format_counts_nothing_where_something_was_not_judged(compared: Report, name: str) -> None:
    text = load(name)(compared.changed(revision=SECTION._replace(unjudged=(CODE,))))
    said = "::warning title=Not judged::code: definition added modeling.py A.f: (self)"
    assert (said if name == "github" else "changed, not judged: code A.f") in text.replace("\\", "")
    assert name == "junit" or "1 change not judged" in text
    assert "Nothing stops this run" not in text


def test_annotations_and_sarif_name_what_was_not_judged_and_not_read(compared: Report) -> None:
    unread = Unread("a.py", Message("it has no name"))
    open_ = compared.changed(revision=SECTION._replace(changes=(NOISE, CODE), unjudged=(CODE,), unread=(unread,)))
    lines = load("github")(open_, "zh").splitlines()
    assert lines[0] == "::warning title=未读取::a.py：没有名称" and lines[1].startswith(
        "::warning title=未判断::代码："
    )
    assert "transformers_version" not in lines[1]
    assert "Not judged: code: definition added modeling.py A.f" in load("sarif")(open_)
    many = tuple(CODE._replace(symbol=f"A.f{number}") for number in range(400))
    long_ = compared.changed(revision=SECTION._replace(changes=many, unjudged=many))
    assert max(map(len, load("github")(long_).splitlines())) < 8_192


def test_what_was_read_says_no_weights_unless_values_were_asked_for(compared: Report) -> None:
    assert "12 requests, 345.7 kB read, no weights\n" in render(compared)
    valued = compared.changed(revision=SECTION._replace(cost=Cost(12, 345_678_000, 4 * 10**9)))
    assert "12 requests, 345.7 MB read, of weights only what --values compares\n" in render(valued)
    assert "no weights" not in render(valued) and "未下载权重" not in render(valued, "zh")


def test_changes_say_what_judged_them(compared: Report) -> None:
    changed = SECTION._replace(changes=(NOISE, CODE), unjudged=(CODE,), effects=EXCUSED)
    text = render(compared.changed(revision=changed))
    config = (
        "  config: bookkeeping config.json transformers_version: 4.30 -> 4.57; no effect: no loader acts on this key\n"
    )
    assert text.index("(needed to load the file); not judged\n") < text.index(config)
    assert "没有加载器依据该键行事\n" in render(compared.changed(revision=changed), "zh")


def test_with_stat_a_finding_is_a_line(report: Report, compared: Report) -> None:
    text = render(compared.changed(findings=(found(report, "one"), found(report, "two", id="b"))), detail="stat")
    assert "\nerror[torch-2-5-0-glm4-batch-nan] one\nerror[b] two\n" in text
    assert "\n  why" not in text and "proof" not in text


def test_what_new_mends_is_told_with_its_commit(compared: Report) -> None:
    mended = (Mended("some-rule", Text("checkpointing stays off", "始终关闭"), "e9e0406 (2024-01-02) Fix"),)
    both = compared.changed(revision=SECTION._replace(mended=mended))
    said = "going back to OLD would be an error: checkpointing stays off (some-rule; Since: e9e0406 (2024-01-02) Fix)"
    assert f"Mended       {said}\n" in render(both)
    assert f"; {WEIGHTS}; going back would be 1 error (b098244 -> main)" in first_line(both)
    assert "始终关闭" in render(both, "zh")


def test_changes_are_named_in_the_language_of_the_report(compared: Report) -> None:
    assert "  code: definition added modeling.py A.f: (self) (needed to load the file)\n" in render(compared)
    assert "  代码：新增定义 modeling.py A.f: (self)（加载文件时必需）\n" in render(compared, "zh")
    assert "改动         代码 1\n" in render(compared, "zh")


def test_revisions_moves_commits_and_costs_are_told(report: Report, compared: Report) -> None:
    section = SECTION._replace(
        introduced={"9f2c1d": "e9e0406 (2024-01-02) Fix"}, moved={"asked": "THUDM/x", "now": "zai-org/x"}
    )
    text = render(compared.changed(findings=report.findings[:1], revision=section))
    assert "Old          zai-org/chatglm3-6b @ b098244 (b098244a71fbe69ce149682d9072a7629f7e908c)\n" in text
    assert "  THUDM/x has moved: it is now zai-org/x\n" in text
    assert "Since        torch-2-5-0-glm4-batch-nan: e9e0406 (2024-01-02) Fix\n" in text
    assert "12 requests, 345.7 kB read, no weights\n" in text
