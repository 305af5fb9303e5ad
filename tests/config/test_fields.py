"""The flat list of settings and their help texts follow the schema."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.support import each
from whet.config.fields import fields, find_nearest, format_value, help_texts, read_text, sections
from whet.config.schema import Settings


def test_every_setting_of_the_schema_is_listed_with_its_default() -> None:
    settings = Settings()
    for key, field in fields().items():
        section, _, name = key.partition(".")
        default = json.loads(str(field.default)) if field.kind == "table" else field.default
        assert getattr(getattr(settings, section), name) == default
    assert len(fields()) == sum(len(msgspec.structs.fields(struct)) for struct in sections().values())


def test_every_setting_has_a_help_text() -> None:
    for key in fields():
        assert len(help_texts()[key]) > 15, key
        assert "\n" not in help_texts()[key]


def test_a_default_reads_back_from_its_own_text() -> None:
    for field in fields().values():
        assert read_text(field, format_value(field.default)) == field.default, field.key


def test_choices_and_limits_are_known() -> None:
    assert fields()["model.format"].choices == ("chat_completions", "anthropic_messages", "responses", "auto")
    assert fields()["agent.max_steps"].minimum == 1
    with pytest.raises(ValueError, match="at least 1"):
        read_text(fields()["agent.max_steps"], "0")
    assert "(empty)" in fields()["model.reasoning_effort"].allowed_text


def test_no_number_is_taken_that_the_schema_refuses() -> None:
    for key, field in fields().items():
        if field.kind not in ("number", "whole number"):
            continue
        section, _, name = key.partition(".")
        kind = next(info.type for info in msgspec.structs.fields(sections()[section]) if info.name == name)
        for text in ("-1", "0", "0.3", "0.5", "0.51", "1", "1.01", "5", "10", "11", "100000"):
            try:
                number = read_text(field, text)
            except ValueError:
                continue
            msgspec.convert(number, kind)  # raises if the schema refuses what was read
    with pytest.raises(ValueError, match=r"a number, at least 0, at most 0\.5"):
        read_text(fields()["memory.holdout_share"], "0.9")


def test_the_nearest_name() -> None:
    assert find_nearest("sesions", ["sessions", "config"]) == "sessions"
    assert find_nearest("max_retrys", list(fields())) == "model.max_retries"
    assert find_nearest("qqqq", list(fields())) == ""


@each(
    ("key", "fits", "does_not"),
    [
        ("approval.deny", ("terminal(rm *)", "web_fetch", "mcp__x__*", ""), ("foo bar", "foo(", "x()", "(")),
        ("approval.allow", ("terminal(git commit *),write_file(a, b)",), ("terminal(a),two words",)),
        (
            "confirm.actions",
            ("terminal(make x) = publish_package", "x=none"),
            ("terminal(x)", "x = Y", "= y"),
        ),
        ("sandbox.backend", ("local", "container debian:12", "ssh h", "ssh h ~/f"), ("", "ssh", "ssh -o h")),
        ("sandbox.hosts", ("a.b,*.c.d,code-hosts,10.0.0.1,[::1]",), ("https://x", "a b", "a/b", "*")),
        (
            "model.base_url",
            ("", "http://h/v1", "https://[::1]:8/v1"),
            ("foo", "ftp://h", "http://[::1", "http://"),
        ),
        ("judge.base_url", ("http://h",), ("h:1",)),
        ("model.api_key_env", ("", "A", "A, B_2"), ("A B", "A-B", "${A}")),
        ("confirm.url", ("", "http://h:6000", "unix:/run/x"), ("h:6000", "unix:x")),
        ("store.url", ("", "postgresql://u@h/d", "postgres://h/d"), ("sqlite:x", "h/d")),
        ("traces.url", ("http://h:4318/v1/traces",), ("h:4318",)),
        ("ui.status_line", ("mode,model", ""), ("mode,foo",)),
        ("model.timeout_s", ("0.5", "1e12"), ("0", "nan", "inf", "1e13", "1e308")),
        ("agent.max_steps", ("1",), ("0", "9" * 400)),
    ],
)
def test_what_would_be_refused_later_is_refused_when_it_is_read(
    key: str, fits: tuple[str, ...], does_not: tuple[str, ...]
) -> None:
    for text in fits:
        read_text(fields()[key], text)
    for text in does_not:
        with pytest.raises(ValueError, match="allowed: "):
            read_text(fields()[key], text)
