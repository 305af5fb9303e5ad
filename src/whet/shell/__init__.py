"""Parse shell commands: their parts, their words, and the programs that they run. Judging them is done
elsewhere."""
