"""The report for people, against the anatomy and the mock-ups of the design."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from envdoctor.facts import ABSENT, Fact, FactSet, Records, Unknown
from envdoctor.judge import Finding, FoundFact, OfferedFix, Text
from envdoctor.observe import Target
from envdoctor.report import Notice, Report, display_width, render

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
  found  torch 2.5.0+cu118, model family glm4, batch size 2 (train.yaml:14)
  why    Rows with padding come back as NaN, so the loss is NaN from step 1.
  fix    use torch 2.4.1
         pip install torch==2.4.1+cu118 \\
           --extra-index-url https://download.pytorch.org/whl/cu118
     or  train with one sample per step (batch size: 1)
  proof  reported: github.com/zai-org/GLM-4/issues/724 (checked 2026-11-20)
"""


def single(report: Report, finding: Finding | None = None) -> Report:
    return replace(report, findings=(finding or report.findings[0],), not_checked=())


def test_the_header_and_a_finding_look_like_the_mock_up(report: Report) -> None:
    assert render(report, width=80).startswith(GOLDEN)


def test_the_last_lines_count_and_say_what_would_help(report: Report) -> None:
    assert render(report, width=80).endswith(
        "\n2 errors, 1 warning, 1 ignored.\n"
        "124 rules checked in 0.5 s; 5 could not be checked.\n"
        "  2 more rules: give --model ORG/NAME or --model DIR\n"
        "  then 1 more: give --recipe FILE, or describe the run: --set recipe.attn=sdpa\n"
        "    --set recipe.method=lora\n"
        "  2 rules for other reasons: see -v\n"
        "Details: envdoctor explain ID    Accept: envdoctor ignore ID --reason ...\n"
        "Wrong? envdoctor facts --for-issue\n"
    )


def test_the_chinese_finding_looks_like_the_mock_up(report: Report) -> None:
    assert (
        "error[torch-2-5-0-glm4-batch-nan]\n"
        "  torch 2.5.0+cu118 在 batch size 大于 1 时会让 GLM-4 的 loss 变成 NaN\n"
        "  --> requirements.txt:3\n"
        "  found  torch 2.5.0+cu118，模型系列 glm4，batch size 2（train.yaml:14）\n"
        "  why    带 padding 的行会返回 NaN，所以从第 1 步起 loss 就是 NaN。\n"
    ) in render(report, "zh", width=80)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
def test_lines_keep_to_eighty_columns(report: Report, lang: str, verbosity: int) -> None:
    for line in render(report, width=80, lang=lang, verbosity=verbosity).splitlines():
        assert display_width(line) <= 80, line
        assert line == line.rstrip()


@pytest.mark.parametrize("verbosity", [0, 1])
def test_chinese_labels_align_like_the_english_ones(report: Report, verbosity: int) -> None:
    lines = render(report, width=80, lang="zh", verbosity=verbosity).splitlines()
    for label in ("环境", "模型", "训练配置"):
        line = next(line for line in lines if line.startswith(label))
        value = re.match(r"\S+ +", line)
        assert value is not None
        assert display_width(value[0]) == 13


def test_english_output_is_ascii(report: Report) -> None:
    assert all(render(report, width=80, verbosity=verbosity).isascii() for verbosity in (-1, 0, 1))


def test_the_parts_of_a_finding_come_in_order(report: Report) -> None:
    text = render(
        single(replace(report, probe_commands={"padding-nan": "envdoctor probe --only padding-nan"})),
        width=80,
    )
    marks = ["error[", "-->", "found", "why", "fix", "or  ", "proof", "try ", "1 error.", "Details:", "Accept:"]
    places = [text.index(mark, text.index("error[")) for mark in marks]
    assert places == sorted(places)
    assert "try    envdoctor probe --only padding-nan" in text


def test_a_probe_is_not_advertised_before_it_exists(report: Report) -> None:
    assert "envdoctor probe" not in render(report, width=80)


def test_into_a_pipe_nothing_is_wrapped(report: Report) -> None:
    text = render(report, width=None)
    command = "pip install torch==2.4.1+cu118 --extra-index-url https://download.pytorch.org/whl/cu118"
    assert f"  fix    use torch 2.4.1\n         {command}\n" in text
    assert "\\\n" not in text


def test_commands_for_windows_stay_on_one_line(report: Report) -> None:
    facts = report.facts.copy()
    facts.add(Fact("os.platform", "windows", "", "machine"))
    assert "\\\n" not in render(replace(report, facts=facts), width=80)


def test_colour_is_on_the_level_and_the_id_alone_and_changes_no_text(report: Report) -> None:
    coloured = render(report, color=True, width=80)
    assert "\x1b[31merror\x1b[0m[\x1b[1mtorch-2-5-0-glm4-batch-nan\x1b[0m]" in coloured
    assert "\x1b[33mwarning\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render(report, width=80)
    assert "\x1b" not in render(report, width=80)


def test_quiet_shows_findings_only_and_twice_nothing(report: Report) -> None:
    text = render(report, width=80, verbosity=-1)
    assert text.startswith("error[")
    assert text.rstrip().endswith("(checked 2026-11-20)")
    assert render(report, verbosity=-2) == ""
    assert render(replace(report, findings=()), verbosity=-1) == ""


def test_quiet_still_says_that_the_run_is_incomplete(report: Report) -> None:
    notices = (Notice("error", "--require gpu: not known here"), Notice("note", "an old ignore"))
    broken = replace(report, findings=(), exit_code=3, notices=notices)
    assert render(broken, verbosity=-1) == (
        "Incomplete: the check could not be finished.\nerror: --require gpu: not known here\n"
    )


def test_verbose_adds_origins_reasons_withheld_fixes_and_what_is_not_shown(report: Report) -> None:
    text = render(report, width=80, verbosity=1)
    assert "torch 2.5.0+cu118 (torch/version.py)" in text
    assert "not offered: use torch 2.5.1 (torch==2.5.1): it would bring" in text
    assert "会引起 torch-2-5-1-x：别的问题" in render(report, "zh", verbosity=1)
    assert "error[b-needs-model]: model family not known (not given)" in text
    assert "[unreadable]: unknown key 'foo'" in text
    assert "warning[accepted-slow]: we measured it" in text
    assert "error[older-nan]: torch-2-5-0-glm4-batch-nan" in text
    assert "the symptom and the failing version" in text
    assert "1 more package: envdoctor facts" in text
    assert "Matrix 2026.11.20 (bundled)." in text


def test_verbose_lists_every_source_and_the_default_one(report: Report) -> None:
    assert "release-notes: github.com/pytorch/pytorch/releases/tag/v2.5.1\n" in render(report, verbosity=1)
    assert "releases/tag/v2.5.1" not in render(report)


def test_short_times_are_not_rounded_to_nothing(report: Report) -> None:
    assert "124 rules checked in 0.03 s;" in render(replace(report, elapsed_seconds=0.031))


def test_ignored_and_superseded_findings_are_not_shown(report: Report) -> None:
    text = render(report, width=80)
    assert "accepted-slow" not in text
    assert "older-nan" not in text


def test_all_well_names_the_matrix(report: Report) -> None:
    text = render(replace(report, findings=(), not_checked=(), exit_code=0), width=80)
    assert text.endswith(
        "\nNo findings. 124 rules checked in 0.5 s; 0 could not be checked.\nMatrix 2026.11.20 (bundled).\n"
    )


def test_a_single_finding_names_its_id_in_the_next_commands(report: Report) -> None:
    text = render(single(report), width=80)
    assert "Details: envdoctor explain torch-2-5-0-glm4-batch-nan\n" in text
    assert "1 error. 124 rules checked" in text


def test_a_run_that_decided_nothing_says_so(report: Report) -> None:
    text = render(replace(report, findings=(), rules_checked=0, exit_code=3), width=80)
    assert "Incomplete: no rule could be decided." in text


def test_an_error_below_the_gate_explains_exit_code_zero(report: Report) -> None:
    low = report.findings[0]._replace(confidence="inferred", gate=False)
    assert "Exit code 0: no error is at the gate" in render(replace(single(report, low), exit_code=0), width=80)
    forced = replace(report, exit_code=0)  # --exit-zero: errors are at the gate
    assert "Exit code 0" not in render(forced, width=80)


def test_when_every_fix_is_withheld_the_reason_is_shown(report: Report) -> None:
    fixes = (OfferedFix("constraint", "safe", Text("x"), withheld="no build for Python 3.13"),)
    text = render(single(report, report.findings[0]._replace(fixes=fixes)), width=80)
    assert "  fix    none offered here: no build for Python 3.13\n" in text


def of_gpu(report: Report, number: int, **columns: str) -> Finding:
    facts = tuple(FoundFact(f"gpu.{column}", value, "NVML") for column, value in columns.items())
    item = {"name": "RTX 5090", "index": str(number)}
    return report.findings[0]._replace(subjects=("gpu.cc",), facts=facts, item=item, fingerprint=str(number), fixes=())


def test_equal_findings_on_equal_gpus_are_told_once(report: Report) -> None:
    many = tuple(of_gpu(report, number, cc="12.0") for number in range(3))
    text = render(replace(report, findings=many), width=80)
    assert text.count("error[") == 1
    assert "error[torch-2-5-0-glm4-batch-nan] x 3\n" in text
    assert "  found  for RTX 5090 (index 0, 1, 2), GPU compute capability 12.0\n" in text
    assert "3 errors. " in text


def test_what_differs_between_findings_of_one_cause_is_told_of_each(report: Report) -> None:
    many = (of_gpu(report, 0, cc="12.0", free_gib="3"), of_gpu(report, 1, cc="12.0", free_gib="5"))
    assert (
        "  torch 2.5.0+cu118 gives NaN loss for GLM-4 when batch size is above 1\n"
        "  --> requirements.txt:3\n"
        "    for RTX 5090 (index 0), free GPU memory 3 GiB\n"
        "    for RTX 5090 (index 1), free GPU memory 5 GiB\n"
        "  found  GPU compute capability 12.0\n"
        "  why    Rows with padding"
    ) in render(replace(report, findings=many), width=80)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_one_cause_is_explained_once_below_its_messages(report: Report, lang: str) -> None:
    """Eighteen missing requirements have one reason and one way out."""
    one = report.findings[0]._replace(facts=(), locations=())
    many = tuple(one._replace(message=Text(f"package-{n} is missing", f"缺少 package-{n}")) for n in range(18))
    text = render(replace(report, findings=many), lang, width=80)
    assert all((f"  缺少 package-{n}\n" if lang == "zh" else f"  package-{n} is missing\n") in text for n in range(18))
    for said_once in ("error[", "  why ", "  fix ", "  proof "):
        assert text.count(said_once) == 1
    assert "] x 18\n" in text


def test_of_very_many_findings_of_one_cause_twenty_are_listed(report: Report) -> None:
    many = tuple(report.findings[0]._replace(message=Text(f"message {n}.")) for n in range(30))
    usual, verbose = (render(replace(report, findings=many), verbosity=verbosity) for verbosity in (0, 1))
    assert "message 19." in usual and "message 20." not in usual and "10 more: -v lists them" in usual
    assert "message 29." in verbose


def test_other_causes_stay_apart(report: Report) -> None:
    one = report.findings[0]
    many = (one, one._replace(why=Text("another reason")), one._replace(fixes=()), one._replace(confidence="inferred"))
    assert render(replace(report, findings=many), width=80).count("error[") == 4


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
    ],
)
def test_the_machine_line_is_honest(report: Report, given: list[tuple[str, object]], line: str) -> None:
    facts = FactSet(Fact(key, value, "x", "machine") for key, value in given)  # type: ignore[arg-type]
    assert line in render(replace(report, facts=facts), width=80).splitlines()


def test_the_torch_build_is_named_when_the_version_does_not(report: Report) -> None:
    facts = FactSet([Fact("pkg.torch", "2.9.0", "", ""), Fact("torch.cuda", "12.8", "", "")])
    assert "  torch 2.9.0 (CUDA 12.8)   transformers not known" in render(replace(report, facts=facts), width=80)
    facts.update([Fact("torch.cuda", ABSENT, "", ""), Fact("torch.hip", ABSENT, "", "")])
    assert "  torch 2.9.0 (CPU build)" in render(replace(report, facts=facts), width=80)


def test_options_need_no_reason_for_the_choice(report: Report) -> None:
    target = Target("facts", "here.json", "--facts")
    text = render(replace(report, target=target), width=80)
    assert text.startswith("Facts file   here.json (python 3.11.9")
    assert "chosen" not in text
    assert "chosen: --facts" in render(replace(report, target=target), width=80, verbosity=1)


def test_a_long_path_keeps_its_details_on_the_next_line(report: Report) -> None:
    target = Target("venv", "/home/li/" + "deep/" * 14, "--python")
    lines = render(replace(report, target=target), width=80).splitlines()
    assert lines[0] == "Environment  /home/li/" + "deep/" * 14
    assert lines[1] == "  python 3.11.9, linux x86_64, glibc 2.35"


def test_settings_without_a_file_name_the_option(report: Report) -> None:
    facts = FactSet(
        [
            Fact("recipe.batch_size", 2, "--set", "given"),
            Fact("recipe.packing", True, "--set", "given"),
            Fact("recipe.fsdp", Unknown("x"), "--set", "given"),
        ]
    )
    text = render(replace(report, facts=facts), width=80)
    assert "Recipe       batch size 2, packing: yes (--set)\n" in text


@pytest.mark.parametrize("encoding", ["gbk", "ascii", "utf-8"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_console_can_show_the_report(report: Report, encoding: str, lang: str) -> None:
    text = render(report, width=80, verbosity=1, lang=lang)
    assert text.encode(encoding, errors="backslashreplace")
    if encoding == "gbk":
        assert text.encode("gbk").decode("gbk") == text
