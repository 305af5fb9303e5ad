"""The schema's step for titles: a part of one is found by an index, however many sessions there are."""

from __future__ import annotations

M026_TITLES = """
CREATE VIRTUAL TABLE session_titles USING fts5 (
  title, content='sessions', content_rowid='key', tokenize='trigram', detail='none'
);
INSERT INTO session_titles (session_titles, rank) VALUES ('secure-delete', 1);
INSERT INTO session_titles (session_titles) VALUES ('rebuild');
CREATE TRIGGER session_titles_put AFTER INSERT ON sessions BEGIN
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title);
END;
CREATE TRIGGER session_titles_changed AFTER UPDATE OF title ON sessions WHEN old.title <> new.title BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title);
  INSERT INTO session_titles (rowid, title) VALUES (new.key, new.title);
END;
CREATE TRIGGER session_titles_gone AFTER DELETE ON sessions BEGIN
  INSERT INTO session_titles (session_titles, rowid, title) VALUES ('delete', old.key, old.title);
END;
"""
