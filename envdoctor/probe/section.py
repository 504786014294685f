"""What the experiments say besides the findings: the section ``probe`` of a report, as it stands in its JSON.

``results`` makes it and says what its keys mean; ``app.probe_ranks`` adds what other ranks of a job found.
"""

from typing import Any

#: The whole section, a child that ran, and cases of one experiment that came out alike.
ProbeSection = dict[str, Any]
ProbeChild = dict[str, Any]
ProbeGroup = dict[str, Any]
