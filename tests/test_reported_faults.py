"""Each fault that got through once, and each promise of the manual, with the tests that hold it. A test that
goes away is missed here."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FAULTS: dict[str, tuple[str, ...]] = {
    "a typed stop runs the command": (
        "test_typed_answer.py::test_no_text_but_an_exact_option_grants_anything",
        "test_typed_answer.py::test_a_key_alone_never_grants_what_lasts",
        "attacks/test_slack_wire.py::test_no_event_of_others_answers_the_owners_question",
    ),
    "two people behind one key are mixed": (
        "serve/test_identity.py::test_look_alike_conversations_are_never_mixed",
        "serve/test_identity.py::test_10000_look_alike_pairs_are_never_mixed",
        "serve/test_identity.py::test_a_title_request_leaves_the_conversation_as_it_is",
        "serve/test_identity.py::test_a_list_that_ends_with_an_answer_is_continued",
    ),
    "a hard link leads into a cache": (
        "sandbox/test_hardlinks.py::test_a_package_that_uv_linked_from_its_cache_is_not_shared",
        "sandbox/test_hardlinks.py::test_a_link_that_comes_while_the_jail_runs_is_replaced_before_a_command",
    ),
    "a command forges its report": (
        "sandbox/test_forging.py::test_a_command_can_not_forge_its_exit_code",
        "sandbox/test_forging.py::test_a_command_gets_its_input_and_outputs_and_no_other_descriptor",
    ),
    "a repository's settings run a program through Whet's own git": (
        "attacks/test_own_programs.py::test_every_file_that_starts_programs_is_in_a_table",
        "sandbox/test_led.py::test_what_a_persons_git_runs_can_not_be_changed",
    ),
    "tokens in toolchain folders are readable": (
        "sandbox/test_policy.py::test_private_files_below_toolchains_are_hidden",
    ),
    "secrets of the environment reach commands": (
        "tools/test_environment.py::test_secrets_of_the_environment_are_withheld",
        "tools/test_environment.py::test_a_secret_is_known_by_its_value_too",
    ),
    "variants of protected names are written": (
        "sandbox/test_policy.py::test_no_variant_of_a_name_that_runs_programs_is_written",
    ),
    "a forged index approves": (
        "confirm/test_forged_indexes.py::test_a_hash_forged_in_the_index_while_the_service_runs_signs_nobody_in",
        "confirm/test_forged_indexes.py::test_an_emptied_index_is_found",
        "confirm/test_forged_indexes.py::test_an_older_database_that_was_changed_is_not_sealed",
    ),
    "one token's connections shut everybody out": (
        "confirm/test_many_connections.py::test_one_agent_s_open_calls_shut_no_one_out",
        "confirm/test_many_connections.py::test_idle_connections_shut_no_one_out",
    ),
    "an MCP approval counts more than once": (
        "confirm/test_clients.py::test_the_mcp_server_asks_waits_and_says_approved_once",
    ),
    "a yes to what was shown in part": (
        "attacks/test_unseen_yes.py::test_no_yes_counts_for_what_was_not_shown",
        "test_typed_answer.py::test_no_yes_counts_before_the_question_was_shown_whole",
        "cli/test_learned.py::test_nothing_is_accepted_before_it_was_shown_whole",
        "review/test_told.py::test_what_the_inbox_shows_in_part_is_shown_whole_before_it_is_accepted",
    ),
    "small faults of the sandbox": (
        "sandbox/test_policy.py::test_a_home_as_workspace_hides_its_dot_folders",
        "sandbox/test_guarded.py::test_a_large_file_of_a_folder_that_was_copied_over_itself_stays",
        "sandbox/test_proxy.py::test_a_tunnel_to_an_allowed_host_is_for_no_other",
        "cli/test_wording.py::test_printable_takes_out_what_a_terminal_would_act_on",
    ),
    "a path is checked and the name is used later": (
        "test_beneath.py::test_a_link_is_followed_at_no_part_of_a_path",
        "gateway/test_files.py::test_a_received_file_goes_through_no_link_that_a_command_left",
        "gateway/test_files.py::test_a_file_is_sent_from_where_it_was_looked_at",
        "schedules/test_worker.py::test_an_answer_is_not_written_through_a_link_that_a_command_left",
    ),
    "approval by order": (
        "gateway/test_questions.py::test_a_command_names_its_question_if_several_are_open_in_the_room",
        "gateway/test_questions.py::test_the_models_question_is_answered_by_its_person_or_by_somebody_who_may_approve",
        "attacks/test_discord_wire.py::test_no_frame_of_others_answers_the_owners_question",
    ),
    "untrusted work without limits": (
        "tools/test_search.py::test_globs_of_many_stars_end",
        "tools/test_documents.py::test_a_document_that_fills_the_memory_is_refused_and_whet_keeps_its_own",
        "sandbox/test_path_rules.py::test_slashes_at_the_beginning_of_a_path_change_nothing",
    ),
    "what was accepted is not what was shown": (
        "mcp/test_in_a_chat.py::test_a_trusted_tool_that_its_server_changes_does_not_run_unasked",
        "app/test_shell_hooks.py::test_a_change_of_what_an_accepted_hook_runs_takes_the_acceptance_back",
    ),
    "a door without the others' checks": (
        "moving/test_hermes_home.py::test_code_persona_and_notes_wait_for_a_person",
        "team/test_faults.py::test_a_database_that_was_set_up_lets_no_other_role_in",
        "mcp/test_elicitation.py::test_each_text_field_warns_that_the_server_reads_the_answer",
        "mcp/test_serve.py::test_mistakes_are_told_denials_hold_and_nothing_private_is_read",
        "gateway/test_files.py::test_a_received_file_takes_the_place_of_no_link",
    ),
    "a team's confirmation tables lie under the agents' role": (
        "team/test_roles.py::test_the_confirmation_service_decides_with_a_role_of_its_own",
        "team/test_roles.py::test_a_role_with_more_rights_than_it_needs_is_named",
    ),
}


PROMISES = {
    "sandbox.md": ("## What each promise rests on", "sandbox"),
    "confirm-threats.md": ("## What it rests on", "confirm"),
}
_TEST = re.compile(r"`([\w/]+\.py(?:::\w+)?)`")


def find_missing(names: Sequence[str]) -> list[str]:
    """Return the tests, as path::function, that do not exist."""
    return [name for name in names if not _exists(name)]


@pytest.mark.fast_rows("a command forges", "a typed stop")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_got_through_has_its_test(fault: str) -> None:
    assert find_missing(FAULTS[fault]) == []


@pytest.mark.parametrize("page", PROMISES)
def test_each_promise_of_the_manual_names_tests_that_exist(page: str) -> None:
    title, folder = PROMISES[page]
    text = (TESTS.parent / "docs" / page).read_text().partition(f"{title}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[0] == "| promise | rests on | tests |" and len(rows) >= 8
    for row in rows[1:]:
        names = _TEST.findall(row.split(" | ")[2])
        paths = [name.removeprefix("tests/") if "tests/" in name else f"{folder}/{name}" for name in names]
        assert names and [path for path in paths if not _exists(path)] == [], row


def _exists(name: str) -> bool:
    """Return whether a test exists; of a file without `::test`, whether it holds tests."""
    path, _, function = name.partition("::")
    if not (TESTS / path).exists():
        return False
    tree = ast.parse((TESTS / path).read_text())
    names = {item.name for item in tree.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
    return function in names if function else any(item.startswith("test_") for item in names)
