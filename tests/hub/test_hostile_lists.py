"""Whatever a server lists: no exception, and no name that leads anywhere."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import opened

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False)
NAMES = st.text(alphabet="a./\\:~-\n\x00\u202e中", max_size=12) | st.text(max_size=12)
ITEMS = st.dictionaries(
    st.sampled_from(["rfilename", "size", "blobId", "lfs"]),
    SCALARS | NAMES | st.dictionaries(st.sampled_from(["sha256", "oid", "size"]), SCALARS, max_size=3),
)
NAMED = st.fixed_dictionaries({"rfilename": NAMES, "size": st.just(1)})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SCALARS | ITEMS | NAMED | st.lists(SCALARS, max_size=2), max_size=20))
def test_any_list_is_checked_item_by_item(hub, items):
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}"})
    repo.extra_siblings = items
    snapshot = opened(hub)
    assert len(snapshot.files) + len(snapshot.refused) == len(items) + 1
    for path, entry in snapshot.files.items():
        assert path == entry.path and "\\" not in path and path.isprintable()
        assert os.path.normpath(os.path.join("/root/model", path)).startswith("/root/model/")
        assert isinstance(entry.size, int) and entry.size >= 0
        assert entry.oid is None or entry.oid.startswith(("sha1:", "sha256:"))
    for unread in snapshot.refused:
        assert unread.path.isprintable() and unread.reason
