"""The table of errands: what does which kind, and what undoes it."""

from trackside.agent import chaos, chaos_enter
from trackside.agent.chaos_network import Network
from trackside.agent.errands import Handler
from trackside.agent.stacks import stacks
from trackside.domain.exchange import ErrandKind


def handlers() -> dict[str, Handler]:
    """Return a handler for every kind."""
    brakes, network = chaos.Brakes(), Network()
    return {
        ErrandKind.STACKS: Handler(do=stacks, seconds_max=30.0),
        ErrandKind.KILL: Handler(do=chaos.kill),
        ErrandKind.FREEZE: Handler(do=brakes.freeze, undo=brakes.thaw, lasts=True),
        ErrandKind.EXHAUST_MEMORY: Handler(do=chaos_enter.exhaust_memory, seconds_max=30.0),
        ErrandKind.FILL_SHM: Handler(do=chaos_enter.fill_shm, undo=chaos_enter.empty_shm, lasts=True),
        ErrandKind.SLOW_DOWN: Handler(do=brakes.slow, undo=brakes.hasten, lasts=True),
        ErrandKind.CUT_OFF: Handler(do=network.cut, undo=network.join, lasts=True),
    }
