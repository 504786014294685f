"""What a fix needs to become a command: builds, packages that go together, installers."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "candidates": "Build Candidates builds_of no_build",
        "checking": "check_first_fix check_fixes",
        "commands": "Before Remedy before install_commands place_of try_remedy",
        "fixes": "with_fixes",
        "needs": "asked_by_model needs_of others_asked",
        "plan": "with_plan",
        "resolver": "NoResolver Wanted resolve",
    },
)
