"""The HTTP/1.1 server of probes, metrics, the scheduler extender and reports of progress.

It may import `util` only. Whatever a client sends is bounded in bytes, number and time before it is parsed, because
every pod of the cluster may be able to connect. Start with `server.HttpServer`; `connection` implements one connection,
`requestreader` reads its requests, `turns` decides which is answered next, `handshakes` which connection may begin, and
`app` has what an application sees.
"""
