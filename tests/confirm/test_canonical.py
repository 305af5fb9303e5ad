"""Canonical JSON against RFC 8785's own vectors and two implementations that share nothing with ours."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from fractions import Fraction

import pytest

from tests.support import each
from whet_confirm.canonical import canonical

# RFC 8785, appendix B: the 64 bits of a double, and how it is written.
VECTORS = [
    ("0000000000000000", "0"), ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"), ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"), ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"), ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"), ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"), ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"), ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"), ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"), ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"), ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"), ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"), ("43143ff3c1cb0959", "1424953923781206.2"),
]  # fmt: skip


def double(bits: int) -> float:
    return struct.unpack(">d", bits.to_bytes(8, "big"))[0]


@each(("bits", "text"), VECTORS)
def test_the_vectors_of_appendix_b(bits, text):
    assert canonical(double(int(bits, 16))).decode() == text


def test_text_and_literals_are_written_in_one_way():
    value = {"string": '€$\u000f\nA\'B"\\\\"/', "literals": [None, True, False]}
    assert canonical(value).decode() == (
        '{"literals":[null,true,false],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical([12345678901234567890123, 2**53 + 1]) == b"[12345678901234567890123,9007199254740993]"


def test_keys_are_sorted_by_their_utf_16_units():
    keys = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7}
    assert [*json.loads(canonical(keys)).values()] == [2, 4, 6, 7, 1, 5, 3]


@each("value", [float("nan"), float("inf"), float("-inf"), "\ud800", {"\ud800": 1}, b"x"])
def test_a_value_that_is_not_json_is_refused(value):
    with pytest.raises(ValueError, match=r"\S"):
        canonical(value)


def ecmascript(bits: int) -> str:
    """Number::toString(x, 10) by the specification's own words and whole numbers alone: the shortest digits
    that lie within half a step of the double, of those the nearest to it (even digits where two are)."""
    sign, field, fraction = bits >> 63, bits >> 52 & 0x7FF, bits & (1 << 52) - 1
    if not field and not fraction:
        return "0"
    whole = fraction | (1 << 52 if field else 0)
    power = max(field, 1) - 1075
    value = Fraction(whole) * Fraction(2) ** power
    low = value - Fraction(2) ** power / (4 if not fraction and field > 1 else 2)
    high = value + Fraction(2) ** power / 2
    closed = whole % 2 == 0
    n = len(str(value.numerator // value.denominator)) if value >= 1 else 1
    while Fraction(10) ** (n - 1) > value:
        n -= 1
    for k in range(1, 18):
        step = Fraction(10) ** (n - k)
        down = value // step
        fitting = [
            (abs(digits * step - value), digits % 2, digits)
            for digits in (down, down + 1)
            if low < digits * step < high or (closed and digits * step in (low, high))
        ]
        if fitting:
            digits = str(min(fitting)[2])  # one more than k where 9.99.. became 10
            return ("-" if sign else "") + spelled(digits.rstrip("0"), n + len(digits) - k)
    raise AssertionError("seventeen digits always suffice")


def spelled(digits: str, n: int) -> str:
    """Steps 6 to 10 of Number::toString, for digits of a value of 10**n."""
    k = len(digits)
    if k <= n <= 21:
        return digits + "0" * (n - k)
    if 0 < n <= 21:
        return f"{digits[:n]}.{digits[n:]}"
    if -6 < n <= 0:
        return f"0.{'0' * -n}{digits}"
    sign, shown = ("-" if n < 1 else "+"), abs(n - 1)
    return f"{digits}e{sign}{shown}" if k == 1 else f"{digits[0]}.{digits[1:]}e{sign}{shown}"


def doubles(count: int, seed: int) -> list[int]:
    """Doubles of all sizes, most of them where spelling changes: whole ones from 2^53 to 1e21, small ones."""
    dice = random.Random(seed)
    numbers: list[int] = []
    while len(numbers) < count:
        kind = dice.randrange(4)
        if kind == 0:
            bits = dice.getrandbits(64)
        elif kind == 1:
            bits = dice.getrandbits(52) | dice.randint(1075, 1094) << 52 | dice.getrandbits(1) << 63
        elif kind == 2:
            bits = dice.getrandbits(52) | dice.randint(1000, 1080) << 52
        else:
            near = float(f"{dice.choice([1, 5, 9, 99, 999])}e{dice.randint(-9, 25)}")
            bits = int.from_bytes(struct.pack(">d", near), "big") + dice.randint(-3, 3)
        if bits >> 52 & 0x7FF != 0x7FF:
            numbers.append(bits)
    return numbers


def compare(count: int, seed: int) -> None:
    wrong = [
        (hex(bits), ours, theirs)
        for bits in doubles(count, seed)
        if (ours := canonical(double(bits)).decode()) != (theirs := ecmascript(bits))
    ]
    assert not wrong, wrong[:5]


@pytest.mark.slow
def test_doubles_are_spelled_as_the_specification_says():
    assert [ecmascript(int(bits, 16)) for bits, _ in VECTORS] == [text for _, text in VECTORS]
    compare(2_000, 8785)


def value(dice: random.Random, depth: int) -> object:
    kind = dice.randrange(8 if depth else 6)
    if kind == 0:
        return dice.choice([None, True, False])
    if kind == 1:
        return dice.randint(-(2**53), 2**53)
    if kind in (2, 3):
        return double(doubles(1, dice.getrandbits(32))[0])
    if kind in (4, 5):
        return text(dice)
    if kind == 6:
        return [value(dice, depth - 1) for _ in range(dice.randrange(4))]
    return {text(dice): value(dice, depth - 1) for _ in range(dice.randrange(5))}


def text(dice: random.Random) -> str:
    planes = ((0, 0x20), (0x20, 0x7F), (0x7F, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
    return "".join(chr(dice.randint(*dice.choice(planes))) for _ in range(dice.randrange(6)))


SCRIPT = """
const lines = require('fs').readFileSync(0, 'utf8').split('\\n').filter(Boolean);
const write = v => v === null || typeof v !== 'object' ? JSON.stringify(v)
  : Array.isArray(v) ? '[' + v.map(write).join(',') + ']'
  : '{' + Object.keys(v).sort().map(k => JSON.stringify(k) + ':' + write(v[k])).join(',') + '}';
for (const l of lines) console.log(write(JSON.parse(l)));
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_whole_values_are_written_as_javascript_writes_them():
    compare_values(5_000, 53)


def compare_values(count: int, seed: int) -> None:
    dice = random.Random(seed)
    values = [value(dice, 3) for _ in range(count)]
    asked = "\n".join(json.dumps(one) for one in values)
    done = subprocess.run(["node", "-e", SCRIPT], input=asked, capture_output=True, text=True, check=True)
    theirs = done.stdout.split("\n")[:-1]
    assert [canonical(one).decode() for one in values] == theirs


DOUBLES = """
const all = require('fs').readFileSync(0), out = [];
for (let at = 0; at < all.length; at += 8) out.push(JSON.stringify(all.readDoubleBE(at)));
console.log(out.join('\\n'));
"""


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_a_million_doubles_and_a_hundred_thousand_values_are_written_as_javascript_writes_them():
    for seed in range(10):
        bits = doubles(100_000, seed)
        asked = b"".join(bit.to_bytes(8, "big") for bit in bits)
        done = subprocess.run(["node", "-e", DOUBLES], input=asked, capture_output=True, check=True)
        theirs = done.stdout.decode().split()
        pairs = zip(bits, theirs, strict=True)
        assert [
            (hex(number), said) for number, said in pairs if canonical(double(number)).decode() != said
        ] == []
    compare_values(100_000, 9)
