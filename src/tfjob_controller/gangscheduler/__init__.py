"""The gang scheduler (`tfjob-controller extender`): admits gangs as a whole and binds their pods with kube-scheduler.

Its parts are layered: `extender` (kube-scheduler's HTTP protocol) and `admission` on top, then `permit`, `binding`,
`status` and `state`. It may import scheduling, httpserver, api, kube and util. programs/gangscheduler.py starts it.
Start reading with admission/loop.py.
"""
