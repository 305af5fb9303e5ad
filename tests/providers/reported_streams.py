"""Streams as public issue threads report them: what a server sent, and the text and calls that it means.

`owner/name#5` is https://github.com/owner/name/issues/5.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

DONE = b"[DONE]"


class Stream(NamedTuple):
    """A reported stream: its source, the data of its events, and the text and calls in it."""

    source: str
    events: list[bytes]
    text: str
    calls: list[tuple[str, str]]


def chunk(delta: object = None, finish: str | None = None, **fields: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}).encode()


def call(name: str | None = None, arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a fragment of a tool call as a delta."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{**fields, "function": function}]}


def say(*pieces: str) -> list[bytes]:
    """Return an answer of text in pieces."""
    return [*(chunk({"content": piece}) for piece in pieces), STOP]


STOP, CALLS = chunk({}, "stop"), chunk({}, "tool_calls")
TEXT = chunk({"content": "ok"})
USAGE = b'{"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}}'
A, B = '{"path": "a"}', '{"path": "b"}'
ONE = [("read_file", A)]
TWO = [*ONE, ("read_file", B)]
NONE = [("read_file", "{}")]
PACKED = [("read_file", '{"path":"a"}')]
OBJECT = {"index": 0, "id": "c1", "function": {"name": "read_file", "arguments": {"path": "a"}}}
HALVES = ('{"path":', ' "a"}')
FIRST = chunk(call("read_file", "", index=0, id="c1"))
WHOLE = chunk(call("read_file", A, index=0, id="c1"))
FILTERED = {"hate": {"filtered": False, "severity": "safe"}}


def dsml(bars: str, body: str = "tool_calls") -> str:
    """Return a call in DeepSeek's notation."""
    tag = f"{bars}DSML{bars}"
    inner = (
        f'<{tag}invoke name="read_file">\n<{tag}parameter name="path" string="true">a</{tag}parameter>\n'
        f"</{tag}invoke>\n"
    )
    return f"<{tag}{body}>\n{inner}</{tag}{body}>" if body else inner


INVOKED = '<invoke name="read_file">\n<parameter name="path">a</parameter>\n</invoke>'
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>"
    "%s<|tool_call_end|><|tool_calls_section_end|>"
)
STREAMS = [
    Stream(
        "agentscope-ai/agentscope-java#1223",
        [
            chunk(call("read_file", '{"path": "a"', index=0, id="c1")),
            chunk(call("read_file", "}", index=0, id=None)),
            CALLS,
        ],
        "",
        ONE,
    ),
    Stream(
        "SamSaffron/term-llm#314",
        [chunk(call("read_file", A, id="c1")), chunk(call("read_file", B, id="c2")), CALLS],
        "",
        TWO,
    ),
    Stream(
        "agno-agi/agno#8880",
        [
            WHOLE,
            chunk(call("read_file", '{"path":', index=0, id="c2")),
            chunk(call(None, ' "b"}', index=1)),
            CALLS,
        ],
        "",
        TWO,
    ),
    Stream(
        "vercel/ai#14722",
        [chunk(call(None, HALVES[0], index=0, id="c1")), chunk(call("read_file", HALVES[1], index=0)), CALLS],
        "",
        ONE,
    ),
    Stream("openai/openai-python#2806", [chunk(call("read_file", A, id="c1")), STOP], "", ONE),
    Stream("ollama/ollama#15457", [WHOLE, chunk(call("read_file", B, index=0, id="c2")), CALLS], "", TWO),
    Stream(
        "BerriAI/litellm#11407",
        [
            chunk(call("read_file", "", index=1, id="c1")),
            chunk(call(None, HALVES[0], index=1)),
            chunk(call(None, HALVES[1], index=1)),
            CALLS,
        ],
        "",
        ONE,
    ),
    Stream("can1357/oh-my-pi#1779", [chunk({"tool_calls": [OBJECT]}), CALLS], "", PACKED),
    Stream("RayBytes/ChatMock#114", [TEXT, WHOLE, CALLS, STOP], "ok", ONE),
    Stream("vllm-project/vllm#9209", [WHOLE, STOP], "", ONE),
    Stream("mnfst/llm-gateway#2053", [b": OPENROUTER PROCESSING", TEXT, STOP], "ok", []),
    Stream("anomalyco/opencode#50871", [TEXT, b": keepalive", STOP], "ok", []),
    Stream("BerriAI/litellm#32519", [TEXT, STOP, b'{"choices": []}'], "ok", []),
    Stream("BerriAI/litellm#27969", [b'{"choices": []}', TEXT, STOP], "ok", []),
    Stream("pydantic/pydantic-ai#5165", [b'{"choices": null}', TEXT, STOP], "ok", []),
    Stream("microsoft/agent-framework#5734", [TEXT, chunk(None, "stop")], "ok", []),
    Stream("bagofwords1/bagofwords#742", [TEXT, chunk(None), STOP], "ok", []),
    Stream("awslabs/llmeter#34", [TEXT, b'{"usage": {"prompt_tokens": 3}}', STOP], "ok", []),
    Stream("datawhalechina/hello-agents#425", [TEXT, chunk({"content": None}, "stop"), USAGE], "ok", []),
    # Arguments: an empty object first, none at all, all of them again.
    Stream(
        "openai/openai-agents-js#712",
        [chunk(call("read_file", "{}", index=0, id="c1")), chunk(call(None, A, index=0)), CALLS],
        "",
        PACKED,
    ),
    Stream("1jehuang/jcode#225", [chunk(call("read_file", "null", index=0, id="c1")), CALLS], "", NONE),
    Stream("Kilo-Org/cloud#4753", [FIRST, CALLS], "", NONE),
    Stream(
        "NousResearch/hermes-agent#35592",
        [FIRST, *(chunk(call(None, A[:end], index=0)) for end in (5, 9, len(A))), CALLS],
        "",
        ONE,
    ),
    Stream(
        "elizaOS/eliza#16973",
        [FIRST, *(chunk(call(None, half, index=0)) for half in HALVES), WHOLE, CALLS],
        "",
        ONE,
    ),
    Stream(
        "lidge-jun/opencodex#361",
        [FIRST, chunk(call(None, A, index=0)), chunk(call(None, A, index=0)), CALLS],
        "",
        ONE,
    ),
    Stream(
        "diegosouzapw/OmniRoute#3762",
        [FIRST, *(chunk(call(None, piece, index=0)) for piece in ('{"path": "', "x", "x", '"}')), CALLS],
        "",
        [("read_file", '{"path": "xx"}')],
    ),
    # Names and ids: another id in each piece, the name in each piece, tokens behind the name.
    Stream(
        "poolsideai/pool#9",
        [FIRST, *(chunk(call(None, half, index=0, id="c2")) for half in HALVES), CALLS],
        "",
        ONE,
    ),
    Stream(
        "zai-org/GLM-4#194",
        [FIRST, *(chunk(call(None, half, index=0, id=f"c-{half}")) for half in HALVES), CALLS],
        "",
        ONE,
    ),
    Stream(
        "NousResearch/hermes-agent#11984",
        [*(chunk(call("read_file", piece, index=0, id="c1")) for piece in ("", *HALVES, "")), CALLS],
        "",
        ONE,
    ),
    Stream(
        "cubist38/mlx-openai-server#216",
        [*(chunk(call("read_file", half, index=0, id=f"c-{half}")) for half in HALVES), CALLS],
        "",
        ONE,
    ),
    Stream(
        "vllm-project/vllm#32587",
        [chunk(call("read_file<|channel|>commentary", A, index=0, id="c1")), CALLS],
        "",
        ONE,
    ),
    Stream(
        "fw-ai-external/python-sdk#119",
        [chunk(call("read_file</arg_value>", "{}", index=0, id="c1")), CALLS],
        "",
        NONE,
    ),
    Stream(
        "zai-org/GLM-5#84",
        [
            chunk(call("read_file<arg_key>path</arg_key><arg_value>a</arg_value>", "", index=0, id="c1")),
            CALLS,
        ],
        "",
        PACKED,
    ),
    Stream(
        "EricLBuehler/mistral.rs#1507",
        [chunk(call("read_file", HALVES[0], id="c1")), chunk(call(None, HALVES[1], id="c1")), CALLS],
        "",
        ONE,
    ),
    Stream(
        "AstrBotDevs/AstrBot#6692",
        [chunk({**call("read_file", "", id="c1"), "content": None}), chunk(call(None, A)), CALLS],
        "",
        ONE,
    ),
    Stream(
        "LibreChat-AI/agents#260",
        [
            chunk(call("read_file", HALVES[0], index=0, id="c1")),
            chunk(call("read_file", '{"path":', index=0, id="c2")),
            chunk(call(None, HALVES[1], index=0, id="c1")),
            chunk(call(None, ' "b"}', index=0, id="c2")),
            CALLS,
        ],
        "",
        TWO,
    ),
    Stream(
        "danny-avila/LibreChat#14416",
        [
            chunk(call("read_file", "", index=2, id="c1")),
            *(chunk(call(None, half, index=1)) for half in HALVES),
            CALLS,
        ],
        "",
        ONE,
    ),
    Stream(
        "can1357/oh-my-pi#1692",
        [
            chunk({"function_call": {"name": "read_file", "arguments": ""}}),
            *(chunk({"function_call": {"arguments": half}}) for half in HALVES),
            chunk({}, "function_call"),
        ],
        "",
        ONE,
    ),
    Stream(
        "QwenLM/qwen-code#6240",
        [
            b'{"choices": [{"message": {"role": "assistant", "function_call": {"name": "read_file", '
            b'"arguments": {"path": "a"}}}, "finish_reason": "function_call"}]}'
        ],
        "",
        PACKED,
    ),
    # Ends: none at all, none but [DONE], tool_calls without a call, the last piece with the end.
    Stream("waybarrios/vllm-mlx#672", [WHOLE], "", ONE),
    Stream(
        "alfredapp/openai-workflow#52",
        [b'{"choices": [{"index": 0, "delta": {"content": "ok"}}], "usage": {"total_tokens": 9}}'],
        "ok",
        [],
    ),
    Stream("vllm-project/vllm#53255", [chunk({"content": "ok", "tool_calls": []}, "tool_calls")], "ok", []),
    Stream("vllm-project/vllm-ascend#8327", [FIRST, chunk(call(None, A, index=0), "tool_calls")], "", ONE),
    Stream(
        "BerriAI/litellm#1571",
        [
            chunk({"content": "o", "role": None}, id="chatcmpl-1", usage={}, system_fingerprint=None),
            chunk({"content": "k", "role": None}, id="chatcmpl-2", usage={}),
            STOP,
        ],
        "ok",
        [],
    ),
    Stream("jjang-ai/vmlx#219", [chunk({"tool_call_generating": True}), chunk({}), WHOLE, CALLS], "", ONE),
    Stream("youssofal/MTPLX#249", [chunk({"content": "a"}), WHOLE, CALLS], "a", ONE),
    # Azure's results of filters, in chunks without an answer.
    Stream(
        "AbanteAI/archive-old-cli-mentat#429",
        [
            json.dumps(
                {"id": "", "choices": [], "model": "", "prompt_filter_results": [{"prompt_index": 0}]}
            ).encode(),
            TEXT,
            STOP,
        ],
        "ok",
        [],
    ),
    Stream(
        "seratch/ChatGPT-in-Slack#49",
        [b'{"id": "", "choices": [], "usage": null, "prompt_annotations": [{}]}', TEXT, STOP],
        "ok",
        [],
    ),
    Stream(
        "microsoft/autogen#6465",
        [
            TEXT,
            json.dumps(
                {
                    "model": "",
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": None,
                            "content_filter_results": FILTERED,
                            "content_filter_raw": [],
                            "content_filter_offsets": {"check_offset": 44},
                        }
                    ],
                    "usage": None,
                }
            ).encode(),
            WHOLE,
            CALLS,
        ],
        "ok",
        ONE,
    ),
    Stream(
        "langchain-ai/langchain#18977",
        [TEXT, STOP, json.dumps({"choices": [{"content_filter_results": FILTERED}]}).encode()],
        "ok",
        [],
    ),
    # Thoughts under a name of the server's own.
    Stream(
        "BerriAI/litellm#8964",
        [
            chunk({"reasoning_content": "hm", "thinking_blocks": [{"type": "thinking", "thinking": "hm"}]}),
            WHOLE,
            CALLS,
        ],
        "",
        ONE,
    ),
    Stream(
        "anomalyco/opencode#5346",
        [chunk({"reasoning_text": "hm"}), chunk({"reasoning_opaque": "c2ln"}), WHOLE, CALLS],
        "",
        ONE,
    ),
    # Calls that the server left as the model wrote them.
    Stream("MoonshotAI/Kimi-K2#26", say(*(KIMI % json.dumps(A)).partition("_begin")), "", ONE),
    Stream("BerriAI/litellm#12679", say("ok", KIMI % A), "ok", ONE),
    Stream("vllm-project/vllm#32216", [chunk({"reasoning_content": "hm" + KIMI % A}), STOP], "", ONE),
    Stream(
        "anomalyco/opencode#6883",
        [
            chunk({"reasoning_content": "hm\n"}),
            chunk({"reasoning_content": "<tool_call>read_file<arg_key>path</arg_key><arg_value>a"}),
            chunk({"reasoning_content": "</arg_value></tool_call>"}),
            STOP,
        ],
        "",
        PACKED,
    ),
    Stream("TokenRhythm/opensquilla#985", say(*dsml("｜").partition("ML")), "", PACKED),
    Stream("sgl-project/sglang#40236", say(dsml("｜", "")), "", PACKED),
    Stream("lsdefine/GenericAgent#804", say(*dsml("‖").partition("D")), "", PACKED),
    Stream("AgentFlocks/flocks#687", say(dsml("||")), "", PACKED),
    Stream(
        "MiniMax-AI/MiniMax-M2.5#10",
        say(*f"<minimax:tool_call>\n{INVOKED}\n</minimax:tool_call>".partition("max:")),
        "",
        PACKED,
    ),
    Stream("can1357/oh-my-pi#2759", say(f"ok\n<function_calls>\n{INVOKED}\n</function_calls>"), "ok", PACKED),
    Stream(
        "ml-explore/mlx-lm#1374",
        say('[TOOL_CALLS] [{"name": "read_file", "arguments": {"path": "a"}}]'),
        "",
        ONE,
    ),
    Stream(
        "ml-explore/mlx-lm#1448",
        say(*f"[TOOL_CALLS]read_file[ARGS]{A}[TOOL_CALLS]read_file[ARGS]{B}".partition("LS]re")),
        "",
        TWO,
    ),
    Stream(
        "lmstudio-ai/lmstudio-bug-tracker#1979",
        say('<|tool_call_start|>[read_file(path="a")]<|tool_call_end|>'),
        "",
        PACKED,
    ),
    Stream(
        "huggingface/transformers#40620",
        say(
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
            f"to=functions.read_file <|constrain|>json<|message|>{A}<|call|>"
        ),
        "",
        ONE,
    ),
]

LINES = [
    ("brainlid/langchain#569", [b": OPENROUTER PROCESSING", b"", b"data: " + TEXT, b"", b"data: " + STOP]),
    ("theopenco/llmgateway#2334", [b"id: 1", b"data: " + TEXT, b"", b": ping", b"", b"data: " + STOP]),
    ("diegosouzapw/OmniRoute#7031", [b": a", b"", b"data: " + TEXT, b"", b"data: " + STOP, b"", b": cost=1"]),
    ("mistralai/mistral-vibe#774", [b":", b":x", b"data: " + TEXT, b"", b":", b"", b"data: " + STOP]),
    ("tmc/langchaingo#1366", [b"event: message", b"retry: 9", b"data:" + TEXT, b"", b"data:" + STOP]),
    ("comet-ml/opik#5149", [TEXT, STOP]),
]
"""Events as they came on the wire, each an answer "ok"."""

FAILURES = [
    ("apache/rocketmq-dashboard#2178", b'{"error": {"message": "quota exceeded"}}', "quota exceeded"),
    ("agentjido/req_llm#661", b'{"error": "the model crashed"}', "the model crashed"),
    (
        "vercel/ai#13506",
        b'{"error": {"message": "Context length exceeded", "code": "CONTEXT_LENGTH_EXCEEDED"}}',
        "Context length exceeded",
    ),
]
"""Errors inside an answer with status 200, and the words of them that the person reads."""
