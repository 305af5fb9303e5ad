"""What a shell command is, before anybody judges it: its parts, its words, the programs that it runs."""
