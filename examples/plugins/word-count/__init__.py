"""A tool. The schema is JSON schema; the handler takes the arguments as a dict and gives text or data."""

SCHEMA = {
    "name": "word_count",
    "description": "Count the words of a text.",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to count."}},
        "required": ["text"],
    },
}


def count(args, **facts):
    """Keywords that a handler names are filled in: session_id, tool_call_id, workspace."""
    return {"words": len(args["text"].split())}


def register(ctx):
    # Without `effects` the person is asked before each call. This one only reads.
    ctx.register_tool(
        name="word_count", toolset="text", schema=SCHEMA, handler=count, effects={"read"}, parallel=True
    )
