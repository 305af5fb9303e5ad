"""The tools as the model sees them, one module per toolset: names, arguments, texts, effects, limits.

A method's signature and docstring become the tool's schema (`tools/signature.py`), so every word there is
sent with every request. The modules that do the work are imported when a tool is first called: all together
they would cost a session's start 40 ms.
"""
