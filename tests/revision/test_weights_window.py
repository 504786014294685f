"""The transformers releases that a revision can run with, from names that code imports and from its configuration."""

import json

import pytest
from comparing import outcome
from header_true import Repository
from rooms import comparer, computing
from tables import rows

from envdoctor.facts import ABSENT, Unknown
from envdoctor.versions import contains, intersect, parse_ranges, release_of, spell_ranges

compute = computing("transformers_fits")
remote_code = comparer("remote_code")

PLAIN = "class Model:\n    pass\n"


def code(text: str, name: str = "modeling_tiny.py", **config: object) -> Repository:
    texts = {name: text}
    if config:
        texts["config.json"] = json.dumps(config)
    return Repository(texts=texts)


def windows(old: Repository, new: Repository) -> tuple[object, object]:
    facts = outcome(remote_code, old, new).facts
    return facts["revision.transformers_old"], facts["revision.transformers_new"]


@rows("text window")
def test_what_code_asks_for_sets_the_window(text, window):
    assert windows(code(PLAIN), code(f"{text}\n{PLAIN}")) == ("any", window)


def test_a_tokenizer_whose_pad_takes_no_padding_side_ends_at_4_45():
    tokenizer = "class TinyTokenizer:\n    def _pad(self, inputs, {}=None): ...\n"
    old, new = (code(tokenizer.format(name), "tokenization_tiny.py") for name in ("max_length", "padding_side"))
    assert windows(old, new) == ("<4.45", "any")
    change = outcome(remote_code, old, new).changes[-1]
    assert (change.area, change.kind, change.before, change.after) == ("code", "transformers-window", "<4.45", "any")
    assert "padding_side" in change.detail


@rows("config window")
def test_the_configuration_sets_the_window(config, window):
    assert windows(code(PLAIN, bos=1), code(PLAIN, **config))[1] == window


def test_a_tokenizer_of_transformers_5_needs_it():
    old, new = ({"tokenizer_config.json": table} for table in ({}, {"tokenizer_class": "TokenizersBackend"}))
    assert windows(old, new)[1] == ">=5.0"


def test_files_that_did_not_change_are_not_read():
    old, new = (code(PLAIN, model_type="glm4") for _ in range(2))
    assert all(isinstance(window, Unknown) for window in windows(old, new))
    assert old.read_paths == new.read_paths == []


def test_what_is_not_loaded_or_cannot_be_parsed_says_nothing():
    script = code("from transformers.utils import is_torch_fx_available\n", "web_demo.py")
    assert isinstance(windows(Repository(), script)[1], Unknown)
    compared = outcome(remote_code, code(PLAIN), code("def ("))
    assert isinstance(compared.facts["revision.transformers_new"], Unknown)
    assert "transformers-window" not in [change.kind for change in compared.changes]


@rows("window installed fits")
def test_the_installed_release_fits_or_does_not(matrix, window, installed, fits):
    facts = {"revision.transformers_new": window, "pkg.transformers": installed}
    assert compute(facts.__getitem__, matrix)["revision.installed_fits"].value is fits


def test_what_is_not_known_is_not_derived(matrix):
    for installed in ("9.0.0", ABSENT):  # not read, absent
        facts = {"revision.transformers_new": ">=4.36", "pkg.transformers": installed}
        assert isinstance(compute(facts.__getitem__, matrix)["revision.installed_fits"].value, Unknown)
    facts = {"revision.transformers_new": Unknown("not compared"), "pkg.transformers": "4.47.1"}
    assert compute(facts.__getitem__, matrix) == {}


@pytest.mark.parametrize("text", [">=4.36,<4.48", ">=4.36,<4.48 or >=5.1", "<5.0", ">=4.51.3"])
def test_ranges_are_spelled_as_they_are_read(text):
    assert spell_ranges(parse_ranges(text)) == text


def test_ranges_are_intersected():
    both = intersect(parse_ranges(">=4.36 | >=5.5"), parse_ranges("<4.48 | >=5.1"))
    assert contains(both, release_of("4.40.0"))
    assert not contains(both, release_of("4.50"))
    assert contains(both, release_of("5.6"))
    assert intersect(parse_ranges("<4.40"), parse_ranges(">=5.0")) == ()
