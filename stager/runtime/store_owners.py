"""Which I/O node has which store.

May know: the model's errors. One rule: a store is of one node. Another node that shows the same one has a copy of its directory, or its
directory itself, and is refused until the first is given up: the same bytes would count as two copies.
"""

from __future__ import annotations

from collections.abc import Mapping

from stager.model.errors import Refused

TAKEN_CODE = "store_taken"


class StoreOwners:
    """On the event loop's thread. A node is unknown here until it has told its store; one of before has none to tell."""

    def __init__(self, stores: Mapping[str, str]) -> None:
        """`stores`: of each node, as it told last."""
        self.stores = {node: store_id for node, store_id in stores.items() if store_id}

    def claim(self, node: str, store_id: str) -> None:
        """The node has this store from now on. Raises Refused where another has it."""
        if not store_id:
            return
        owner = next((other for other, known in self.stores.items() if known == store_id and other != node), None)
        if owner is not None:
            text = f"the node {node} has the store of the node {owner} ({store_id}), or a copy of its directory"
            hint = f"give it a directory of its own, or, if {owner} is no more, say `stager node forget {owner}`"
            raise Refused(f"{text}; {hint}", code=TAKEN_CODE, subject=node)
        self.stores[node] = store_id

    def give_up(self, node: str) -> None:
        self.stores.pop(node, None)
