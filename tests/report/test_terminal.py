"""The report for people, against the anatomy and the mock-ups of the design."""

import re

import pytest

from envdoctor.facts import ABSENT, NOT_GIVEN, Fact, FactSet, Origin, Records, Unknown
from envdoctor.judge import Finding, FoundFact, NotChecked, OfferedFix, Plan, Text
from envdoctor.observe import Target
from envdoctor.report import Notice, Report, display_width, render
from envdoctor.system import Message

GOLDEN = """\
Environment  /home/li/.venvs/glm (python 3.11.9, linux x86_64, glibc 2.35)
  chosen: the active virtual environment (VIRTUAL_ENV)
  torch 2.5.0+cu118   transformers 4.48.0   flash-attn not installed
  8 x NVIDIA A100-SXM4-80GB (sm_80)   driver 520.61.05
Model        THUDM/glm-4-9b-chat-hf @ 8599336 (family glm4)
Recipe       train.yaml (dpo, bf16, batch size 2)

error[torch-2-5-0-glm4-batch-nan]
  torch 2.5.0+cu118 gives NaN loss for GLM-4 when batch size is above 1
  --> requirements.txt:3
  fix    use torch 2.4.1
         pip install torch==2.4.1+cu118 \\
           --extra-index-url https://download.pytorch.org/whl/cu118
     or  train with one sample per step (batch size: 1)
  found  torch 2.5.0+cu118, model family glm4, batch size 2 (train.yaml:14)
  why    Rows with padding come back as NaN, so the loss is NaN from step 1.
  proof  reported: github.com/zai-org/GLM-4/issues/724 (checked 2026-11-20)
"""


NAN = "torch-2-5-0-glm4-batch-nan"


def page(report: Report, lang: str = "en", *, width: int | None = 80, verbosity: int = 0, **changes: object) -> str:
    """The report with some of its fields changed, on a page."""
    return render(report.changed(**changes), lang, width=width, verbosity=verbosity)  # type: ignore[arg-type]


def with_facts(report: Report, *given: tuple[str, object]) -> str:
    facts = FactSet(Fact(key, value, "--set", "given") for key, value in given)  # type: ignore[arg-type]
    return page(report, facts=facts)


def single(report: Report, **changes: object) -> dict[str, tuple[Finding, ...]]:
    """The first finding alone, with some of its fields changed."""
    return {"findings": (report.findings[0]._replace(**changes),), "not_checked": ()}  # type: ignore[arg-type, dict-item]


def test_the_header_and_a_finding_look_like_the_mock_up(report: Report) -> None:
    text = page(report)
    assert text.startswith(GOLDEN)
    assert text.endswith(
        "\n2 errors, 1 warning, 1 ignored.\n"
        "124 rules checked in 0.5 s; 5 could not be checked.\n"
        "  2 more with --model ORG/NAME, 1 with --recipe FILE, 2 others (-v says why)\n"
        "Next         envdoctor explain ID (why, and how to accept it or to say that it\n"
        "             is wrong)\n"
    )
    # ignored and superseded findings are not shown, nor a probe before it exists
    assert not [word for word in ("accepted-slow", "older-nan", "envdoctor probe") if word in text]


def test_why_rules_could_not_be_checked_is_said_the_commonest_reason_first(report: Report) -> None:
    lost, broken = Message("it cannot be read: {}", "Permission denied"), Message("unknown key {!r}", "foo")
    given = [NotChecked("a", "error", {}, reason=broken)]
    given += [NotChecked(f"b{n}", "error", {key: lost}) for n, key in enumerate(("pkg.trl", "pkg.peft", "pkg.trl"))]
    given += [NotChecked("c", "error", {"memory.verdict": NOT_GIVEN.reason, "memory.free_gib": NOT_GIVEN.reason})]
    text = page(report, not_checked=tuple(given), width=None)
    said = "\n  5 rules: trl, peft not known (it cannot be read: Permission denied); unknown key 'foo'; 1 more: -v"
    assert said in text
    assert said.partition("; ")[0] in page(report, not_checked=tuple(given), width=None, verbosity=1)
    assert "\n  1 rule: verdict on memory not known\n" in page(report, not_checked=tuple(given[-1:]))


def test_the_chinese_finding_looks_like_the_mock_up(report: Report) -> None:
    text = page(report, "zh")
    assert (
        "error[torch-2-5-0-glm4-batch-nan]\n"
        "  torch 2.5.0+cu118 在 batch size 大于 1 时会让 GLM-4 的 loss 变成 NaN\n"
        "  --> requirements.txt:3\n"
        "  fix    "
    ) in text
    assert (
        "  found  torch 2.5.0+cu118，模型系列 glm4，batch size 2（train.yaml:14）\n"
        "  why    带 padding 的行会返回 NaN，所以从第 1 步起 loss 就是 NaN。\n"
    ) in text


def test_places_in_one_file_are_one_line(report: Report) -> None:
    places = (Origin("run/train.yaml", 9), Origin("run/train.yaml", 31), Origin("ds.json", 2), Origin("e.ipynb", 4, 2))
    fact = FoundFact("recipe.batch_size", "2", places[1])
    text = page(report, **single(report, locations=places, facts=(fact,)))
    assert "\n  --> run/train.yaml:9, 31\n  --> ds.json:2\n  --> e.ipynb:cell 2:4\n  fix " in text
    assert "\n  found  batch size 2 (train.yaml:31)\n" in text


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_lines_keep_to_eighty_columns_in_every_language(report: Report, verbosity: int) -> None:
    english, chinese = (page(report, lang, verbosity=verbosity) for lang in ("en", "zh"))
    for line in (english + chinese).splitlines():
        assert display_width(line) <= 80, line
        assert line == line.rstrip()
    assert english.isascii()
    assert chinese.encode("gbk").decode("gbk") == chinese, "every console can show it"
    for label in ("环境", "模型", "训练配置") if verbosity >= 0 else ():
        value = re.search(rf"^{label}\S* +", chinese, re.MULTILINE)
        assert value is not None and display_width(value[0]) == 13, "labels align like the English ones"


def test_the_parts_of_a_finding_come_in_order(report: Report) -> None:
    probe = {"padding-nan": "envdoctor probe --only padding-nan"}
    text = page(report, probe_commands=probe, **single(report))
    marks = ["error[", "-->", "fix", "or  ", "found", "why", "proof", "try ", "1 error.", "Next "]
    places = [text.index(mark, text.index("error[")) for mark in marks]
    assert places == sorted(places)
    assert "try    envdoctor probe --only padding-nan" in text


def test_commands_are_wrapped_for_posix_terminals_alone(report: Report) -> None:
    text = page(report, width=None)
    command = "pip install torch==2.4.1+cu118 --extra-index-url https://download.pytorch.org/whl/cu118"
    assert f"  fix    use torch 2.4.1\n         {command}\n" in text
    facts = report.facts.copy()
    facts.add(Fact("os.platform", "windows", "", "machine"))
    assert "\\\n" not in text + page(report, facts=facts)


def test_colour_is_on_the_level_and_the_id_alone_and_changes_no_text(report: Report) -> None:
    coloured = render(report, color=True, width=80)
    assert "\x1b[31merror\x1b[0m[\x1b[1mtorch-2-5-0-glm4-batch-nan\x1b[0m]" in coloured
    assert "\x1b[33mwarning\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == page(report)
    assert "\x1b" not in page(report)


def test_quiet_shows_findings_only_and_twice_nothing(report: Report) -> None:
    text = page(report, verbosity=-1)
    assert text.startswith("error[") and text.rstrip().endswith("(checked 2026-11-20)")
    assert page(report, verbosity=-2) == page(report, verbosity=-1, findings=()) == ""
    notices = (Notice("error", "--require gpu: not known here"), Notice("note", "an old ignore"))
    assert page(report, verbosity=-1, findings=(), exit_code=3, notices=notices) == (
        "Incomplete: the check could not be finished.\nerror: --require gpu: not known here\n"
    )


def test_verbose_adds_origins_reasons_withheld_fixes_and_what_is_not_shown(report: Report) -> None:
    text, source = page(report, verbosity=1), "release-notes: github.com/pytorch/pytorch/releases/tag/v2.5.1\n"
    for words in (
        "torch 2.5.0+cu118 (torch/version.py)",
        "not offered: use torch 2.5.1 (torch==2.5.1): it would bring",
        "error[b-needs-model]: model family not known\n",
        "[unreadable]: unknown key 'foo'",
        "warning[accepted-slow]: we measured it",
        "error[older-nan]: torch-2-5-0-glm4-batch-nan",
        "the symptom and the failing version",
        "1 more package: envdoctor facts",
        "Matrix 2026.11.20 (bundled).",
    ):
        assert words in text, words
    assert "会引起 torch-2-5-1-x：别的问题" in page(report, "zh", width=None, verbosity=1)
    assert source in page(report, width=None, verbosity=1) and source not in page(report, width=None)


def test_the_last_lines_say_what_kind_of_run_it_was(report: Report) -> None:
    well = "\nNo findings. 124 rules checked in 0.5 s; 0 could not be checked.\n"
    assert page(report, findings=(), not_checked=(), exit_code=0).endswith(well)
    assert "124 rules checked in 0.03 s;" in page(report, elapsed_seconds=0.031)
    alone = page(report, **single(report))
    assert f"\nNext         envdoctor explain {NAN} (why, and" in alone and "1 error. 124 rules checked" in alone
    assert "Incomplete: no rule could be decided." in page(report, findings=(), rules_checked=0, exit_code=3)
    below = page(report, exit_code=0, **single(report, confidence="inferred", gate=False))
    assert "Exit code 0: no error is at the gate" in below
    assert "Exit code 0" not in page(report, exit_code=0), "--exit-zero: errors are at the gate"


def test_one_line_says_what_to_type_next(report: Report) -> None:
    advice = "\nNext         give --model ORG/NAME or --model DIR\n"
    assert page(report, findings=(), exit_code=0, width=None).endswith(advice)
    assert "Next " not in page(report, findings=(), not_checked=(), exit_code=0)
    without = FactSet([Fact("pkg.torch", ABSENT, "site-packages", "observed")])
    lost = page(report, command="probe", facts=without, findings=(), exit_code=3, width=None)
    assert lost.endswith("\nNext         name the Python that has torch: --python PATH\n")
    plan = "envdoctor plan --python .venv"
    cured = render(report.changed(plan=Plan(constraints=("torch==2.4.1",))), again=plan)
    assert f"\nNext         {plan}\n             envdoctor explain ID (why" in cured
    assert plan not in render(report, again=plan), "nothing that was judged as a whole ends these errors"


def test_when_every_fix_is_withheld_the_reason_is_shown(report: Report) -> None:
    fixes = (OfferedFix("constraint", "safe", Text("x"), withheld="no build for Python 3.13"),)
    assert "  fix    none offered here: no build for Python 3.13\n" in page(report, **single(report, fixes=fixes))


# --- findings of one cause --------------------------------------------------------------------------------------------


def of_gpu(report: Report, number: int, **columns: str) -> Finding:
    facts = tuple(FoundFact(f"gpu.{column}", value, "NVML") for column, value in columns.items())
    item = {"name": "RTX 5090", "index": str(number)}
    return report.findings[0]._replace(subjects=("gpu.cc",), facts=facts, item=item, fingerprint=str(number), fixes=())


def test_findings_on_equal_gpus_are_told_once_with_what_differs(report: Report) -> None:
    text = page(report, findings=tuple(of_gpu(report, number, cc="12.0") for number in range(3)))
    assert text.count("error[") == 1 and f"error[{NAN}] x 3\n" in text and "3 errors. " in text
    assert "  found  for RTX 5090 (index 0, 1, 2), GPU compute capability 12.0\n" in text
    many = (of_gpu(report, 0, cc="12.0", free_gib="3"), of_gpu(report, 1, cc="12.0", free_gib="5"))
    assert (
        "  torch 2.5.0+cu118 gives NaN loss for GLM-4 when batch size is above 1\n"
        "  --> requirements.txt:3\n"
        "    for RTX 5090 (index 0), free GPU memory 3 GiB\n"
        "    for RTX 5090 (index 1), free GPU memory 5 GiB\n"
        "  found  GPU compute capability 12.0\n"
        "  why    Rows with padding"
    ) in page(report, findings=many)


@pytest.mark.parametrize(("lang", "line"), [("en", "  package-{} is missing\n"), ("zh", "  缺少 package-{}\n")])
def test_one_cause_is_explained_once_below_its_messages(report: Report, lang: str, line: str) -> None:
    """Eighteen missing requirements have one reason and one way out."""
    one = report.findings[0]._replace(facts=(), locations=())
    many = tuple(one._replace(message=Text(f"package-{n} is missing", f"缺少 package-{n}")) for n in range(18))
    text = page(report, lang, findings=many)
    assert all(line.format(n) in text for n in range(18)) and "] x 18\n" in text
    assert [text.count(said_once) for said_once in ("error[", "  why ", "  fix ", "  proof ")] == [1, 1, 1, 1]


def test_of_very_many_findings_of_one_cause_twenty_are_listed(report: Report) -> None:
    many = tuple(report.findings[0]._replace(message=Text(f"message {n}.")) for n in range(30))
    usual, verbose = (page(report, width=None, verbosity=verbosity, findings=many) for verbosity in (0, 1))
    assert "message 19." in usual and "message 20." not in usual and "10 more: -v lists them" in usual
    assert "message 29." in verbose


def test_other_causes_stay_apart(report: Report) -> None:
    one = report.findings[0]
    many = (one, one._replace(why=Text("another reason")), one._replace(fixes=()), one._replace(confidence="inferred"))
    assert page(report, findings=many).count("error[") == 4


# --- the header -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ([], "  GPU and driver not known"),
        ([("gpu", Unknown("--no-gpu was given"))], "  GPU and driver not known (--no-gpu was given)"),
        ([("gpu", Records(())), ("driver.version", ABSENT)], "  no GPU   no NVIDIA driver"),
        ([("gpu", Records(())), ("machine.accelerators", ("ascend",))], "  no NVIDIA GPU   ascend"),
        ([("gpu", Records((), "NVML gave up"))], "  GPU not known (NVML gave up)"),
        ([("gpu.cc", ("9.0", "9.0"))], "  2 x GPU (sm_90)   driver not known"),
        ([("gpu.cc", "9.0"), ("driver.version", "550.54")], "  1 x GPU (sm_90)   driver 550.54"),
        (
            [("gpu", Records(({"name": "Tesla T4", "cc": "7.5"}, {"name": "Tesla T4", "cc": Unknown("?")})))],
            "  1 x Tesla T4 (sm_75)   1 x Tesla T4   driver not known",
        ),
        (
            [("gpu", Records(({"name": "Tesla T4"},), "MIG is on")), ("driver.version", "550.54")],
            "  1 x Tesla T4   perhaps more GPUs (MIG is on)   driver 550.54",
        ),
        # the torch build is named when the version does not
        ([("pkg.torch", "2.9.0"), ("torch.cuda", "12.8")], "  torch 2.9.0 (CUDA 12.8)   transformers not known"),
        (
            [("pkg.torch", "2.9.0"), ("torch.cuda", ABSENT), ("torch.hip", ABSENT)],
            "  torch 2.9.0 (CPU build)   transformers not known",
        ),
        (
            [("recipe.batch_size", 2), ("recipe.packing", True), ("recipe.fsdp", Unknown("x"))],
            "Recipe       batch size 2, packing: yes (--set)",
        ),
    ],
)
def test_the_header_is_honest(report: Report, given: list[tuple[str, object]], line: str) -> None:
    assert line in with_facts(report, *given).splitlines()


def test_the_first_line_names_what_was_chosen_and_why_unless_an_option_did(report: Report) -> None:
    facts = Target("facts", "here.json", "--facts")
    text = page(report, target=facts)
    assert text.startswith("Facts file   here.json (python 3.11.9") and "chosen" not in text
    assert "chosen: --facts" in page(report, target=facts, verbosity=1)
    deep = "/home/li/" + "deep/" * 14
    lines = page(report, target=Target("venv", deep, "--python")).splitlines()
    assert lines[:2] == [f"Environment  {deep}", "  python 3.11.9, linux x86_64, glibc 2.35"]
