"""The schema's step for short parts of titles: two blanks behind each title let every run of one or two
characters begin a run of three, and the index's own words give the sessions that have it."""

from __future__ import annotations

M027_SHORT_PARTS = """
DROP TRIGGER session_titles_put;
DROP TRIGGER session_titles_changed;
DROP TRIGGER session_titles_gone;
DROP TABLE session_titles;
CREATE VIEW session_titles_padded AS SELECT key, title || '  ' AS title FROM sessions;
CREATE VIRTUAL TABLE session_titles USING fts5 (
  title, content='session_titles_padded', content_rowid='key', tokenize='trigram', detail='none'
);
CREATE VIRTUAL TABLE session_titles_runs USING fts5vocab (session_titles, instance);
INSERT INTO session_titles (session_titles, rank) VALUES ('secure-delete', 1);
INSERT INTO session_titles (session_titles) VALUES ('rebuild');
CREATE TRIGGER session_titles_put AFTER INSERT ON sessions BEGIN
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title || '  ');
END;
CREATE TRIGGER session_titles_changed AFTER UPDATE OF title ON sessions WHEN old.title <> new.title BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title || '  ');
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title || '  ');
END;
CREATE TRIGGER session_titles_gone AFTER DELETE ON sessions BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title || '  ');
END;
"""
