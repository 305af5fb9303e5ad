"""Learning: notes, skills, and the ledger of their changes."""
