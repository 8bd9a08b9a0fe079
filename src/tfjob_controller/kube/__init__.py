"""Client machinery for controllers: transport, watches, caches, queues. Knows nothing of any kind of job."""
