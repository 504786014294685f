"""Bad input gets one clear sentence and the right exit code: never a traceback, a hang, or a control character."""

import json
import os
import sys

import pytest

FACTS = {"pkg.torch": "2.4.1+cu118", "pkg.transformers": "4.48.3"}


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


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc and /dev/zero are those of Linux")


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        *(
            pytest.param(words, words[-1:], marks=LINUX)
            for words in (
                ("check", "--facts", "facts.json", "--matrix", "/proc"),
                ("check", "--facts", "facts.json", "--config", "/dev/zero"),
                ("check", "--facts", "/dev/zero"),
                ("probe", "--replay", "/dev/zero"),
            )
        ),
        (("check", "--facts", "facts.json", "--model", "./no/such/model"), ("./no/such/model", "no such")),
        (("check", "--facts", "facts.json", "--model", "evil/\x1b[31mred\x07\u202e"), ()),
        (("check", "--facts", "facts.json", "--model", "./quoted"), ("config.json", "JSON")),
        (("check", "--facts", "facts.json", "--model", "./large"), ("config.json", "MiB")),
        (("check", "--facts", "nowhere.json"), ("nowhere.json",)),
        (("check", "--facts", "broken.json"), ("broken.json", "not JSON")),
        (("check", "--python", "/no/such/python"), ("/no/such/python",)),
        (("explain", "--log", "nowhere.txt"), ("nowhere.txt",)),
    ],
)
def test_wrong_use_is_one_sentence(run, facts_file, tmp_path, words, fragments):
    facts_file(FACTS)
    (tmp_path / "broken.json").write_text("not json")
    for model in ("quoted", "large"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.json").write_text("{'model_type': 'glm'}")
    os.truncate(tmp_path / "large" / "config.json", 200 * 1024 * 1024)
    result = run(*words)
    assert result.code == 2 and result.out == ""
    lines = [line for line in result.err.splitlines() if line and not line.startswith("Try ")]
    assert len(lines) == 1 and "Traceback" not in lines[0] and "\x1b" not in lines[0], result.err
    assert all(fragment in lines[0] for fragment in fragments)


def test_a_value_that_cannot_be_read_is_unknown_and_the_rest_is_judged(run, facts_file):
    facts = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2}
    result = run("check", "--facts", facts_file({**facts, "cuda.toolkit": "12.2 / 11.8", "gpu": [{"cc": 9}]}))
    assert result.code == 1 and "error[torch-2-5-0-glm4-batch-nan]" in result.out
    assert "cuda.toolkit counts as unknown: dotted integers" in result.out
    assert "gpu: item 1: cc counts as unknown: a version in quotes is expected, not 9" in result.out


@pytest.mark.parametrize(
    ("count", "code"), [(19_000, 0), (100_000, 2), pytest.param(1_000_000, 2, marks=pytest.mark.slow)]
)
def test_very_many_packages_are_judged_or_refused(run, tmp_path, count, code):
    path = tmp_path / "many.json"
    packages = {f"pkg.p{number}": "1.0" for number in range(count)}
    path.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": {**packages, **FACTS}}))
    result = run("check", "--facts", str(path))
    assert result.code == code
    assert ("No findings" if code == 0 else "names more than 20,000 packages") in result.out + result.err


@pytest.mark.parametrize("encoding", ["gbk", "ascii"])
def test_any_console_encoding_shows_the_report(run, facts_file, encoding):
    facts = {**FACTS, "pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf"}
    result = run("check", "--facts", facts_file(facts), "--lang", "zh", env={"PYTHONIOENCODING": encoding})
    assert result.code == 1
    assert "Traceback" not in result.err
