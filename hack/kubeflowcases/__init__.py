"""What Kubeflow Trainer's own tests promise, as a table of cases that run against this project's controller.

Each module has the cases of one topic; `table` has them all. A case is a value (`model`): the objects, and what must be
found afterwards. Tests run them, and docs/kubeflow-trainer-cases.md is generated from them.

`trainingoperator` is another table: which test of this project shows which case of training-operator's tests.
"""
