"""The progress server: programs of TrainJobs report their progress to it, in Kubeflow Trainer's protocol (KEP-2779)."""
