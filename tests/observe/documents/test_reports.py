"""Pasted reports: each fixture holds the facts that a person would read in it, `=====`, and the text."""

from functools import cache
from pathlib import Path

import pytest

from envdoctor.facts import Absent, Records, Unknown
from envdoctor.matrix import load_toml
from envdoctor.observe import report_facts

FOLDER = Path(__file__).resolve().parents[3] / "fixtures/reports"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
#: What is said of a recipe as such, beside its settings.
OF_THE_RECIPE = ("recipe_file", "recipe_key", "recipe.arguments")


def expected(name):
    """The facts that are read, and those that a person reads besides."""
    said = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("=====\n")[0]
    lines = "\n".join(line for line in said.splitlines() if not line.startswith("#"))
    return [
        dict(line.split(" = ", 1) for line in part.split("\n") if line) for part in lines.partition("not read:")[::2]
    ]


@pytest.fixture(scope="module")
def found(matrix):
    """Every fact of a fixture, spelled as the fixtures spell them: GPUs as NAME*COUNT:GiB, ? where more may be."""

    @cache
    def go(name):
        text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("=====\n")[2]
        facts = report_facts(text, matrix, "report").facts
        return {fact.key: spelled(fact.value) for fact in facts if fact.key not in OF_THE_RECIPE}

    return go


def spelled(value):
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Absent):
        return "absent"
    if isinstance(value, Records):
        first = next(iter(value.items), {"name": "none"})
        memory = f":{first['memory_gib']}" if "memory_gib" in first else ""
        return f"{first.get('name', '')}*{len(value)}{memory}{'?' if value.incomplete else ''}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_of_a_report_and_what_is_not(found, name):
    read, not_read = expected(name)
    assert found(name) == read and not read.keys() & not_read.keys()


@pytest.mark.parametrize("row", load_toml(FOLDER / "sentences.toml")["sentence"], ids=lambda row: row["text"])
def test_a_sentence_says_what_is_there_and_nothing_that_was_tried_or_advised(matrix, row):
    facts = report_facts(row["text"], matrix, "report").facts
    assert {fact.key: spelled(fact.value) for fact in facts} == row.get("facts", {})


def test_a_command_counts_before_a_sentence(matrix):
    text = "Qwen2-7B diverges with batch size 4.\n\n```\nswift sft --model Qwen/Qwen2.5-7B --train_type lora\n```"
    facts = report_facts(text, matrix, "report").facts
    assert facts.text("model.repo") == "Qwen/Qwen2.5-7B" and facts.get("recipe.batch_size").source == "told"


def test_lines_that_contradict_make_the_fact_unknown_and_are_both_named(matrix):
    read = report_facts("Machine A\ntorch==2.4.1\n\nMachine B\ntorch==2.5.0\n", matrix, "report")
    reason = "line 2 of report says 2.4.1, line 5 of report says 2.5.0"
    assert read.facts.value("pkg.torch") == Unknown(reason)
    assert read.notes == (f"torch: {reason}",)
    (fact,) = report_facts("I use torch 2.4", matrix, "report").facts
    assert fact.value == Unknown("line 1 of report says 2.4, which may be any 2.4.x")


def test_each_fact_has_its_line_and_what_was_not_read_is_said(matrix):
    read = report_facts("- Python version: 3.10.12\n\nI tried torch 2.4.1 too\n", matrix, "report")
    assert read.facts.get("python.version").origin == "report:1"
    assert read.notes == ("line 3 of report speaks of torch and was not read",)


def test_a_range_is_no_version_and_is_said(matrix):
    read = report_facts("transformers>=4.40,<5\npeft[all] ~= 0.12.0\ntorch>=2.3\n\ntorch 2.4.1\n", matrix, "report")
    assert {fact.key: fact.value for fact in read.facts} == {"pkg.torch": "2.4.1"}
    assert read.notes == tuple(
        f"line {number} of report speaks of {name} and was not read"
        for number, name in ((1, "transformers"), (2, "peft"))
    )


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.5.0 " * 5_000_000,
        "\x00\x1b[31m\u202etorch\x00 version: 2.5.0\x1b[0m\n" * 3,
        "| " * 1_000_000,
        "OS: Linux-" + "5-x86_64" * 100_000,
        "[conda] " + "a " * 100_000,
        "\n" * 1_000_000,
        (" " * 300 + "a:\n") * 20_000,
    ],
    ids=["one line", "escapes", "bars", "platform", "blanks", "lines", "indented labels"],
)
def test_hostile_text_is_bounded_and_its_characters_do_not_come_through(matrix, text):
    read = report_facts(text, matrix, "report")
    said = repr([fact.value for fact in read.facts]) + "".join(read.notes)
    assert not any(sign in said for sign in ("\x1b", "\\x1b", "\x00", "\\x00", "\u202e"))
    assert len(read.notes) < 8


def test_a_configuration_between_fences_is_read_as_a_whole(matrix):
    rows = "model_name_or_path: mistralai/Mistral-7B-v0.1\nbf16: true\n\nmixer:\n  HuggingFaceH4/ultrachat_200k: 1.0\n"
    rest = "\ngradient_accumulation_steps: 32\nper_device_train_batch_size: 2\nlearning_rate: 2.0e-05\n"
    facts = report_facts(f"```\n{rows}{rest}```\n", matrix, "report").facts
    assert facts.text("model.repo") == "mistralai/Mistral-7B-v0.1" and facts.value("recipe.batch_size") == 2
    assert not isinstance(facts.value("recipe.arguments"), Unknown)
