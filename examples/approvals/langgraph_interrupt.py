"""LangGraph: a node that calls `interrupt()` waits for a person in the confirmation service.

    pip install whet-agent langgraph

The graph needs a checkpointer. A program that was killed while a person decides runs the graph again with the
same thread and None as inputs: it continues at the checkpoint and finds the same request, because the
interrupt's id is the Idempotency-Key. With inputs, even the same ones, it begins anew with new requests.
"""

from __future__ import annotations

from typing import Any

from langgraph.types import Command, Interrupt

from whet.confirm.client import ConfirmationRefused, ConfirmClient, ConfirmOptions


async def run_with_approvals(
    graph: Any, inputs: Any, thread_id: str, client: ConfirmClient
) -> dict[str, Any]:
    """Run a graph to its end; each interrupt is a request, and its answer is what `interrupt()` returns.

    If `inputs` is None, the thread's interrupted run continues. The value of an interrupt is a dict with
    `action` and `details`. The answer has `approved`, and a `reason` if it was not.
    """
    config = {"configurable": {"thread_id": thread_id}}
    state = await graph.ainvoke(inputs, config)
    while interrupts := state.get("__interrupt__"):
        answers = {item.id: await _ask(item, thread_id, client) for item in interrupts}
        state = await graph.ainvoke(Command(resume=answers), config)
    return state


async def _ask(item: Interrupt, thread_id: str, client: ConfirmClient) -> dict[str, Any]:
    value = item.value
    options = ConfirmOptions(requester="langgraph", session_key=thread_id, idempotency_key=item.id)
    text = f"The graph wants to {value['action']}"
    try:
        await client.confirm(value["action"], text, value["details"], options)
    except ConfirmationRefused as error:
        return {"approved": False, "reason": error.message}
    return {"approved": True}
