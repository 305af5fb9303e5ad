"""What every command shares at a terminal: text, tables, questions, keys, the running turn."""
