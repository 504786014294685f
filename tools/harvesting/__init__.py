"""How the ledger of released packages is made: what the index has, what the files say, and the histories of it."""
