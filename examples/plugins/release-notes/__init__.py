"""A skill: a folder with SKILL.md, in the agentskills.io format."""


def register(ctx):
    ctx.register_skill(
        "release-notes", ctx.folder / "release-notes", description="Write release notes from the commits."
    )
