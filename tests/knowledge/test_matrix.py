"""Loading the matrix: from TOML, compiled, with private rules; what is broken is said, not skipped."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from envdoctor.judge.evaluate import evaluate
from envdoctor.knowledge import MatrixError, RuleError, load_matrix, load_source, parse_rule, parse_toml
from envdoctor.knowledge import matrix as module


def private(*folders):
    return load_matrix(folders)


# --- a checkout ----------------------------------------------------------------------------------------------------


def test_the_id_is_the_files_name_and_folders_are_for_eyes(home, write_rule):
    write_rule(home / "rules" / "some" / "deep" / "folder" / "a-rule.toml")
    (rule,) = load_source(home, source="test").rules
    assert rule.id == "a-rule" and rule.origin == "rules/some/deep/folder/a-rule.toml"


def test_the_version_is_the_day_of_the_newest_change(home, write_rule):
    write_rule(home / "rules" / "a.toml", day=3)
    write_rule(home / "rules" / "b.toml", day=7)
    assert load_source(home, source="test").version == "2026.11.07"


def test_one_id_in_two_folders_is_refused(home, write_rule):
    write_rule(home / "rules" / "one" / "same.toml")
    write_rule(home / "rules" / "two" / "same.toml")
    with pytest.raises(MatrixError, match="the id same is also that of"):
        load_source(home, source="test")


def test_unreadable_toml_stops_with_file_and_place(home, write_rule):
    write_rule(home / "rules" / "bad.toml", "schema = = 1\n")
    with pytest.raises(MatrixError, match=r"bad\.toml: not TOML: .*\b1\b"):
        load_source(home, source="test")


def test_a_file_without_end_is_not_read(home):
    with open(home / "rules" / "huge.toml", "wb") as file:
        file.truncate(9 * 1024 * 1024)
    with pytest.raises(MatrixError, match="larger than 8 MiB"):
        load_source(home, source="test")


def test_deep_nesting_is_one_sentence(home, write_rule):
    write_rule(home / "rules" / "deep.toml", "a = " + "[" * 20_000 + "]" * 20_000)
    with pytest.raises(MatrixError, match=r"deep\.toml: nested too deeply"):
        load_source(home, source="test")


def test_a_rule_file_that_cannot_be_opened_is_named(home):
    (home / "rules" / "gone.toml").symlink_to(home / "nowhere.toml")
    with pytest.raises(MatrixError, match=r"gone\.toml: cannot be read"):
        load_source(home, source="test")


def test_a_registry_that_is_wrong_is_named(home):
    (home / "facts.toml").write_text('[fact."x"]\ntype = "colour"\n')
    with pytest.raises(MatrixError, match="type 'colour' is none of"):
        load_source(home, source="test")


def test_a_table_is_read_when_asked_for_and_once(home):
    path = home / "tables" / "torch-builds.toml"
    path.write_text('row = [{ key = "2.5.0" }]\n')
    matrix = load_source(home, source="test")
    assert matrix.rows("torch-builds")[0]["key"] == "2.5.0"
    path.unlink()
    assert matrix.rows("torch-builds")
    assert matrix.rows("no-such-table") == () and matrix.part("no-such-table", "x") == {}


def test_a_table_that_cannot_be_read_is_named(home):
    (home / "tables" / "torch-builds.toml").write_text("row = [")
    with pytest.raises(MatrixError, match=r"table torch-builds: .*not TOML"):
        load_source(home, source="test").table("torch-builds")


# --- rules one by one ----------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_with_a_rule_is_said_at_once(home):
    registry = load_source(home, source="test").registry
    with pytest.raises(RuleError) as caught:
        parse_rule("r", "r.toml", {"schema": 1, "rule": {"status": "live"}, "affects": [{"x": 1}]}, registry)
    text = "; ".join(caught.value.problems)
    for fragment in ("status", "severity", "confidence", "effect", "x is not a registered fact", "message: missing"):
        assert fragment in text


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"schema": []},
        {"schema": True},
        {"schema": 0},
        {"schema": 1, "rule": [], "affects": {}, "unless": 1, "assume": [1], "message": [], "why": {"en": 1}},
        {"schema": 1, "rule": {"status": [], "severity": {}, "each": 4, "supersedes": [1]}},
        {"schema": 1, "rule": {"explained_by": ["r"]}},
        {"schema": 1, "rule": {"each": "probe", "explained_by": {"r": ["colour"], "s": [], "t": 4}}},
        {"schema": 1, "fix": [{"safety": [], "constraints": [1], "set": 4, "env": [], "command": 1, "summary": 3}]},
        {"schema": 1, "evidence": [{"kind": [], "url": 1, "shows": {}, "checked": "x"}], "test": [{"facts": 1}]},
        {"schema": 1, "affects": [{"pkg.torch": {"deeper": 1}}], "assume": [{"key": [], "value": {}}]},
        {"schema": 1, "fix": [{"safety": "safe", "summary": {"en": "x", "zh": 4}}]},
    ],
)
def test_a_rule_of_any_shape_is_refused_with_reasons(home, document):
    registry = load_source(home, source="test").registry
    with pytest.raises(RuleError) as caught:
        parse_rule("r", "r.toml", document, registry)
    assert caught.value.problems


OLD = """schema = 1
[rule]
status = "active"
severity = "error"
confidence = "upstream"
effect = "crash"
added = 2026-11-01
modified = 2026-11-01
open_ended = true
[[affects]]
"pkg.torch" = "==2.5.0"
[message]
en = "it fails"
[why]
en = "it was built so"
[[fix]]
safety = "review"
constraints = ["torch==2.4.1"]
summary.en = "use torch 2.4.1"
[[evidence]]
kind = "issue"
url = "https://a.b"
shows = "it"
checked = 2026-11-01
[[symptom]]
source = "not opened"
lines = ["it fails"]
seen = "it fails"
[[test]]
expect = "match"
name = "it"
complete = ["pkg"]
facts = { "pkg.torch" = "2.5.0" }
"""
NEW = """tests = [{ match = { "pkg.torch" = "2.5.0" }, name = "it", complete = ["pkg"] }]
[rule]
severity = "error"
confidence = "upstream"
effect = "crash"
added = 2026-11-01
open_ended = true
[[affects]]
"pkg.torch" = "==2.5.0"
[message]
en = "it fails"
[why]
en = "it was built so"
[[fix]]
constraints = ["torch==2.4.1"]
summary.en = "use torch 2.4.1"
[[evidence]]
issue = "https://a.b"
shows = "it"
[[symptom]]
lines = ["it fails"]
seen = "it fails"
"""


def test_a_rule_is_the_same_as_older_ones_are_written(matrix):
    old, new = (parse_rule("r", "r", parse_toml(text.encode(), "r"), matrix.registry) for text in (OLD, NEW))
    assert old == new


LEDGER = """envdoctor-ledger	1
package	spade
modules	spade
depth	metadata
[releases]
1.0	2023-01-05	-	metadata
1.1	2023-02-05	-	metadata
1.2	2023-03-05	-	metadata
2.0	2024-01-05	-	metadata
[requires]
*	1.0..1.1	rope>=1,<2
*	1.0..	string>=3; extra == "all"
*	1.2..1.2	rope!=2.1,>=2
*	2.0..	rope>=3,<=4
"""


@pytest.mark.parametrize(
    ("spade", "rope", "holds"),
    [
        ("1.0", "0.9", False),  # the rule begins at 1.1
        ("1.1", "0.9", True),
        ("1.1", "1.5", False),
        ("1.1", "2.0", True),
        ("1.2", "2.1", True),
        ("1.2", "2.2", False),
        ("2.0", "2.9", True),
        ("2.0", "4.1", True),
        ("3.0", "2.9", True),  # of a release that the ledger does not know the floor is taken to stay
        ("3.0", "4.1", False),  # and the ceiling is not
        ("3.0", None, None),
    ],
)
def test_a_window_comes_from_what_the_ledger_says_of_each_release(matrix_of, facts, spade, rope, holds):
    clause = {"pkg.spade": ">=1.1", "pkg.rope": "outside-requirement"}
    matrix = matrix_of({"r": {"affects": [clause], "message": {"en": "x"}}}, ledger={"spade": LEDGER})
    values = {"pkg.spade": spade, **({"pkg.rope": rope} if rope else {})}
    assert evaluate(matrix.find("r"), facts(values), matrix.registry).holds is holds


# --- private rules -------------------------------------------------------------------------------------------------


def test_private_rules_are_added_and_named_in_the_source(tmp_path, write_rule):
    write_rule(tmp_path / "ours" / "x-cluster.toml")
    matrix = private(tmp_path / "ours")
    assert matrix.find("x-cluster") is not None
    assert matrix.source.endswith(f" + {tmp_path / 'ours'}")
    assert len(matrix.rules) == len(load_matrix().rules) + 1


def test_a_private_folder_may_be_laid_out_like_the_shipped_one(tmp_path, write_rule):
    write_rule(tmp_path / "ours" / "rules" / "gpu" / "x-cluster.toml")
    (tmp_path / "ours" / "notes.toml").write_text("this = is not a rule")
    assert private(tmp_path / "ours").find("x-cluster") is not None


@pytest.mark.parametrize("text", [None, "schema = 2\n"])
def test_private_ids_start_with_x(tmp_path, write_rule, text):
    write_rule(tmp_path / "ours" / "cluster.toml", text)
    with pytest.raises(MatrixError, match="the id of a private rule starts with x-"):
        private(tmp_path / "ours")


def test_two_private_folders_cannot_give_one_id_twice(tmp_path, write_rule):
    write_rule(tmp_path / "one" / "x-same.toml")
    write_rule(tmp_path / "two" / "x-same.toml")
    with pytest.raises(MatrixError, match=r"the id x-same is also that of one/x-same\.toml"):
        private(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("make", [True, False])
def test_a_private_folder_without_rules_is_a_mistake(tmp_path, make):
    folder = tmp_path / "empty"
    if make:
        folder.mkdir()
    with pytest.raises(MatrixError, match=r"no rule file|no such folder"):
        private(folder)


def test_a_private_rule_of_a_newer_schema_is_kept_as_broken(tmp_path, write_rule):
    write_rule(tmp_path / "ours" / "x-newer.toml", "schema = 2\n")
    (broken,) = private(tmp_path / "ours").broken
    assert broken.id == "x-newer" and "newer" in broken.problems[0]


# --- what an installed wheel reads ---------------------------------------------------------------------------------


def test_a_wheel_without_its_matrix_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_COMPILED", tmp_path / "a")
    monkeypatch.setattr(module, "_CHECKOUT", tmp_path / "b")
    with pytest.raises(MatrixError, match="install it again"):
        load_matrix()


@pytest.mark.parametrize("text", ['{"registry": ', '{"scopes": ["probe"]}\n', ""])
def test_a_damaged_compiled_matrix_says_so(tmp_path, monkeypatch, text):
    (tmp_path / "index.jsonl").write_text(text)
    monkeypatch.setattr(module, "_COMPILED", tmp_path)
    with pytest.raises(MatrixError, match="cannot be read"):
        load_matrix()


def test_rules_of_other_scopes_are_not_even_read(compiled, tmp_path):
    lines = (compiled / "index.jsonl").read_text().splitlines()
    scopes = json.loads(lines[0])["scopes"]
    lines = [line if number in (0, 1 + scopes.index("drift")) else "?" for number, line in enumerate(lines)]
    (tmp_path / "index.jsonl").write_text("\n".join(lines))
    matrix = module._load_compiled(tmp_path)
    assert {rule.scope for rule in matrix.of_scopes("drift").rules} == {"drift"}
    with pytest.raises(MatrixError, match="cannot be read"):
        assert matrix.rules


def test_loading_the_compiled_matrix_imports_neither_a_toml_parser_nor_packaging(compiled, matrix):
    code = (
        "import sys; from pathlib import Path; from envdoctor.knowledge.matrix import _load_compiled;"
        f"m = _load_compiled(Path({str(compiled)!r}));"
        "print(len(m.rules), [n for n in ('tomllib', 'tomli', 'packaging', 'yaml') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [str(len(matrix.rules)), "[]\n"]


def test_a_compiled_table_that_is_damaged_is_named(home, tmp_path):
    from envdoctor.knowledge import compile_matrix

    compile_matrix(home, tmp_path / "compiled")
    (tmp_path / "compiled" / "gpus.json").write_text(json.dumps({})[:1])
    with pytest.raises(MatrixError, match="table gpus"):
        module._load_compiled(tmp_path / "compiled").table("gpus")
