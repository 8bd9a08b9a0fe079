"""Runs your own pods as a gang with kubectl alone: a minimal owner of a Gang. Python 3.9 or later.

    python manifests/samples/gang_of_pods.py my-gang 4 --cpu 500m --image busybox -- sleep 60

It creates a Gang, waits until the gang scheduler has found capacity for all pods, creates all of them, and starts again
if an attempt fails. It ends after the pods, with 0 if all of them succeeded. Ctrl-C leaves the Gang and its pods;
`kubectl delete gang my-gang` deletes both, since the Gang owns the pods.
"""

import argparse
import json
import subprocess
import sys
import time

GROUP = "scheduling.kubeflow.org"


def kubectl(*arguments, body=None):
    given = body and json.dumps(body)
    return subprocess.run(["kubectl", *arguments], input=given, stdout=subprocess.PIPE, text=True, check=True).stdout


def write_gang(name, count, requests):
    spec = {"members": [{"name": "worker", "count": count, "resources": requests}]}
    gang = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Gang", "metadata": {"name": name}, "spec": spec}
    kubectl("apply", "-f", "-", body=gang)


def create_pods(gang, image, command, requests):
    """Creates all placed members for the current attempt. `apply` does not change pods that exist already."""
    name, attempt = gang["metadata"]["name"], gang["status"]["attempt"]
    owner = {"apiVersion": gang["apiVersion"], "kind": "Gang", "name": name, "uid": gang["metadata"]["uid"]}
    container = {"name": "main", "image": image, "command": command, "resources": {"requests": requests}}
    pods = []
    for member in (member for place in gang["status"]["placement"] for member in place["members"]):
        labels = {f"{GROUP}/gang": name, f"{GROUP}/member": member, f"{GROUP}/attempt": str(attempt)}
        meta = {"name": f"{name}-{member}-{attempt}", "labels": labels, "ownerReferences": [owner]}
        spec = {"schedulerName": "gang-scheduler", "restartPolicy": "Never", "containers": [container]}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    kubectl("apply", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": pods})


def follow(options, requests):
    """Acts on the phases of the Gang until its pods have ended; returns whether they succeeded."""
    done, reported = None, ""
    while True:
        gang = json.loads(kubectl("get", "gang", options.name, "-o", "json"))
        status = gang.get("status", {})
        phase, attempt, asked = status.get("phase", ""), status.get("attempt", 0), status.get("preemption", {}).get("state")
        if reported != (reported := f"{phase or 'not seen yet'}: {status.get('message', '')}"):
            print(reported, flush=True)
        if (asked == "Requested" or phase in ("Admitted", "Waiting", "Unschedulable")) and done != (phase, attempt):
            present = attempt if phase == "Admitted" else "none"
            if attempt > (present == 1):  # deletes the pods of earlier attempts
                kubectl("delete", "pods", "-l", f"{GROUP}/gang={options.name},{GROUP}/attempt!={present}")
            if phase == "Admitted":
                create_pods(gang, options.image, options.command, requests)
            done = phase, attempt
        elif phase == "Released":
            pods = json.loads(kubectl("get", "pods", "-l", f"{GROUP}/gang={options.name}", "-o", "json"))["items"]
            return all(pod["status"]["phase"] == "Succeeded" for pod in pods)
        time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("count", type=int)
    parser.add_argument("--cpu", default="100m")
    parser.add_argument("--image", default="busybox")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    write_gang(options.name, options.count, {"cpu": options.cpu})
    sys.exit(0 if follow(options, {"cpu": options.cpu}) else 1)


if __name__ == "__main__":
    main()
