"""Loading the matrix: from TOML, compiled, with private rules; what is broken is said, not skipped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compiling import compile_matrix
from ledgers import ledger

from envdoctor.judge import Policy, judge
from envdoctor.matrix import MatrixError, RuleError, load_matrix, load_source, parse_rule, parse_toml


def private(*folders):
    return load_matrix(folders)


@pytest.fixture
def write(write_rule):
    """Write files below a folder: a sound rule (None), a text, or a link to a path."""

    def files(below, texts):
        for name, text in texts.items():
            if isinstance(text, Path):
                (below / name).symlink_to(text)
            else:
                write_rule(below / name, text)

    return files


# --- a checkout ----------------------------------------------------------------------------------------------------


def test_the_id_is_the_files_name_and_folders_are_for_eyes(home, write_rule):
    write_rule(home / "rules" / "some" / "deep" / "folder" / "a-rule.toml")
    (rule,) = load_source(home, source="test").rules
    assert rule.id == "a-rule" and rule.origin == "rules/some/deep/folder/a-rule.toml"


def test_the_version_is_the_day_of_the_newest_change(home, write_rule):
    write_rule(home / "rules" / "a.toml", day=3)
    write_rule(home / "rules" / "b.toml", day=7)
    assert load_source(home, source="test").version == "2026.11.07"


#: By what is said: the files, with their texts (None: a sound rule).
UNUSABLE = {
    "the id same is also that of": {"rules/one/same.toml": None, "rules/two/same.toml": None},
    r"bad\.toml: not TOML: .*\b1\b": {"rules/bad.toml": "schema = = 1\n"},
    "larger than 8 MiB": {"rules/huge.toml": "\0" * (9 << 20)},
    r"deep\.toml: nested too deeply": {"rules/deep.toml": "a = " + "[" * 20_000 + "]" * 20_000},
    r"gone\.toml: cannot be read": {"rules/gone.toml": Path("nowhere.toml")},
    r"facts\.toml: not TOML": {"facts.toml": "fact = ["},
    r"table torch-builds: .*not TOML": {"tables/torch-builds.toml": "row = ["},
}


@pytest.mark.parametrize("said", UNUSABLE)
def test_what_cannot_be_used_stops_with_file_and_place(home, write, said):
    write(home, UNUSABLE[said])
    with pytest.raises(MatrixError, match=said):
        load_source(home, source="test").table("torch-builds")


def test_a_table_is_read_when_asked_for_and_once(home):
    path = home / "tables" / "torch-builds.toml"
    path.write_text('row = [{ key = "2.5.0" }]\n')
    matrix = load_source(home, source="test")
    assert matrix.rows("torch-builds")[0]["key"] == "2.5.0"
    path.unlink()
    assert matrix.rows("torch-builds")
    assert matrix.rows("no-such-table") == () and matrix.part("no-such-table", "x") == {}


# --- rules one by one ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"schema": 1, "rule": {"status": "live"}, "affects": [{"x": 1}]},
            ["status", "severity", "confidence", "effect", "x is not a registered fact", "message: missing"],
        ),
        ({}, []),
        ({"schema": []}, []),
        ({"schema": True}, []),
        ({"schema": 0}, []),
        ({"schema": 1, "rule": [], "affects": {}, "unless": 1, "assume": [1], "message": [], "why": {"en": 1}}, []),
        ({"schema": 1, "rule": {"status": [], "severity": {}, "each": 4, "supersedes": [1]}}, []),
        ({"schema": 1, "rule": {"explained_by": ["r"]}}, []),
        ({"schema": 1, "rule": {"each": "probe", "explained_by": {"r": ["colour"], "s": [], "t": 4}}}, []),
        (
            {"fix": [{"safety": [], "constraints": [1], "set": 4, "env": [], "command": 1, "summary": 3}], "schema": 1},
            [],
        ),
        ({"evidence": [{"issue": 1, "shows": {}, "checked": "x"}], "tests": [{"match": 1}, {}], "schema": 1}, []),
        ({"schema": 1, "affects": [{"pkg.torch": {"deeper": 1}}], "assume": [{"key": [], "value": {}}]}, []),
        ({"schema": 1, "fix": [{"safety": "safe", "summary": {"en": "x", "zh": 4}}]}, []),
    ],
)
def test_a_rule_of_any_shape_is_refused_with_all_reasons_at_once(registry, document, said):
    with pytest.raises(RuleError) as caught:
        parse_rule("r", "r.toml", document, registry)
    assert caught.value.problems and all(word in "; ".join(caught.value.problems) for word in said)


BOTH = """tests = [{ match = { "pkg.torch" = "2.5.0" }, name = "it", complete = ["pkg"] }]
affects = [{ "pkg.torch" = "==2.5.0" }]
message = { en = "it fails" }
why = { en = "it was built so" }
"""
WHOLE = """schema = 1
rule = { status = "active", severity = "error", confidence = "upstream", effect = "crash", added = 2026-11-01, \
modified = 2026-11-01, open_ended = true }
fix = [{ safety = "review", constraints = ["torch==2.4.1"], summary.en = "use torch 2.4.1" }]
evidence = [{ issue = "https://a.b", shows = "it", checked = 2026-11-01 }]
symptom = [{ source = "not opened", lines = ["it fails"], seen = "it fails" }]
"""
SHORT = """\
rule = { severity = "error", confidence = "upstream", effect = "crash", added = 2026-11-01, open_ended = true }
fix = [{ constraints = ["torch==2.4.1"], summary.en = "use torch 2.4.1" }]
evidence = [{ issue = "https://a.b", shows = "it" }]
symptom = [{ lines = ["it fails"], seen = "it fails" }]
"""


def test_what_a_rule_leaves_out_is_the_default(registry):
    whole, short = (parse_rule("r", "r", parse_toml((text + BOTH).encode(), "r"), registry) for text in (WHOLE, SHORT))
    assert whole == short


LEDGER = """[requires]
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
    known = ledger("spade", "1.0 1.1 1.2 2.0", LEDGER, "metadata")
    matrix = matrix_of({"r": {"affects": [clause], "message": {"en": "x"}}}, ledger={"spade": known})
    values = {"pkg.spade": spade, **({"pkg.rope": rope} if rope else {})}
    found = judge(facts(values), matrix, Policy())
    assert (None if found.not_checked else bool(found.findings)) is holds


# --- private rules -------------------------------------------------------------------------------------------------


def test_private_rules_are_added_and_named_in_the_source(tmp_path, write_rule):
    write_rule(tmp_path / "ours" / "x-cluster.toml")
    matrix = private(tmp_path / "ours")
    assert matrix.find("x-cluster") is not None
    assert matrix.source.endswith(f" + {tmp_path / 'ours'}")
    assert len(matrix.rules) == len(load_matrix().rules) + 1
    (tmp_path / "ours").rename(tmp_path / "rules")  # laid out like the shipped one
    write_rule(tmp_path / "notes.toml", "this = is not a rule")
    assert private(tmp_path).find("x-cluster") is not None


@pytest.mark.parametrize(
    ("files", "folders", "said"),
    [
        ({"ours/cluster.toml": None}, ["ours"], "the id of a private rule starts with x-"),
        ({"ours/cluster.toml": "schema = 2\n"}, ["ours"], "the id of a private rule starts with x-"),
        (
            {"one/x-same.toml": None, "two/x-same.toml": None},
            ["one", "two"],
            r"the id x-same is also that of one/x-same\.toml",
        ),
        ({"ours/notes.md": ""}, ["ours"], "no rule file"),
        ({}, ["nowhere"], "no such folder"),
    ],
)
def test_what_private_rules_may_not_be(tmp_path, write, files, folders, said):
    write(tmp_path, files)
    with pytest.raises(MatrixError, match=said):
        private(*(tmp_path / folder for folder in folders))


def test_a_private_rule_of_a_newer_schema_is_kept_as_broken(tmp_path, write_rule):
    write_rule(tmp_path / "ours" / "x-newer.toml", "schema = 2\n")
    (broken,) = private(tmp_path / "ours").broken
    assert broken.id == "x-newer" and "newer" in broken.problems[0]


# --- what an installed wheel reads ---------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch):
    """The matrix of an installation that has its files in that folder."""

    def load(folder):
        monkeypatch.setattr("envdoctor.matrix.matrix._COMPILED", folder)
        return load_matrix()

    return load


def test_a_wheel_without_its_matrix_says_so(tmp_path, monkeypatch, installed):
    monkeypatch.setattr("envdoctor.matrix.matrix._CHECKOUT", tmp_path / "b")
    with pytest.raises(MatrixError, match="install it again"):
        installed(tmp_path / "a")


@pytest.mark.parametrize("text", ['{"registry": ', '{"scopes": ["probe"]}\n', ""])
def test_a_damaged_compiled_matrix_says_so(tmp_path, installed, text):
    (tmp_path / "index.jsonl").write_text(text)
    with pytest.raises(MatrixError, match="cannot be read"):
        installed(tmp_path)


def test_rules_of_other_scopes_are_not_even_read(compiled, tmp_path, installed):
    lines = (compiled / "index.jsonl").read_text().splitlines()
    scopes = json.loads(lines[0])["scopes"]
    lines = [line if number in (0, 1 + scopes.index("drift")) else "?" for number, line in enumerate(lines)]
    (tmp_path / "index.jsonl").write_text("\n".join(lines))
    matrix = installed(tmp_path)
    assert {rule.scope for rule in matrix.of_scopes("drift").rules} == {"drift"}
    with pytest.raises(MatrixError, match="cannot be read"):
        assert matrix.rules


def test_loading_the_compiled_matrix_imports_neither_a_toml_parser_nor_packaging(compiled, matrix):
    code = (
        "import sys; from pathlib import Path; from envdoctor.matrix import matrix;"
        f"matrix._COMPILED = Path({str(compiled)!r}); m = matrix.load_matrix();"
        "print(len(m.rules), [n for n in ('tomllib', 'tomli', 'packaging', 'yaml') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [str(len(matrix.rules)), "[]\n"]


def test_a_compiled_table_that_is_damaged_is_named(home, tmp_path, installed):
    compile_matrix(home, tmp_path / "compiled")
    (tmp_path / "compiled" / "gpus.json").write_text("{")
    with pytest.raises(MatrixError, match="table gpus"):
        installed(tmp_path / "compiled").table("gpus")
