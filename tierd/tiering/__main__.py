"""`python -m tierd.tiering --fd N`: started by the broker's process, never by hand."""

import argparse

from tierd.base.logs import to_stderr
from tierd.tiering.archive.process import ArchiveProcess
from tierd.tiering.process import Process, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tierd.tiering", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="our end of the socket pair")
    parser.add_argument("--archive", action="store_true", help="the bucket is only read")
    parser.add_argument("--log-level", default="info")
    arguments = parser.parse_args()
    to_stderr(arguments.log_level)
    main(arguments.fd, ArchiveProcess if arguments.archive else Process)
