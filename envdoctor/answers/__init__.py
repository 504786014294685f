"""What an error message asks for, looked up: which releases have it, where it went, and what to install."""
