"""The command line itself: names, precedence, streams that go away, and failures in one sentence."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from locking import LOCKS, opened

ROOT = Path(__file__).resolve().parents[2]
CONFLICT = ("ignore", "requirement-conflict", "--reason", "x", "--where")
BROKEN = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2}
RULE = """tests = [{{ match = {{ "pkg.x-package" = "1.0" }} }}]
rule = {{ severity = "{severity}", confidence = "{confidence}", effect = "crash", added = 2026-11-01, \
open_ended = true }}
affects = [{{ "pkg.x-package" = "present" }}]
message = {{ en = "x-package {{pkg.x-package}} fails" }}
why = {{ en = "it was built so" }}
"""


def sentence(result, code):
    """The one line on stderr of a command that failed."""
    assert result.code == code, result.out + result.err
    assert "Traceback" not in result.err and result.out == ""
    lines = [line for line in result.err.splitlines() if not line.startswith("Try ")]
    assert len(lines) == 1 and lines[0].startswith("envdoctor: "), result.err
    return lines[0].removeprefix("envdoctor: ")


def started(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


@pytest.fixture
def private(tmp_path):
    """A folder with one private rule about x-package; returns the options that use it."""

    def build(severity="error", confidence="upstream"):
        folder = tmp_path / "private"
        folder.mkdir(exist_ok=True)
        text = RULE.format(severity=severity, confidence=confidence)
        (folder / "x-rule.toml").write_text(text)
        return folder

    return build


@pytest.fixture
def check(run, facts_file, private):
    """Exit code of ``check`` of an environment with x-package, judged by the private rule."""

    def go(*arguments, severity="error", confidence="upstream", facts=None, **options):
        path = facts_file({"pkg.x-package": "1.0", **(facts or {})})
        folder = private(severity, confidence)
        return run("check", "--facts", path, "--matrix", str(folder), "--format", "json", *arguments, **options)

    return go


def found(result):
    return {finding["id"]: finding for finding in result.json["findings"]}


@pytest.fixture
def misplaced(tmp_path):
    """A list, a recipe, an empty file, and a folder with a list."""
    (tmp_path / "folder").mkdir()
    for name in ("req.txt", "folder/requirements.txt"):
        (tmp_path / name).write_text("torch==2.5.0\ntransformers==4.48.0\n")
    (tmp_path / "train.yaml").write_text("model_name_or_path: x/y\nfinetuning_type: lora\nstage: sft\n")
    (tmp_path / "empty.json").write_text("")


@pytest.mark.parametrize(
    ("option", "file", "said"),
    [
        ("--recipe", "req.txt", "; this looks like --lock req.txt"),
        ("--lock", "train.yaml", ": has no list of dependencies; this looks like --recipe train.yaml"),
        ("--python", "req.txt", "is not started; this looks like --lock req.txt"),
        ("--lock", "folder", ": Is a directory; name a file of it: requirements.txt"),
        ("--facts", "empty.json", "--facts empty.json: is empty"),
        ("--facts", "req.txt", "; this looks like --lock req.txt"),
    ],
)
def test_a_file_of_another_option_is_said_to_be_one(run, misplaced, option, file, said):
    assert sentence(run("check", option, file), 2).endswith(said)


def test_an_option_before_the_command_is_told_its_place(run):
    result = run("--lock", "req.txt", "check")
    assert (result.code, result.err.splitlines()[1]) == (2, "Options follow the command: envdoctor check --lock ...")


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("--help",), "The environment compatibility doctor for LLM fine-tuning."),
        (("-h",), "The environment compatibility doctor for LLM fine-tuning."),
        (("check", "--help"), "Judge the installed environment for a model, a recipe and your own code."),
        (("matrix", "-h"), "The rules and tables: list them, run their tests, lint them."),
    ],
)
def test_help_is_an_answer(run, arguments, first):
    result = run(*arguments)
    assert (result.code, result.out.splitlines()[2].strip(), result.err) == (0, first, "")


@pytest.mark.parametrize("arguments", [(), ("matrix",)])
def test_without_a_command_the_help_is_shown_as_it_is(run, arguments):
    result = run(*arguments)
    assert result.out + result.err == run(*arguments, "--help").out


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("check", "--fast"), "--fast"),
        (("check", "--image", "train.tar"), "docker export $(docker create IMAGE) | tar -x -C DIR, then --root DIR"),
        (("check", "--ray"), "examples/ray_nodes.py"),
        (("check", "--statistics"), "--format concise"),
        (("check", "--fail-on", "fatal"), "fatal"),
        (("check", "--format", "yaml"), "yaml"),
        (("check", "extra"), "extra"),
        (("check", "--output", "report.json"), "--output report.json: FORMAT=FILE is expected"),
        (("check", "--output", "yaml=x"), "FORMAT=FILE is expected"),
        (("explain",), "--error TEXT or --log FILE: give one of them"),
        (("explain", "no-such-rule-at-all"), "there is no rule no-such-rule-at-all"),
        (("matrix", "test", "no-such-rule"), "there is no rule no-such-rule"),
        (("ignore", "no-such-rule", "--reason", "x"), "there is no rule no-such-rule"),
        (("ignore", "x-ours"), "--reason"),
        (("ignore", "x-ours", "--reason", " "), "--reason is empty"),
        (("ignore", "x-ours", "--reason", "x", "--until", "soon"), "--until soon: a day is expected, as 20"),
        (("ignore", "x-ours", "--reason", "x", "--where", "T4"), "--where T4: key=value is expected"),
        (("check", "--config", "nowhere.toml"), "nowhere.toml: cannot be read"),
        (("check", "--matrix", "nowhere"), "--matrix nowhere: no such folder"),
        (("check", "--require", "gpus"), "--require gpus: not a known fact"),
        (("ignore", "x-ours", "--reason", "x", "--until", "2020-01-01"), "that day is over"),
        (
            ("check", "--target-gpu", "A100", "80GB"),
            "80GB: a name with a blank is typed in quotes, or with a dash: A100-80GB",
        ),
        (("check", "--set", "gpu.free_gib=20GB"), "a number of GiB is expected, not '20GB'"),
        (("check", "--set", "batch=2"), "--set batch=2: batch is not a known fact"),
        (("check", "--set", "a\x1b[31m\u202eb=2"), "is not a known fact"),
        (("check", "--lock="), "--lock is empty: is it a variable that is not set?"),
        (("check", "--facts", ""), "--facts is empty"),
        (("check", "--python", ""), "--python is empty"),
        (("check", "--set", "gpu.name=A100,"), "'A100,' holds an empty value"),
        (("check", "--set", "gpu.name=A\nB"), "or a line end"),
        (("check", "--target-gpu", ","), "--target-gpu: a name is empty"),
        (("check", "--matrix", "a" * 5000), "--matrix aaa"),
        # an option of one value, given twice: the first one would count for nothing
        (("check", "--lock", "a.txt", "--lock", "b.txt"), "--lock is given twice, and takes one value; lists of one"),
        (("memory", "--model=a", "--model", "b"), "--model is given twice"),
        (("check", "--format", "json", "--format", "json"), "--format is given twice"),
        # an ignore that can never match
        ((*CONFLICT, "conflict.pakage=protobuf"), "did you mean conflict.package?"),
        ((*CONFLICT, "gpu.name=T4"), "they have conflict.asked_by"),
        ((*CONFLICT, "conflict.kind=broken"), "known are missing, conflict, python"),
        # a typo gets what was probably meant
        (("chek",), "did you mean check"),
        (("explain", "torch-2-5-0-glm4-batch-na"), "did you mean torch-2-5-0-glm4-batch-nan"),
        (("check", "--require", "modle"), "did you mean model"),
        (("ignore", "requirement-conflcit", "--reason", "x"), "did you mean requirement-conflict"),
    ],
)
def test_wrong_use_is_one_sentence(run, tmp_path, arguments, fragment):
    text = sentence(run(*arguments), 2)
    assert fragment in text and text.isprintable()
    assert not (tmp_path / "envdoctor.toml").exists()


# --- wrong rule files ----------------------------------------------------------------------------------------------


def test_an_unparsable_private_rule_stops_with_its_place(run, facts_file, private):
    folder = private()
    (folder / "x-bad.toml").write_text("schema = 1\nrule = = 2\nmore = 3\n")
    text = sentence(run("check", "--facts", facts_file(BROKEN), "--matrix", str(folder)), 2)
    assert "x-bad.toml: not TOML: " in text and "line 2" in text


def test_a_private_rule_that_cannot_be_evaluated_is_said(run, facts_file, private):
    folder = private()
    (folder / "x-newer.toml").write_text("schema = 2\n")
    said = run("check", "--facts", facts_file(BROKEN), "--matrix", str(folder)).out
    assert f"warning: {folder / 'x-newer.toml'}: this rule was not checked: " in " ".join(said.split())


def test_a_private_rule_with_an_unknown_key_or_a_newer_schema_is_not_checked(check, private):
    (private() / "x-newer.toml").write_text("schema = 9\n")
    (private() / "x-odd.toml").write_text("schema = 1\nsurprise = 1\n")
    result = check()
    assert result.code == 1 and "x-rule" in found(result)
    reasons = {entry["id"]: entry.get("reason", "") for entry in result.json["not_checked"]}
    assert "schema 9 is newer" in reasons["x-newer"] and "unknown key 'surprise'" in reasons["x-odd"]


def test_lint_names_what_is_wrong_with_private_rules(run, private):
    folder = private()
    (folder / "x-bad.toml").write_text("schema = 1\nrule = = 2\n")
    result = run("matrix", "lint", "--matrix", str(folder))
    assert result.code == 1
    *complaints, summary = result.out.splitlines()
    assert {line.partition(": ")[0].rpartition("/")[2] for line in complaints} == {"x-rule.toml", "x-bad.toml"}
    assert any("x-rule.toml: evidence: at least one source is needed" in line for line in complaints)
    assert any("x-bad.toml: not TOML: " in line for line in complaints)
    assert summary == f"2 files, {len(complaints)} complaints"  # the shipped rules were linted without them


def test_lint_of_a_file_is_of_that_file_alone(run, private):
    folder = private()
    (folder / "x-bad.toml").write_text("rule = = 2\n")
    result = run("matrix", "lint", folder / "x-rule.toml")
    assert result.out.splitlines()[-1] == "1 file, 2 complaints"
    assert "x-rule.toml: evidence: at least one source is needed" in result.out
    assert "a rule or a table (*.toml) is expected" in sentence(run("matrix", "lint", folder / "x-none.toml"), 2)


def test_a_new_rule_is_written_to_be_filled_in(run, tmp_path):
    result = run("matrix", "new", "x-our-cluster", "--matrix", tmp_path / "ours")
    path = tmp_path / "ours" / "x-our-cluster.toml"
    assert (result.code, result.out.splitlines()[0]) == (0, f"{path}, in a new folder") and path.is_file()
    result = run("matrix", "lint", path)
    assert result.code == 1 and all("still to be written" in line for line in result.out.splitlines()[:-1])
    words = {"torch {pkg.torch} ...": "torch {pkg.torch} fails", "use ...": "use 2.5.1", "https://...": "https://a.b/c"}
    text = path.read_text()
    for old, new in {**words, '"..."': '"it was seen"'}.items():
        text = text.replace(old, new)
    path.write_text(text)
    result = run("matrix", "lint", path)
    assert (result.code, result.out.strip()) == (0, "1 file, 0 complaints")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("x-rule",), "--matrix DIR is expected"),
        (("cluster", "--matrix", "ours"), "x- first for a private rule"),
        (("x-Cluster", "--matrix", "ours"), "lower-case words joined by dashes"),
        (("x-rule", "--matrix", "private"), "cannot be written"),
    ],
)
def test_a_new_rule_needs_a_free_id_and_a_place(run, private, arguments, words):
    private()
    assert words in sentence(run("matrix", "new", *arguments), 2)


def test_what_nobody_has_read_for_so_long_is_named(run, private):
    folder = private()
    rule = folder / "x-rule.toml"
    rule.write_text(rule.read_text().replace("2026-11-01", "2020-01-02"))
    count = int(run("matrix", "list").out.splitlines()[-1].split()[0]) + 1
    result = run("matrix", "lint", "--stale", "1500", "--matrix", str(folder))
    assert (result.code, result.out.splitlines()[1:]) == (1, [f"{count} rules, 1 complaint"])
    assert "its evidence was last read on 2020-01-02" in result.out
    assert run("matrix", "lint", "--stale", "30000").code == 0


def test_list_takes_private_rules(run, private):
    rows = json.loads(run("matrix", "list", "--matrix", str(private()), "--format", "json").out)["rules"]
    assert "x-rule" in [row["id"] for row in rows]


def test_the_tests_of_a_rule_are_run_under_its_present_and_its_former_id(run):
    result = run("matrix", "test", "rc-gc-noop", "torch-not-installed")
    assert result.code == 0 and "0 failed" in result.out
    assert "rc-gc-noop is now remote-code-checkpointing-does-nothing" in result.out


def test_an_ignore_of_a_former_id_is_written_under_the_present_one_and_says_so(run, tmp_path):
    result = run("ignore", "tok-class", "--reason", "known")
    assert "tokenizer-class-changed (tok-class is its former id) is accepted" in result.out
    assert 'id = "tokenizer-class-changed"' in (tmp_path / "envdoctor.toml").read_text()


def test_a_configuration_that_names_a_former_id_works_and_is_told(run, tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"rope_scaling": name}))
    (tmp_path / "envdoctor.toml").write_text(
        'rules = { rope = "note" }\n[[ignore]]\nid = "transformers-window"\nreason = "known"\n'
    )
    result = run("diff-revision", "old", "new", "--no-environment", "--format", "json")
    said = [notice["text"] for notice in result.json["notices"]]
    assert "rules: rope names rope-settings-changed by its former id" in said
    assert (
        "envdoctor.toml: the ignore of transformers-window names transformers-releases-that-load-it-changed" in said[1]
    )


# --- precedence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "low", "strict", "rule"),
    [
        ("fail-on", "warning", "error", {"severity": "warning"}),
        ("fail-confidence", "inferred", "reported", {"confidence": "inferred"}),
    ],
)
def test_command_line_over_environment_over_file(check, tmp_path, key, low, strict, rule):
    (tmp_path / "envdoctor.toml").write_text(f'{key} = "{low}"\n')
    assert check(**rule).code == 1  # the file
    variable = {f"ENVDOCTOR_{key.upper().replace('-', '_')}": strict}
    assert check(**rule, env=variable).code == 0  # the variable
    assert check(f"--{key}", low, **rule, env=variable).code == 1  # the option
    assert (check("--no-config", **rule).code, check(f"--{key}", low, "--no-config", **rule).code) == (0, 1)


def test_a_wrong_variable_is_wrong_use_and_an_empty_one_says_nothing(check):
    assert "fatal" in sentence(check(env={"ENVDOCTOR_FAIL_ON": "fatal"}), 2)
    empty = dict.fromkeys(["ENVDOCTOR_FAIL_ON", "ENVDOCTOR_MODEL", "ENVDOCTOR_PYTHON", "ENVDOCTOR_CONFIG"], "")
    assert check(env=empty).code == 1


def test_an_environment_named_on_the_command_line_replaces_the_one_of_the_variable(check, run, facts_file):
    assert check(env={"ENVDOCTOR_PYTHON": "/no/such/python"}).code == 1
    result = run("check", env={"ENVDOCTOR_PYTHON": "/no/such/python"})
    assert "/no/such/python" in sentence(result, 2)
    both = run("check", "--python", sys.executable, "--facts", facts_file(BROKEN))
    assert "give one of them" in sentence(both, 2)


def test_set_on_the_command_line_wins_over_the_file(check, tmp_path):
    (tmp_path / "envdoctor.toml").write_text('[set]\n"pkg.x-package" = "absent"\n')
    assert check().code == 0
    result = check("--set", "pkg.x-package=2.0")
    assert result.code == 1 and found(result)["x-rule"]["facts"][0] == {
        "key": "pkg.x-package",
        "value": "2.0",
        "origin": "--set",
    }


def test_the_model_of_the_file_is_used_unless_another_is_named(run, facts_file, tmp_path):
    (tmp_path / "envdoctor.toml").write_text('model = "zai-org/glm-4-9b-chat-hf"\n')
    path = facts_file({"pkg.torch": "2.5.0+cu118"})
    assert "torch-2-5-0-glm4-batch-nan" in found(run("check", "--facts", path, "--format", "json"))
    other = run("check", "--facts", path, "--format", "json", "--model", "Qwen/Qwen2.5-7B-Instruct")
    assert "torch-2-5-0-glm4-batch-nan" not in found(other)


def test_the_configuration_of_the_project_is_found_from_a_folder_below(check, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.envdoctor]\nrules = { x-rule = 'off' }\n")
    (tmp_path / "src").mkdir()
    assert check(cwd=tmp_path / "src", facts={"pkg.torch": "2.4.1"}).code == 0


def test_private_rules_and_required_facts_of_the_file_are_used(run, facts_file, private, tmp_path):
    private()
    (tmp_path / "envdoctor.toml").write_text('matrix = ["private"]\nrequire = ["gpu"]\n')
    result = run("check", "--facts", facts_file({"pkg.x-package": "1.0"}), "--format", "json")
    assert result.code == 3 and "x-rule" in found(result)
    given = facts_file({"pkg.x-package": "1.0", "gpu": []})
    assert run("check", "--facts", given, "--require", " model.repo ,,").code == 3


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("rules = { no-such-rule = 'off' }", "rules: no-such-rule: there is no such rule"),
        ("matrix = ['nowhere']", "nowhere: no such folder"),
        ("set = { recipe.batchsize = 2 }", "envdoctor.toml recipe.batchsize=2: "),
        ("[x", "not TOML"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_sentence(run, facts_file, tmp_path, text, fragment):
    (tmp_path / "envdoctor.toml").write_text(text)
    assert fragment in sentence(run("check", "--facts", facts_file(BROKEN)), 2)


# --- ignoring ------------------------------------------------------------------------------------------------------


def test_an_accepted_finding_no_longer_fails_the_run_and_stays_in_the_report(run, facts_file):
    path = facts_file(BROKEN)
    first = run("check", "--facts", path, "--format", "json")
    assert first.code == 1
    for name in found(first):
        assert run("ignore", name, "--reason", "batch size is 1 in production").code == 0
    second = run("check", "--facts", path, "--format", "json")
    assert second.code == 0
    assert found(second)["torch-2-5-0-glm4-batch-nan"]["ignored"] == "batch size is 1 in production"


# --- streams that go away ------------------------------------------------------------------------------------------


@pytest.fixture
def shell(script, tmp_path):
    """Run a line of a shell in which $ENVDOCTOR is the command."""

    environ = {**os.environ, "ENVDOCTOR": f"{sys.executable} {script}"}
    return lambda line: started(["bash", "-c", "set -o pipefail; " + line], cwd=tmp_path, env=environ)


@pytest.mark.parametrize("form", ["terminal", "json"])
def test_a_reader_that_goes_away_does_not_change_the_exit_code(shell, facts_file, form):
    done = shell(f"$ENVDOCTOR check --facts {facts_file(BROKEN)} --format {form} | true")
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_for_both_streams_is_no_finding(shell, facts_file):
    check = f"$ENVDOCTOR check --facts {facts_file({'pkg.torch': '2.4.1'})}"
    assert shell(f"{check} > /dev/full 2> /dev/full").returncode == 3
    assert shell(f"{check} --no-such-option > /dev/full 2> /dev/full").returncode == 2


def test_a_full_disk_is_said_and_never_a_pass(shell, facts_file):
    done = shell(f"$ENVDOCTOR check --facts {facts_file({'pkg.torch': '2.4.1'})} > /dev/full")
    assert done.returncode == 3
    assert done.stderr == f"envdoctor: standard output cannot be written: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-"])
def test_closed_streams_leave_the_exit_code(shell, facts_file, closed):
    done = shell(f"$ENVDOCTOR check --facts {facts_file(BROKEN)} {closed}")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_a_report_file_that_cannot_be_written_is_said(run, facts_file, tmp_path):
    (tmp_path / "folder").mkdir()
    result = run("check", "--facts", facts_file(BROKEN), "--output", "json=folder")
    assert "folder: cannot be written: " in sentence(result, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["facts.json", "folder"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_regular_file_is_written_into_and_stays_what_it_is(run, facts_file, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit((tmp_path / "pipe").read_bytes)
        held = os.open(tmp_path / "pipe", os.O_WRONLY)  # waits for the reader
        assert run("check", "--facts", facts_file(BROKEN), "--output", "json=pipe").code == 1
        os.close(held)
        assert json.loads(reader.result())
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    result = run("check", "--facts", facts_file(BROKEN), "--output", "json=pipe")
    assert result.code == 3 and "pipe: cannot be written" in result.err
    result = run("check", "--facts", facts_file(BROKEN), "-qq", "--output", "json=/dev/stdout")
    assert result.code == 1 and json.loads(result.out)


def test_a_report_file_is_whole_and_standard_output_still_has_its_own(run, facts_file, tmp_path):
    result = run("check", "--facts", facts_file(BROKEN), "--output", "json=report.json")
    assert result.code == 1 and "torch-2-5-0-glm4-batch-nan" in result.out
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_being_asked_to_end_is_one_line(script, tmp_path, name):
    pipe = tmp_path / "facts.json"
    os.mkfifo(pipe)
    child = subprocess.Popen(
        [sys.executable, str(script), "check", "--facts", str(pipe)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with open(pipe, "w"):  # opens as soon as envdoctor reads
        child.send_signal(getattr(signal, name))
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err.strip()) == (3, "", "envdoctor: interrupted")


def test_under_nohup_a_terminal_that_closes_ends_nothing(script, facts_file, tmp_path):
    facts = Path(facts_file(BROKEN)).read_text()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = f"trap '' HUP; exec {sys.executable} {script} check --facts {pipe}"
    child = subprocess.Popen(["/bin/sh", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    with open(pipe, "w") as file:  # opens as soon as envdoctor reads
        child.send_signal(signal.SIGHUP)
        file.write(facts)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, "torch-2-5-0-glm4-batch-nan" in out) == (1, True)


def test_a_fault_of_envdoctor_itself_is_one_line_and_can_be_traced(tmp_path):
    code = "import sys; from envdoctor.cli import group, main; group._NAMES.append('x'); sys.exit(main.main(['x']))"

    plain, traced = (
        started([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **more})
        for more in ({}, {"ENVDOCTOR_DEBUG": "1"})
    )
    assert plain.returncode == 3 and plain.stderr.count("\n") == 1
    assert "envdoctor itself failed (AttributeError: " in plain.stderr and "ENVDOCTOR_DEBUG=1" in plain.stderr
    assert "Traceback" in traced.stderr


# --- the working directory -----------------------------------------------------------------------------------------

HOSTILE = ["click", "json", "typing", "__future__", "dataclasses", "re", "pathlib", "difflib", "datetime", "tomllib"]


@pytest.fixture
def trap(tmp_path):
    """A folder whose Python files leave a mark when they are imported."""
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in [*HOSTILE, "packaging", "yaml", "jinja2", "shlex", "hashlib", "platform", "subprocess", "ctypes"]:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'a').write('{name} ')\n")
    return folder


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 `python -m` itself imports from there")
@pytest.mark.parametrize("arguments", [("--version",), ("check",), ("facts",), ("matrix", "list")])
def test_nothing_in_the_working_directory_is_imported(run, trap, tmp_path, arguments):
    result = run(*arguments, cwd=trap, fresh=True)
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()
    assert "Traceback" not in result.err


@pytest.mark.parametrize("path", ["", ":/nonexistent", ".", "{trap}", "/nonexistent:{trap}/"])
def test_nor_through_pythonpath(trap, compiled, tmp_path, path):
    """Nor from a folder that PYTHONPATH names: it serves the judged environment, and what is in it is not ours."""
    for name in ("re", "typing", "__future__"):  # the interpreter and a script's own first line take them from there
        (trap / f"{name}.py").unlink()
    runner = tmp_path / "envdoctor-script"
    runner.write_text(
        "import sys\nfrom envdoctor.cli.main import main\nfrom envdoctor.matrix import matrix\n"
        f"matrix._COMPILED = type(matrix._COMPILED)({str(compiled)!r})\nsys.exit(main(['matrix', 'list']))\n"
    )
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environ["PYTHONPATH"] = path.format(trap=trap) + ":"
    done = started([sys.executable, str(runner)], cwd=trap, env=environ)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "mark").exists(), (tmp_path / "mark").read_text()


def test_without_its_dependencies_it_says_what_is_missing(tmp_path):
    code = f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(ROOT)!r}]\n"
    done = started([sys.executable, "-S", "-c", code + "from envdoctor.cli.main import main; main(['--help'])"])
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr.startswith("envdoctor: click is not installed for ") and done.stderr.count("\n") == 1


def test_a_working_directory_that_is_gone_is_no_obstacle(shell, facts_file):
    path = facts_file(BROKEN)
    line = f"mkdir gone && cd gone && rmdir ../gone && $ENVDOCTOR check --facts {path} --format json"
    done = shell(line)
    assert (done.returncode, done.stderr) == (1, "")
    done = shell("mkdir gone && cd gone && rmdir ../gone && $ENVDOCTOR ignore x-ours --reason x")
    assert done.returncode == 2 and "the working directory has been deleted" in done.stderr


# --- typos, filters and standard input -------------------------------------------------------------------------------


def test_a_typo_of_a_command_below_another_is_said_by_click(run):
    said = sentence(run("matrix", "lst"), 2)
    assert "did you mean" in said.lower() and "list" in said


def test_facts_are_read_from_standard_input(script, facts_file):
    command = [sys.executable, str(script), "check", "--no-config", "--facts", "-", "--format", "json"]
    with open(facts_file(BROKEN), "rb") as document:
        done = started(command, stdin=document)
    assert done.returncode == 1, done.stderr
    assert "torch-2-5-0-glm4-batch-nan" in [finding["id"] for finding in json.loads(done.stdout)["findings"]]


def test_a_recipe_is_read_from_standard_input(script, facts_file, tmp_path):
    (tmp_path / "command").write_text("vllm serve Qwen/Qwen2.5-7B-Instruct --gpu-memory-utilization 0.95\n")
    command = [sys.executable, str(script), "facts", "--no-config", "--facts", facts_file({}), "--format", "json"]
    with open(tmp_path / "command", "rb") as document:
        facts = json.loads(started([*command, "--recipe", "-"], stdin=document).stdout)["facts"]
    assert facts["recipe.gpu_memory_utilization"] == 0.95


@pytest.mark.parametrize(
    "name",
    [one.name for one in sorted(LOCKS.iterdir()) if one.suffix not in (".md", ".out") and "pixi" not in one.name],
)
def test_a_lock_is_read_from_standard_input_in_any_format(monkeypatch, name):
    with open(LOCKS / name, encoding="utf-8") as document:
        monkeypatch.setattr(sys, "stdin", document)
        read = [opened(one).facts.value("dist") for one in ("-", name)]
    piped, same = ([{**item, "version": str(item["version"]).rpartition(":")[2]} for item in one] for one in read)
    assert len(piped) > 1 and piped == same


def test_a_lock_is_piped_and_one_without_a_name_or_a_form_is_refused_in_a_sentence(script, tmp_path):
    (tmp_path / "list.txt").write_text("torch==2.5.1\n")
    command = [sys.executable, str(script), "check", "--no-config", "--target-python", "3.12", "--lock", "-"]
    with open(tmp_path / "list.txt", "rb") as document, open(ROOT / "LICENSE", "rb") as other:
        piped, done = (started(command, stdin=one) for one in (document, other))
    assert piped.returncode == 0 and "torch 2.5.1" in piped.stdout, piped
    assert done.returncode == 2 and "--lock -: is of no format that can be told" in done.stderr


def test_rules_are_listed_with_their_titles_and_by_words(run):
    listed = run("matrix", "list", "glm4", "NaN", "error").out
    assert "torch-2-5-0-glm4-batch-nan  (error, upstream, wrong-numbers)\n    torch gives NaN loss for" in listed
    assert "requirement-missing" not in listed


def test_an_ignore_of_one_record_is_written(run, tmp_path):
    assert run(*CONFLICT, "conflict.package=protobuf").code == 0
    assert '"conflict.package" = "protobuf"' in (tmp_path / "envdoctor.toml").read_text()


def test_a_document_holds_all_facts_when_it_is_asked_for_more(check):
    few, many = (json.loads(check(*more, facts={"pkg.numpy": "2.0.0"}).out)["facts"] for more in ([], ["-v"]))
    assert set(few) == {"pkg.x-package"} and "pkg.numpy" in many
