"""Names of children are valid and unique, whatever the job is called."""

from __future__ import annotations

import random
import re

from hypothesis import example, given
from hypothesis import strategies as st

from tfjob_controller.jobs.naming import child_name, name_value, new_runtime_id

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

# A DNS-1123 subdomain, as the API server checks the names of custom resources.
_labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)
job_names = st.lists(_labels, min_size=1, max_size=8).map(".".join).filter(lambda name: len(name) <= 253)
roles = st.sampled_from(["master", "worker", "ps"])
runtime_ids = st.from_regex(r"[a-z][0-9a-z]{3}", fullmatch=True)
indexes = st.integers(min_value=0, max_value=99_999)


@given(job_name=job_names, role=roles, runtime_id=runtime_ids, index=indexes)
@example(job_name="0", role="worker", runtime_id="a000", index=0)
@example(job_name="a" * 253, role="worker", runtime_id="a000", index=99_999)
@example(job_name="0" * 39 + "-" * 10 + "0", role="ps", runtime_id="a000", index=1)
def test_a_name_is_valid_for_a_service_whatever_the_job_is_called(
    job_name: str, role: str, runtime_id: str, index: int
) -> None:
    name = child_name(job_name, role, runtime_id, index)
    assert DNS_1035.fullmatch(name)
    assert name.endswith(f"-{role}-{runtime_id}-{index}")
    assert len(name.removesuffix(f"-{role}-{runtime_id}-{index}")) <= 40


@given(job_name=job_names)
def test_the_jobs_name_is_always_a_valid_label(job_name: str) -> None:
    assert LABEL_VALUE.fullmatch(name_value(job_name))


@given(
    children=st.lists(st.tuples(job_names, roles, indexes), min_size=2, max_size=6, unique=True),
    seed=st.integers(min_value=0),
)
def test_no_two_children_of_a_namespace_have_the_same_name(children: list[tuple[str, str, int]], seed: int) -> None:
    rng = random.Random(seed)
    runtime_ids: dict[str, str] = {}
    for job_name, _, _ in children:
        if job_name not in runtime_ids:
            runtime_ids[job_name] = new_runtime_id(runtime_ids.values(), rng)
    names = {child_name(job_name, role, runtime_ids[job_name], index) for job_name, role, index in children}
    assert len(names) == len(children)
