"""JSON pieces: surrogates, whole objects, ids."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.contract.texts import is_object
from whet.contract.tools import ToolSpec
from whet.providers.wire import encode, quote, sent_schema, unique_ids, wire_id, wire_name


@given(st.text())
def test_quoted_text_reads_back(text: str):
    assert json.loads(quote(text)) == text.encode("utf-8", "replace").decode()


def test_lone_surrogates_are_replaced_at_any_depth():
    assert json.loads(quote("a\udcffb")) == "a?b"
    assert json.loads(encode({"k": ["\udcff", 1]})) == {"k": ["?", 1]}


@pytest.mark.slow
@given(
    st.text(max_size=30)
    | st.sampled_from(["{}", '{"a":1}', '{"a":1', "[{}]", '{"a":01}', "{'a':1}", '{"a":1}}'])
)
def test_is_object_agrees_with_the_standard_library(text: str):
    if is_object(text):
        assert isinstance(json.loads(text), dict)


def test_deep_nesting_is_no_crash():
    assert not is_object('{"a":' * 5000 + "1")


def test_ids_and_names_are_stable_and_acceptable():
    allowed = re.compile(r"[a-z]{1,4}")
    assert wire_id("abcd", allowed) == "abcd"
    assert wire_id("fc:1/2", allowed) == "1k188cpxald19cgyo7fetqax", "an old session's requests change"
    assert wire_id("fc:1/2", allowed, 9) == "1k188cpxa" != wire_id("fc:1/3", allowed, 9)
    assert (wire_name("ok_1"), wire_name("a b.c"), wire_name("")) == ("ok_1", "a_b_c", "unnamed")


def test_a_schema_is_sent_without_the_ban_on_unknown_arguments_and_what_no_request_describes():
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    fields = {
        "list": {"type": "array", "items": inner},
        "additionalProperties": {"type": "string"},
        "own": {},
    }
    spec = ToolSpec("t", "Do.", {**inner, "properties": fields}, unsent=("own",))
    plain = {"type": "object", "properties": {"n": {"type": "integer"}}}
    sent = {"list": {"type": "array", "items": plain}, "additionalProperties": {"type": "string"}}
    assert sent_schema(spec) == {"type": "object", "properties": sent} and "own" in fields
    free = {"type": "object", "additionalProperties": False}
    assert sent_schema(ToolSpec("t", "Do.", free)) == {"type": "object", "properties": {}}


ROWS = {"type": "array", "items": {"type": "array"}}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"properties": {"a": {"type": "array"}}}, {"a": {"type": "array", "items": {}}}),
        ({"properties": {"a": {"type": ["array", "null"]}}}, {"a": {"type": ["array", "null"], "items": {}}}),
        (
            {"properties": {"a": {"anyOf": [ROWS, {"type": "string"}]}}},
            {"a": {"anyOf": [ROWS | {"items": {"type": "array", "items": {}}}, {"type": "string"}]}},
        ),
        (
            {"properties": {"a": {"type": "array", "items": [{"type": "string"}]}}},
            {"a": {"type": "array", "prefixItems": [{"type": "string"}], "items": {}}},
        ),
        ({"allOf": [{"properties": {"a": {"type": "string"}}}]}, {"a": {"type": "string"}}),
        ({"properties": {"a": True, "b": 5, "c": {"enum": []}}}, {"a": {}, "b": {}, "c": {}}),
        (
            {"properties": {"a": {"type": "integer", "exclusiveMinimum": True, "minimum": 0}}},
            {"a": {"type": "integer", "minimum": 0}},
        ),
        (
            {"properties": {"a": {"type": "array", "items": {}, "uniqueItems": "yes", "minContains": -1}}},
            {"a": {"type": "array", "items": {}}},
        ),
        ({"type": "string", "properties": []}, {}),
        (
            {"properties": {"a": {"type": "string", "default": None}}},
            {"a": {"type": "string", "default": None}},
        ),
    ],
)
def test_a_schema_that_a_vendor_would_refuse_is_mended(given: dict[str, Any], sent: dict[str, Any]):
    mended = sent_schema(ToolSpec("t", "Do.", given))
    assert mended == {"type": "object", "properties": sent}


def test_arguments_that_are_required_are_described():
    part = {"properties": {"a": {"type": "string"}}, "required": ["a", "z"]}
    mended = sent_schema(ToolSpec("t", "Do.", {"allOf": [part], "required": ["y"], "$schema": "x"}))
    assert mended == {"type": "object", "properties": part["properties"], "required": ["a"]}
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(3_000):
        deep = {"type": "object", "properties": {"a": deep}}
    assert "properties" in sent_schema(ToolSpec("t", "Do.", deep))


def test_ids_become_unique():
    assert unique_ids(["a", "a", "", "a_2"], ("call_2",)) == ["a", "a_2", "call_2_2", "a_2_2"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33])
def test_a_call_gets_the_first_number_that_is_free(count: int):
    taken = ("a", *(f"a_{number}" for number in range(2, count + 1)))
    assert unique_ids(["a"], taken) == unique_ids(["a"], set(taken)) == [f"a_{count + 1}"]
    assert unique_ids(["a"] * count + ["b"], ()) == [*taken, "b"]


def test_a_name_has_64_characters_at_most():
    assert wire_name("x" * 64) == wire_name("x" * 65) == wire_name("x" * 99) == "x" * 64
