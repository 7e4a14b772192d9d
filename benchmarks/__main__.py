"""Runs the benchmarks named on the command line, or all of them, and prints one table each.

The machines are shared and noisy: absolute times mean little, the ratios of one run are what counts.
"""

import sys

from benchmarks import agent_cost, collect, endpoints, metricstore, restart, runners, scheduling, statistics

ALL = {
    "endpoints": endpoints.run,
    "runners": runners.run,
    "restart": restart.run,
    "agent": agent_cost.run,
    "collect": collect.run,
    "metricstore": metricstore.run,
    "scheduling": scheduling.run,
    "statistics": statistics.run,
}
PARTS = {
    "metricstore-small": metricstore.small,
    "metricstore-large": metricstore.large,
}  # of the others; run only when asked for


def main() -> None:
    """Run what was asked for."""
    wanted = sys.argv[1:] or list(ALL)
    known = ALL | PARTS
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"no benchmark is called {unknown[0]!r}; there are {', '.join(known)}")
    for name in wanted:
        print(f"\n== {name}")
        known[name]()


if __name__ == "__main__":
    main()
