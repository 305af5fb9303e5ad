"""Run a graph whose node asks before it deletes; print what the node did."""

import asyncio
import sys
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from langgraph_interrupt import run_with_approvals

from whet.confirm.client import ConfirmClient


class State(TypedDict, total=False):
    path: str
    outcome: str


def delete(state: State) -> State:
    answer = interrupt({"action": "delete", "details": {"path": state["path"]}})
    return {"outcome": f"deleted {state['path']}" if answer["approved"] else answer["reason"]}


async def main() -> None:
    builder = StateGraph(State)
    builder.add_node("delete", delete)
    builder.add_edge(START, "delete")
    builder.add_edge("delete", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    async with ConfirmClient() as client:
        state = await run_with_approvals(graph, {"path": "/srv/old"}, sys.argv[1], client)
    print(state["outcome"])


asyncio.run(main())
