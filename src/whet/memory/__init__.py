"""What is learned: two note files, skill folders, the ledger that every change goes through, and its gate."""
