"""The cases of training-operator's own tests, and which test shows each of them here.

Ids and names of tests have the numbers of the cases. A test checks that all tests that are named here exist, and
docs/kubeflow-v1-cases.md is generated from the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LIFE = "unit/kinds/kubeflowv1/test_life.py"
_MPI = "unit/kinds/kubeflowv1/test_mpi.py"
_VARIABLES = "unit/kinds/kubeflowv1/test_environment.py"
_DEFAULTS = "unit/api/kubeflowv1/test_defaults.py"
_VALIDATION = "unit/api/kubeflowv1/test_validation.py"
_ADMISSION = "integration/test_kubeflow_v1_admission.py"
_PARITY = "integration/test_kubeflow_v1_parity.py"


@dataclass(frozen=True, slots=True)
class V1Case:
    """One case of upstream's tests.

    `tests` show it here; each is `path::function` or `path::function[id]`, with the path below `test`. `differs` says
    what happens here instead, and why; its tests then show that. A case without tests is not shown, for that reason.
    """

    number: int
    source: str
    promise: str
    tests: tuple[str, ...]
    differs: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a text that is no sentence, and for a case without tests and a reason."""
        is_explained = bool(self.tests or self.differs)
        if not is_explained or any(not text.endswith(".") for text in (self.promise, self.differs or ".")):
            raise ValueError(f"{self.number}: it has tests or a reason, and its texts are sentences")

    @property
    def passes(self) -> bool:
        return not self.differs


# A promise, the test or tests that show it, and what differs, if anything.
_Row = tuple[str, str | tuple[str, ...]] | tuple[str, str | tuple[str, ...], str]


def _cases(first: int, source: str, *rows: _Row) -> Iterator[V1Case]:
    for number, (promise, tests, *differs) in enumerate(rows, start=first):
        names = (tests,) if isinstance(tests, str) else tests
        yield V1Case(number, source, promise, names, *differs)


def _life(name: str, id_: str = "") -> str:
    return f"{_LIFE}::{name}" + (f"[{id_}]" if id_ else "")


def _of_kinds(promise: str, test: str, of_mpi: str) -> Iterator[_Row]:
    for kind in ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "JAXJob", "PaddleJob"):
        yield promise.format(kind=kind), f"{_MPI}::{of_mpi}" if kind == "MPIJob" else _life(test, kind)


_COUNTED = "test_pods_are_counted_by_their_phases_and_missing_ones_created"
_SUSPENDED_MPI = "test_a_suspended_job_has_no_pods_and_runs_again_when_it_is_resumed"
_EXTERNAL = "test_case_20_a_job_of_another_controller_is_not_touched"
_SUSPENSION = (
    *_cases(
        1,
        "tensorflow/tfjob_controller_test.go",
        (
            "A job of one worker gets a pod and a Service, and no TF_CONFIG.",
            _life("test_case_1_a_job_of_one_replica_gets_no_tf_config"),
        ),
        (
            "Four workers and two parameter servers get a pod and a Service each.",
            _life("test_case_2_each_replica_gets_a_pod_and_a_service_of_its_name"),
        ),
        ("With three of six pods pending, the others are created.", _life(_COUNTED, "3")),
        ("With one more worker running, the job runs with one active worker.", _life(_COUNTED, "4")),
        ("With a succeeded worker other than the first one, the job does not run.", _life(_COUNTED, "5")),
        ("With all pods running, four workers and two parameter servers are active.", _life(_COUNTED, "6")),
        ("With all pods succeeded, the job succeeds.", _life(_COUNTED, "7")),
    ),
    *_cases(
        8,
        "each kind's controller test",
        *_of_kinds(
            "A suspended new {kind} has no pods and no start time.",
            "test_case_8_a_job_that_is_created_suspended_has_no_pods_and_no_start",
            _SUSPENDED_MPI,
        ),
        *_of_kinds(
            "A running {kind} that is suspended loses its pods, and starts anew when it is resumed.",
            "test_case_14_a_job_is_suspended_and_resumed",
            _SUSPENDED_MPI,
        ),
        *(
            (
                f"{kind}: a job of another controller gets no pods and no status, suspended or not.",
                _life(_EXTERNAL, f"kueue.x-k8s.io/multikueue-{kind}"),
            )
            for kind in ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob")
        ),
    ),
)

_ENDS = (
    *_cases(
        25,
        "tensorflow/status_test.go",
        *(
            (promise, _life("test_the_replicas_decide_how_a_tfjob_ends", str(number)))
            for number, promise in enumerate(
                (
                    "A succeeded chief ends the job with success.",
                    "With a running chief the job runs.",
                    "A failed chief ends the job with failure.",
                    "Without a chief, the only worker's success is the job's.",
                    "Without a chief, a failed worker fails the job.",
                    "Without a chief, a running worker makes the job run.",
                    "With two workers succeeded, but not the first one, and two active, the job runs.",
                    "With two workers running and two failed, the job fails.",
                    "With two workers succeeded, but not the first one, and two failed, the job fails.",
                    "The success of worker 0 ends the job although three others run.",
                    "With successPolicy AllWorkers, the success of worker 0 does not end the job.",
                    "With successPolicy AllWorkers, the success of all workers ends the job.",
                    "With successPolicy AllWorkers, a failed worker fails the job.",
                    "With a running chief and succeeded workers the job runs.",
                    "With a running chief, a failed parameter server fails the job.",
                    "A failed chief fails the job although the workers have succeeded.",
                ),
                start=25,
            )
        ),
        (
            "A succeeded chief ends the job with success although workers have failed.",
            _life("test_the_replicas_decide_how_a_tfjob_ends", "41"),
        ),
        (
            "With ExitCode, chief and workers that signals have ended make the job restart.",
            _life("test_case_42_with_exit_code_replicas_that_signals_have_ended_restart_together"),
        ),
    ),
    *_cases(
        43,
        "tensorflow/pod_test.go",
        *(
            (promise, f"{_VARIABLES}::test_replicas_of_a_tfjob_get_the_text_of_training_operator[{id_}]")
            for promise, id_ in (
                ("Hosts in TF_CONFIG end with the custom domain of the cluster.", "43, a domain"),
                ("An evaluator is in the cluster of TF_CONFIG.", "44, an evaluator and a domain"),
                ("Without a custom domain hosts end with svc.", "45, an evaluator without a domain"),
            )
        ),
        (
            "With ExitCode, the pod's own restartPolicy is Never.",
            _life("test_case_46_the_pod_has_the_policy_of_the_replica", "ExitCode-Never"),
        ),
        (
            "With ExitCode, a pod that ended with 130 is replaced.",
            _life("test_case_47_with_exit_code_a_pod_that_was_ended_by_a_signal_is_replaced", "130"),
        ),
        (
            "With ExitCode, a pod that ended with 1 stays, and the job fails.",
            _life("test_case_48_with_exit_code_an_error_of_the_program_ends_the_job", "1"),
        ),
        (
            "Fewer replicas: redundant pods are deleted.",
            _life("test_case_49_and_50_a_job_is_resized_by_its_spec"),
        ),
        ("More replicas: missing pods are created.", _life("test_case_49_and_50_a_job_is_resized_by_its_spec")),
    ),
)

_CLEANED = "test_case_53_pods_and_services_are_deleted_by_the_policy"
_LIMIT = "test_at_the_backoff_limit_pods_are_deleted_by_the_policy"
_EXPIRES = "test_case_59_a_job_is_deleted_after_its_time_to_live"
_CLEAN_UP = (
    *_cases(
        51,
        "tensorflow/job_test.go",
        (
            "Labels and annotations of the template are on the pods.",
            _life("test_case_51_labels_and_annotations_of_the_template_stay_and_the_operators_win"),
        ),
        ("After the end, All deletes running pods and their Services.", _life(_CLEANED, "All-left2")),
        ("After the end, Running deletes running pods and their Services.", _life(_CLEANED, "Running-left1")),
        ("After the end, Running keeps succeeded pods.", _life(_CLEANED, "Running-left1")),
        ("After the end, None keeps all pods.", _life(_CLEANED, "None-left0")),
        (
            "At activeDeadlineSeconds the job fails, and pods are deleted by the policy.",
            _life("test_case_56_a_job_fails_at_its_deadline_without_another_event"),
        ),
        ("Without a deadline all pods stay.", _life("test_case_57_without_a_deadline_a_job_runs_on")),
        (
            "Four workers that were restarted once each reach backoffLimit 4.",
            _life("test_case_58_the_backoff_limit_counts_the_restarts_of_all_containers", "4-4-Failed"),
        ),
        ("A succeeded job is deleted after its time to live.", _life(_EXPIRES, "0-3")),
        ("A failed job is deleted after its time to live.", _life(_EXPIRES, "1-3")),
        ("A time to live of 0 deletes the job at once.", _life(_EXPIRES, "0-0")),
        (
            "A suspended job is kept.",
            _life("test_a_finished_job_that_is_suspended_is_kept"),
        ),
    ),
    *_cases(
        63,
        "common/job_test.go",
        ("At backoffLimit, None keeps the pods.", _life(_LIMIT, "63")),
        ("At backoffLimit, All deletes the pods.", _life(_LIMIT, "64")),
        ("At backoffLimit, Running deletes the running pods.", _life(_LIMIT, "65")),
    ),
    *_cases(
        66,
        "pkg/util/status_test.go",
        (
            "Running and Restarting replace each other, Running becomes False at the end, and the newest is the last.",
            _life("test_case_66_each_condition_that_changes_becomes_the_last_one"),
        ),
    ),
)

_TORCH = f"{_VARIABLES}::test_replicas_of_a_pytorchjob_get_the_options_of_torchrun"
_INIT = f"{_VARIABLES}::test_only_pytorch_workers_with_a_master_have_an_init_container"
_ENDS_OF_OTHERS = "test_the_replicas_decide_how_jobs_of_other_kinds_end"
_AUTOSCALER = "unit/kinds/kubeflowv1/test_autoscaler.py"
_PYTORCH = (
    *_cases(
        67,
        "pytorch/pytorchjob_controller_test.go",
        (
            "Master and worker get names, ports, addresses, sizes and ranks, and the master's success is the job's.",
            (
                f"{_TORCH}[67, the master]",
                f"{_TORCH}[67, a worker]",
                _life(_ENDS_OF_OTHERS, "PyTorchJob-replicas0-runs0-exits0-Succeeded"),
                f"{_PARITY}::test_clients_see_the_same_of_a_job[torch-master]",
            ),
        ),
        (
            "A change of the queue is refused.",
            f"{_ADMISSION}::test_the_queue_of_a_gang_cannot_change[our CRDs]",
        ),
        (
            "An elastic job gets an endpoint for the rendezvous and an autoscaler, and one success ends it.",
            (
                f"{_TORCH}[69, elastic]",
                _life("test_case_69_one_success_ends_an_elastic_pytorchjob"),
                f"{_AUTOSCALER}::test_case_69_it_scales_the_job_itself_within_the_bounds",
            ),
        ),
        (
            "The autoscaler of a suspended job is deleted.",
            f"{_AUTOSCALER}::test_case_70_it_is_deleted_while_the_job_is_suspended",
        ),
    ),
    *_cases(
        71,
        "pytorch/elastic_test.go",
        ("All fields of the rendezvous become variables.", f"{_TORCH}[71, all fields of the rendezvous]"),
    ),
    *_cases(
        72,
        "pytorch/initcontainer_test.go",
        ("A worker with a master has an init container.", f"{_INIT}[72, a worker with a master]"),
        ("A master has no init container.", f"{_INIT}[73, a master]"),
        ("A worker without a master has no init container.", f"{_INIT}[74, a worker alone]"),
    ),
    *_cases(
        75,
        "api: pytorch_defaults_test.go",
        *(
            (promise, f"{_DEFAULTS}::test_absent_limits_of_an_elastic_policy[PyTorchJob-{id_}]")
            for promise, id_ in (
                ("Without limits, both are the number of workers.", "75: no limit"),
                ("With minReplicas alone, maxReplicas is the same.", "76: minReplicas"),
                ("With maxReplicas alone, minReplicas is the same.", "77: maxReplicas"),
            )
        ),
        (
            "Without a number of processes it is auto.",
            f"{_DEFAULTS}::test_processes_of_a_pytorchjob[78: no elasticPolicy]",
        ),
    ),
    *_cases(
        79,
        "api: tensorflow_defaults_test.go",
        ("The type WORKER is Worker.", f"{_DEFAULTS}::test_the_case_of_replica_types[79: WORKER]"),
    ),
)


def _judged(*ids: str) -> tuple[str, ...]:
    test = "test_what_training_operator_refuses_is_refused_with_its_text"
    return tuple(f"{_ADMISSION}::{test}[our CRDs-{id_}]" for id_ in ids)


def _common(kind: str, first: int) -> Iterator[_Row]:
    """The refusals that all kinds have."""
    for number, (what, id_) in enumerate(
        (
            ("a name that is no DNS label", "name"),
            ("no containers", "no containers"),
            ("a container without an image", "no image"),
            ("no container of the kind's name", "no training container"),
        ),
        start=first,
    ):
        yield f"A {kind} with {what} is refused.", _judged(f"{number} {kind} {id_}")


def _foreign(number: int, kind: str) -> _Row:
    ids = _judged(*(f"{number} {kind} managed by {manager!r}" for manager in ("other-job-controller", "")))
    return f"A {kind} with an unknown managedBy is refused.", ids


_WEBHOOKS = (
    *_cases(
        80,
        "webhooks/pytorch",
        ("A valid PyTorchJob is accepted.", _judged("PyTorchJob valid")),
        *_common("PyTorchJob", 81),
        ("Two masters are refused.", _judged("85 masters", "85 no number")),
        (
            "nProcPerNode of the elastic policy is accepted, with a warning that it is deprecated.",
            (*_judged("86 nProcPerNode"), f"{_ADMISSION}::test_a_deprecated_field_is_warned_of[our CRDs]"),
        ),
        ("Two numbers of processes are refused.", _judged("87 both numbers of processes")),
        _foreign(88, "PyTorchJob"),
        ("A change of managedBy is refused.", f"{_ADMISSION}::test_managed_by_cannot_change[our CRDs-PyTorchJob]"),
        ("An elastic policy without workers is refused.", _judged("90 elastic without workers")),
        ("Zero workers are refused.", _judged("91 no worker")),
    ),
    *_cases(
        92,
        "webhooks/tensorflow",
        *_common("TFJob", 92),
        ("Chief and master together are refused.", _judged("96 two chiefs")),
        _foreign(97, "TFJob"),
    ),
    *_cases(
        98,
        "webhooks/xgboost",
        *_common("XGBoostJob", 98),
        ("Two masters are refused.", _judged("102 masters")),
        ("A job without a master is refused.", _judged("103 no master")),
        _foreign(104, "XGBoostJob"),
    ),
    *_cases(
        105,
        "webhooks/jax",
        *_common("JAXJob", 105),
        ("A job without types of replicas is refused.", _judged("109 JAX")),
    ),
    *_cases(
        110,
        "webhooks/paddlepaddle",
        *_common("PaddleJob", 110),
        ("A job without types of replicas is refused.", _judged("114 Paddle")),
        _foreign(115, "PaddleJob"),
    ),
)

_LAUNCHER = f"{_MPI}::test_the_launcher_tells_the_state_of_the_job"
_GPU = f"{_MPI}::test_a_launcher_with_a_gpu_computes_as_well"
_OTHERS = f"{_MPI}::test_an_object_of_others_is_never_overwritten"
_INTEL = f"{_MPI}::test_variables_of_intel_mpi_that_are_given_stay"
_EVENTS = "The event is FailedCreate… with the kind of the object, as for all kinds, instead of ErrResourceExists."
_MPI_CASES = (
    *_cases(
        116,
        "mpi/mpijob_controller_test.go",
        ("A launcher with nvidia.com/gpu is one of the hosts.", f"{_GPU}[116]"),
        ("A launcher with another vendor's GPU is one of the hosts.", f"{_GPU}[117]"),
        ("A launcher without a GPU is none of the hosts.", f"{_GPU}[118]"),
        ("A succeeded launcher ends the job with success.", f"{_LAUNCHER}[119]"),
        ("A failed launcher ends the job with failure.", f"{_LAUNCHER}[120]"),
        ("With a running launcher and pending workers one launcher is active.", f"{_LAUNCHER}[121]"),
        ("With a running launcher and running workers all are active.", f"{_LAUNCHER}[122]"),
        (
            "With running workers a missing launcher is created.",
            (f"{_LAUNCHER}[123]", f"{_MPI}::test_case_123_a_missing_launcher_is_created"),
        ),
        (
            "A ServiceAccount that the template names is used.",
            f"{_MPI}::test_case_124_the_launcher_keeps_an_account_that_its_template_names",
        ),
        *(
            (f"A {what} of somebody else is not overwritten, and an event names it.", f"{_OTHERS}[{number}]", _EVENTS)
            for number, what in enumerate(("launcher", "worker", "ConfigMap", "Role", "RoleBinding"), start=125)
        ),
        ("Without variables of Intel MPI both are added.", f"{_INTEL}[130]"),
        ("A given I_MPI_HYDRA_BOOTSTRAP stays.", f"{_INTEL}[131]"),
        ("A given I_MPI_HYDRA_BOOTSTRAP_EXEC stays.", f"{_INTEL}[132]"),
        ("If both are given, both stay.", f"{_INTEL}[133]"),
    ),
    *_cases(
        134,
        "api: mpi_validation_test.go",
        ("An MPIJob without replica specs is invalid.", f"{_VALIDATION}::test_mpijobs[134: no replica specs]"),
        (
            "An MPIJob without a launcher is invalid.",
            (
                f"{_VALIDATION}::test_mpijobs[135: no launcher]",
                f"{_MPI}::test_case_135_an_invalid_job_fails_with_upstreams_text",
            ),
        ),
        ("An MPIJob with a container without an image is invalid.", f"{_VALIDATION}::test_mpijobs[136: no image]"),
    ),
    *_cases(
        137,
        "api: mpi_defaults_test.go",
        *(
            (promise, f"{_DEFAULTS}::test_the_policy_for_pods_of_ended_jobs[{id_}]")
            for promise, id_ in (
                ("cleanPodPolicy of the spec takes effect.", "137: of spec"),
                ("cleanPodPolicy of runPolicy takes effect.", "138: of runPolicy"),
                ("Without a cleanPodPolicy it is None.", "139: none"),
            )
        ),
    ),
)

_OTHER_VARIABLES = f"{_VARIABLES}::test_replicas_of_the_other_kinds_get_address_size_and_rank"
_PADDLE_AND_JAX = (
    *_cases(
        140,
        "paddlepaddle/paddle_controller_test.go",
        (
            "Master and worker get names, variables and a selector, and the master's success is the job's.",
            (
                f"{_OTHER_VARIABLES}[140, Paddle master]",
                f"{_OTHER_VARIABLES}[140, Paddle worker]",
                _life("test_the_status_selects_the_pods_of_a_type_for_the_scale_subresource", "PaddleJob"),
                _life(_ENDS_OF_OTHERS, "PaddleJob-replicas8-runs8-exits8-Succeeded"),
            ),
        ),
    ),
    *_cases(
        141,
        "jax/envvar_test.go",
        ("A port of the container is the coordinator's.", f"{_OTHER_VARIABLES}[141, JAX with a port]"),
        (
            "A container without the port makes the variables fail.",
            f"{_OTHER_VARIABLES}[142, JAX without a port]",
            "The default port is used. Upstream's tested function fails, but upstream sets the default port "
            "before it calls that function, so no job has this error.",
        ),
        (
            "An index that is no number is an error.",
            (),
            "An index is a number here wherever it comes from, so there is no such error to test.",
        ),
    ),
)

_SDK_TESTS = "e2e/test_training_sdk.py::test_a_test_of_upstreams_sdk"
_FRAMEWORKS = {
    "jax": "JAXJob",
    "mpi": "MPIJob",
    "paddle": "PaddleJob",
    "pytorch": "PyTorchJob",
    "tf": "TFJob",
    "xgboost": "XGBoostJob",
}
_SDK = (
    *_cases(
        144,
        "sdk/python/test/e2e",
        *(
            (f"The SDK creates a {kind} and waits for its success.", f"{_SDK_TESTS}_passes[{name}-test_sdk_e2e]")
            for name, kind in _FRAMEWORKS.items()
        ),
        *(
            (
                f"A {kind} whose gang is too large waits, and runs once it is smaller.",
                f"{_SDK_TESTS}_with_gangs_passes[{name}-test_sdk_e2e_with_gang_scheduling]",
            )
            for name, kind in _FRAMEWORKS.items()
        ),
        (
            "Of three values of managedBy one is refused, one ignored, and one runs.",
            (
                f"{_SDK_TESTS}_passes[pytorch-test_sdk_e2e_managed_by]",
                # Upstream's test does not look at what comes of the jobs.
                *_judged("88 PyTorchJob managed by 'other-job-controller'"),
                _life(_EXTERNAL, "kueue.x-k8s.io/multikueue-PyTorchJob"),
            ),
        ),
        (
            "The SDK creates a job from a function, finds its pods, and reads its log.",
            f"{_SDK_TESTS}_passes[pytorch-test_sdk_e2e_create_from_func]",
        ),
        ("The SDK creates a job from an image.", f"{_SDK_TESTS}_passes[pytorch-test_sdk_e2e_create_from_image]"),
    ),
    *_cases(
        159,
        "pkg/controller.v1/register_controller_test.go",
        (
            "The flag for kinds takes them in any case, and refuses unknown ones.",
            (
                "unit/test_options.py::test_values_are_read[kinds in any case]",
                "unit/test_options.py::test_what_cannot_be_used_is_named_in_one_line[no such kind]",
            ),
        ),
    ),
)

V1_TOPICS: Mapping[str, tuple[V1Case, ...]] = {
    "Creation, suspension and other controllers": _SUSPENSION,
    "How a TFJob ends, and its pods": _ENDS,
    "Clean-up, limits and conditions": _CLEAN_UP,
    "PyTorchJobs and defaults": _PYTORCH,
    "What is refused": _WEBHOOKS,
    "MPIJobs": _MPI_CASES,
    "PaddleJobs and JAXJobs": _PADDLE_AND_JAX,
    "The SDK, and flags": _SDK,
}
V1_CASES: tuple[V1Case, ...] = tuple(case for cases in V1_TOPICS.values() for case in cases)
