"""The search index with stems, marks and pairs; it is filled anew behind the next turns and searches.

A step that was ever released is never changed.
"""

from __future__ import annotations

M014_SEARCH = """
DROP TABLE messages_fts;
CREATE VIRTUAL TABLE messages_fts USING fts5 (
  body, content='', contentless_delete=1,
  tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
CREATE VIRTUAL TABLE messages_words USING fts5vocab (messages_fts, instance);
CREATE INDEX sessions_new_to_index ON sessions (key) WHERE dirty = 1;
UPDATE sessions SET indexed_seq = 0, dirty = 2  -- 1: new messages, 2: to be indexed anew
 WHERE EXISTS (SELECT 1 FROM messages WHERE id >= key << 22 AND id < (key + 1) << 22);
"""
