"""A campaign is resumed where it stopped, and its folder belongs to one set of settings."""

from __future__ import annotations

import pytest

from whet.contract.errors import ConfigError, NotFound
from whet_lab.evals.arms import ARMS, pick_arms
from whet_lab.evals.campaign import CampaignSettings, EvalCampaign, run_path
from whet_lab.evals.world import Shape

_SETTINGS = CampaignSettings(Shape(sessions=12, drifts=1, pages=1, private=1, guest_every=0))


@pytest.mark.slow
def test_what_is_there_is_not_run_again(tmp_path):
    campaign = EvalCampaign(tmp_path, [ARMS["oracle"]], 2, _SETTINGS)
    numbers: list[int] = []

    def stop_after_one(there: int, last: str) -> None:
        numbers.append(there)
        if there == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        campaign.run_missing(1, stop_after_one)
    assert campaign.missing == [("oracle", 1)]
    first = run_path(tmp_path, "oracle", 0).read_bytes()
    campaign.run_missing(1, lambda there, last: numbers.append(there))
    assert numbers == [0, 1, 1, 2] and campaign.missing == []
    assert run_path(tmp_path, "oracle", 0).read_bytes() == first
    assert [run.seed for run in campaign.read_runs()] == [0, 1]


@pytest.mark.slow
def test_runs_in_processes_are_stored_too(tmp_path):
    campaign = EvalCampaign(tmp_path, [ARMS["oracle"]], 1, _SETTINGS)
    campaign.run_missing(2, lambda there, last: None)
    assert len(campaign.read_runs()) == 1


def test_other_settings_are_refused_in_the_same_folder(tmp_path):
    EvalCampaign(tmp_path, [ARMS["off"]], 1, _SETTINGS)
    with pytest.raises(ConfigError, match="other settings"):
        EvalCampaign(tmp_path, [ARMS["off"]], 1, CampaignSettings())


def test_an_unknown_arm_is_named():
    assert [arm.name for arm in pick_arms("off, ours")] == ["off", "ours"]
    with pytest.raises(NotFound, match="'our'"):
        pick_arms("our")
