"""What others read: every document fits the official schema and the limits of its consumer, with any name in it."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from lxml import etree
from poisoned_reports import BAD, compared, poisoned

from envdoctor.facts import Origin
from envdoctor.judge import NotChecked, OfferedFix, Text
from envdoctor.report import FORMATS, Notice, Report, load
from envdoctor.system import Message, quoted

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
SARIF = Draft7Validator(json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8")))
JUNIT = etree.XMLSchema(etree.parse(str(SCHEMAS / "junit-10.xsd")))
NASTY = [
    "a\r\n::error file=x::injected\r::set-output name=x::y",
    "]]></failure><testcase/> <!-- & -->",
    "lone \ud800 surrogate \x00\x08\x1b[31m\ufffe",
    BAD * 3,
    "<script>alert(1)</script> `code` | @everyone #1 [x](javascript:alert(1)) %0A",
    "x" * 5_000_000,
]

Others = dict[str, Any]


def junit(text: str) -> Any:
    document = etree.fromstring(text.encode())
    JUNIT.assertValid(document)
    names = [(case.get("classname"), case.get("name")) for case in document.iter("testcase")]
    assert names and len(set(names)) == len(names), "GitLab ignores all but the first of a name"
    return document


def sarif(text: str) -> Any:
    document = json.loads(text)
    SARIF.validate(document)
    for result in document["runs"][0]["results"]:
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert re.fullmatch(r"[\w./~%+-]+", place["artifactLocation"]["uri"], re.ASCII)
    return document["runs"][0]


def gitlab(text: str) -> Any:
    issues = json.loads(text)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert not issue["location"]["path"].startswith(("/", "./", "../")) and issue["location"]["lines"]["begin"] >= 1
        assert "\n" not in issue["description"]
    return issues


def github(text: str) -> list[str]:
    lines = text.splitlines()
    for line in lines[:-1]:
        assert re.match(r"::(error|warning|notice)( [a-z]+=[^\n:]*)?::", line), line
        assert len(line.partition("::")[2].partition("::")[2].replace("%0A", "\n").replace("%25", "%")) <= 4096
    assert not lines[-1].startswith("::")
    for kind in ("error", "warning", "notice"):
        assert sum(line.startswith(f"::{kind}") for line in lines) <= 10
    return lines


READ: dict[str, Callable[[str], Any]] = {"junit": junit, "sarif": sarif, "gitlab": gitlab, "github": github}


def read(name: str, report: Report, lang: str = "en") -> Any:
    return READ[name](load(name)(report, lang))


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("bad", NASTY, ids=range(len(NASTY)))
def test_hostile_names_do_not_break_a_document(report: Report, name: str, bad: str) -> None:
    for one in (poisoned(report, bad, lang_text=bad), compared(poisoned(report, bad, lang_text=bad), bad[:1000])):
        one = one.changed(findings=tuple(f._replace(severity="error", confidence="inferred") for f in one.findings))
        read(name, one, "zh")


@pytest.mark.parametrize("name", READ)
def test_a_report_without_findings_is_a_document_too(report: Report, name: str) -> None:
    read(name, report.changed(findings=(), not_checked=(), notices=()))


@pytest.mark.parametrize("name", [*READ, "concise", "markdown", "html"])
def test_chinese(report: Report, name: str) -> None:
    text = load(name)(report, "zh")
    assert "改用 torch 2.4.1" in text or "大于 1" in text or r"\u5927\u4e8e" in text


def test_what_a_file_says_of_itself_is_chinese_too(report: Report) -> None:
    unread = Message("{}: {} is accepted there already; edit the entry to change it", "here", "rule")
    said = "其中已接受"
    whole = report.changed(
        exit_code=3,
        findings=report.findings * 2_000,
        notices=(Notice("error", unread),),
        not_checked=(NotChecked("a", "error", {"gpu": unread}), NotChecked("b", "error", {}, reason=unread)),
    )
    run = sarif(load("sarif")(whole, "zh"))
    told = [one["message"]["text"] for one in run["invocations"][0]["toolExecutionNotifications"]]
    assert (
        [said in text for text in told] == [True, False, False, True]
        and "未写入本文件" in told[1]
        and told[2] == "未检查：gpu 未知"
    )
    error, *skipped = junit(load("junit")(whole, "zh")).xpath("//error | //skipped")
    assert error.get("message") == "检查未能完成" and said in error.text
    reasons = {one.getparent().get("name"): one.get("message") for one in skipped}
    assert reasons["not-checked"] == "2 条规则无法检查"
    (open_,) = [one.text.splitlines() for one in skipped if one.getparent().get("name") == "not-checked"]
    assert [line.partition(":")[0] for line in open_] == ["a", "b"] and all(said in line for line in open_)
    assert reasons["accepted-slow"] == "已忽略：we measured it"
    assert "与 torch-2-5-0-glm4-batch-nan 同一原因" in reasons.values()
    assert said in load("github")(whole, "zh").splitlines()[0]


def test_sarif_says_what_was_accepted_and_what_could_not_be_checked(report: Report) -> None:
    known = tuple(f._replace(baseline="unchanged") for f in report.findings)
    run = sarif(load("sarif")(report.changed(findings=known, notices=(Notice("error", "x"),)), "en"))
    by_rule = {result["ruleId"]: result for result in run["results"]}
    assert set(by_rule) == {one.id for one in report.findings if one.superseded_by is None}
    assert by_rule["accepted-slow"]["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "we measured it"}
    ]
    first = by_rule["torch-2-5-0-glm4-batch-nan"]
    assert first["baselineState"] == "unchanged" and first["partialFingerprints"]["envdoctor/v1"] == "9f2c1d"
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "requirements.txt"},
        "region": {"startLine": 3},
    }
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == list(by_rule)
    told = run["invocations"][0]["toolExecutionNotifications"]
    assert {one["associatedRule"]["id"] for one in told if "associatedRule" in one} == {
        n.id for n in report.not_checked
    }
    texts = {one["message"]["text"] for one in told if "associatedRule" in one}
    assert texts >= {"not checked: model.family, recipe.attn not known", "unknown key 'foo'"}


def test_a_place_outside_the_project_is_not_named_as_one_of_its_files(report: Report, tmp_path: Path) -> None:
    inside = Path.cwd() / "configs" / "a b.yaml"
    for path, shown in (
        (str(tmp_path / "train.yaml"), "pyproject.toml"),
        ("../train.yaml", "pyproject.toml"),
        (str(inside), "configs/a%20b.yaml"),
        ("./train.yaml", "train.yaml"),
    ):
        found = (report.findings[0]._replace(locations=(Origin(path, 7),)),)
        (result,) = read("sarif", report.changed(findings=found))["results"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == shown
        (issue,) = read("gitlab", report.changed(findings=found))
        assert issue["location"]["path"] == shown.replace("%20", " ")


def test_junit_fails_what_fails_the_run(report: Report) -> None:
    document = junit(load("junit")(report.changed(passed=("fine", "fine-too")), "en"))
    by_name = {case.get("name"): [child.tag for child in case] for case in document.iter("testcase")}
    assert by_name["torch-2-5-0-glm4-batch-nan"] == ["failure"]
    assert by_name["alloc-conf-fragmentation"] == ["system-out"]
    assert by_name["accepted-slow"] == by_name["not-checked"] == ["skipped"]
    assert by_name["fine"] == by_name["run"] == []
    assert (document.get("tests"), document.get("failures"), document.get("errors")) == ("9", "2", "0")
    broken = junit(load("junit")(report.changed(exit_code=3, notices=(Notice("error", "no torch"),)), "en"))
    assert [child.text for child in broken.find("testcase")] == ["error: no torch"]


def test_what_is_in_the_baseline_is_no_alarm_in_any_format(report: Report) -> None:
    known = report.changed(findings=(report.findings[0]._replace(baseline="unchanged", gate=False),), exit_code=0)
    for name in FORMATS:
        told = load(name)(known, "en")
        assert "in the baseline" in told or '"unchanged"' in told, name
    assert github(load("github")(known, "en"))[0].startswith("::notice ")
    (issue,) = json.loads(load("gitlab")(known, "en"))
    assert issue["severity"] == "info" and issue["description"].endswith("(in the baseline)")
    assert not junit(load("junit")(known, "en")).xpath("//failure")


def test_github_counts_what_is_more_than_ten(report: Report) -> None:
    many = tuple(report.findings[0]._replace(id=f"rule-{n}") for n in range(25))
    lines = github(load("github")(report.changed(findings=many), "en"))
    assert len(lines) == 11 and lines[9] == "::error::16 more findings"
    assert lines[0].startswith("::error file=requirements.txt,line=3,title=rule-0::torch 2.5.0+cu118 gives NaN loss")
    assert "%0A" in lines[0]


def test_markdown_is_bounded_and_says_what_is_left_out(report: Report) -> None:
    long = Text("word " * 700)
    many = tuple(report.findings[0]._replace(id=f"rule-{n}", why=long) for n in range(1000))
    text = load("markdown")(report.changed(findings=many))
    assert len(text.encode()) < 1 << 20
    assert re.search(r"\n\d+ more findings\n", text)


def test_markdown_counts_the_notices_that_are_left_out(report: Report) -> None:
    assert "\n12 more\n" in load("markdown")(report.changed(notices=(Notice("warning", quoted("x")),) * 112))


@pytest.mark.parametrize("name", ["markdown", "issue-comment", "html", "terminal"])
def test_findings_of_one_cause_have_the_commands_of_all(report: Report, name: str) -> None:
    fix = OfferedFix("uninstall", "review", Text("take it away"))
    alike = [
        report.findings[0]._replace(message=Text(f"{one} is left over"), fixes=(fix._replace(commands=(f"rm {one}",)),))
        for one in ("this", "that")
    ]
    text = load(name)(report.changed(findings=tuple(alike)))
    assert "rm this" in text and "rm that" in text


def test_markdown_takes_nothing_of_a_name_for_markup(report: Report) -> None:
    text = load("markdown")(poisoned(report, "<img src=x> `a` @all #7 [x](y)", lang_text="```"))
    outside = re.sub(r"`[^`\n]*`", "", re.sub(r"(?s)(`{3,})[a-z]*\n.*?\n\1", "", text))
    assert "&lt;img src=x&gt;" in outside and "&#64;all" in outside
    assert "<img" not in outside and "@all" not in outside


def test_concise_is_one_line_a_finding(report: Report) -> None:
    said = (Notice("warning", "an ignore ended"), Notice("note", "a note"))
    ended = load("concise")(report.changed(notices=said)).splitlines()
    assert "warning: an ignore ended" in ended and not any("a note" in line for line in ended)
    lines = load("concise")(report).splitlines()
    assert lines[0] == (
        "requirements.txt:3: error[torch-2-5-0-glm4-batch-nan] "
        "torch 2.5.0+cu118 gives NaN loss for GLM-4 when batch size is above 1"
    )
    assert lines[2].startswith("-: warning[alloc-conf-fragmentation] ")
    assert len(lines) == 4 and lines[3].startswith("2 errors, 1 warning, 1 ignored. 124 rules checked")


def test_several_outputs_in_one_run(run: Any, facts_file: Any, tmp_path: Path) -> None:
    path = facts_file({"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2})
    wanted = [f"--output={name}={tmp_path / name}" for name in READ]
    done = run("check", "--facts", path, "--format", "concise", *wanted)
    assert done.code == 1 and done.out.startswith("-: error[torch-2-5-0-glm4-batch-nan] ")
    for name, check in READ.items():
        check((tmp_path / name).read_text(encoding="utf-8"))
    assert sorted(os.listdir(tmp_path)) == sorted(["facts.json", *READ])
