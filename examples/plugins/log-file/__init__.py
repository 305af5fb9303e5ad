"""A notifier: reaches a person outside the terminal. `send` may be async; raising says that it failed."""


def register(ctx):
    def send(title, text):
        with (ctx.home / "notifications.txt").open("a", encoding="utf-8") as file:
            file.write(f"{title}: {text}\n")

    ctx.register_notifier("log-file", send, description="Appends to notifications.txt")
