"""A Ray cluster in a process of its own: python -m tools.ray.head CPUS DIRECTORY.

It says its address on standard output, and ends with its standard input.
"""

from __future__ import annotations

import sys

import ray

from tools.ray import OBJECT_STORE_BYTES


def main(cpus: int, directory: str) -> None:
    found = ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="warning",
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=directory,
    )
    print(found.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
