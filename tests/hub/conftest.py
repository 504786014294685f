"""The loopback Hub for the tests of this folder."""

from __future__ import annotations

# The Hub and the small models are modules of this folder.
from hub_fixtures import hub, packages_of  # noqa: F401 (fixtures)
