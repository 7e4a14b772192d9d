"""The table of errands: which handler does which kind."""

from trackside.agent.errands import Handler
from trackside.agent.stacks import stacks
from trackside.domain.exchange import ErrandKind

HANDLERS: dict[ErrandKind, Handler] = {
    ErrandKind.STACKS: Handler(do=stacks, seconds_max=30.0),
}
