"""The driver for a team's database: PostgreSQL behind the SQLite calls that the store uses."""
