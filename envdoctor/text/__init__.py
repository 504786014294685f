"""Text and files from outside: read within bounds, cleaned before they are shown, without what is private."""
