"""A training that takes a moment, for images that cannot be had: all replicas meet by what the operator tells them.

They add up their ranks: the first one listens at its address, and the others connect to it. It runs as `python3 -c`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

PATIENCE_SECONDS = 240
AGENT, HOSTFILE = "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"


def place():
    """Returns host and port of the first replica, the own rank, and how many replicas there are."""
    env = os.environ
    if "TF_CONFIG" in env:
        config = json.loads(env["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        replicas = [
            (type_, index, address) for type_ in sorted(cluster) for index, address in enumerate(cluster[type_])
        ]
        rank = [(type_, index) for type_, index, _ in replicas].index((task["type"], task["index"]))
        host, _, port = replicas[0][2].rpartition(":")
        return host, int(port), rank, len(replicas)
    if "COORDINATOR_ADDRESS" in env:
        size = int(env["NUM_PROCESSES"])
        return env["COORDINATOR_ADDRESS"], int(env["COORDINATOR_PORT"]), int(env["PROCESS_ID"]), size
    if "PADDLE_MASTER" in env:
        host, _, port = env["PADDLE_MASTER"].rpartition(":")
        rank = 0 if "POD_IP_DUMMY" in env else 1
        return host, int(port), rank, int(env["PADDLE_NNODES"])
    if "MASTER_ADDR" in env:
        return env["MASTER_ADDR"], int(env["MASTER_PORT"]), int(env["RANK"]), int(env["WORLD_SIZE"])
    return "localhost", 0, 0, 1


def lead(port, size):
    """Returns the sum of the ranks of all others, and tells it to them."""
    with socket.create_server(("", port)) as server:
        server.settimeout(PATIENCE_SECONDS)
        others = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(other.makefile().readline()) for other in others)
        for other in others:
            other.sendall(f"{total}\n".encode())
            other.close()
    return total


def follow(host, port, rank):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with socket.create_connection((host, port), 5) as first:
                first.settimeout(PATIENCE_SECONDS)
                first.sendall(f"{rank}\n".encode())
                if line := first.makefile().readline():
                    return int(line)
        except OSError as error:
            # Its name resolves once its pod is ready.
            if time.monotonic() > deadline:
                raise
            print(f"waiting for {host}:{port}: {error}")
        time.sleep(0.5)


def launch():
    """What mpirun does: runs a command in each worker by the agent that the operator names."""
    agent = os.environ[AGENT]
    with open(os.environ[HOSTFILE]) as hostfile:
        hosts = [line.split()[0] for line in hostfile]
    deadline = time.monotonic() + PATIENCE_SECONDS
    for host in hosts:
        while (done := subprocess.run([agent, host, "hostname"], capture_output=True, text=True)).returncode:
            if time.monotonic() > deadline:
                sys.exit(done.stderr)
            print(f"waiting for {host}: {done.stderr}")
            time.sleep(1)
        print(f"{done.stdout.strip()} is a worker")
        assert done.stdout.strip() == host, done.stdout
    print(f"{len(hosts)} workers were reached")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if AGENT in os.environ:
        launch()
        return
    if os.path.exists("/etc/mpi"):
        # The worker of an MPIJob waits for commands.
        signal.pause()
    host, port, rank, size = place()
    total = lead(port, size) if rank == 0 else follow(host, port, rank)
    print(f"rank {rank} of {size}: the sum is {total}")


main()
