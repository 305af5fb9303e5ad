"""Hooks. Each takes the keywords that it names; async functions work too.

pre_tool_call comes before the approval gate: None lets the call pass to it, a dict blocks or changes it.
"""

import re


def keep_off_production(tool_name, args):
    if tool_name == "terminal" and "--env production" in args.get("command", ""):
        return {"action": "block", "message": "deployments to production are done by people"}
    return None


def install_quietly(tool_name, args):
    command = args.get("command", "")
    if tool_name == "terminal" and command.startswith("npm install") and "--no-fund" not in command:
        return {"action": "modify", "args": {**args, "command": f"{command} --no-fund"}}
    return None


def hide_customer_numbers(result):
    """What the model reads of a result; None leaves it as it is."""
    return re.sub(r"\bCUST-\d{6}\b", "CUST-******", result)


def remind(user_message):
    """Added to the person's message, where the model reads it and people don't see it."""
    if "invoice" in user_message.lower():
        return {"context": "Invoices live in finance/invoices, one folder a year."}
    return None


def register(ctx):
    ctx.register_hook("pre_tool_call", keep_off_production)
    ctx.register_hook("pre_tool_call", install_quietly)
    ctx.register_hook("transform_tool_result", hide_customer_numbers)
    ctx.register_hook("pre_llm_call", remind)
