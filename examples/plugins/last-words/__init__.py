"""A context engine. `context.engine: last-words` selects it.

The list that it gets has no system prompt. It gives back a list that is shorter, or the same object where
there is nothing to do. The host repairs what a cut takes apart, but it is kinder to cut before a message of
the person.
"""

from whet.contract.context_engine import ContextEngine


class LastWords(ContextEngine):
    KEEP = 20

    @property
    def name(self):
        return "last-words"

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens=None):
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return 0 < self.threshold_tokens <= tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        starts = [
            at for at, row in enumerate(messages) if row["role"] == "user" and at >= len(messages) - self.KEEP
        ]
        if not starts or starts[0] <= 1:
            return messages
        self.compression_count += 1
        return [messages[0], *messages[starts[0] :]]


def register(ctx):
    ctx.register_context_engine(LastWords())
