"""What the matrix does not know of a run: said first, never taken for sound."""

import pytest
from ledgers import ledger
from observing import shipped
from tables import rows

from envdoctor import check
from envdoctor.app import Sources
from envdoctor.judge.derivations import derive

LEDGER = {"transformers": ledger("transformers", "5.22.0 5.23.0"), "torch": ledger("torch", "2.14.0 2.15.0")}
AFFECTS = {"pkg.transformers": ">=5.20"}


def told(facts, matrix):
    derive(facts, matrix)
    return [[item["what"], item["value"], item["known_to"]] for item in facts.value("beyond")]


@rows("values expected")
def test_releases(matrix_of, facts, values, expected):
    assert told(facts(values), matrix_of(ledger=LEDGER)) == expected


@rows("values expected")
def test_machine_and_model(facts, values, expected):
    assert [what for what, *_ in told(facts(values), shipped())] == expected


def test_an_attention_that_nobody_knows(tmp_path):
    file = tmp_path / "facts.json"
    file.write_text('{"schema": "envdoctor.facts/1", "facts": {"recipe.attn": "of_tomorrow", "pkg.torch": "2.5.1"}}')
    report = check(Sources(facts=str(file)))
    assert [(item["what"], item["value"]) for item in report.facts.value("beyond")] == [("attention", "of_tomorrow")]


RULES = {
    "open": {"affects": [AFFECTS]},
    "surely": {"affects": [AFFECTS], "rule": {"confidence": "reported"}},
    "seen": {
        "affects": [{"pkg.transformers": ">=5.20,<=5.22.0"}],
        "rule": {"open_ended": None, "last_seen": {"pkg.transformers": "5.22.0"}},
    },
    "fixed": {
        "affects": [{"pkg.transformers": ">=5.20,<5.22.0"}],
        "rule": {"open_ended": None, "fixed_in": {"pkg.transformers": "5.22.0"}},
    },
}


def test_a_yes_stays_at_the_gate_and_only_an_open_no_becomes_could_not_tell(matrix_of, facts_file):
    matrix = matrix_of(RULES, LEDGER)
    newer = check(Sources(facts=facts_file({"pkg.transformers": "5.24.0"})), matrix=matrix)
    assert {one.id: (one.severity, one.confidence, one.gate) for one in newer.findings} == {
        "open": ("error", "reported", True),
        "surely": ("error", "reported", True),
    }
    assert all("newer than this matrix" in " ".join(one.caveats) for one in newer.findings)
    assert [(one.id, one.missing) for one in newer.not_checked] == [
        ("seen", {"pkg.transformers": "newer than this matrix"})
    ]
    known = check(Sources(facts=facts_file({"pkg.transformers": "5.23.0"})), matrix=matrix)
    assert known.not_checked == () and [one.confidence for one in known.findings] == ["upstream", "reported"]


@pytest.mark.parametrize(("version", "code"), [("5.23.0", 0), ("5.24.0", 3)])
def test_a_gate_can_ask_that_everything_is_known(matrix_of, facts_file, version, code):
    matrix = matrix_of({"other": {"affects": [{"pkg.transformers": "<4"}]}}, LEDGER)
    facts = facts_file({"pkg.transformers": version})
    assert check(Sources(facts=facts), matrix=matrix).exit_code == 0
    assert check(Sources(facts=facts), matrix=matrix, require=["known"]).exit_code == code
