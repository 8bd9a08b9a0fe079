"""The HTTP/1.1 server of probes, metrics and the scheduler extender.

It may import `util` only. Whatever a client sends is bounded in bytes, number and time before it is parsed, because
every pod of the cluster may be able to connect. Start with `server.HttpServer`; `connection` implements one connection,
`requestreader` reads its requests, and `app` has what an application sees.
"""
