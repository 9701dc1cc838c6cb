"""`python -m tierd.worker --fd N`: started by the broker's process, never by hand."""

import argparse

from tierd.base.logs import to_stderr
from tierd.worker.process import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tierd.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="our end of the socket pair")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--nice", type=int, default=0, help="how far behind other processes it stands")
    arguments = parser.parse_args()
    to_stderr(arguments.log_level)
    main(arguments.fd, arguments.nice)
