"""The closed lists of words that rules use for status, severity, confidence and effect."""

#: In rising order: the gate compares positions.
SEVERITIES = ("note", "warning", "error")
CONFIDENCES = ("inferred", "reported", "upstream", "reproduced")
EFFECTS = ("crash", "wrong-numbers", "oom", "slow", "install", "security")
STATUSES = ("preview", "active", "withdrawn")
#: What a fix may hold to be applied, and what such a fix is called. One without any of them is advice.
FIX_KINDS = {"constraints": "constraint", "uninstall": "uninstall", "set": "set", "env": "env", "command": "command"}
#: Kinds of evidence; a rule writes the kind before the address (``issue = "https://..."``).
PROOFS = ("issue", "release-notes", "source", "artefact", "docs", "reproduced", "article")
#: What a test of a rule expects.
ANSWERS = ("match", "no", "unknown")
