"""What a fix needs to become a command: builds, packages that go together, installers."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "builds": "Build builds_of no_build",
        "candidates": "Candidates",
        "checking": "check_first_fix check_fixes",
        "commands": "install_commands place_of",
        "fixes": "with_fixes",
        "needs": "asked_by_model needs_of others_asked",
        "plan": "with_plan",
        "remedy": "Before Remedy before try_remedy",
        "resolver": "NoResolver Wanted resolve",
    },
)
