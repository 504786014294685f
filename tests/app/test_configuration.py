"""The project's configuration: where it is found, what it may say, one sentence for each mistake."""

import os
from datetime import date

import pytest

from envdoctor.app import UsageProblem, find_configuration, load_configuration
from envdoctor.judge import Ignore


@pytest.fixture
def load(tmp_path):
    """Load a text as envdoctor.toml (or another file)."""

    def go(text, name="envdoctor.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_configuration(path)

    return go


# --- what it may say -----------------------------------------------------------------------------------------------

FULL = """
fail-on = "warning"
fail-confidence = "inferred"
lang = "zh"
model = "THUDM/glm-4-9b-chat-hf"
matrix = ["rules", "/abs/rules"]
require = ["gpu", "model"]
set = { "recipe.batch_size" = 2, "recipe.packing" = true, "recipe.kernels" = ["liger", "unsloth"] }
rules = { some-rule = "off", other-rule = "note" }

[[ignore]]
id = "a-rule"
reason = "we patched it"
until = 2027-01-31
where = { "gpu.name" = "Tesla T4", "gpu.index" = 0, "gpu.memory_gib" = 16.0 }
"""


def test_everything_it_may_say(load, tmp_path):
    found = load(FULL)
    assert (found.fail_on, found.fail_confidence, found.lang) == ("warning", "inferred", "zh")
    assert found.model == "THUDM/glm-4-9b-chat-hf" and found.require == ("gpu", "model")
    assert [str(folder) for folder in found.matrix] == [str(tmp_path / "rules"), "/abs/rules"]
    kernels = ("recipe.kernels", ["liger", "unsloth"])
    assert found.assignments == (("recipe.batch_size", 2), ("recipe.packing", True), kernels)
    assert found.severities == {"some-rule": "off", "other-rule": "note"}
    where = {"gpu.name": "Tesla T4", "gpu.index": "0", "gpu.memory_gib": "16"}
    assert found.ignores == (Ignore("a-rule", "we patched it", date(2027, 1, 31), where, "envdoctor.toml"),)


@pytest.mark.parametrize(
    ("text", "name", "fail_on"),
    [
        ("", "envdoctor.toml", None),
        ('[project]\nname = "x"\n[tool.envdoctor]\nfail-on = "note"\n', "pyproject.toml", "note"),
        ('fail-on = "note"\n[project]\nname = "x"\n', "pyproject.toml", None),
        ('[tool.envdoctor]\nfail-on = "note"\n', "envdoctor.toml", "note"),
    ],
)
def test_the_tools_table_may_stand_in_either_file_and_must_in_pyproject(load, text, name, fail_on):
    found = load(text, name)
    assert (found.fail_on, found.ignores, found.assignments) == (fail_on, (), ())


def test_a_text_may_stand_for_a_list_of_one_and_keys_need_no_quotes(load):
    ignore = '[[ignore]]\nid = "r"\nreason = "x"\nwhere.gpu.name = "T4"\n'
    found = load(f'require = "gpu"\n[set]\nrecipe.batch_size = 2\n\n{ignore}')
    assert (found.require, found.assignments) == (("gpu",), (("recipe.batch_size", 2),))
    assert found.ignores[0].where == {"gpu.name": "T4"}


# --- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fail-on = ", "not TOML"),
        (b"model = 'caf\xe9'", "not UTF-8 text"),
        ("a = " + "[" * 20_000, "nested too deeply"),
        ("fail_on = 'note'", "unknown key 'fail_on'; did you mean fail-on?"),
        ("colour = 1", "unknown key 'colour'; known are fail-on, fail-confidence"),
        ("fail-on = 'fatal'", "fail-on: 'fatal' is none of note, warning, error"),
        ("fail-on = 1", "fail-on: 1 is none of note, warning, error"),
        ("fail-confidence = 'sure'", "fail-confidence: 'sure' is none of"),
        ("lang = 'de'", "lang: 'de' is none of auto, en, zh"),
        ("model = ['x']", "model: a text is expected"),
        ("matrix = 4", "matrix: a text or a list of text is expected"),
        ("require = [1]", "require: a text or a list of text is expected"),
        ("set = ['a=b']", "set: a table such as"),
        ("rules = 'off'", "rules: a table is expected"),
        ("rules = { a-rule = 'silent' }", "rules: a-rule: 'silent' is none of off, note, warning, error"),
        ("rules = { a-rule = ['off'] }", "rules: a-rule: "),
        ("ignore = 'x'", "ignore: an array of tables"),
        ("[ignore]\nid = 'x'", "ignore: an array of tables"),
        ("[[ignore]]\nreason = 'x'", "ignore 1: id: missing"),
        ("[[ignore]]\nid = ''\nreason = 'x'", "ignore 1: id: a text is expected, not ''"),
        ("[[ignore]]\nid = 'r'", "ignore 1: reason: missing"),
        ("[[ignore]]\nid = 'r'\nreason = '  '", "ignore 1: reason: a reason is expected"),
        ("[[ignore]]\nid = 'r'\nreason = 4", "ignore 1: reason: a reason is expected"),
        ("[[ignore]]\nid = 'r'\nreason = 'x'\nuntil = '2027-01-31'", "ignore 1: until: a date such as"),
        ("[[ignore]]\nid = 'r'\nreason = 'x'\nuntil = 2027-01-31T10:00:00", "ignore 1: until: a date such as"),
        ("[[ignore]]\nid = 'r'\nreason = 'x'\nwhere = 'T4'", "ignore 1: where: a table such as"),
        ("[[ignore]]\nid = 'r'\nreason = 'x'\nfor = 'ever'", "ignore 1: unknown key 'for'"),
        ("[[ignore]]\nid = 'a'\nreason = 'x'\n[[ignore]]\nid = 'b'", "ignore 2: reason: missing"),
        *((text, "tool.envdoctor: a table is expected") for text in ("tool = 4", "[tool]\nenvdoctor = 4")),
        (".".join("a" * 100_000) + " = 1", "200 parts or more"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_key(load, text, sentence):
    with pytest.raises(UsageProblem) as caught:
        load(text)
    assert str(caught.value).count("envdoctor.toml") == 1 and sentence in str(caught.value)


def test_tables_in_tables_to_any_depth_are_one_key_but_not_without_end(load):
    assert len(load("[set]\n" + ".".join(["a"] * 100) + " = 1\n").assignments) == 1
    with pytest.raises(UsageProblem, match=r"tool\.envdoctor: a table is expected"):
        load("[[tool]]\nx = 1", "pyproject.toml")
    with pytest.raises(UsageProblem, match=r"Exceeds the limit|not TOML"):
        load("a = " + "9" * 5000)


# --- where it is found ---------------------------------------------------------------------------------------------


def test_the_nearest_file_up_to_the_projects_root_is_taken(tmp_path):
    deep = tmp_path / "project" / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "envdoctor.toml").write_text("")
    (tmp_path / "project" / ".git").mkdir()
    assert find_configuration(deep) is None  # what lies above the root is not the project's
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.envdoctor]\n")
    assert find_configuration(deep) == tmp_path / "project" / "pyproject.toml"
    (tmp_path / "project" / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_configuration(deep) == tmp_path / "project" / "pyproject.toml"
    (deep / "envdoctor.toml").write_text("")
    (deep / "pyproject.toml").write_text("[tool.envdoctor]\n")
    assert find_configuration(deep) == deep / "envdoctor.toml"


@pytest.mark.parametrize("name", ["envdoctor.toml", "pyproject.toml"])
@pytest.mark.parametrize("what", ["fifo", "folder", "dangling link", "device", "nothing"])
@pytest.mark.skipif(os.name == "nt", reason="links and pipes are those of POSIX")
def test_a_configuration_that_cannot_be_read_is_not_passed_over(tmp_path, name, what):
    """It may hold the settings of a gate."""
    path = tmp_path / name
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what != "nothing":
        path.symlink_to("/nowhere" if what == "dangling link" else "/dev/zero")
    with pytest.raises(UsageProblem, match="cannot be read: "):
        load_configuration(path if what == "nothing" else find_configuration(tmp_path))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_a_configuration_of_another_user_is_not_obeyed(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "envdoctor.toml").write_text("[rules]\n")
    os.chown(tmp_path / "envdoctor.toml", 4242, 4242)
    with pytest.raises(UsageProblem, match="belongs to another user"):
        find_configuration(project)
    os.chown(project, 4242, 4242)  # a checkout that its owner mounted into a container of root's
    assert find_configuration(project) == tmp_path / "envdoctor.toml"
