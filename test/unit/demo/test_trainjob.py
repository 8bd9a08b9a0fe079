"""What the TrainJob demo applies and checks."""

from __future__ import annotations

from typing import Any

import pytest

from demo.trainjob import SAMPLE, Scrape, check_metrics, check_training

GOOD_LOG = "step=150 loss=0.04 throughput=1422\nrank 0: loss 6.7464 -> 0.0352, 4 ranks agree\n"


def job(*metrics: str) -> dict[str, Any]:
    return {"status": {"metrics": [{"name": name, "value": "1"} for name in metrics]}}


@pytest.mark.parametrize(
    ("log", "holds"),
    [
        pytest.param(GOOD_LOG, True, id="fell, and all agree"),
        pytest.param(GOOD_LOG.replace("0.0352", "6.1"), False, id="did not fall"),
        pytest.param(GOOD_LOG.replace("4 ranks agree", "2 ranks agree"), False, id="not all ranks"),
        pytest.param("rank 0: loss 1.0 -> 0.1, the ranks have different parameters\n", False, id="ranks differ"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_training_is_right_if_the_loss_fell_and_all_ranks_agree(log: str, holds: bool) -> None:
    assert check_training(log).holds is holds


def test_metrics_must_be_in_the_status_and_have_been_served() -> None:
    served = Scrape("", {'tfjob_training_metric{metric="loss"}': "0.1"})
    assert check_metrics(job("loss", "step"), served).holds
    assert not check_metrics(job("loss", "step"), Scrape("")).holds
    assert not check_metrics(job("loss"), served).holds


def test_the_sample_is_applied_with_the_requested_image_and_a_slow_pace() -> None:
    config_map, trainjob = SAMPLE.objects("mine:1")
    trainer = trainjob["spec"]["trainer"]
    assert (config_map["kind"], trainer["image"]) == ("ConfigMap", "mine:1")
    assert {variable["name"]: variable["value"] for variable in trainer["env"]} == SAMPLE.settings
