"""What people saw on the screens and did not like, and the tests that hold its mend."""

from __future__ import annotations

import pytest

from tests.test_reported_faults import find_missing

SEEN: dict[str, tuple[str, ...]] = {
    "a question is hard to read: no numbers, no colours, no sentence, keys without meaning": (
        "test_question.py::test_a_question_says_what_where_why_and_what_a_yes_covers",
        "cli/test_diff_view.py::test_every_row_has_the_number_of_its_line_and_its_whole_text",
        "cli/test_diff_view.py::test_rows_and_changed_words_have_the_colours_of_theme_and_terminal",
        "cli/test_diff_view.py::test_source_code_is_coloured_by_its_language",
        "cli/test_diff_view.py::test_a_digit_answers_and_only_once_is_a_yes_without_enter",
        "cli/test_asking.py::test_words_at_a_question_are_a_no_that_the_model_reads",
        "cli/test_asking.py::test_an_edited_call_is_what_runs_and_the_model_is_told",
    ),
    "the page's question has six equal buttons and a date in place of a countdown": (
        "serve/test_shown.py::test_spans_of_time",
        "serve/test_board.py::test_a_question_is_answered_on_the_page",
        "browser/test_all_day.py::test_a_digit_goes_to_an_answer_and_a_file_is_taken_back",
    ),
    "the input and the history run together": (
        "cli/test_first_frame.py::test_the_input_line_is_drawn_first_and_keys_typed_meanwhile_count",
        "cli/test_terminal_shown.py::test_a_sent_paste_is_shown_as_it_was",
    ),
    "pickers take no numbers": (
        "cli/test_terminal.py::test_a_plan_is_approved_by_its_number_where_nothing_can_be_drawn",
        "cli/test_screen_keys.py::test_a_plan_is_made_by_reading_only_and_carried_out_after_a_yes",
    ),
    "a long file and a long output are counted wrong and not shown whole": (
        "test_question.py::test_a_diff_that_is_cut_twice_counts_every_line_that_is_not_shown",
        "cli/test_terminal_shown.py::test_ctrl_o_shows_every_line_of_a_call",
        "cli/test_diff_view.py::test_a_text_is_long_if_the_screen_has_no_room_for_its_rows",
    ),
    "resume, fork and pickers show a paste raw, and a killed turn without its calls": (
        "cli/test_terminal.py::test_a_turn_looks_the_same_while_it_runs_when_it_is_opened_and_when_it_is_shown",
        "cli/test_terminal_shown.py::test_a_sent_paste_is_shown_as_it_was",
        "cli/test_terminal_shown.py::test_a_paste_that_goes_back_into_the_input_is_sent_as_a_paste",
        "cli/test_terminal_shown.py::test_a_reopened_session_shows_the_calls_of_a_turn_that_was_killed",
        "cli/test_sessions.py::test_a_paste_is_shown_without_its_tag",
    ),
    "hints go by spelling, and peers' commands are not known": (
        "app/test_peer_words.py::test_typical_mistakes_lead_to_what_was_meant",
        "cli/test_mistyped_commands.py::test_a_peer_s_word_means_the_same_in_the_chat_if_it_is_a_command_of_the_shell",
        "app/test_peer_words.py::test_an_opening_of_a_peer_leads_to_the_one_that_does_the_same",
        "cli/test_main.py::test_a_refusal_names_commands_and_not_the_models_tools",
        "cli/test_attach.py::test_a_mentioned_file_that_does_not_exist_is_named",
        "cli/test_agents.py::test_commands_of_whet_run_inside_the_chat",
    ),
    "a queued review is not explained, nor its end": (
        "cli/test_live.py::test_asides_come_after_the_text_before_them",
        "cli/test_learned.py::test_learned_shows_a_note_whole_in_a_narrow_terminal",
    ),
    "a message to a session in use elsewhere is lost": (
        "cli/test_terminal_shown.py::test_a_message_to_a_session_in_use_elsewhere_comes_back_into_the_input",
    ),
    "Esc and then Enter is not sent": ("cli/test_terminal_input.py::test_esc_and_then_enter_is_no_new_line",),
    "/help breaks at 80 columns": ("cli/test_chat_help.py::test_help_is_whole_and_fits",),
    "a command file that was written meanwhile is not completed": (
        "cli/test_prompting.py::test_commands_complete_at_the_start_only",
        "app/test_own_commands.py::test_a_file_is_a_command_with_its_description_and_hint",
    ),
    "the search for a local server waits for HTTP/1.0": (
        "app/test_discover.py::test_a_server_that_keeps_the_connection_open_is_offered",
        "app/test_discover.py::test_silence_and_closed_ports_cost_no_more_than_the_limit",
    ),
    "the page makes prose of commands and has no forms for goals and schedules": (
        "serve/test_page_commands.py::test_commands_run_and_reach_no_model",
        "serve/test_page_commands.py::test_a_goal_is_queued_for_a_worker_from_the_box",
        "serve/test_page_work.py::test_a_goal_is_begun_shown_and_removed",
        "serve/test_page_work.py::test_a_schedule_is_added_shown_and_removed",
        "browser/test_working.py::test_a_command_is_completed_in_the_box_and_its_output_is_on_the_page",
    ),
    "an image is a number of words, and an unknown cost has no noun": (
        "browser/test_all_day.py::test_a_dropped_picture_is_shown_small_and_an_answer_is_copied",
        "serve/test_shown.py::test_what_was_spent_says_what_is_not_known",
    ),
    "the page has no model, mode, folder, list of sessions, names, search, copy, colours, links": (
        "serve/test_page_work.py::test_the_model_and_the_mode_are_set_at_the_box",
        "serve/test_page_work.py::test_a_new_session_has_the_folder_model_and_mode_that_were_chosen",
        "serve/test_page_work.py::test_a_session_is_renamed_pinned_and_archived",
        "browser/test_all_day.py::test_keys_search_the_list_and_lead_through_it",
        "serve/test_marked.py::test_a_unified_diff_has_line_numbers_code_and_changed_words",
        "serve/test_prose.py::test_a_line_is_cut_into_runs",
    ),
    "no view of all that a session changed, of files, jobs and servers": (
        "serve/test_page_work.py::test_all_changes_of_a_session_are_shown_and_single_files_taken_back",
        "serve/test_page_work.py::test_the_files_of_a_session_are_shown_and_no_link_is_followed",
        "serve/test_board.py::test_every_page_is_there_when_there_is_nothing_and_has_the_policy",
    ),
    "the first page is charts, and a phone hides the sessions and half the menu": (
        "serve/test_page_values.py::test_the_first_page_lists_eight_sessions_and_the_costs_those_of_a_month",
        "browser/test_all_day.py::test_on_a_phone_the_menu_is_whole_and_the_box_is_at_the_bottom",
        "browser/test_phone.py::test_twelve_tasks_are_done_on_a_phone",
        "browser/test_axe.py::test_axe_finds_nothing",
    ),
    "terminal sequences become text": (
        "cli/test_terminal_input.py::test_shift_enter_starts_a_new_line",
        "cli/test_terminal_input.py::test_what_a_terminal_answers_is_no_key",
        "cli/test_terminal_shown.py::test_what_the_terminal_answers_late_is_not_sent",
        "cli/test_terminal_input.py::test_keys_of_newer_protocols_are_those_of_a_plain_terminal",
        "cli/test_key_protocol.py::test_tmux_passes_shift_enter_on",
    ),
    "no bell and no notification": (
        "cli/test_terminal_shown.py::test_the_terminal_rings_at_a_question_and_after_a_long_turn",
        "cli/test_terminal_shown.py::test_a_terminal_is_notified_in_its_own_way",
    ),
    "no whet with a question": ("cli/test_oneshot.py::test_a_quoted_question_alone_is_answered",),
    "a diff and a notice are broken within a word on a narrow terminal": (
        "cli/test_diff_view.py::test_a_narrow_terminal_breaks_rows_and_loses_nothing",
        "cli/test_asking.py::test_what_is_said_at_a_question_is_broken_at_words",
    ),
}


@pytest.mark.fast_rows("an image", "pickers")
@pytest.mark.parametrize("seen", SEEN)
def test_what_was_seen_has_its_test(seen: str) -> None:
    assert find_missing(SEEN[seen]) == []
