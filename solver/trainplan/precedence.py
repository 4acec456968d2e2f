"""Which tasks come one after the other and which may run side by side: chains and antichains of their graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx


def first_antichains(predecessors: list[tuple[int, ...]], most: int) -> tuple[tuple[int, ...], ...] | None:
    """As ``antichains``; None where there are ``most`` or more."""
    if len(predecessors) == 1:
        return ((0,),)
    from itertools import islice

    import networkx

    found = list(islice(networkx.enumerate_all_cliques(_unordered(predecessors)), most))
    if len(found) >= most:
        return None
    return tuple(sorted((tuple(sorted(clique)) for clique in found), key=lambda c: (len(c), c)))


def fewest_chains(predecessors: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """A partition of a directed acyclic graph into as few chains as there are (Dilworth's theorem).

    Args:
        predecessors: direct predecessors of each node.
    """
    count = len(predecessors)
    if count == 1:
        return ((0,),)
    import networkx

    ordered: networkx.DiGraph[int] = networkx.DiGraph()
    ordered.add_nodes_from(range(count))
    ordered.add_edges_from((p, node) for node, before in enumerate(predecessors) for p in before)
    pairs: networkx.Graph[tuple[str, int]] = networkx.Graph()
    pairs.add_nodes_from(("before", node) for node in range(count))
    pairs.add_edges_from(
        (("before", a), ("after", b)) for a, b in networkx.transitive_closure_dag(ordered).edges
    )
    matched = networkx.bipartite.maximum_matching(pairs, [("before", node) for node in range(count)])
    follows = {a[1]: b[1] for a, b in matched.items() if a[0] == "before"}
    firsts = sorted(set(range(count)) - set(follows.values()))
    found = []
    for first in firsts:
        chain = [first]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        found.append(tuple(chain))
    return tuple(found)


def antichains(predecessors: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """All sets of pairwise unordered nodes of a directed acyclic graph, smallest first.

    Args:
        predecessors: direct predecessors of each node.
    """
    if len(predecessors) == 1:
        return ((0,),)
    import networkx

    cliques = networkx.enumerate_all_cliques(_unordered(predecessors))
    return tuple(sorted((tuple(sorted(clique)) for clique in cliques), key=lambda c: (len(c), c)))


def maximal_antichains(predecessors: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Maximal sets of pairwise unordered nodes of a directed acyclic graph.

    Args:
        predecessors: direct predecessors of each node.
    """
    if len(predecessors) == 1:
        return ((0,),)
    import networkx

    cliques = networkx.find_cliques(_unordered(predecessors))
    return tuple(sorted(tuple(sorted(clique)) for clique in cliques))


def _unordered(predecessors: list[tuple[int, ...]]) -> networkx.Graph[int]:
    """Which nodes are before or after none of the others they are joined with."""
    import networkx

    ordered: networkx.DiGraph[int] = networkx.DiGraph()
    ordered.add_nodes_from(range(len(predecessors)))
    ordered.add_edges_from((p, node) for node, before in enumerate(predecessors) for p in before)
    return networkx.complement(networkx.transitive_closure_dag(ordered).to_undirected())
