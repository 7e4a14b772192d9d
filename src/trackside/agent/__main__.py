"""Runs the agent: python -m trackside.agent --data-dir DIR."""

import os
import sys

from trackside.agent.main import main

code = main()
sys.stdout.flush()
sys.stderr.flush()
# Not sys.exit: threads that wait for the server or for an upload must not hold the agent back.
os._exit(code)
