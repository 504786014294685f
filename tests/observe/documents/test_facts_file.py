"""Facts files: written by hand or by ``envdoctor facts``, and every way in which one can be wrong."""

import json
import sys
from contextlib import suppress
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import cases

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.observe import SCHEMA, FactsFileError, read_facts_file
from envdoctor.report import document
from envdoctor.system import sentence

CASES = cases("facts-file.toml")


@pytest.fixture
def read(tmp_path, matrix):
    """Read facts from a document (or bytes)."""

    def go(document):
        path = tmp_path / "given.json"
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        path.write_bytes(data)
        return read_facts_file(path, matrix.registry)

    return go


@pytest.fixture
def refused(read):
    """The sentence with which a document is refused."""

    def go(document):
        with pytest.raises(FactsFileError) as caught:
            read(document)
        text = str(caught.value)
        assert "given.json: " in text and "\n" not in text and len(text) < 500
        return text

    return go


def of(facts, **more):
    return {"schema": SCHEMA, "facts": facts, **more}


# --- what can be said ----------------------------------------------------------------------------------------------


def test_the_minimal_file_of_the_documentation_works(read):
    given = of({"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2})
    for data in (given, b"\xef\xbb\xbf" + json.dumps(given).encode()):  # a byte order mark is no fault
        facts = read(data)
        assert facts.value("pkg.torch") == "2.5.0+cu118" and facts.value("recipe.batch_size") == 2
        assert facts.get("pkg.torch").origin == "given.json"


@pytest.mark.parametrize(
    ("facts", "more", "known", "unknown"),
    [
        ({"pkg.apex": None, "torch.cuda": "absent"}, {}, {"pkg.apex": ABSENT, "torch.cuda": ABSENT}, ["pkg.torch"]),
        # complete makes unlisted packages absent
        (
            {"pkg.torch": "2.5.0"},
            {"complete": ["pkg", "env"]},
            {"pkg.flash-attn": ABSENT, "env.HF_HOME": ABSENT},
            ["model.repo"],
        ),
        ({"pkg.Flash_Attn": "2.6.3"}, {}, {"pkg.flash-attn": "2.6.3"}, []),
        # an empty list of GPUs is known to have none
        ({"gpu": []}, {}, {"gpu": Records(())}, []),
        ({"gpu.cc": []}, {}, {"gpu": Records(())}, []),
        # a column beside facts of its own
        ({"gpu.cc": ["9.0"], "gpu.count": 1}, {}, {"gpu.count": 1, "gpu": Records(({"cc": "9.0"},))}, []),
        # a list that may lack items says why
        (
            {"gpu": [{"cc": "9.0"}]},
            {"incomplete": {"gpu": "the driver stopped answering", "dist": "x"}},
            {"gpu": Records(({"cc": "9.0"},), "the driver stopped answering")},
            [],
        ),
    ],
)
def test_what_is_said_is_known_and_a_missing_key_is_not(read, facts, more, known, unknown):
    found = read(of(facts, **more))
    assert {key: found.value(key) for key in known} == known
    assert all(isinstance(found.value(key), Unknown) for key in unknown)


def test_what_the_writer_could_not_read_stays_unknown_with_its_reason(read):
    document = of({}, complete=["pkg"], unknown={"pkg.torch": "METADATA has no version", "no.such": "x", "pkg.*": "x"})
    facts = read(document)
    assert facts.value("pkg.torch") == Unknown("METADATA has no version")
    assert [fact.key for fact in facts] == ["pkg.torch"]


def test_gpus_may_be_records_or_plain_lists(read):
    records = read(of({"gpu": [{"name": "H100", "cc": "9.0"}, {"name": "A100", "cc": "8.0"}]}))
    columns = read(of({"gpu.name": ["H100", "A100"], "gpu.cc": ["9.0", "8.0"]}))
    assert records.value("gpu") == columns.value("gpu")
    assert len(records.value("gpu")) == 2


# --- what is wrong with it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"", "is empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"name: torch", "not JSON"),
        (b'{"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "caf\xe9"}}', "not JSON"),
        ([], 'not a facts file: "schema": "envdoctor.facts/1" is missing'),
        ("text", "not a facts file"),
        (None, "not a facts file"),
        ({"facts": {}}, "not a facts file"),
        ({"schema": "envdoctor.facts/2", "facts": {}}, "schema 'envdoctor.facts/2' is not known"),
        ({"schema": None, "facts": {}}, "schema 'None' is not known"),
        ({"schema": ["x"] * 1000, "facts": {}}, "is not known; this envdoctor reads envdoctor.facts/1"),
        ({"schema": SCHEMA}, '"facts" is missing'),
        (of([]), "facts: a table is expected"),
        (of(None), "facts: a table is expected"),
        ({"schema": SCHEMA, "facts": {}, "complete": "pkg"}, "complete: a list is expected"),
        ({"schema": SCHEMA, "facts": {}, "complete": ["gpu"]}, "complete: 'gpu' is none of pkg, env"),
        ({"schema": SCHEMA, "facts": {}, "complete": [{"x": "y" * 1000}]}, "is none of pkg, env"),
        ({"schema": SCHEMA, "facts": {}, "unknown": []}, "unknown: a table is expected"),
        ({"schema": SCHEMA, "facts": {}, "incomplete": ["gpu"]}, "incomplete: a table is expected"),
        ({"schema": SCHEMA, "facts": {}, "fact": {}}, "unknown key 'fact' beside schema, facts, complete"),
        (of({"recipe.batchsize": 2}), "'recipe.batchsize' is not a known fact; did you mean recipe.batch_size?"),
        (of({"x" * 10_000: 2}), "is not a known fact; `envdoctor matrix facts` lists the known keys"),
        (of({"torch": "2.5.0"}), "'torch' is not a known fact"),
        (of({"pkg.": "2.5.0"}), "'pkg.' is not a known fact"),
        (of({"pkg.*": "2.5.0"}), "'pkg.*' is not a known fact"),
        (of({"gpu.colour": ["red"]}), "'gpu.colour' is not a known fact"),
        (of({"pkg.torch": 2.5}), "pkg.torch: a version in quotes is expected, not 2.5"),
        (of({"pkg.torch": "newest"}), "pkg.torch: a version by PEP 440 is expected, not 'newest'"),
        (of({"recipe.batch_size": "many"}), "recipe.batch_size: a number is expected, not 'many'"),
        (of({"recipe.packing": 1}), "recipe.packing: true or false is expected, not 1"),
        (of({"torch.cuda": 11.8}), "torch.cuda: a version in quotes is expected, not 11.8"),
        (of({"model.repo": {"a": 1}}), "model.repo: text is expected"),
        (of({"gpu": {"cc": "9.0"}}), "gpu: a list of tables is expected"),
        (of({"gpu": [{"cc": "9.0", "colour": 1}]}), "gpu: item 1: 'colour' is no column of gpu"),
        (of({"gpu.cc": "9.0"}), "gpu.cc: a list with one value for each gpu is expected"),
        (of({"gpu.cc": ["9.0"], "gpu.name": ["a", "b"]}), "gpu.cc, gpu.name: the lists differ in length"),
        (of({"gpu.cc": ["9.0"], "gpu": []}), "give gpu as a list of tables or by columns, not both"),
        (of({"pkg.flash_attn": "1", "pkg.flash-attn": "2"}), "are the same package"),
        (b'{"schema": "envdoctor.facts/1", "facts": {"recipe.batch_size": NaN}}', "a finite number is expected"),
        (b'{"schema": "envdoctor.facts/1", "facts": {"recipe.batch_size": Infinity}}', "a finite number is expected"),
        (b'{"schema": "envdoctor.facts/1", "facts": {"recipe.batch_size": -1e999}}', "a finite number is expected"),
        (
            b'{"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.4.1", "pkg.torch": "2.5.0"}}',
            "the key 'pkg.torch' is given twice",
        ),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_file_is_one_sentence(refused, document, sentence):
    assert sentence in refused(document)


@pytest.mark.parametrize(("facts", "reason"), CASES["value_key_cannot"])
def test_a_value_that_its_key_cannot_have_is_unknown_where_the_reader_asks_for_it(tmp_path, matrix, facts, reason):
    path, unread = tmp_path / "given.json", []
    path.write_text(json.dumps(of({**facts, "pkg.torch": "2.5.0"}, complete=["pkg"])))
    read = read_facts_file(path, matrix.registry, unread=unread)
    key = next(iter(facts)).replace("gpu.cc", "gpu")
    named = f"{key}: {reason}" if key == "gpu" else f"{key} counts as unknown: {reason}"
    assert [line.startswith(named) for line in unread] == [True]
    value = read.value(key)
    if isinstance(value, Records):
        value = next(cell for cell in value.items[-1].values() if isinstance(cell, Unknown))
    assert isinstance(value, Unknown) and value.reason in unread[0]
    assert read.value("pkg.torch") == "2.5.0"


def test_a_file_that_is_not_there_a_folder_or_of_any_size_is_one_sentence(tmp_path, matrix):
    huge = tmp_path / "huge.json"
    with open(huge, "wb") as file:
        file.truncate(65 * 1024 * 1024)
    for path, words in (
        (tmp_path / "no.json", "cannot be read"),
        (tmp_path, "cannot be read"),
        (huge, "larger than 64 MiB"),
    ):
        with pytest.raises(FactsFileError, match=words):
            read_facts_file(path, matrix.registry)


@pytest.mark.parametrize(
    "facts",
    [
        {f"pkg.p{number}": "1" for number in range(20_001)},
        {"dist": [{"name": f"p{number}", "version": "1"} for number in range(20_001)]},
        {"dist.name": [f"p{number}" for number in range(20_001)]},
    ],
)
def test_more_packages_than_any_environment_has_are_one_sentence(refused, facts):
    assert "names more than 20,000 packages, and no environment has so many" in refused(of(facts))


def test_an_integer_of_ten_thousand_digits_is_one_sentence(refused):
    document = b'{"schema": "envdoctor.facts/1", "facts": {"recipe.batch_size": ' + b"9" * 10_000 + b"}}"
    if sys.version_info >= (3, 11):
        assert "digits" in refused(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("absent"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["pkg.torch", "gpu", "gpu.cc", "gpu.name", "model.repo", "recipe.batch_size", "torch.cuda"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["schema", "facts", "complete", "unknown", "incomplete", "tool", "origins", "x"]),
        st.just(SCHEMA) | st.dictionaries(keys | st.text(max_size=6), json_values, max_size=4) | json_values,
    )
)
def test_any_document_is_read_or_refused(read, tmp_path, matrix, document):
    try:
        read(document)
    except FactsFileError as error:
        assert str(error)
    unread = []
    with suppress(FactsFileError):
        facts = read_facts_file(tmp_path / "given.json", matrix.registry, unread=unread)
        values = [facts.value(line.partition(" ")[0].rstrip(":")) for line in unread]
        assert all(isinstance(value, (Unknown, Records)) for value in values)


# --- round trip ----------------------------------------------------------------------------------------------------

GIVEN = {
    "pkg.torch": "2.5.0+cu118",
    "pkg.transformers": "4.46.0",
    "pkg.apex": None,
    "torch.arch_list": ["sm_80", "sm_90"],
    "gpu": [{"index": 0, "name": "H100", "cc": "9.0", "memory_gib": 79.6}, {"name": "A100"}],
    "recipe.batch_size": 2,
    "recipe.packing": False,
    "env.HF_HOME": None,
}


def test_what_envdoctor_writes_it_reads_back(read, matrix):
    first = read(of(GIVEN, complete=["pkg"], unknown={"pkg.odd": "no version"}, incomplete={"gpu": "cut off"}))
    second = read(document(first, matrix.registry))
    for fact in first:
        assert second.value(fact.key) == fact.value
    assert list(second.complete_prefixes()) == ["pkg"]
    assert second.value("gpu").incomplete == "cut off"
    assert document(second, matrix.registry) == document(first, matrix.registry)


def again(run, path: Path, *arguments: str):
    """What the command says, and what it says of a file of that."""
    first = run("facts", *arguments, "--format", "json")
    assert first.code == 0, first.err
    path.write_text(first.out)
    second = run("facts", "--facts", str(path), "--format", "json")
    assert second.code == 0, second.err
    assert second.json["facts"] == first.json["facts"]
    return first.json, second.json


def test_the_command_writes_a_file_that_the_command_judges(run, tmp_path, facts_file):
    given, path = facts_file(GIVEN, complete=["pkg"]), tmp_path / "again.json"
    first, second = again(run, path, "--facts", given)
    assert second["facts"] == {**GIVEN, **second["facts"]}
    assert (second["complete"], second["incomplete"]) == (first["complete"], first["incomplete"])
    reports = [run("check", "--facts", str(name), "--format", "json").json["findings"] for name in (path, given)]
    one, other = ([finding["fingerprint"] for finding in findings] for findings in reports)
    assert one == other != []


def test_this_environment_survives_the_round_trip(run, tmp_path):
    first, second = again(run, tmp_path / "here.json")
    assert second["unknown"] == first["unknown"]
    assert Path(first["facts"]["environment.path"]).is_dir()


@pytest.mark.parametrize(
    ("packed", "chinese"),
    [
        (["torch is not installed"], "未安装 torch"),
        (["{}", ["torch is not installed"]], "未安装 torch"),
        (["no torch"], "torch is not installed"),  # the text counts
        (["{:>999999999}", "torch is not installed"], "torch is not installed"),
        (["{0.__class__}", "torch is not installed"], "torch is not installed"),
        (reduce(lambda packed, _: ["{}", packed], range(600), "torch is not installed"), "torch is not installed"),
        ([], "torch is not installed"),
        (None, "torch is not installed"),
        ([[["x"]], 1], "torch is not installed"),
    ],
)
def test_a_reason_is_a_message_where_the_document_says_truly_of_what_it_is_made(read, packed, chinese):
    text = "torch is not installed"
    facts = read(of({}, unknown={"os.libc": text}, messages={text: packed}))
    assert sentence("zh", facts.value("os.libc").reason) == chinese
