"""Stands in for a program under test that is a function of a test's process: asks it over a socket, and ends as it says.

``python -IS relay.py PORT ARGUMENT``; what the environment says of the case is sent along. Starting it costs next to nothing.
"""

import json
import os
import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as asked:
    case = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    asked.sendall(json.dumps([sys.argv[2], case]).encode() + b"\n")
    sys.exit(asked.makefile().read() or None)
