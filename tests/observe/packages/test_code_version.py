"""Code that is another release than the metadata beside it."""

from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from observing import choose, observe

OLD, NEW = b'__version__ = "4.46.3"\n', b'__version__ = "4.57.1"\n'


@pytest.fixture
def known(venv: Path, site: Path, make_dist):
    """The version of transformers and what is said of its metadata: installed as ``recorded``, now ``there``."""

    def look(recorded: bytes, there: bytes, **files: str):
        digest = urlsafe_b64encode(sha256(recorded).digest()).decode().rstrip("=")
        record = f"transformers/__init__.py,sha256={digest},{len(recorded)}\n"
        make_dist(site, "transformers", "4.57.1", **{"RECORD": record, **files})
        (site / "transformers").mkdir()
        (site / "transformers" / "__init__.py").write_bytes(there)
        facts = observe(choose(venv / "bin" / "python")).known
        problems = [(item["kind"], item["versions"]) for item in facts.value("metadata_problem")]
        return facts.value("pkg.transformers"), problems

    return look


EDITABLE = '{"url": "file:///src", "dir_info": {"editable": true}}'


@pytest.mark.parametrize(
    ("recorded", "there", "files", "found"),
    [
        (NEW, NEW, {}, "4.57.1"),
        (NEW, OLD, {}, "4.46.3"),  # an old release copied over a new one is what is imported
        (OLD, OLD, {}, "4.57.1"),  # makers who forgot to raise the version are believed
        (NEW, OLD, {"RECORD": ""}, "4.57.1"),  # where nothing lists the file nothing is said
        (NEW, OLD, {"direct_url__json": EDITABLE}, "4.46.3"),  # an editable checkout that moved on
        # only plain text is read
        (NEW, b'__version__ = ".".join(("4", "46"))\n', {}, "4.57.1"),
        (NEW, b"from .v import __version__\n", {}, "4.57.1"),
        (NEW, b"", {}, "4.57.1"),
        (NEW, b"\xff", {}, "4.57.1"),
    ],
)
def test_code_that_is_another_release_than_its_metadata(known, recorded, there, files, found):
    problems = [] if found == "4.57.1" else [("mismatch", f"4.57.1, {found}")]
    assert known(recorded, there, **files) == (found, problems)
