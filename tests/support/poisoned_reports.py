"""Reports that hold a text from outside in every place that can have one."""

from typing import Any

from envdoctor.experiments import Result
from envdoctor.facts import Fact, FactSet, Origin, Records, Unknown
from envdoctor.judge import Assumption, Evidence, Finding, FoundFact, NotChecked, OfferedFix, Plan, Text
from envdoctor.observe import Target
from envdoctor.report import Cost, Mended, Notice, Report, RevisionSection, Side
from envdoctor.revision import Change, Unread
from envdoctor.system.clean import clean

BAD = "\x1b[2J\x1b]0;x\x07\r\n::error::\u202e\u200b\ud800\x00\x85{}%`"


def poisoned(report: Report, bad: str, *, lang_text: str) -> Report:
    """The report with the text in every place that can come from outside."""
    finding = Finding(
        id=bad,
        status="active",
        severity="error",
        confidence="reported",
        effect="crash",
        message=Text(bad, lang_text),
        why=Text(bad, lang_text),
        subjects=(bad,),
        facts=(FoundFact(bad, bad, bad), FoundFact("pkg." + bad, "absent", bad)),
        fingerprint=bad,
        title=Text(bad, lang_text),
        assumed=(Assumption(bad, bad, Text(bad, lang_text)),),
        caveats=(bad,),
        item={bad: bad, "name": bad},
        locations=(Origin(bad, 1),),
        fixes=(
            OfferedFix("constraint", "safe", Text(bad, bad), (bad,), {bad: bad}, {bad: bad}, (bad,)),
            OfferedFix("set", "safe", Text(bad), (bad,), {bad: bad}, {bad: bad}),
            OfferedFix("advice", "manual", Text(bad), withheld=bad),
        ),
        evidence=(Evidence(bad, bad, bad, bad),),
        probe=bad,
        origin=bad,
    )
    facts = FactSet(
        [
            Fact("pkg.torch", bad, bad, "environment"),
            Fact("pkg." + bad, bad, bad, "environment"),
            Fact("python.version", bad, bad, "environment"),
            Fact("python.implementation", bad, bad, "environment"),
            Fact("os.platform", bad, bad, "machine"),
            Fact("gpu", Records(({"name": bad, "cc": bad, "uuid": bad},), bad), bad, "machine"),
            Fact("driver.version", Unknown(bad), bad, "machine"),
            Fact("model.repo", bad, bad, "model"),
            Fact("model.revision", bad, bad, "model"),
            Fact("model.family", bad, bad, "derived"),
            Fact("model.code_names", (bad, bad), bad, "model"),
            Fact("recipe.method", bad, bad, "recipe"),
            Fact("recipe.attn", bad, bad, "recipe"),
            Fact("env.NCCL_DEBUG", bad, bad, "machine"),
        ]
    )
    return report.changed(
        target=Target(bad, bad, bad),
        facts=facts,
        matrix_version=bad,
        matrix_source=bad,
        findings=(finding, finding._replace(ignored=bad), finding._replace(superseded_by=bad)),
        not_checked=(NotChecked(bad, "error", {bad: bad}, (bad,)), NotChecked(bad, "", {}, reason=bad)),
        exit_code=3,
        notices=(Notice("warning", bad),),
        plan=Plan((bad,), (bad,), {bad: bad}, {bad: bad}, (bad,), (bad,), (bad,), bad, again=(bad,)),
        probe=section_of_experiments(bad),
        probe_commands={bad: bad},
    )


def section_of_experiments(bad: str) -> dict[str, Any]:
    child: dict[str, Any] = {
        **{"name": bad, "title": bad, "device": bad, "dtype": bad, "backend": bad, "options": {bad: [bad]}},
        **{"counts": {bad: 1, "fail": 2}, "ending": bad, "detail": bad, "seconds": 1.0, "cpu_seconds": None},
        **{"peak_mib": 2.0, "import_s": bad},
    }
    group = Result(
        *(bad,) * 7,
        2,
        3,
        (bad,),
        float("nan"),
        (bad,),
        bad,
        (bad,),
        (bad,),
        (bad,),
        bad,
        (0.0, 1.0),
        bad,
        bad,
        (bad,),
        bad,
    )
    return {
        **{
            "suite": bad,
            "seed": 5,
            "released": {"clean": {bad: 3}, "versions": bad, "why": bad},
            "device": bad,
            "in_use": None,
            "in_use_unknown": bad,
            "unusable": None,
            "jobs": 1,
            "cases": 3,
        },
        **{"environment": {"build": {"torch": bad}, "device": {"name": bad, "cudnn": bad, bad: {bad: [bad]}}}},
        **{"seconds": 1.0, "peak_mib": 2.0, "probes": [child], "groups": [group], "wrong": 2},
        **{"skipped": [{"name": bad, "why": bad, "cases": 1}], "wrong_cases": [{bad: bad}], "info": [{bad: [bad]}]},
        "errors": [
            {
                **{"name": bad, "device": bad, "dtype": bad, "backend": bad, "length": 64, "cases": 1, "wrong": 1},
                **{"not_finite": True, "ratio": None},
            }
        ],
        "reproducer": [bad, f"    {bad}"],
    }


def compared(report: Report, bad: str) -> Report:
    """The poisoned report as one of a comparison of two revisions."""
    change = Change("code", bad, bad, bad, bad, bad, 2, bad, (f"-{bad}", f"+{bad}", f" {bad}", bad))
    settings = Change("config", bad, bad, bad, bad, bad)
    amounts = {side: {"dtype": {bad: (1, 2, 3)}, "module": {bad: (1, 2, 3)}} for side in ("old", "new")}
    section = RevisionSection(
        weights="identical",
        weights_equal=bad,
        old=Side(bad, bad, bad),
        new=Side(bad, bad, bad),
        changes=(change, settings),
        unread=(Unread(bad, bad),),
        equal=(bad, bad),
        amounts=amounts,
        introduced={clean(bad): bad},
        cost=Cost(3, 1000),
        tensors=(change,),
        moved={"asked": bad, "now": bad},
        pin=bad,
        unjudged=(change,),
        effects={f"config {bad}": Text(bad, bad)},
        mended=(Mended(bad, Text(bad, bad), bad),),
    )
    return report.changed(revision=section)
