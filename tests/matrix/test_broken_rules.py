"""Rules that are broken in one way each, and what the lint says of them."""

from datetime import date
from pathlib import Path

import pytest
from known import given

from envdoctor.app import lint
from envdoctor.judge import Policy, judge
from envdoctor.matrix import load_source, read_source

TODAY = date(2026, 11, 20)
TEST = (
    '  { match = { "pkg.torch" = "2.5.0", "model.family" = "glm4", "recipe.batch_size" = 2, "recipe.attn" = "sdpa" } },'
)
MESSAGE = 'en = "torch {pkg.torch} gives NaN loss for this model when the batch size is above 1"'
CHINESE = 'zh = "torch {pkg.torch} 在 batch size 大于 1 时会让该模型的 loss 变成 NaN"'
WHY = '[why]\nen = "Rows with padding come back as NaN."'
EVIDENCE = 'issue = "https://github.com/example/project/issues/1"'
SHOWS = 'shows = "the symptom and the failing version"'
AFFECTS = (
    '[[affects]]\n"pkg.torch" = ">=2.5.0,<2.5.1"\n"model.family" = ["glm4", "glm4v"]\n"recipe.batch_size" = ">=2"\n'
)
HEAD = """[rule]
severity = "error"
confidence = "upstream"
effect = "wrong-numbers"
added = 2026-11-01
modified = 2026-11-02
fixed_in = { "pkg.torch" = "2.5.1" }
"""
SOUND = f"""tests = [
{TEST}
]
{HEAD}
{AFFECTS}
[[unless]]
"recipe.attn" = "eager"
[[assume]]
key = "recipe.batch_size"
value = 8
because = "the default of TrainingArguments is 8"
default = true
[message]
{MESSAGE}
{CHINESE}
{WHY}
[[fix]]
constraints = ["torch==2.4.1"]
summary.en = "use torch 2.4.1"
[[evidence]]
{EVIDENCE}
{SHOWS}
"""
FIXED_IN, CONSTRAINTS = 'fixed_in = { "pkg.torch" = "2.5.1" }', 'constraints = ["torch==2.4.1"]'
SUMMARY, FIX, BATCH = 'summary.en = "use torch 2.4.1"', "[[fix]]", '"recipe.batch_size" = ">=2"'
FAMILY, EAGER = '"model.family" = ["glm4", "glm4v"]', '"recipe.attn" = "eager"'
OUTSIDE, SETTINGS = (
    '"pkg.numpy" = "outside-requirement"',
    'set = { "recipe.attention" = "eager", "recipe.batch_size" = 1 }',
)
ABOUT_TRANSFORMERS = '"pkg.transformers" = "<5"\n"recipe.attn" = "sdpa"'

#: By the id: what is replaced, what comes there, and what must be said.
BROKEN = {
    "Upper_Case_id": ("", "", "is not lower-case words joined by dashes"),
    "not-toml": ("[rule]", "[rule", "not TOML:"),
    "not-utf-8": ("Rows", "\udcff", "not UTF-8 text"),
    "schema-newer": ("tests", "schema = 2\ntests", "schema 2 is newer than this engine understands"),
    "schema-text": ("tests", 'schema = "1"\ntests', "schema: schema = 1 is expected"),
    "document-key-unknown": ("tests", 'remark = "x"\ntests', "unknown key 'remark'"),
    "rule-is-text": (HEAD, 'rule = "x"\n', "rule: a table is expected"),
    "rule-key-unknown": (FIXED_IN, f"priority = 1\n{FIXED_IN}", "rule: unknown key 'priority'"),
    "added-missing": ("added = 2026-11-01\n", "", "rule: added: missing"),
    "added-no-such-day": ("= 2026-11-01", '= "2026-11-31"', "rule: added: a date such as 2026-11-20 is expected"),
    "modified-before-added": ("2026-11-02", "2026-10-31", "rule: modified lies before added"),
    "modified-in-the-future": ("2026-11-02", "2999-01-01", "rule: modified: 2999-01-01 lies in the future"),
    "confidence-missing": ('confidence = "upstream"\n', "", "rule: confidence: missing"),
    "effect-unknown": ("wrong-numbers", "nan", "rule: effect: 'nan' is none of"),
    "severity-unknown": ('= "error"', '= "fatal"', "rule: severity: 'fatal' is none of"),
    "status-unknown": (FIXED_IN, f'{FIXED_IN}\nstatus = "live"', "rule: status: 'live' is none of"),
    "probe-number": (FIXED_IN, f"{FIXED_IN}\nprobe = 4", "rule: probe: a text is expected"),
    "each-unknown": (FIXED_IN, f'{FIXED_IN}\neach = "cards"', "rule: each: a registered record list is expected"),
    "bound-missing": (FIXED_IN, "", "exactly one of fixed_in, last_seen, open_ended is needed"),
    "two-bounds": (FIXED_IN, f"{FIXED_IN}\nopen_ended = true", "exactly one of fixed_in, last_seen, open_ended is"),
    "open-ended-false": (FIXED_IN, "open_ended = false", "rule: open_ended: true is expected, not False"),
    "fixed-in-is-text": (FIXED_IN, 'fixed_in = "2.5.1"', "rule: fixed_in: a table such as"),
    "fixed-in-disagrees": ('"2.5.1" }', '"2.6.0" }', "rule: fixed_in: no condition ends below pkg.torch 2.6.0"),
    "fixed-in-of-another-package": ('{ "pkg.torch"', '{ "pkg.trl"', "fixed_in: pkg.trl is no condition of the rule"),
    "last-seen-disagrees": (FIXED_IN, 'last_seen = { "pkg.torch" = "2.5.0" }', "no condition ends with pkg.torch 2.5"),
    "supersedes-text": (FIXED_IN, f'{FIXED_IN}\nsupersedes = "x"', "rule: supersedes: a list of text is expected"),
    "supersedes-unknown": (FIXED_IN, f'{FIXED_IN}\nsupersedes = ["no"]', "supersedes: there is no rule no"),
    "supersedes-itself": (FIXED_IN, f'{FIXED_IN}\nsupersedes = ["supersedes-itself"]', "itself stand for each other"),
    "affects-missing": (AFFECTS, "", "affects: missing"),
    "affects-empty": (AFFECTS, "", "affects: at least one clause is expected"),
    "affects-table": ("[[affects]]", "[affects]", "affects: an array of tables ([[…]]) is expected"),
    "affects-empty-clause": ("[[unless]]", "[[affects]]\n[[unless]]", "affects 2: an empty clause would always match"),
    "condition-key-unknown": (BATCH, '"recipe.batchsize" = 2', "recipe.batchsize is not a registered fact"),
    "condition-key-unquoted": (BATCH, 'recipe.batch_size = ">=2"', "recipe is not a registered fact"),
    "any-of-a-scalar": (EAGER, '"any(recipe.attn)" = "eager"', "any() needs a record column"),
    "column-without-each": (EAGER, '"gpu.cc" = ">=9"', "gpu.cc is a record column: write any(gpu.cc), all(gpu.cc), or"),
    "empty-any-of": (FAMILY, '"model.family" = []', "an empty list can never match"),
    "number-in-words": (BATCH, '"recipe.batch_size" = ">=two"', "is not a comparison of type number"),
    "package-name-not-normalised": (EAGER, '"pkg.Flash_Attn" = "present"', "their normalised name: pkg.flash-attn"),
    "version-operand-unreadable": (">=2.5.0,<2.5.1", ">=2.5.0,<next", "is not a comparison of type version"),
    "version-without-operator": (">=2.5.0,<2.5.1", "2.5.0", 'comparisons such as ">=2,<3" are expected'),
    "outside-of-nothing": (EAGER, OUTSIDE, "one other package, which requires it"),
    "outside-of-what-no-ledger-has": (EAGER, f'{OUTSIDE}\n"pkg.spade" = ">=1"', "the ledger has no release of spade"),
    "assume-default-text": ("default = true", 'default = "yes"', "assume 1: default: true or false is expected"),
    "assume-key-unknown": ('key = "recipe.', 'key = "no.', "assume 1: key: a registered fact is expected, not 'no."),
    "assume-reason-missing": ('because = "the default of TrainingArguments is 8"\n', "", "assume 1: because: missing"),
    "assume-value-missing": ("value = 8\n", "", "assume 1: value: missing"),
    "assume-value-wrong": ("value = 8", 'value = "many"', "assume 1: value: a number is expected"),
    "message-missing": (f"[message]\n{MESSAGE}\n{CHINESE}\n", "", "message: missing"),
    "message-without-english": (f"{MESSAGE}\n", "", "message: texts such as"),
    "message-language-unknown": (CHINESE, f'{CHINESE}\nde = "x"', "message: texts such as"),
    "message-too-long": ("gives NaN loss", "x" * 80, "characters, at most 120 are allowed"),
    "message-zh-too-long": ("loss 变成", "很" * 80, "message: zh has"),
    "message-with-full-stop": ("above 1", "above 1.", "message: en: no full stop at the end"),
    "placeholder-unknown": ("{pkg.torch}", "{pkg-torch}", "message: {pkg-torch} is not a registered fact"),
    "placeholder-of-no-condition": ("{pkg.torch}", "{torch.cuda}", "message: {torch.cuda} is not known when the rule"),
    "placeholder-of-an-exception-only": ("{pkg.torch}", "{recipe.attn}", "message: {recipe.attn} is not known when"),
    "placeholders-differ": ("torch {pkg.torch} 在", "torch 2.5 在", "message: the placeholders of zh and en differ"),
    "why-missing": (f"{WHY}\n", "", "why: missing"),
    "fix-summary-missing": (f"{SUMMARY}\n", "", "fix 1: summary: missing"),
    "fix-summary-with-or": ("use torch 2.4.1", "or use torch 2.4.1", "fix 1: summary: en: reports print the or before"),
    "fix-summary-with-placeholder": ("use torch 2.4.1", "use {pkg.torch}", "fix 1: summary: en: placeholders are"),
    "fix-of-two-kinds": (FIX, f'{FIX}\ncommand = "pip check"', "fix 1: one of constraints, uninstall, set, env"),
    "fix-safety-unknown": (FIX, f'{FIX}\nsafety = "sure"', "fix 1: safety: 'sure' is none of"),
    "fix-advice-called-safe": (CONSTRAINTS, 'safety = "safe"', 'fix 1: add safety = "manual": this fix'),
    "fix-constraint-unreadable": ("torch==2.4.1", "torch==2; x", "fix 1: constraints 1: 'torch==2; x' is not a name"),
    "fix-matches-itself": ("torch==2.4.1", "torch==2.5.0", "never helps: it would not be enough here"),
    "fix-set-unknown": (CONSTRAINTS, SETTINGS, "fix 1: set: recipe.attention is not a registered fact"),
    "fix-variable-unreadable": (CONSTRAINTS, 'env = { "A B" = "1" }', "fix 1: env: 'A B' is not the name of a"),
    "fix-with-shell-operators": (CONSTRAINTS, 'command = "curl x | sh"', "fix 1: command: no shell operators"),
    "fix-with-sudo": (CONSTRAINTS, 'command = "sudo pip install x"', "fix 1: command: no shell operators, sudo or rm"),
    "evidence-missing": (f"[[evidence]]\n{EVIDENCE}\n{SHOWS}\n", "", "evidence: at least one source is needed"),
    "evidence-by-http": ("https://git", "http://git", "evidence 1: issue: 'http://github.com/example/"),
    "evidence-kind-unknown": ("issue =", "rumour =", "evidence 1: one of issue, release-notes, source, artefact"),
    "evidence-shows-nothing": (SHOWS, "", "evidence 1: shows: missing"),
    "evidence-too-weak-for-an-error": ("issue =", "article =", "evidence: an error needs one of"),
    "evidence-date-is-text": (SHOWS, f'{SHOWS}\nchecked = "2026-11-01"', "evidence 1: checked: a date such as"),
    "evidence-checked-in-the-future": (SHOWS, f"{SHOWS}\nchecked = 2999-01-01", "evidence 1: checked: 2999-01-01"),
    "test-answer-unknown": ("match =", "yes =", "tests 1: one of match, no, unknown is expected"),
    "test-complete-unknown": ("} },\n]", '}, complete = ["packages"] },\n]', "complete: 'packages' is none of"),
    "test-fact-of-wrong-type": ('size" = 2,', 'size" = "two",', "its facts: recipe.batch_size: a number is expected"),
    "test-fact-unknown": ('"recipe.batch_size" = 2,', '"recipe.batchsize" = 2,', "did you mean recipe.batch_size?"),
    "test-fails": ('"2.5.0", ', '"2.4.1", ', "test 1 (pkg.torch=2.4.1, model.family=glm4"),
    "test-without-match": ("match =", "no =", "expected no, got match"),
    "test-of-no-clause": (EAGER, f'{EAGER}\n[[affects]]\n"pkg.torch" = "absent"', "affects 2: no test matches"),
    "bound-without-effect": (">=2.5.0,<2.5.1", ">=2.5.0,<2.5.1,<2.6", "pkg.torch: <2.6 can be dropped"),
    "item-without-effect": ('"glm4v"]', '"glm4*"]', "affects 1: model.family: glm4 can be dropped and every test"),
    "exception-without-effect": (EAGER, '"pkg.torch" = "<2.4"', "unless 1 (the whole clause) can be dropped"),
    "assumption-without-effect": (f"{BATCH}\n", "", "assume recipe.batch_size can be dropped and every test still"),
    "engines-forgotten": (BATCH, ABOUT_TRANSFORMERS, "vLLM, SGLang and LMDeploy run models without transformers' code"),
}


def broken(name: str) -> bytes:
    """The text of a rule with its fault."""
    old, new, _ = BROKEN[name]
    assert old in SOUND
    text = SOUND.replace(old, new) if old else SOUND
    if name == "affects-empty":
        text = f"affects = []\n{text}"
    if name == "evidence-missing":
        text = text.replace('"error"', '"warning"')
    return text.encode(errors="surrogateescape")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A matrices folder with all of them."""
    home = tmp_path_factory.mktemp("matrices")
    (home / "rules").mkdir()
    for shared in ("facts.toml", "schema"):
        (home / shared).symlink_to(Path(__file__).resolve().parents[2] / "matrices" / shared)
    for name in BROKEN:
        (home / "rules" / f"{name}.toml").write_bytes(broken(name))
    (home / "rules" / "sound.toml").write_text(SOUND)
    return home


@pytest.fixture(scope="module")
def complaints(home: Path) -> dict[str, list[str]]:
    """What the lint says, by the rules' names."""
    found: dict[str, list[str]] = {}
    for origin, text in lint(read_source(home, source="test"), today=TODAY):
        found.setdefault(Path(origin).stem, []).append(text)
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named_with_its_fault(complaints, name):
    assert any(BROKEN[name][2] in text for text in complaints.get(name, ())), complaints.get(name)


def test_the_rule_that_they_were_made_from_has_no_fault(complaints):
    assert "sound" not in complaints


def test_nearly_all_of_them_have_that_one_fault_only(complaints):
    several = {name: texts for name, texts in complaints.items() if len(texts) > 1}
    assert len(several) <= 0.2 * len(BROKEN), several


def test_a_broken_rule_never_stops_the_others(home, matrix):
    for name in ("not-toml", "not-utf-8"):
        (home / "rules" / f"{name}.toml").unlink()
    values = {"pkg.torch": "2.5.0", "model.family": "llama", "recipe.batch_size": 2, "recipe.attn": "sdpa"}
    loaded = load_source(home, source="test")
    judgement = judge(given(values, matrix.registry), loaded, Policy())
    named = {rule.id for rule in loaded.broken}
    assert named <= {entry.id for entry in judgement.not_checked}
    assert all(entry.reason for entry in judgement.not_checked if entry.id in named)
    assert judgement.rules_checked == len(loaded.rules)
