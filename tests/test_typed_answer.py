"""The rule for typed answers: of many texts in many languages, only an exact option is a yes."""

from __future__ import annotations

from itertools import product

import pytest

from whet.typed_answer import (
    ALWAYS,
    BECAUSE,
    EDIT,
    NO,
    ONCE,
    SESSION,
    VIEW,
    TypedAnswer,
    answers_alone,
    may_count,
    read_line,
)

OPTIONS = (ONCE, SESSION, ALWAYS, NO, BECAUSE, EDIT, VIEW)
GRANTS = ("once", "session", "always")
WORDS = {
    "English": "stop|wait|cancel|abort|don't|what?|why|open the file|also|some|only read|as you like|ok|okay|"
    "oh no|"
    "sure|save it first|see below|allow|allowed|never|not yet|session?|once more|once again|always ask|"
    "yes but|"
    "yes!|y/n|yess|ye|noo|on hold|a|so|os|sa|oo|aa|o o|one|alway|always yes|once\nsession",
    "German": "stopp|warte|abbrechen|nein|nicht|lass das|was?|ja|ok so|aufhören|ohne mich|später|sofort",
    "French": "arrête|attends|annuler|non|oui|pourquoi|surtout pas|attention|ouvre|stoppe|sinon|aucun",
    "Spanish": "para|espera|cancela|no lo hagas|sí|si|otra vez|ahora no|alto|olvídalo|siempre|abortar",
    "Portuguese": "pare|espere|cancelar|não|sim|agora não|outro|sempre|abortar|só isso",
    "Italian": "ferma|aspetta|annulla|non farlo|sì|ora no|sempre|aspetta un attimo|smettila",
    "Dutch": "stop ermee|wacht|annuleer|nee|ja|altijd|onmiddellijk stoppen|alsjeblieft niet",
    "Polish": "stój|czekaj|anuluj|nie|tak|zawsze|odwołaj|sam zrobię",
    "Turkish": "dur|bekle|iptal|hayır|evet|her zaman|olmaz|sakın",
    "Russian": "стоп|подожди|отмена|нет|да|не надо|всегда|о|а|с",
    "Japanese": "止めて|待って|キャンセル|いいえ|はい|だめ|ｙｅｓ|ｏｎｃｅ|ｏ",
    "Chinese": "停|等一下|取消|不要|是|好|始终",
    "Korean": "멈춰|기다려|취소|아니요|네|항상",
    "Arabic": "قف|انتظر|إلغاء|لا|نعم|دائما",
    "Hindi": "रुको|रद्द करो|नहीं|हाँ|हमेशा",
    "look-alikes": "ſession|ſ|οnce|оnce|o\u200b|once\u200b|\u202eo|ºnce|ÿ|ⓞ",
}
TEXTS = [text for line in WORDS.values() for text in line.split("|")]
AROUND = (
    "{}",
    "{}!",
    "{}.",
    "{}?",
    "{}, please",
    "please {}",
    "{} {}",
    "'{}'",
    "/{}",
    "{},",
    "{} o",
    "o{}",
    "s {}",
)


def test_no_text_but_an_exact_option_grants_anything() -> None:
    named = {"once", "o", "yes", "session", "s", "always"}
    tried = 0
    for text, around in product(TEXTS, AROUND):
        line = around.format(text, text)
        typed = read_line(line, OPTIONS)
        assert typed.option not in GRANTS or line.strip().lower() in named, line
        assert typed.option != "no" or line.lower() == "no" or typed.words, line
        tried += 1
    assert tried > 2_000 and len(WORDS) > 12


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("o", "once"),
        ("Once\r\n", "once"),
        (" yes ", "once"),
        ("S", "session"),
        ("session", "session"),
        ("ALWAYS", "always"),
        ("", "no"),
        ("n", "no"),
        ("view all", "view"),
        ("e", "edit"),
        ("b", "because"),
    ],
)
def test_an_exact_line_is_its_option(line: str, option: str) -> None:
    assert (read_line(line, OPTIONS).option, read_line(line, OPTIONS).words) == (option, "")


@pytest.mark.parametrize("line", ["y", "Y", "ye", "yes!"])
def test_a_text_that_the_prompt_does_not_show_is_no_yes(line: str) -> None:
    assert read_line(line, OPTIONS) == TypedAnswer("no", line)


def test_always_counts_only_if_it_is_offered_and_never_by_one_letter() -> None:
    assert read_line("a", OPTIONS).words == "a"
    assert read_line("always", (ONCE, SESSION, NO)).option == "no"


@pytest.mark.parametrize(
    ("line", "words", "stops"),
    [
        ("no, because it is Friday", "it is Friday", False),
        ("no because it is Friday", "it is Friday", False),
        ("because it is Friday", "it is Friday", False),
        ("nope: use make", "use make", False),
        ("no way", "no way", False),
        ("use make\ninstead", "use make\ninstead", False),
        ("stop", "stop", True),
        ("Stop!", "Stop!", True),
        ("abort", "abort", True),
        ("stop using sudo", "stop using sudo", False),
    ],
)
def test_other_words_are_a_no_with_a_reason(line: str, words: str, stops: bool) -> None:
    typed = read_line(line, OPTIONS)
    assert (typed.option, typed.words, typed.stops) == ("no", words, stops)


def test_a_reason_is_passed_on_to_a_limit() -> None:
    assert len(read_line("x" * 10_000, OPTIONS).words) == 4_000


def test_a_key_alone_never_grants_what_lasts() -> None:
    assert [key for key in "abcdefghijklmnopqrstuvwxyz" if answers_alone(key, OPTIONS)] == list("benov")
    assert answers_alone("O", OPTIONS) and not answers_alone("", OPTIONS) and not answers_alone("no", OPTIONS)


@pytest.mark.parametrize("option", ["once", "session", "session 3", "always", "always 4"])
def test_no_yes_counts_before_the_question_was_shown_whole(option: str) -> None:
    assert not may_count(option, is_shown_whole=False) and may_count(option, is_shown_whole=True)
    assert may_count("no", is_shown_whole=False)
