"""Refusals as public issue threads report them: when a server sends one, and its body.

`owner/name#5` is https://github.com/owner/name/issues/5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tests.providers.test_adapting import Body, other_history
from whet.contract.messages import Message
from whet.contract.tools import ToolSpec

STRICT = ToolSpec("look", "Look.", {"type": "object", "properties": {}, "additionalProperties": False})


class Report(NamedTuple):
    """A refusal: where it was reported, when the server sends it, its body and its status. `settings`: what
    else of the model's settings is set; `says`: fields of the server's own answers; `times`: how often it
    refuses at most (0: each time); `again`: how often a later session is refused, as a tool that a server
    refused is offered to it again."""

    source: str
    breaks: Callable[[Body], bool]
    body: object
    status: int = 400
    settings: Mapping[str, Any] = {}
    tools: Sequence[ToolSpec] = (STRICT,)
    says: Mapping[str, Any] = {}
    times: int = 0
    again: int = 0
    call_id: str = "functions.look:0"
    history: tuple[Message, ...] = (Message("user", "one"), *other_history())


def error(message: str, **fields: object) -> Body:
    """Return OpenAI's envelope of an error."""
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}


def has(name: str) -> Callable[[Body], bool]:
    return lambda body: name in body


def rows_with_calls(body: Body) -> list[Body]:
    return [row for row in body["messages"] if row.get("tool_calls")]


def lacks_reasoning(body: Body) -> bool:
    return any(not row.get("reasoning_content") for row in rows_with_calls(body))


def lacks_reasoning_field(body: Body) -> bool:
    return any("reasoning_content" not in row for row in rows_with_calls(body))


def has_reasoning_in_some(body: Body) -> bool:
    has_it = ["reasoning_content" in row for row in body["messages"] if row["role"] == "assistant"]
    return any(has_it) and not all(has_it)


def has_long_ids(body: Body) -> bool:
    calls = [call for row in rows_with_calls(body) for call in row["tool_calls"]]
    return any(not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]) for call in calls)


def has_null(body: Body) -> bool:
    return any(row.get("content", "") is None for row in body["messages"])


def has_no_text(body: Body) -> bool:
    return any("content" not in row or row["content"] is None for row in body["messages"])


def has_empty_text(body: Body) -> bool:
    return any(row.get("content", "x") == "" for row in body["messages"])


def repeats_user(body: Body) -> bool:
    roles = [row["role"] for row in body["messages"]]
    return ("user", "user") in pairwise(roles)


def has_closed_schema(body: Body) -> bool:
    return "additionalProperties" in json.dumps(body.get("tools", []))


def has_role(name: str) -> Callable[[Body], bool]:
    return lambda body: any(row["role"] == name for row in body["messages"])


def speaks_after_results(body: Body) -> bool:
    roles = [row["role"] for row in body["messages"]]
    return ("tool", "user") in pairwise(roles)


def asks_above(limit: int) -> Callable[[Body], bool]:
    return lambda body: body.get("max_tokens", 0) > limit or body.get("max_completion_tokens", 0) > limit


def has_chat_body(body: Body) -> bool:
    return "messages" in body


def lacks_signatures(body: Body) -> bool:
    calls = [row["tool_calls"][0] for row in rows_with_calls(body)]
    return any("thought_signature" not in json.dumps(call.get("extra_content")) for call in calls)


def lacks_own(name: str, value: object) -> Callable[[Body], bool]:
    """Whether the message with the server's own call lacks a field that it was sent with."""
    return lambda body: any(
        row.get(name) != value
        for row in rows_with_calls(body)
        if row["tool_calls"][0]["id"] == "functions.look:0"
    )


def changes_long_ids(body: Body) -> bool:
    """Whether the server's own id, which holds a signature, came back changed."""
    ids = [row.get("tool_call_id") for row in body["messages"]]
    ids += [call["id"] for row in rows_with_calls(body) for call in row["tool_calls"]]
    own = f"call_1__thought__{'A' * 900}"
    return any(call_id not in (None, own) and not call_id.startswith("toolu_") for call_id in ids)


def has_keyword(*names: str) -> Callable[[Body], bool]:
    """Whether a schema has a keyword with a text; an argument of that name has a schema."""
    return lambda body: any(f'"{name}": "' in json.dumps(body.get("tools", [])) for name in names)


def has_empty_schema(body: Body) -> bool:
    schemas = [tool["function"].get("parameters") for tool in body.get("tools", [])]
    return any(schema is not None and not schema.get("properties") for schema in schemas)


def has_long_description(body: Body) -> bool:
    return any(len(tool["function"]["description"]) > 1024 for tool in body.get("tools", []))


def has_many_tools(body: Body) -> bool:
    return len(body.get("tools", [])) > 2


def offers(name: str) -> Callable[[Body], bool]:
    return lambda body: any(tool["function"]["name"] == name for tool in body.get("tools", []))


def always(_body: Body) -> bool:
    return True


def has_late_system(body: Body) -> bool:
    return any(row["role"] == "system" for row in body["messages"][1:])


def lacks_results(body: Body) -> bool:
    """Whether a call is not followed by its result."""
    rows = body["messages"]
    for at, row in enumerate(rows):
        ids = [call["id"] for call in row.get("tool_calls") or ()]
        if [after.get("tool_call_id") for after in rows[at + 1 : at + 1 + len(ids)]] != ids:
            return True
    return False


MISTRAL = "Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9."
DEEPSEEK = "The `reasoning_content` in the thinking mode must be passed back to the API."
KIMI = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
ALTERNATE = "onversation roles must alternate user/assistant/user/assistant/..."
MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead."
)
UNKNOWN_NAME = (
    'Invalid JSON payload received. Unknown name "additionalProperties" at '
    "'tools[0].function_declarations[0].parameters': Cannot find field."
)
GOT_NULL = "Invalid value for 'content': expected a string, got null."
RECEIVED_NULL = 'Invalid input: expected string, received null at "params.messages[2].content"'
NO_TEXT = "messages.3.content.0.text.text: Field required"
EMPTY_BLOCK = "messages: text content blocks must be non-empty"
NO_DEVELOPER = "messages[0].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`"
LONG = {"max_output_tokens": 32_000}
RANGE = "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"
NO_EFFORT = (
    "Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions. To use "
    "function tools, use /v1/responses or set reasoning_effort to 'none'."
)
MISTRAL_ORDER = {
    "object": "error",
    "message": "Unexpected role 'user' after role 'tool'",
    "type": "invalid_request_message_order",
    "param": None,
    "code": "3230",
}
ORDERED = (Message("user", "one"), *other_history()[1:], Message("user", "and?"))
UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
    "correctly, and missing thought_signature may lead to degraded model performance. Additional data, "
    "function call `default_api:look` , position 2."
)
FAILED_CALL = error(
    "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
    code="tool_use_failed",
    failed_generation='web_search{"query": "x"}</function>',
)
FINE = ToolSpec(
    "look",
    "Look.",
    {"type": "object", "properties": {"url": {"type": "string", "format": "uri", "pattern": "\\d+"}}},
)
MODES: Body = {"type": "array", "items": {"type": "string"}, "enum": ["x", "y"]}
ODD_CHOICE: Body = {"anyOf": [{"not": {}}, {"type": "string"}]}
REQUESTS = [
    Report(
        "QuantumNous/new-api#418",
        has("stream_options"),
        error("Unknown parameter: 'stream_options'.", param="stream_options", code="unknown_parameter"),
    ),
    Report("the-open-agent/openagent#2206", lacks_reasoning_field, error(DEEPSEEK)),
    Report("suyiiyii/AutoGLM-GUI#396", lacks_reasoning_field, error("Param Incorrect", param=DEEPSEEK)),
    Report("MoonshotAI/kimi-agent-sdk#169", lacks_reasoning, error(KIMI)),
    Report("agentscope-ai/QwenPaw#433", lacks_reasoning, {"code": 20015, "message": KIMI, "data": None}),
    Report("anomalyco/opencode#1680", has_long_ids, error(MISTRAL)),
    Report("jackmpcollins/magentic#276", has_long_ids, {"object": "error", "message": MISTRAL}),
    Report(
        "nearai/ironclaw#1241",
        has_long_ids,
        {"object": "error", "message": MISTRAL, "type": "invalid_function_call", "code": "3280"},
    ),
    Report("jundot/omlx#1997", has_long_ids, error(MISTRAL), 500),
    Report("microsoft/autogen#1037", repeats_user, {"object": "error", "message": f"C{ALTERNATE}"}),
    Report(
        "vllm-project/vllm#6862",
        repeats_user,
        {"object": "error", "message": f"After the optional system message, c{ALTERNATE}", "code": 400},
    ),
    Report("docker/docker-agent#63", has_null, error(GOT_NULL)),
    Report("SAIL-Research-Lab/cheetahclaws#72", has_null, error("invalid message content type: <nil>")),
    Report(
        "lmstudio-ai/lmstudio-bug-tracker#261",
        has_null,
        {"error": "Invalid 'content': 'content' field must be a string or an array of objects."},
    ),
    Report(
        "BerriAI/litellm#37711",
        has_no_text,
        error(
            "Failed to deserialize the JSON body into the target type: messages[3]: missing field 'content'"
        ),
        422,
    ),
    Report(
        "dev2k6/command-code-proxy-server#10",
        has_null,
        error(
            'Validation error: Invalid input: expected string, received null at "params.messages[2].content"'
        ),
    ),
    Report("router-for-me/CLIProxyAPI#749", has_empty_text, error(NO_TEXT)),
    Report("NousResearch/hermes-agent#11906", has_empty_text, error(EMPTY_BLOCK)),
    Report("Gitlawb/zero#373", has_closed_schema, error(UNKNOWN_NAME)),
    Report("adolfousier/opencrabs#99", has_closed_schema, [error(UNKNOWN_NAME, status="INVALID_ARGUMENT")]),
    Report("koosoli/ESPHomeDesigner#379", has("max_tokens"), error(MAX_TOKENS)),
    Report(
        "ITSpecialist111/ai_automation_suggester#38",
        has("max_tokens"),
        error(MAX_TOKENS, param="max_tokens", code="unsupported_parameter"),
    ),
    Report("earendil-works/pi#1048", has_role("developer"), error(NO_DEVELOPER)),
    # Parameters.
    Report(
        "FlowiseAI/Flowise#2866",
        has("stream_options"),
        error("Extra inputs are not permitted, field: 'stream_options', value: {'include_usage': True}"),
    ),
    Report(
        "microsoft/semantic-kernel#10510",
        has("stream_options"),
        error("Validation error at #/stream_options: Extra inputs are not permitted", code="BadRequest"),
    ),
    Report(
        "gpustack/gpustack#429",
        has("stream_options"),
        {
            "object": "error",
            "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': "
            "'Extra inputs are not permitted', 'input': {'include_usage': True}}]",
            "code": 400,
        },
    ),
    Report("deepseek-ai/DeepSeek-V3#69", asks_above(8192), error(RANGE), settings=LONG),
    Report(
        "open-webui/open-webui#10507",
        asks_above(8192),
        error("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]"),
        settings=LONG,
    ),
    Report(
        "diffbot/code-gpt-docs#284",
        asks_above(4096),
        error(
            "max_tokens is too large: 32000. This model supports at most 4096 completion tokens, whereas you "
            "provided 32000."
        ),
        settings=LONG,
    ),
    Report(
        "AQBot-Desktop/AQBot#93",
        asks_above(16384),
        error(
            "Param Incorrect",
            param="max_tokens is too large: 32000. This model supports at most 16384 completion tokens, "
            "whereas you provided 32000.",
            code="400",
        ),
        settings=LONG,
    ),
    Report(
        "evalstate/fast-agent#621",
        asks_above(8130),
        error(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens "
            "(122942 in the messages, 8192 in the completion). Please reduce the length of the messages or "
            "completion.",
            param=None,
            code="invalid_request_error",
        ),
        settings={"max_output_tokens": 8192},
    ),
    Report(
        "continuedev/continue#8454",
        asks_above(56_347),
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 143653 + 64000 > 200000, "
                "decrease input length or `max_tokens` and try again",
            },
        },
        settings={"max_output_tokens": 64_000},
    ),
    Report(
        "mateaix/mateclaw#481",
        asks_above(8100),
        error(
            "max_tokens=16384 cannot be greater than max_model_len=max_total_tokens=8192. Please request "
            "fewer output tokens. (parameter=max_tokens, value=16384)",
            param="max_tokens",
        ),
        settings={"max_output_tokens": 16_384},
    ),
    Report(
        "BerriAI/litellm#16265",
        has("reasoning_effort"),
        {
            "code": "Client specified an invalid argument",
            "error": "Model grok-4-latest does not support parameter reasoningEffort.",
        },
        settings={"reasoning_effort": "low"},
    ),
    Report(
        "github/copilot-cli#3394",
        has("reasoning_effort"),
        error(
            'reasoning_effort "medium" was provided, but model gpt-4o-2024-11-20 does not '
            "support reasoning effort"
        ),
        settings={"reasoning_effort": "medium"},
    ),
    Report(
        "pipecat-ai/pipecat#4043",
        has("reasoning_effort"),
        error(NO_EFFORT, param="reasoning_effort", code=None),
        settings={"reasoning_effort": "low"},
    ),
    Report(
        "elie222/rakazo#114",
        has("reasoning_effort"),
        error("Reasoning is mandatory for this endpoint and cannot be disabled."),
        settings={"reasoning_effort": "none"},
    ),
    # Another endpoint.
    Report("danny-avila/LibreChat#14355", has_chat_body, error(NO_EFFORT, param="reasoning_effort")),
    Report(
        "caozhiyuan/copilot-api#102",
        has_chat_body,
        error(
            "model gpt-5.3-codex is not accessible via the /chat/completions endpoint",
            code="unsupported_api_for_model",
        ),
    ),
    Report(
        "MadAppGang/claudish#174",
        has_chat_body,
        error(
            "This model is not supported in the v1/chat/completions endpoint. Use the v1/responses endpoint "
            "instead."
        ),
        404,
    ),
    # The order of messages.
    Report("avante-corp/avante.nvim#2562", speaks_after_results, MISTRAL_ORDER, history=ORDERED),
    Report(
        "BerriAI/litellm#17761",
        speaks_after_results,
        error(f"litellm.BadRequestError: MistralException - {json.dumps(MISTRAL_ORDER)}"),
        history=ORDERED,
    ),
    Report(
        "nicholasgriffintn/ai-platform#414",
        speaks_after_results,
        {**MISTRAL_ORDER, "type": "invalid_request_error", "code": None},
        history=ORDERED,
    ),
    Report(
        "vllm-project/vllm#41114",
        has_late_system,
        error("System message must be at the beginning."),
        history=ORDERED,
    ),
    Report(
        "QwenLM/qwen-code#315",
        lacks_results,
        error(
            '<400> InternalError.Algo.InvalidParameter: An assistant message with "tool_calls" must be '
            'followed by tool messages responding to each "tool_call_id".'
        ),
        history=ORDERED,
    ),
    # What a server sent and wants back.
    Report(
        "manthanabc/paws#103",
        lacks_signatures,
        [error(UNSIGNED, status="INVALID_ARGUMENT")],
        says={"extra_content": {"google": {"thought_signature": "c2ln"}}},
    ),
    Report("niki914/zafiro#100", lacks_signatures, [error(UNSIGNED, code=400, status="INVALID_ARGUMENT")]),
    Report(
        "GewoonJaap/gemini-cli-openai#156",
        lacks_signatures,
        error(
            "Unable to submit request because function call `look` in the 5. content block is missing a "
            "`thought_signature`. Learn more: https://docs.cloud.google.com/vertex-ai/thought-signatures",
            status="INVALID_ARGUMENT",
        ),
    ),
    Report(
        "anomalyco/opencode#3077",
        lacks_own("thinking_blocks", [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]),
        error("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."),
        says={"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]},
    ),
    Report(
        "anomalyco/opencode#8900",
        lacks_own("reasoning_opaque", "c2ln"),
        error("invalid request body"),
        says={"reasoning_text": "hm", "reasoning_opaque": "c2ln"},
    ),
    Report(
        "BerriAI/litellm#16895",
        changes_long_ids,
        error("function call `look` in the 2. content block is missing a thought_signature"),
        call_id=f"call_1__thought__{'A' * 900}",
    ),
    # Schemas and descriptions of tools.
    Report(
        "agno-agi/agno#2112",
        has_empty_schema,
        error(
            "* GenerateContentRequest.tools[0].function_declarations[2].parameters.properties: should be "
            "non-empty for OBJECT type\n",
            code=400,
            status="INVALID_ARGUMENT",
        ),
    ),
    Report(
        "google-gemini/gemini-cli#3178",
        has_keyword("format"),
        error(
            "* GenerateContentRequest.tools[0].function_declarations[0].parameters.properties[url].format: "
            "only 'enum' and 'date-time' are supported for STRING type\n",
            status="INVALID_ARGUMENT",
        ),
        tools=(FINE,),
    ),
    Report(
        "openclaw/openclaw#107430",
        has_keyword("pattern"),
        error(
            "Unable to generate parser for this template. Automatic parser generation failed: JSON schema "
            "conversion failed:\nPattern must start with '^' and end with '$'"
        ),
        tools=(FINE,),
    ),
    Report(
        "lidge-jun/opencodex#2135",
        has_keyword("pattern", "format"),
        error("Failed to initialize samplers: failed to parse grammar", code=400),
        tools=(FINE,),
    ),
    Report(
        "ggml-org/llama.cpp#25895",
        has_many_tools,
        error("Failed to initialize samplers: failed to parse grammar", code=400),
        tools=tuple(ToolSpec(f"look_{at}", "Look.", STRICT.parameters) for at in range(4)),
    ),
    Report(
        "OpenHands/OpenHands#4838",
        has_long_description,
        error(
            "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length "
            "1024, but got a string with length 4394 instead.",
            param="tools[0].function.description",
            code="string_above_max_length",
        ),
        tools=(ToolSpec("look", "Look. " * 400, STRICT.parameters),),
    ),
    Report(
        "Aas-ee/open-webSearch#21",
        offers("search"),
        error("<400> InternalError.Algo.InvalidParameter: Tool names are not allowed to be [search]"),
        tools=(STRICT, ToolSpec("search", "Search.", STRICT.parameters)),
        again=1,
    ),
    Report(
        "TencentCloudBase/CloudBase-AI-Toolkit#626",
        lambda body: '"not"' in json.dumps(body.get("tools", [])),
        error("400 invalid parameter value"),
        tools=(ToolSpec("look", "Look.", {"type": "object", "properties": {"a": ODD_CHOICE}}),),
    ),
    Report(
        "reportportal/reportportal-mcp-server#25",
        lambda body: '"enum"' in json.dumps(body.get("tools", [])),
        error(
            "Unable to submit request because look functionDeclaration parameters.modes schema specified "
            "incorrect schema type field. For schema with enum values, schema type should not be ARRAY.",
            param="tools.0.function",
        ),
        tools=(ToolSpec("look", "Look.", {"type": "object", "properties": {"modes": MODES}}),),
        again=1,
    ),
    Report(
        "anomalyco/opencode#25000",
        has_reasoning_in_some,
        error("The `reasoning_content` in the thinking mode must be passed back to the API."),
        history=(
            *other_history(replay={"reasoning_content": "hm"}),
            Message("assistant", "I have seen it."),
            Message("user", "on"),
        ),
    ),
    # A call that the model wrote and the server could not read.
    Report("huggingface/smolagents#1119", always, FAILED_CALL, times=1),
    Report(
        "HunorLaczko/ha-groq-cloud-api#20",
        always,
        error(
            "tool call validation failed: parameters for tool HassTurnOff did not match schema: errors: "
            "[`/domain`: expected array, but got string]",
            param="",
            code="tool_use_failed",
        ),
        times=1,
    ),
]
