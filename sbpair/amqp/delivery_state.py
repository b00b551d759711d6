"""What may be said of a delivery: an outcome (3.4), how far it came, or its part in a transaction (4.5)?"""

from .composite import Kind, read_nested, write_composite
from .outcomes import Accepted, Modified, Received, Rejected, Released
from .primitives import Described
from .transactions import Declared, TransactionalState

DeliveryState = (
    Accepted | Rejected | Released | Modified | Received | Declared | TransactionalState | Described
)


def _read_state(value: object) -> object:
    state = read_nested(value)
    if not isinstance(state, DeliveryState):
        raise ValueError("not a delivery state")
    return state


STATE = Kind("a delivery state", write_composite, _read_state)
