"""Workers and servers in the foreground, and what launchers and servers start."""

from __future__ import annotations

import argparse

from rookery.cli.exits import leave


def standby(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli import workers

    return leave(workers.wait_for_work(arguments.threads))


def prepare(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control import check
    from rookery.worker.process import end_with_parent

    return leave(check.serve_one(end_with_parent))


def ray_driver(arguments: argparse.Namespace, began: float) -> int:
    from rookery.launchers.ray import connect

    return leave(connect.main(arguments.line))


def viewer(arguments: argparse.Namespace, began: float) -> int:
    from rookery.viewing import viewer

    return leave(viewer.main())


def worker(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli import workers

    name, run = arguments.name, arguments.run
    if arguments.incarnation is None:
        return leave(workers.join(name, run, arguments.json))
    return leave(workers.main(name, run, arguments.index, arguments.incarnation))


def job(arguments: argparse.Namespace, began: float) -> int:
    from rookery.evaluation import job as jobs

    return leave(jobs.main(arguments.run, arguments.command))


def serve(arguments: argparse.Namespace, began: float) -> int:
    from rookery.server import serve as server

    return server.main(arguments)


def mcp(arguments: argparse.Namespace, began: float) -> int:
    from rookery.server import serve as server

    return server.mcp_main(arguments)
