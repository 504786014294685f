"""Bad input gets one clear sentence and the right exit code: never a traceback, a hang, or a control character."""

from __future__ import annotations

import json
import os
import sys

import pytest

FACTS = {"pkg.torch": "2.4.1+cu118", "pkg.transformers": "4.48.3"}


def assert_one_sentence(result, code, *fragments):
    assert result.code == code, result.out + result.err
    text = result.err + result.out
    assert "Traceback" not in text
    assert "\x1b" not in text
    lines = [line for line in result.err.splitlines() if line and not line.startswith("Try ")]
    assert len(lines) == 1, result.err
    for fragment in fragments:
        assert fragment in lines[0]


@pytest.mark.skipif(os.name == "nt", reason="/dev is a folder of POSIX")
@pytest.mark.parametrize(
    ("option", "place", "first"),
    [
        ("--path", "empty", "Not judged: no package is installed in "),
        ("--path", "/dev", "Not judged: no package is installed in /dev"),
        ("--model", "./empty", "Not judged: nothing is known of the model ./empty"),
        ("--model", "/dev", "Not judged: nothing is known of the model /dev"),
        ("--model", "nosuchorg/x", "Not judged: nothing is known of the model nosuchorg/x"),
    ],
)
def test_nothing_to_judge_is_said_first_and_is_no_pass(run, facts_file, tmp_path, option, place, first):
    (tmp_path / "empty").mkdir()
    facts = ("--facts", facts_file(FACTS)) if option == "--model" else ()
    result = run("check", "--no-gpu", *facts, option, place)
    assert (result.code, result.err) == (3, "")
    assert result.out.startswith(first)


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "--facts", "{facts}", "--matrix", "/proc"),
        ("check", "--facts", "{facts}", "--config", "/dev/zero"),
        ("probe", "--replay", "/dev/zero"),
        ("check", "--facts", "/dev/zero"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="/proc and /dev/zero are those of Linux")
def test_a_device_in_the_place_of_a_file_is_wrong_use(run, facts_file, arguments):
    facts = facts_file(FACTS)
    result = run(*(argument.format(facts=facts) for argument in arguments))
    assert_one_sentence(result, 2, arguments[-1])


def test_a_model_folder_that_does_not_exist(run, facts_file):
    result = run("check", "--facts", facts_file(FACTS), "--model", "./no/such/model")
    assert_one_sentence(result, 2, "./no/such/model", "no such")


def test_a_config_that_is_not_json(run, facts_file, tmp_path):
    model = tmp_path / "glm"
    model.mkdir()
    (model / "config.json").write_text("{'model_type': 'glm'}")
    assert_one_sentence(run("check", "--facts", facts_file(FACTS), "--model", str(model)), 2, "config.json", "JSON")


def test_a_config_of_200_megabytes(run, facts_file, tmp_path):
    model = tmp_path / "glm"
    model.mkdir()
    with open(model / "config.json", "wb") as file:
        file.truncate(200 * 1024 * 1024)
    result = run("check", "--facts", facts_file(FACTS), "--model", str(model))
    assert_one_sentence(result, 2, "config.json", "MiB")


def test_a_model_name_with_escape_codes(run, facts_file):
    result = run("check", "--facts", facts_file(FACTS), "--model", "evil/\x1b[31mred\x07\u202e")
    assert_one_sentence(result, 2)


def test_a_facts_file_that_is_missing(run):
    assert_one_sentence(run("check", "--facts", "nowhere.json"), 2, "nowhere.json")


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("not json", "not JSON"),
        ("[]", "schema"),
        ('{"schema": "envdoctor.facts/9", "facts": {}}', "envdoctor.facts/9"),
        ('{"schema": "envdoctor.facts/1", "facts": {"recipe.batchsize": 2}}', "recipe.batch_size"),
        ('{"schema": "envdoctor.facts/1", "facts": {"gpu": [{"colour": "red"}]}}', "colour"),
        ('{"schema": "envdoctor.facts/1", "facts": []}', "facts"),
        ("[" * 100_000, ""),
    ],
)
def test_a_facts_file_with_a_fault_names_it(run, tmp_path, text, fragment):
    path = tmp_path / "broken.json"
    path.write_text(text)
    assert_one_sentence(run("check", "--facts", str(path)), 2, "broken.json", fragment)


def test_a_value_that_cannot_be_read_is_unknown_and_the_rest_is_judged(run, facts_file):
    facts = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2}
    result = run("check", "--facts", facts_file({**facts, "cuda.toolkit": "12.2 / 11.8", "gpu": [{"cc": 9}]}))
    assert result.code == 1 and "error[torch-2-5-0-glm4-batch-nan]" in result.out
    assert "cuda.toolkit counts as unknown: dotted integers" in result.out
    assert "gpu: item 1: cc counts as unknown: a version in quotes is expected, not 9" in result.out


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_very_many_packages_are_judged(run, tmp_path, count):
    path = tmp_path / "many.json"
    packages = {f"pkg.p{number}": "1.0" for number in range(count)}
    path.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": {**packages, **FACTS}}))
    result = run("check", "--facts", str(path))
    assert result.code == 0
    assert "No findings" in result.out or "0 errors" in result.out or "warning" in result.out


def test_a_facts_file_that_says_nothing_is_not_a_pass(run, facts_file):
    result = run("check", "--facts", facts_file({}))
    assert result.code == 3
    assert "no rule could be checked" in result.out + result.err


def test_an_interpreter_that_does_not_exist(run):
    assert_one_sentence(run("check", "--python", "/no/such/python"), 2, "/no/such/python")


def test_two_sources_for_one_environment(run, facts_file):
    result = run("check", "--facts", facts_file(FACTS), "--python", "python3")
    assert_one_sentence(result, 2, "--facts", "--python")


def test_a_required_fact_that_is_unknown(run, facts_file):
    result = run("check", "--facts", facts_file(FACTS), "--require", "gpu,model")
    assert result.code == 3
    assert "gpu" in result.out and "model" in result.out


@pytest.mark.parametrize("encoding", ["gbk", "ascii"])
def test_any_console_encoding_shows_the_report(run, facts_file, encoding):
    facts = {**FACTS, "pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf"}
    result = run("check", "--facts", facts_file(facts), "--lang", "zh", env={"PYTHONIOENCODING": encoding})
    assert result.code == 1
    assert "Traceback" not in result.err
