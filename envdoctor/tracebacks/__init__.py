"""What people paste when something failed: a message, or a whole traceback, read into what was asked of whom."""
