"""What a fix needs to become a command: builds, packages that go together, installers."""
