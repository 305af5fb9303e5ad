"""Work at set times: when it is due, and running it with nobody there."""
