"""The probe ``imports``: statements are really run, each result stands alone, and what they say becomes facts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from known import given, judged
from observing import shipped

from envdoctor.facts import ABSENT, Records
from envdoctor.probe import Outcome, find_probes, judge, run_jobs
from envdoctor.probe.import_runs import import_runs
from envdoctor.sandbox import Place

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="one process for all statements")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Outcome]:
    """Run statements in an environment of modules with these texts."""

    def start(*statements: str, **modules: str) -> Outcome:
        site = tmp_path / "site"
        site.mkdir()
        for name, text in modules.items():
            path = site.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        (tmp_path / "scratch").mkdir()
        environ = {**os.environ, "PYTHONPATH": str(site)}
        place = Place(sys.executable, environ, str(tmp_path), str(tmp_path / "scratch"))
        (job,) = find_probes()["imports"].jobs("quick", "cpu", asked=True, entries=statements)
        (outcome,) = run_jobs([job], place)
        return outcome

    return start


def items(outcome: Outcome) -> dict[str, Mapping[str, Any]]:
    """The records by statement."""
    (found,) = import_runs([outcome])
    return {str(item["entry"]): item for item in found}


def test_a_missing_name_is_told_with_its_place_and_the_others_work(run: Callable[..., Outcome]) -> None:
    outcome = run(
        "import taker", "from giver import here", giver="here = 1", taker="import os\nfrom giver import nothing\n"
    )
    assert outcome.ending == "ok"
    found = items(outcome)
    assert found["from giver import here"]["outcome"] == "works"
    item = dict(found["import taker"])
    error = item.pop("error")
    assert error.startswith("ImportError: ") and "nothing" in error and "(giver.py)" in error
    assert item == {"entry": "import taker", "outcome": "fails", "place": "taker:2", "name": "giver.nothing"}


def test_the_first_cause_is_told_and_not_what_was_made_of_it(run: Callable[..., Outcome]) -> None:
    lazy = "try:\n    import gone\nexcept ImportError as error:\n    raise RuntimeError('no lazy') from error\n"
    (item,) = items(run("import lazy", lazy=lazy)).values()
    assert item["error"].startswith("ModuleNotFoundError: ")
    assert (item["name"], item["place"]) == ("gone", "lazy:2")


def test_a_cause_that_python_itself_hides_is_told(run: Callable[..., Outcome]) -> None:
    lazy = "def __getattr__(name):\n    if name != 'Thing':\n        raise AttributeError(name)\n    import giver\n"
    outcome = run(
        *("from lazy import Thing", "from lazy import Other"),
        lazy=lazy + "    return giver.gone\n",
        giver="",
    )
    found = items(outcome)
    (lost, _) = (seen["errors"] for seen in outcome.observations)
    assert [error["type"] for error in lost] == ["ImportError", "AttributeError"]
    hidden, plain = (item["error"] for item in found.values())
    assert hidden.startswith("AttributeError: ") and "'gone'" in hidden
    assert plain.startswith("ImportError: ") and "'Other'" in plain


@posix
def test_a_statement_that_crashes_or_ends_the_process_hides_nothing(run: Callable[..., Outcome]) -> None:
    found = items(
        run(
            *("import crash", "import leaves", "import good"),
            crash="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            leaves="import os; os._exit(0)",
            good="",
        )
    )
    assert [(item["outcome"], item["error"]) for item in found.values()] == [
        ("crashes", "SIGSEGV"),
        ("crashes", "the process ended itself"),
        ("works", ABSENT),
    ]


@posix
def test_a_failed_statement_leaves_nothing_behind(run: Callable[..., Outcome]) -> None:
    found = items(
        run(
            *("import spoiler", "from giver import value"),
            spoiler="import giver; giver.value = None; raise ImportError('no')",
            giver="value = 1\ndel value\n",
        )
    )
    assert [item["outcome"] for item in found.values()] == ["fails", "fails"]


@posix
def test_what_fails_with_its_package_is_not_run_again(run: Callable[..., Outcome], tmp_path: Path) -> None:
    log = tmp_path / "log"
    text = f"open({str(log)!r}, 'a').write('x'); raise ImportError('no')"
    found = items(run("import one", "from one import a", "from one import b", one=text))
    assert {item["error"] for item in found.values()} == {"ImportError: no"}
    assert len(log.read_text()) == 2  # the statements together, then the first of them alone


def test_a_statement_is_judged_by_its_outcome() -> None:
    failed = judge({"case": "import one", "judge": "import", "outcome": "hangs", "errors": []})
    assert failed is not None
    assert (failed.verdict, failed.signature, failed.why) == ("fail", "import-fails", "it did not end")
    works = judge({"case": "import one", "judge": "import", "outcome": "works", "errors": []})
    assert works is not None
    assert works.verdict == "pass"


@pytest.mark.parametrize("errors", [None, [], ["text"], [{"type": 1, "message": []}]])
def test_a_child_that_tells_nonsense_gives_no_exception(errors: object) -> None:
    (job,) = find_probes()["imports"].jobs("quick", "cpu", asked=True, entries=["import one"])
    seen = {"case": "import one", "judge": "import", "outcome": "?", "errors": errors}
    (found,) = import_runs([Outcome(job, (seen,), "timeout", "after 600 s")])
    assert found.incomplete == "timeout: after 600 s"
    assert [(item["outcome"], item["error"]) for item in found] == [("crashes", "it gave no answer")]


LINK = {
    "consumer": "peft",
    "consumer_version": "0.17.0",
    "provider": "transformers",
    "provider_version": "5.23.0",
    "kind": "name",
    "name": "transformers.HybridCache",
    "module": "transformers",
    "wanted": "absent",
    "place": "peft/peft_model:37",
    "stops": "import peft, from peft import LoraConfig, … +3",
    "text": "absent",
}
RUN = {
    "entry": "import peft",
    "outcome": "fails",
    "error": "ImportError: cannot import name 'HybridCache' from 'transformers'",
    "place": "peft/peft_model:37",
    "name": "transformers.HybridCache",
}


def told(*runs: Mapping[str, str], links: list[Any] | None = None) -> dict[str, str | None]:
    """The errors, each with the one that it is folded into."""
    matrix = shipped()
    facts = given({"link": links or [], "import_run": list(runs)}, matrix.registry)
    return {found.id: found.superseded_by for found in judged(facts, matrix).findings if found.severity == "error"}


def test_a_failure_that_a_link_explains_is_told_there() -> None:
    link = "import-takes-what-is-not-there"
    assert told(RUN, links=[LINK]) == {link: None, "import-really-fails": link}
    assert told({**RUN, "place": "peft/other:1"}, links=[LINK]) == {link: None, "import-really-fails": None}


def test_a_link_does_not_stand_when_the_real_import_works() -> None:
    assert told({**RUN, "outcome": "works"}, links=[LINK]) == {}
    assert told({**RUN, "entry": "import trl", "outcome": "works"}, links=[LINK]) == {
        "import-takes-what-is-not-there": None
    }


def test_the_list_of_runs_is_a_fact_of_the_session() -> None:
    (job,) = find_probes()["imports"].jobs("quick", "cpu", asked=True, entries=["import one"])
    seen = {"case": "import one", "judge": "import", "outcome": "works", "errors": []}
    (found,) = import_runs([Outcome(job, (seen,), "ok")])
    assert isinstance(found, Records)
    assert found.incomplete is None
