"""A slash command. It gets the text after its name and gives text to show, or None."""


def register(ctx):
    notes = ctx.home / "standup.txt"

    def standup(text):
        if text:
            with notes.open("a", encoding="utf-8") as file:
                file.write(f"- {text}\n")
            return "noted"
        return notes.read_text(encoding="utf-8").rstrip() if notes.exists() else "nothing noted yet"

    ctx.register_command("standup", standup, description="Notes for the stand-up", args_hint="[note]")
