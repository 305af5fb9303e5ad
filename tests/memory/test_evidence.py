"""What the gate takes for evidence: how long a quote must be, how much of a lesson must stand in it."""

from __future__ import annotations

import pytest
from benchmarks.lessons.world import Run, Say, Step, User

from tests.memory.evidence import session, shell, trust, verdict
from whet.memory.claim import GateVerdict
from whet.memory.support import EvidencePool, examine


@pytest.mark.parametrize(
    ("said", "quote", "counts"),
    [
        # The whole of what the person said may be short: five characters.
        ("nox 2", "nox 2", True),
        ("nox2", "nox2", False),
        # A part of it: eight characters in two words, or twelve in one.
        ("please, run ntests, now", "run ntes", False),
        ("please, run mtests, now", "run mtests", True),
        ("please, ab cdefgh, now", "ab cdefgh", True),
        ("please, ab cdefg, now", "ab cdefg", False),
        ("please, ab/cdefghijk, now", "ab/cdefghijk", True),
        ("please, ab/cdefghij, now", "ab/cdefghij", False),
    ],
)
def test_a_quote_must_be_long_enough_to_mean_something(said: str, quote: str, counts: bool) -> None:
    found = verdict([User(said)], quote, quote)
    assert isinstance(found, GateVerdict) is counts, found
    if not counts:
        assert "too short" in str(found)


@pytest.mark.parametrize(
    ("line", "counts"), [("abc 456", True), ("ab 345", False), ("部署星期", True), ("部署星", False)]
)
def test_a_whole_line_of_a_result_may_be_shorter(line: str, counts: bool) -> None:
    found = verdict([User("look"), shell("cat a", f"first\n{line}\nlast")], line, line)
    assert isinstance(found, GateVerdict) is counts, found


def test_packed_text_counts_from_four_characters() -> None:
    assert trust([User("我们部署在星期二吧")], "部署在星期二", "部署在星") == "user"
    assert "too short" in trust([User("我们部署在星期二吧")], "部署在星期二", "部署在")


def test_one_quote_that_means_something_is_enough_and_no_more_than_twelve_are_read() -> None:
    said = "Tests run with nox here."
    assert trust([User(said)], "Tests run with nox.", "nox", said) == "user"
    many = [f"nox{n}" for n in range(12)]
    assert "too short" in trust([User(said)], "Tests run with nox.", *many, said)
    assert trust([User(said)], "Tests run with nox.", *many[:11], said) == "user"


def test_a_refusal_names_the_first_three_quotes_that_are_too_short() -> None:
    found = str(verdict([User("nox1 nox2 nox3 nox4 and more")], "Run it.", "nox1", "nox2", "nox3", "nox4"))
    assert all(f"“nox{n}”" in found for n in (1, 2, 3)) and "“nox4”" not in found


def test_a_long_quote_is_kept_in_part_and_says_where_it_stands() -> None:
    said = "Tests run with nox. " * 30
    found = verdict([User("hi"), Say("hi"), User(said)], "Tests run with nox.", said)
    assert isinstance(found, GateVerdict)
    (quote,) = found.evidence
    assert (quote.seq, quote.role, quote.trust, len(quote.quote)) == (3, "user", "user", 400)


def test_a_secret_in_a_quote_is_masked() -> None:
    said = "Tests run with nox, the key is sk-ant-api03-" + "a1B2" * 20
    found = verdict([User(said)], "Tests run with nox.", said)
    assert isinstance(found, GateVerdict) and "a1B2" not in found.evidence[0].quote


def test_observed_and_the_persons_word_together_are_the_persons() -> None:
    steps: list[Step] = [User("please run the nox tests"), shell("nox", "212 passed in nox run")]
    assert trust(steps, "The nox run has 212 tests passed.", "212 passed in nox run") == "observed"
    both = ("212 passed in nox run", "please run the nox tests")
    assert trust(steps, "The nox run has 212 tests passed.", *both) == "user"


# Support: half of a note's words, a third of a skill's, must stand in what is quoted.
WORDS = "alpha bravo castle dragon eagle falcon garden harbor"


@pytest.mark.parametrize(("count", "kind", "kept"), [(4, "memory", True), (3, "memory", False)])
def test_half_of_a_notes_words_must_be_theirs(count: int, kind: str, kept: bool) -> None:
    said = " ".join(WORDS.split()[:count])
    found = trust([User(f"{said} zebra")], WORDS, f"{said} zebra")
    assert (found == "user") is kept, found
    if not kept:
        assert "nothing to do with" in found


@pytest.mark.parametrize(("count", "kept"), [(3, True), (2, False)])
def test_a_third_of_a_skills_words_must_be_theirs(count: int, kept: bool) -> None:
    said = " ".join(WORDS.split()[:count])
    found = trust([User(f"{said} zebra")], WORDS, f"{said} zebra", kind="skill")
    assert (found == "user") is kept, found


def test_a_telling_literal_makes_up_for_half_of_that() -> None:
    four = "alpha bravo castle dragon eagle falcon garden port 8443"
    said = "alpha 8443 zebra"
    assert trust([User(said)], "alpha bravo castle port 8443", said) == "user"
    assert "nothing to do with" in trust([User(said)], four, said)
    assert trust([User("alpha 443 zebra")], "alpha bravo castle port 443", "alpha 443 zebra") == "user"
    tiny = "alpha ab3 zebra"
    assert "nothing to do with" in trust([User(tiny)], "alpha bravo castle port ab3", tiny)
    short = "alpha 84 zebra"
    assert "nothing to do with" in trust([User(short)], "alpha bravo castle dragon eagle 84", short)


@pytest.mark.parametrize(
    ("literal", "said", "stands"),
    [
        ("8443", "the port is 8443 here", True),
        ("8444", "the port is 8443 here", False),
        ("12", "there are twelve of them here", True),
        ("112", "there are twelve of them here", False),
    ],
)
def test_a_literal_must_stand_in_the_message_quoted_from(literal: str, said: str, stands: bool) -> None:
    found = trust([User(said)], f"{said} {literal}", said)
    assert (found == "user") is stands, found
    if not stands:
        assert literal.strip("`") in found


def test_what_an_edited_entry_says_already_needs_no_evidence_again() -> None:
    said = "staging moved to lan-seven please"
    text = "Staging is lan-seven, port 8443."
    assert "8443" in trust([User(said)], text, said)
    assert trust([User(said)], text, said, known="Staging is lan-six, port 8443.") == "user"


def test_the_assistants_own_literal_is_not_made_true_by_a_tool() -> None:
    steps: list[Step] = [
        User("start the server please"),
        shell("serve --port 8443", "server up on port 8443"),
    ]
    # A command that ran with success is true of what it did.
    assert trust(steps, "The server is up on port 8443.", "server up on port 8443") == "observed"
    written: list[Step] = [
        User("write it down please"),
        Run("write_file", {"path": "conf", "content": "port 8443 is set"}, "done"),
        shell("cat conf", "server is up\nport 8443 is set"),
    ]
    assert "8443" in trust(written, "The server is up on 8443.", "server is up")


@pytest.mark.parametrize(
    ("literal", "known", "stands"),
    [
        ("`src/app/`", "look into src/app", True),
        ("`./run.sh`", "start run.sh", True),
        ("`deployments`", "it deployed here", True),
        ("`deployers`", "a deployed thing", True),
        ("`deploys`", "redeployed here", False),
        ("`deploys`", "a deployment here", False),
        ("`cats`", "the catsup", True),
        ("`cat`", "the cats", False),
        ("`7`", "the seven", True),
        ("`11`", "the eleven", True),
        ("`112`", "the eleven", False),
    ],
)
def test_an_ending_or_a_spelling_of_a_path_makes_no_difference(
    literal: str, known: str, stands: bool
) -> None:
    found = trust([User("please look at it")], f"look at {literal}", "please look at it", known=known)
    assert (found == "user") is stands, found


def test_an_opposite_is_not_supported() -> None:
    said = "Run the linter before the tests, always."
    assert trust([User(said)], "Run the linter before the tests.", said) == "user"
    found = trust([User(said)], "Run the linter after the tests.", said)
    assert "after" in found and "don't say" in found
    both = "Run the linter before the tests and once after them."
    assert trust([User(both)], "Run the linter after the tests.", both) == "user"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Pitfall: `nox` fails with error 17; use `tox` instead", "Only a failed result says"),
        ("Pitfall: `nox` fails with error 17", "observed"),
        ("`nox` fails with error 17", "Only a failed result says"),
    ],
)
def test_a_failure_shows_what_went_wrong_and_no_remedy(text: str, kept: str) -> None:
    steps: list[Step] = [
        User("please run nox here for me"),
        shell("nox", "nox: error 17, tox not there", ok=False),
    ]
    quotes = ("nox: error 17, tox not there", "please run nox here for me")
    found = trust(steps, text, *quotes)
    if kept == "observed":
        assert found == "user"
    else:
        assert kept in found or "don't say" in found, found


def test_a_failure_alone_shows_nothing_to_do() -> None:
    steps: list[Step] = [User("go"), shell("nox", "nox: error 17 happened", ok=False)]
    assert "failed results" in trust(steps, "nox has error 17.", "nox: error 17 happened")


def test_a_skill_may_warn_of_what_failed_and_not_tell_to_do_it() -> None:
    steps: list[Step] = [
        User("release the site with care please"),
        shell("make release", "release of the site: error 17", ok=False),
    ]
    quote = "release the site with care please"
    assert trust(steps, "Release of the site fails with error 17.", quote, kind="skill") == "user"
    assert "Only a failed result says" in trust(steps, "Release the site with 17.", quote, kind="skill")


def test_a_skill_may_rest_on_its_whole_turn_and_no_other() -> None:
    steps: list[Step] = [
        User("release the site with care please"),
        shell("make release", "release 17 built for site"),
        Say("done"),
        User("and something else entirely now"),
        shell("deploy --to lan-seven", "deployed 99 pages"),
    ]
    quote = "release the site with care please"
    assert trust(steps, "Release the site: `make release`, look for 17.", quote, kind="skill") == "user"
    assert "make" in trust(steps, "Release the site: `make release`, look for 17.", quote)
    assert "99" in trust(steps, "Release the site: look for 99.", quote, kind="skill")


def test_words_taken_over_from_a_page_taint_a_lesson() -> None:
    steps: list[Step] = [
        User("please read about garden harbor falcon"),
        Run("web_fetch", {"url": "https://x.example"}, "castle dragon eagle stand in the garden"),
    ]
    quote = "please read about garden harbor falcon"
    assert trust(steps, "garden harbor falcon", quote) == "user"
    assert trust(steps, "garden harbor falcon castle dragon eagle", quote) == "quarantined"
    # One word of a page is no sentence of it.
    assert trust(steps, "garden harbor falcon castle", quote) == "user"


def test_what_only_a_page_says_is_quarantined_with_the_reason() -> None:
    steps: list[Step] = [
        User("please read about the timeout"),
        Run("web_fetch", {"url": "https://x.example"}, "The timeout is 5000 ms."),
    ]
    found = verdict(steps, "The timeout is 5000 ms.", "The timeout is 5000 ms.")
    assert isinstance(found, GateVerdict) and found.quarantined and found.trust == "untrusted"
    assert found.why
    mixed = verdict(
        steps, "The timeout is 5000 ms.", "The timeout is 5000 ms.", "please read about the timeout"
    )
    assert isinstance(mixed, GateVerdict) and mixed.quarantined and "5000" in mixed.why


def test_nothing_that_was_quoted_leaves_nothing_missing() -> None:
    pool = EvidencePool((), (), (), (), lambda _: "own", known="alpha bravo castle", near="alpha")
    assert examine("alpha bravo castle", pool).unrelated is False
    assert examine("dragon eagle falcon", pool).unrelated is True
    assert examine("", pool).unrelated is True


def test_the_foreground_may_leave_quotes_out_and_a_review_may_not() -> None:
    steps: list[Step] = [User("old turn with port 8443"), Say("ok"), User("Tests run with nox here.")]
    assert trust(steps, "Tests run with nox.", foreground=True) == "user"
    assert "no evidence" in trust(steps, "Tests run with nox.")
    assert "8443" in trust(steps, "Tests run with nox on 8443.", foreground=True)


def test_an_entry_that_is_there_already_is_named() -> None:
    kept = "Tests run with nox here"
    found = trust([User(f"{kept}.")], kept, f"{kept}.", existing=("Else", kept))
    assert "remembered already" in found and kept in found


def test_a_transcript_without_texts_has_no_turn() -> None:
    assert session().turn == 0 and session().own_words() == []
