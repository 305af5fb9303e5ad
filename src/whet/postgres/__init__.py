"""The driver for a team's database: PostgreSQL behind the calls that the store makes of SQLite's."""
