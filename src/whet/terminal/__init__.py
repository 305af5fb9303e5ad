"""The terminal: text, tables, questions, keys, and the display of the running turn."""
