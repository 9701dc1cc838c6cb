"""`python -m tierd.tiering --fd N`: started by the broker's process, never by hand."""

import argparse
import logging
import sys

from tierd.tiering.process import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tierd.tiering", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="our end of the socket pair")
    parser.add_argument("--log-level", default="INFO")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=arguments.log_level, stream=sys.stderr, format="%(asctime)s tierer %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    main(arguments.fd)
