"""A training program for real nodes that starts at once, because it does not need TensorFlow.

The master counts starts and completions of workers, which report them over HTTP at its address in TF_CONFIG, and exits
with 0 when all workers are done. A worker that starts for the first time has the fault that TROUBLE names.
"""

from __future__ import annotations

from typing import Any

from helpers.manifests import container, pod_template

IMAGE = "localhost/base"

ERRAND = """
import collections, http.server, json, os, sys, time, urllib.request

config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
me = "%s-%d" % (task["type"], task["index"])
starts, done = collections.Counter(), set()


class Desk(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        verb, who = self.path[1:].split("/")
        starts[who] += verb == "start"
        if verb == "done":
            done.add(who)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d" % starts[who])
        print(verb, who, starts[who], flush=True)

    def log_message(self, *words):
        pass


def tell(verb):
    while True:
        try:
            url = "http://%s/%s/%s" % (cluster["master"][0], verb, me)
            return int(urllib.request.urlopen(url, b"", timeout=5).read())
        except OSError:  # not there yet
            time.sleep(0.1)


if task["type"] == "master":
    server = http.server.HTTPServer(("", 2222), Desk)
    while len(done) < len(cluster["worker"]):
        server.handle_request()
    sys.exit(0)

if tell("start") == 1:
    print("in trouble", flush=True)
    if os.environ["TROUBLE"] == "memory":
        hoard = [bytearray(1 << 20) for _ in range(4096)]
    time.sleep(1000)
tell("done")
"""


def template(program: str, *, env: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """Returns a pod that runs a Python program; `fields` of a container are set there, others in the pod."""
    in_container = {name: fields.pop(name) for name in ("resources", "volumeMounts") if name in fields}
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    variables.append({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    main = container(
        image=IMAGE,
        imagePullPolicy="IfNotPresent",
        command=["python3", "-c", program],
        env=variables,
        **in_container,
    )
    return pod_template(main, **{"terminationGracePeriodSeconds": 1, **fields})


def preferring(node: str) -> dict[str, Any]:
    """Returns an affinity that prefers this node."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
