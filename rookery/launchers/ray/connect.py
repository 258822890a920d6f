"""What the driver's process does first: get onto the cluster, or say in one line why not."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from rookery.errors import InputError
from rookery.launchers.ray.settings import RaySettings
from rookery.launchers.ray.words import Ready, Refused, send
from rookery.processes import session_of
from rookery.worker.process import end_with_parent

CLIENT = "ray://"  # of a machine that is no node of the cluster
ANSWERS_S = 5.0
PLENTY = (
    4096  # CPUs of a cluster on this machine: how many run at a time is the controller's to say
)
MOST_STORE_BYTES = 1 << 30
TRIES = 5
FIRST_FREE, MOST_OPEN = 3, 1024  # descriptors, behind the standard ones
SWEEPS, SWEEP_S = 50, 0.1  # who was just being started may come up late
NOT_TAKEN_IN = re.compile("Starting Ray client server failed|in start_specific_server")


def main(descriptor: int) -> int:
    """The driver's whole life; `descriptor` is its line to the owner."""
    settings = RaySettings.model_validate_json(os.environ["ROOKERY_RAY"])
    if not settings.address:
        leave_nobody()
    end_with_parent()
    line = socket.socket(fileno=descriptor)
    try:
        ready = _connected(settings)
    except InputError as error:
        send(line, Refused(str(error)))
        return 2
    from rookery.launchers.ray.driver import Driver

    is_client = settings.address.startswith(CLIENT)
    driver = Driver(settings.namespace, settings.of_workers, is_client)
    send(line, ready)
    driver.serve(line)
    return 0


def leave_nobody() -> None:
    """Whatever ends this process, all that it started ends with it.

    Ray ends its servers so; but its agents, and workers that were only starting, look for a cluster
    that is gone for a minute or for ever. A child waits for the end of this process, and ends what
    is left of its session. Before there are threads: it is forked.
    """
    leader, (end, _) = os.getpid(), os.pipe()
    if os.fork():
        os.close(end)  # the other stays open as long as this process lives, and no child has it
        return
    os.dup2(end, FIRST_FREE)
    os.closerange(FIRST_FREE + 1, MOST_OPEN)
    os.read(FIRST_FREE, 1)
    for _ in range(SWEEPS):
        left = [pid for pid in session_of(leader) if pid != os.getpid()]
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(SWEEP_S)
    os._exit(0)


def _connected(settings: RaySettings) -> Ready:
    ours = _check_answers(settings.address.removeprefix(CLIENT))
    import ray
    from ray.exceptions import RayError

    check(settings.runtime_env)
    options: dict[str, Any] = {
        "namespace": settings.namespace,
        "log_to_driver": False,
        "logging_level": "warning",
        "configure_logging": False,
    }
    options |= {"runtime_env": settings.uploaded} if settings.uploaded else {}
    options |= {"address": settings.address} if settings.address else _own_cluster(settings)
    if settings.address.startswith(CLIENT):
        _wait_for_no_log_stream()
    elif ours is not None:
        options["_node_ip_address"] = ours  # or any raylet whose files lie on this disk would do
    try:
        found = taken_in(lambda: ray.init(**options))
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
        raise InputError(why_not(settings, error)) from error
    cpus = float(ray.cluster_resources().get("CPU", 0.0))
    if not settings.address:
        cpus = float(os.cpu_count() or 1)
    known = getattr(found, "address_info", {})  # of a client there is none
    return Ready(known.get("gcs_address", settings.address), cpus, ray.__version__)


def check(runtime_env: dict[str, Any]) -> None:
    """What Ray takes, it knows best; it would say so of each worker again."""
    from ray.runtime_env import RuntimeEnv

    try:
        RuntimeEnv(**runtime_env)
    except (TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:300]
        raise InputError(f"ray.runtime_env in rookery.yaml cannot be used: {why}") from error


def taken_in(join: Callable[[], Any]) -> Any:
    """A cluster starts a process for each client, which now and then dies of being forked out of a
    process with threads (ray-project/ray#63202): then the next try is likely to do."""
    for _ in range(TRIES - 1):
        try:
            return join()
        except ConnectionAbortedError as error:
            if NOT_TAKEN_IN.search(str(error)) is None:
                raise
    return join()


def _wait_for_no_log_stream() -> None:
    """Ray waits for the end of a client's log stream, and that of a client that was not taken in
    lasts for most of a minute. It ends with its channel all the same."""
    from ray.util.client.logsclient import LogstreamClient

    LogstreamClient.close = lambda client: client.request_queue.put(None)


def _own_cluster(settings: RaySettings) -> dict[str, Any]:
    """Of this machine and on loopback alone; it ends with this process."""
    return {
        "address": "local",
        "num_cpus": PLENTY,
        "object_store_memory": MOST_STORE_BYTES,
        "include_dashboard": settings.dashboard,
        "dashboard_host": "127.0.0.1",
        "_temp_dir": os.environ["ROOKERY_RAY_DIRECTORY"],
    }


def _check_answers(address: str) -> str | None:
    """Ray itself would try for minutes. By which address the cluster knows this machine."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not host:
        return None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWERS_S) as line:
            return str(line.getsockname()[0])
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"no Ray cluster answers at {address}: {reason}; start one with `ray start --head`, or "
            "leave --ray-address out for one on this machine"
        ) from None


def why_not(settings: RaySettings, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        versions = re.findall(r"(Ray|Python): ?([\w.]+)", text)
        shown = ", ".join(f"{name} {number}" for name, number in versions)
        return (
            f"the cluster {settings.place} and this machine have different versions ({shown}): "
            "install the same Ray and Python on both"
        )
    if NOT_TAKEN_IN.search(text) is not None:
        return (
            f"the cluster {settings.place} could not start a process for this client, in {TRIES} "
            "tries: try again, or start its head with GRPC_ENABLE_FORK_SUPPORT=0"
        )
    if "local Raylet" in text or "node_ip_address" in text or "no raylet" in text.lower():
        return (
            f"this machine is no node of the cluster {settings.address}: make it one with "
            f"`ray start --address={settings.address}`, use ray://HOST:10001, or ray job submit"
        )
    if "oken" in text and "uth" in text:
        return (
            f"the cluster {settings.place} wants another token: name the file of its own in "
            "RAY_AUTH_TOKEN_PATH, with RAY_AUTH_MODE=token"
        )
    if settings.address == "auto" and "find" in text:
        return (
            "--ray-address auto: no Ray cluster runs on this machine; start one with "
            "`ray start --head`, or leave --ray-address out"
        )
    return f"cannot use the Ray cluster {settings.place}: {text[:300]}"
