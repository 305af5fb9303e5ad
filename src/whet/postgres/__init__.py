"""The driver for a team's database: PostgreSQL behind the calls that the store's functions make of SQLite's."""
