"""A provider: `model.provider: company` selects it. The factory gets the model's settings and the secrets.

This one speaks a known format, so it only says where and with which key. Anything that fulfils
`whet.contract.protocols.Provider` will do.
"""

import msgspec

from whet.providers.connect import connect_one


def open_company(model, secrets):
    base_url = secrets.get("COMPANY_MODELS_URL", "https://models.example.com/v1")
    wanted = msgspec.structs.replace(
        model, base_url=base_url, format="chat_completions", api_key_env="COMPANY_MODELS_KEY"
    )
    return connect_one(wanted, secrets)


def register(ctx):
    ctx.register_provider("company", open_company, description="The company's gateway")
