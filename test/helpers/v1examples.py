"""Upstream's example manifests, read from the module of training-operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localcluster.crds import documents
from localcluster.trainingoperator import training_operator_module

Object = dict[str, Any]

EXAMPLES = (
    "jax/cpu-demo/demo",
    "jax/jax-dist-spmd-mnist/jaxjob_dist_spmd_mnist_gloo",
    "mpi/tensorflow-mnist",
    "mpi/tensorflow-mnist-elastic",
    "paddlepaddle/simple-cpu",
    "paddlepaddle/simple-gpu",
    "pytorch/cpu-demo/demo",
    "pytorch/deepspeed-demo/pytorch_deepspeed_demo",
    "pytorch/elastic/echo/echo",
    "pytorch/elastic/imagenet/imagenet",
    "pytorch/mnist/v1/pytorch_job_mnist_gloo",
    "pytorch/mnist/v1/pytorch_job_mnist_mpi",
    "pytorch/mnist/v1/pytorch_job_mnist_nccl",
    "pytorch/simple",
    "pytorch/smoke-dist/pytorch_job_sendrecv",
    "tensorflow/dist-mnist/tf_job_mnist",
    "tensorflow/distribution_strategy/multi_worker_tfjob",
    "tensorflow/mnist_with_summaries/tf_job_mnist",
    "tensorflow/simple",
    "xgboost/lightgbm-dist/xgboostjob_v1_lightgbm_dist_training",
    "xgboost/smoke-dist/xgboostjob_v1_rabit_test",
    # Of this API too, despite its name.
    "xgboost/smoke-dist/xgboostjob_v1alpha1_rabit_test",
    "xgboost/xgboost-dist/xgboostjob_v1_iris_predict",
    "xgboost/xgboost-dist/xgboostjob_v1_iris_predict_local",
    "xgboost/xgboost-dist/xgboostjob_v1_iris_train",
    "xgboost/xgboost-dist/xgboostjob_v1_iris_train_local",
    "xgboost/xgboostjob",
)


def examples_folder() -> Path:
    return training_operator_module() / "examples"


def example(name: str) -> Object:
    """Returns the job of an example, without its namespace."""
    (job,) = documents((examples_folder() / f"{name}.yaml").read_text())
    return {**job, "metadata": {key: value for key, value in job["metadata"].items() if key != "namespace"}}
