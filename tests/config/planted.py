"""Planted secrets in the formats that tool results show them in, made from a seed: none of them is real."""

from __future__ import annotations

import base64
import random
import string

_B62 = string.ascii_letters + string.digits
_WORDS = ("correcthorse", "sunflower", "winterwind", "blueharbour", "stonebridge", "quietriver", "oldlantern")


def planted(seed: int = 7, each: int = 7) -> list[tuple[str, str, str]]:
    """Give (format, text, secret), `each` of every format."""
    rng = random.Random(seed)

    def some(alphabet: str, count: int) -> str:
        return "".join(rng.choice(alphabet) for _ in range(count))

    rows: list[tuple[str, str, str]] = []

    def add(kind: str, secret: str, text: str) -> None:
        rows.append((kind, text.replace("@@", secret), secret))

    for index in range(each):
        names = "STRIPE_API_KEY DB_PASSWORD AUTH_TOKEN APP_SECRET DJANGO_SECRET_KEY PGPASSWORD X_PWD"
        add("environment", some(_B62, 18), f"PATH=/usr/bin\n{names.split()[index % 7]}=@@\nLANG=C")
        field = ("api_key", "password", "client_secret", "accessToken", "auth_token", "secret", "passwd")
        add("json", some(_B62, 16), f'{{"host": "db1", "{field[index % 7]}": "@@", "port": 5432}}')
        word = _WORDS[index % 7] if index % 2 else some(_B62, 12)
        add("yaml", word, "db:\n  user: app\n  password: @@\n  port: 1")
        option = (
            "--password @@|--token=@@1|--api-key @@1|--secret '@@1'|-u admin:@@|--passwd=@@|--auth-token @@1"
        )
        add("option", some(_B62, 14), f"curl {option.split('|')[index % 7]} https://example.org/v1")
        add("url", some(_B62, 13), f"postgres{'ql' * (index % 2)}://app:@@@db{index}.internal:5432/main")
        headers = "Authorization: Bearer @@|authorization: Basic @@|X-Api-Key: @@1|Cookie: session=@@|"
        headers += "Set-Cookie: sid=@@; Path=/|Authorization: Token @@|x-auth-token: @@1"
        secret, header = some(_B62, 24), headers.split("|")[index % 7]
        if "Basic" in header:
            secret = base64.b64encode(secret.encode()).decode()
        add("header", secret, f"> GET / HTTP/1.1\n> {header}\n> Accept: */*")
        body = "\n".join(some(_B62 + "+/", 64) for _ in range(3))
        add("private key", body, "-----BEGIN RSA PRIVATE KEY-----\n@@\n-----END RSA PRIVATE KEY-----")
        jwt = ".".join(["eyJ" + some(_B62, 20), "eyJ" + some(_B62, 60), some(_B62 + "-_", 43)])
        add("jwt", jwt, "the answer was @@ and it expires at noon")
        vendor = (
            "sk-ant-" + some(_B62, 40),
            "ghp_" + some(_B62, 36),
            "AKIA" + some(string.ascii_uppercase + "0123456789", 16),
            "xoxb-" + some("0123456789", 12) + "-" + some(_B62, 24),
            "glpat-" + some(_B62, 20),
            "sk_" + "live_" + some(_B62, 24),
            some("123456789", 9) + ":AA" + some(_B62, 33),
        )
        add("vendor key", vendor[index % 7], "using key @@ for the call")
        server = "Server=tcp:db,1433;Database=main;User ID=app;Password=@@;Encrypt=True"
        add("connection string", some(_B62, 15), server)
        query = ("token", "api_key", "access_token", "sig", "key", "secret", "sid")[index % 7]
        add("query", some(_B62, 22), f"GET https://example.org/x?id=4&{query}=@@1&page=2")
        add("netrc", some(_B62, 11), "machine example.org login app password @@\n")
        add("random token", some(_B62, 40), "export done\n@@\nline after")
        add("hash", "$2b$12$" + some("./" + _B62, 53), "root:@@:19000:0:99999:7:::")
        lines = "API_KEY = '@@'|password=\"@@\"|const token = \"@@\";|$secret => '@@'|secret_key: '@@',|"
        lines += 'auth_key := "@@"|db_password = @@1'
        add("source", some(_B62, 20), lines.split("|")[index % 7])
    return rows
