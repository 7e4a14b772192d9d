"""Runs the benchmarks named on the command line, or all of them, and prints one table each.

The machines are shared and noisy: absolute times mean little, the ratios of one run are what counts.
"""

import sys

from benchmarks import agent_cost, collect, endpoints, metricstore, runners, scheduling, statistics

ALL = {
    "endpoints": endpoints.run,
    "runners": runners.run,
    "agent": agent_cost.run,
    "collect": collect.run,
    "metricstore": metricstore.run,
    "scheduling": scheduling.run,
    "statistics": statistics.run,
}


def main() -> None:
    """Run what was asked for."""
    wanted = sys.argv[1:] or list(ALL)
    unknown = [name for name in wanted if name not in ALL]
    if unknown:
        sys.exit(f"no benchmark is called {unknown[0]!r}; there are {', '.join(ALL)}")
    for name in wanted:
        print(f"\n== {name}")
        ALL[name]()


if __name__ == "__main__":
    main()
