"""Each vendor's errors, in their own words, become the one class that says who acts."""

from __future__ import annotations

# ruff: noqa: E501 - the vendors' error texts stand in one piece, so that they can be compared
import json
from typing import Any

import pytest

from tests.providers.shapes import INFO
from tests.support import each
from whet import log
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ContextOverflow,
    ModelRefused,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    UnknownModel,
    WireError,
)
from whet.providers import failures


def error_of(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failures.from_response(INFO, status, headers or {}, raw, "api.example")


def wait_of(*failure: Any) -> float | None:
    error = error_of(*failure)
    assert isinstance(error, RateLimited)
    return error.retry_after_s


def said(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


OVERFLOWS = [
    ("openai", 400, said("This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.", code="context_length_exceeded"), 128000),
    ("openai responses", 400, said("Your input exceeds the context window of this model.", code="context_length_exceeded"), None),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 215000 tokens > 200000 maximum"}}, 200000),
    ("anthropic output", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length"}}, 200000),
    ("anthropic bytes", 413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}, None),
    ("llama.cpp", 400, said("the request exceeds the available context size, try increasing it", code=400, type="exceed_context_size_error", n_prompt_tokens=5000, n_ctx=4096), 4096),
    ("vllm", 400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).", "code": 400}, 4096),
    ("vllm prompt", 400, {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", "code": 400}, 4096),
    ("ollama", 400, {"error": "the input length exceeds the context length"}, None),
    ("openrouter", 400, said("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens.", code=400), 131072),
    ("groq", 413, said("Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000", code="rate_limit_exceeded"), 6000),
    ("groq length", 400, said("Please reduce the length of the messages or completion.", code="context_length_exceeded"), None),
    ("deepseek", 400, said("This model's maximum context length is 131072 tokens. However, you requested 200000 tokens", type="invalid_request_error"), 131072),
    ("gemini", 400, [said("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", status="INVALID_ARGUMENT")], 1048576),
    ("xai", 400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 200000 tokens."}, 131072),
    ("mistral", 400, {"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error"}, 32768),
    ("lm studio", 400, said("Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"), 4096),
    ("together", 422, said("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000"), 8193),
    ("by its type alone", 500, said("the request can't be served", type="exceed_context_size_error"), None),
    ("by its code alone", 429, said("slow down", code="context_length_exceeded"), None),
    ("by its size alone", 400, said("the request can't be served", n_ctx=4096), 4096),
    ("vllm as 500", 500, said("This model's maximum context length is 4096 tokens."), 4096),
]  # fmt: skip


@each(("vendor", "status", "body", "limit"), OVERFLOWS)
def test_overflow_is_recognised_with_its_limit(vendor, status, body, limit):
    error = error_of(status, body)
    assert type(error) is ContextOverflow
    assert error.limit_tokens == limit


CLASSES = [
    (401, said("Incorrect API key provided", code="invalid_api_key"), AuthRejected),
    (403, said("Country not supported"), AuthRejected),
    (402, said("Insufficient Balance"), QuotaExhausted),
    (402, said("No."), QuotaExhausted),
    (429, said("You exceeded your current quota", code="insufficient_quota"), QuotaExhausted),
    (400, said("Your credit balance is too low to access the Anthropic API."), QuotaExhausted),
    (429, said("Rate limit reached for input tokens: Limit 30000, Used 29000."), RateLimited),
    (404, said("The model `gpt-9` does not exist", code="model_not_found"), UnknownModel),
    (404, {"error": {"message": 'model "x" not found, try pulling it first'}}, UnknownModel),
    (400, said("foo/bar is not a valid model ID"), UnknownModel),
    (403, said("Project does not have access to model", code="model_not_found"), UnknownModel),
    (400, said("Invalid 'messages[0].role'"), BadRequest),
    (422, {"detail": [{"loc": ["body"], "msg": "extra fields"}]}, BadRequest),
    (403, said("Your input was flagged by moderation"), ModelRefused),
    (400, said("Response blocked", code="content_filter"), ModelRefused),
    (407, said("a name, please"), BadRequest),
    (408, said("timeout"), Unavailable),
    (409, said("not now"), Unavailable),
    (425, said("too early"), Unavailable),
    (500, said("internal"), Unavailable),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Unavailable),
    (502, b"<!DOCTYPE html><html><body>Bad gateway</body></html>", Unavailable),
    (503, b"", Unavailable),
]


@each(("status", "body", "expected"), CLASSES)
def test_status_and_words_choose_the_class(status, body, expected):
    error = error_of(status, body)
    assert type(error) is expected
    assert error.status == status and error.provider == "vendor" and error.hint
    assert "\n" not in error.message and len(error.message) < 350
    assert error.retryable is (expected in (RateLimited, Unavailable))


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("overloaded_error", 529, Unavailable),
        ("rate_limit_error", 429, RateLimited),
        ("authentication_error", 401, AuthRejected),
        ("permission_error", 403, AuthRejected),
        ("not_found_error", 404, BadRequest),
        ("invalid_request_error", 400, BadRequest),
        ("billing_error", 402, QuotaExhausted),
        ("request_too_large", 413, ContextOverflow),
        ("api_error", 500, Unavailable),
    ],
)
def test_an_error_inside_a_stream_counts_as_its_kind_would_have_been_answered(kind, status, expected):
    error = failures.from_payload(INFO, json.dumps(said("no", type=kind)).encode())
    assert type(error) is expected and error.status == status


def test_model_errors_say_how_to_list_models_and_pages_are_named():
    assert "whet model list" in error_of(404, said("model x not found")).hint
    assert "an HTML page" in error_of(502, b"<html><title>x</title></html>").message
    for status in (300, 301, 308):
        assert "https://new.example" in error_of(status, b"", {"location": "https://new.example"}).message
    words = error_of(502, b"w" * 200).message
    assert "w" * 120 in words and "w" * 121 not in words


@pytest.mark.parametrize(
    ("body", "is_page"),
    [
        (b" " * 1_995 + b"<html>", True),
        (b" " * 1_996 + b"<html>", False),
        (b" " * 191 + b"<!doctype", True),
        (b" " * 192 + b"<!doctype", False),
    ],
)
def test_a_page_is_known_by_its_beginning(body, is_page):
    assert ("an HTML page" in error_of(502, body).message) is is_page


def test_secrets_in_an_error_are_masked():
    log.protect(["hunter2-hunter2"])
    error = error_of(401, said("Incorrect API key provided: sk-proj-abcdefghijklmnop1234 or hunter2-hunter2"))
    assert "hunter2" not in error.message and "abcdefgh" not in error.message


def test_an_excerpt_has_500_characters_however_many_bytes_they_take():
    for letter in "xé日🙂":
        assert failures.unreadable_error(INFO, (letter * 9000).encode()).excerpt == letter * 500
    assert failures.unreadable_error(INFO, b" a \n\n b\xff").excerpt == "a b\ufffd"
    assert repr("y" * 120) in failures.unreadable_error(INFO, b"y" * 121).message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "whet doctor"),
        (402, "add credit at vendor"),
        (404, "model.base_url"),
        (407, "HTTPS_PROXY"),
        (413, "/new"),
        (422, "did not accept"),
        (429, "wait"),
        (503, "trying again"),
    ],
)
def test_the_hint_says_what_to_do_about_a_status(status: int, words: str):
    assert words in error_of(status, said("no")).hint


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "registry.ollama.ai/library/gemma3:latest does not support tools"),
        (404, "No endpoints found that support tool use."),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (400, "This model doesn't support function calling"),
    ],
)
def test_a_model_without_tools_has_a_hint_of_its_own(status: int, words: str):
    error = error_of(status, said(words))
    assert type(error) is BadRequest and "a model that can call tools" in error.hint


def test_the_request_id_is_kept():
    assert error_of(500, said("x"), {"request-id": "req_1"}).request_id == "req_1"
    assert error_of(500, said("x"), {"x-request-id": "req_2"}).request_id == "req_2"


NOW = 1_700_000_000.0


@each(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "-250", "retry-after": "1"}, 1.0),
        ({"retry-after-ms": "inf", "retry-after": "1"}, 1.0),
        ({"retry-after-ms": "nan", "retry-after": "1"}, 1.0),
        ({"retry-after-ms": "0", "retry-after": "1"}, 0.0),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-reset": "0.5"}, 0.5),
        ({"x-ratelimit-reset": str(NOW + 9)}, 9.0),
        ({"x-ratelimit-reset": str(NOW - 9)}, 0.0),
        ({"x-ratelimit-reset": str((NOW + 9) * 1000)}, 9.0),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "20ms", "x-ratelimit-remaining-tokens": "0"}, 0.02),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s", "x-ratelimit-remaining-tokens": "0"}, 3723.5),
        ({"x-ratelimit-reset-tokens": "9s", "x-ratelimit-remaining-tokens": "55"}, None),
        (
            {
                f"x-ratelimit-{what}-{of}": value
                for of in ("requests", "tokens")
                for what, value in (("remaining", "0"), ("reset", "3s" if of == "tokens" else "2s"))
            },
            3.0,
        ),
        ({"x-ratelimit-reset-tokens": "1.2.3s", "x-ratelimit-remaining-tokens": "0"}, None),
        ({"x-ratelimit-reset-tokens": "", "x-ratelimit-remaining-tokens": "0"}, None),
        ({"x-ratelimit-reset-tokens": "4", "x-ratelimit-remaining-tokens": "0"}, 4.0),
        ({}, None),
    ],
)
def test_waiting_times_are_read_from_headers(headers, expected):
    assert failures.waiting_time_s(headers, NOW) == (None if expected is None else pytest.approx(expected))


def test_waiting_times_are_read_from_the_words_where_no_header_says():
    assert wait_of(429, said("Please try again in 1.5s.")) == 1.5
    assert wait_of(429, said("Please try again in 6m0s")) == 360
    assert wait_of(429, said("Please try again in 20ms")) == 0.02
    assert wait_of(429, said("Retry after 7 seconds")) == 7
    for nothing in ("Please try again in ... seconds", "try again in .s", "try again in 5 minutes"):
        assert wait_of(429, said(nothing)) is None
    gemini = [said("quota", details=[{"@type": "RetryInfo", "retryDelay": "39s"}])]
    assert wait_of(429, gemini) == 39
    others = [said("quota", details=["x", {"retryDelay": 5}, {"retryDelay": "1.5s"}, {"retryDelay": "9s"}])]
    assert wait_of(429, others) == 1.5
    assert wait_of(429, said("slow down"), {"retry-after": "3"}) == 3


@each(
    ("payload", "status", "words"),
    [
        ({"error": {"message": "no", "code": 400}}, 400, "vendor: no (HTTP 400)"),
        ({"error": {"message": "no", "code": 599}}, 599, "vendor: no (HTTP 599)"),
        ({"error": {"message": "no", "code": 399}}, 500, "vendor: no"),
        ({"error": {"message": "no", "code": 600}}, 500, "vendor: no"),
        ({"error": {"message": "HTTP 503 no", "code": 503}}, 503, "vendor: HTTP 503 no"),
        ({"error": "no"}, 500, "vendor: no"),
        ({"response": {"error": {"message": "no"}}}, 500, "vendor: no"),
        ([{"error": {"message": "no"}}, 1], 500, "vendor: no"),
        ({"message": "no", "code": 404}, 404, "vendor: no (HTTP 404)"),
        ({"error": {"code": 404}, "message": "no"}, 404, "vendor: no (HTTP 404)"),
        ({"error": {"detail": {"a": [1]}}}, 500, 'vendor: {"a":[1]}'),
        ({"error": {"message": "no", "metadata": {"raw": "busy"}}}, 500, "vendor: no: busy"),
        ({"error": {"message": "no", "metadata": {"raw": 5}}}, 500, "vendor: no"),
        ({"error": {"message": "no", "n_ctx": 0}}, 500, "vendor: no"),
        ({"error": {"message": "y" * 301}}, 500, f"vendor: {'y' * 300}"),
        ({"error": {"message": "context size 9"}}, 400, "vendor: context size 9"),
    ],
)
def test_the_error_object_is_found_wherever_a_vendor_puts_it(payload, status, words):
    error = failures.from_payload(INFO, json.dumps(payload).encode())
    assert (error.status, error.message) == (status, words)


@pytest.mark.parametrize("payload", [[], 5, {}, {"error": {}}, {"error": 5}, {"response": {"id": 1}}])
def test_what_holds_no_error_object_can_not_be_read(payload):
    error = failures.from_payload(INFO, json.dumps(payload).encode())
    assert type(error) is WireError and error.excerpt == json.dumps(payload)


def test_what_went_wrong_is_named_by_the_server_and_the_kinds_that_it_gave():
    error = error_of(400, said("no", type="a", code="b", status="c"))
    assert (error.code, error.model, error.provider, error.status) == ("a b c", "m-1", "vendor", 400)
    assert failures.refusal_error(INFO, "z" * 201).message == f"vendor declined to answer: {'z' * 200}"
    assert failures.refusal_error(INFO).message == "vendor declined to answer"


def test_a_server_says_when_it_is_back_and_whether_to_try_again():
    asked = {"retry-after": "9", "x-should-retry": "False"}
    for status, expected in ((503, 9.0), (429, 9.0)):
        error = error_of(status, said("no"), asked)
        assert isinstance(error, Unavailable | RateLimited)
        assert (error.retry_after_s, error.retryable) == (expected, False)
    assert error_of(503, said("no"), {"x-should-retry": "true"}).retryable
    assert not hasattr(error_of(400, said("no"), asked), "retry_after_s")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("context length is 128,000 tokens", 128_000),
        ("context window of 8_192", 8_192),
        ("maximum context length: , only", None),
        ("too many input tokens: 9 > 7", 7),
    ],
)
def test_a_limit_is_read_with_its_separators(words, limit):
    error = error_of(400, said(words, code="context_length_exceeded"))
    assert isinstance(error, ContextOverflow) and error.limit_tokens == limit
