"""Whatever a server lists: no exception, and no name that leads anywhere."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from envdoctor.hub.file_names import is_text_about_the_model, refusal_of_name
from envdoctor.hub.listing import check_items

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats()
NAMES = st.text(alphabet="a./\\:~-\n\x00\u202e中", max_size=12) | st.text(max_size=12)
ITEMS = st.dictionaries(
    st.sampled_from(["rfilename", "size", "blobId", "lfs"]),
    SCALARS | NAMES | st.dictionaries(st.sampled_from(["sha256", "oid", "size"]), SCALARS, max_size=3),
)


@given(st.lists(SCALARS | ITEMS | st.lists(SCALARS, max_size=2), max_size=6))
def test_any_list_is_checked_item_by_item(items):
    files, refused = check_items(items)
    assert len(files) + len(refused) == len(items)
    for path, entry in files.items():
        assert path == entry.path and refusal_of_name(path) is None
        assert isinstance(entry.size, int) and entry.size >= 0
        assert entry.oid is None or entry.oid.startswith(("sha1:", "sha256:"))
    for unread in refused:
        assert unread.path.isprintable() and unread.reason


@given(NAMES)
def test_an_accepted_name_stays_below_its_folder(name):
    if refusal_of_name(name) is None:
        assert os.path.normpath(os.path.join("/root/model", name)).startswith("/root/model/")
        assert "\\" not in name and name.isprintable()


def test_what_is_about_the_model_and_what_is_of_it():
    about = [
        "README.md",
        "README_en.md",
        "LICENSE",
        "MODEL_LICENSE",
        "LICENSE.txt",
        ".gitattributes",
        "NOTICE",
        "a/x.PNG",
    ]
    of_it = [
        "config.json",
        "merges.txt",
        "vocab.txt",
        "modeling.py",
        "model.safetensors",
        "requirements.txt",
        "chat.jinja",
    ]
    assert all(map(is_text_about_the_model, about))
    assert not any(map(is_text_about_the_model, of_it))
