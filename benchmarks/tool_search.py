"""How often the search for tools finds the right one, and what it costs, beside FastMCP's.

    python benchmarks/tool_search.py CORPUS QUERIES

CORPUS has a definition in each line, as JSON: `server`, `name`, and `title`, `description`,
`inputSchema` and `annotations` as servers list them. QUERIES has a request in each line: `query`,
as a person words it; `model_queries`, what a model would search for; and `accept`, a list of
acceptable "server:name" for each step of the request. A request counts as answered if each step
has an acceptable tool among the first 1, 5 or 10 results.

Tokens are bytes divided by 4. Processor times count on a busy machine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool as PeerTool

from interlock import Client, Server
from interlock.config.gateway import ViewSearch
from interlock.gateway import Gateway
from interlock.policy import Policy
from interlock.toolbox.tool_index import IndexedTool, ToolIndex

Search = Callable[[str, int], Awaitable[list[str]]]
LIMITS = (1, 5, 10)
SIZES = (1_000, 20_000)
VERBS = ("get", "list", "create", "update", "delete", "search", "find", "send", "add", "remove")


def ours(corpus: Sequence[dict[str, Any]]) -> list[IndexedTool]:
    """Return the definitions as our index takes them."""
    return [
        IndexedTool(
            f"{each['server']}:{each['name']}",
            each["server"],
            each["name"],
            each.get("title") or (each.get("annotations") or {}).get("title") or "",
            each.get("description") or "",
            each.get("inputSchema") or {},
        )
        for each in corpus
    ]


def interlock_search(tools: Sequence[IndexedTool]) -> Search:
    index = ToolIndex()
    index.replace(tools)
    mask = frozenset(each.address for each in tools)

    async def search(query: str, limit: int) -> list[str]:
        return [each.address for each in index.search(query, limit, mask)]

    return search


def fastmcp_search(tools: Sequence[IndexedTool]) -> Search:
    """Return the search of FastMCP's transform; the names have the server's before them."""
    listed = {
        f"{each.server}_{each.name}": PeerTool(
            name=f"{each.server}_{each.name}",
            description=each.description,
            parameters=each.input_schema,
        )
        for each in tools
    }
    addresses = {f"{each.server}_{each.name}": each.address for each in tools}
    transform = BM25SearchTransform(max_results=max(LIMITS))

    async def search(query: str, limit: int) -> list[str]:
        found = await transform._search([*listed.values()], query)
        return [addresses[each.name] for each in found][:limit]

    return search


async def recall(search: Search, queries: Sequence[dict[str, Any]]) -> None:
    """Print the recall in percent, and the processor time of a search."""
    for kind in ("query", "model_queries"):
        hits: Counter[int] = Counter()
        seconds = []
        for each in queries:
            found = []
            for text in [each["query"]] if kind == "query" else each["model_queries"]:
                began = time.process_time()
                found.append(await search(text, max(LIMITS)))
                seconds.append(time.process_time() - began)
            for limit in LIMITS:
                first = {address for addresses in found for address in addresses[:limit]}
                hits[limit] += all(not first.isdisjoint(step) for step in each["accept"])
        shown = ", ".join(f"@{limit} {100 * hits[limit] / len(queries):.0f}" for limit in LIMITS)
        median = 1_000 * statistics.median(seconds)
        words = "a person's words" if kind == "query" else "a model's query "
        print(f"  {words}: {shown} %; {median:.2f} ms a search")


async def poison(tools: Sequence[IndexedTool], queries: Sequence[dict[str, Any]]) -> None:
    """Print how often tools that are stuffed with frequent words are among the first five."""
    words: Counter[str] = Counter()
    for each in tools:
        words.update(word for word in each.description.lower().split() if word.isalpha())
    common = [word for word, _ in words.most_common(600)]
    stuffed = [
        IndexedTool("evil:a", "evil", "helper", "", " ".join(common[:90]), {}),
        IndexedTool("evil:b", "evil", "helper_b", "", " ".join(common), {}),
        IndexedTool("evil:c", "evil", "_".join(VERBS), "", "Do everything.", {}),
        IndexedTool("evil:d", "evil", "best", " ".join(common[:30]), " ".join(common[:90] * 6), {}),
        IndexedTool("evil:e", "evil", "_".join(VERBS[::-1]), "", " ".join(common[:200]), {}),
    ]
    for name, make in (("interlock", interlock_search), ("FastMCP", fastmcp_search)):
        search, taken = make([*tools, *stuffed]), 0
        texts = [text for each in queries for text in (each["query"], *each["model_queries"])]
        for text in texts:
            taken += any(each.startswith("evil:") for each in await search(text, 5))
        print(f"  {name}: in {taken} of {len(texts)} searches")


def cost(tools: Sequence[IndexedTool], queries: Sequence[dict[str, Any]]) -> None:
    """Print the times and the memory of an index."""
    texts = [text for each in queries for text in (each["query"], *each["model_queries"])]
    for size in SIZES:
        many = [
            msgspec.structs.replace(each, address=f"{n}:{each.address}")
            for n, each in zip(range(size), cycle(tools), strict=False)
        ]
        mask = frozenset(each.address for each in many)
        index = ToolIndex()
        began = time.process_time()
        index.replace(many)
        built = time.process_time() - began
        seconds = []
        for text in texts:
            began = time.process_time()
            index.search(text, 10, mask)
            seconds.append(time.process_time() - began)
        tracemalloc.start()
        ToolIndex().replace(many[: SIZES[0]])
        kept = ToolIndex()
        before = tracemalloc.get_traced_memory()[0]
        kept.replace(many[: SIZES[0]])
        memory = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        found = sorted(1e3 * each for each in seconds)
        line = f"  {size:,} tools: index {built:.2f} s; search {statistics.median(found):.2f} ms, "
        line += f"p95 {found[int(0.95 * len(found))]:.2f} ms"
        print(line + (f"; {memory / 1e6:.1f} MB" if size == SIZES[0] else ""))


class Listed:
    """A tool with a definition of the corpus, which does nothing."""

    def __init__(self, definition: dict[str, Any]) -> None:
        members = ("name", "title", "description", "inputSchema", "annotations")
        self.definition = {key: value for key, value in definition.items() if key in members}

    async def call(self, *_: object) -> Any:
        raise NotImplementedError  # the tools are only searched, never called


async def tokens(corpus: Sequence[dict[str, Any]], queries: Sequence[dict[str, Any]]) -> None:
    """Print the tokens of the lists and of the answers of a gateway."""
    servers: dict[str, Server] = {}
    for each in corpus:
        servers.setdefault(each["server"], Server(each["server"])).add_tool(Listed(each))
    for is_on in (False, True):
        policy = Policy.compile(None, search=ViewSearch(is_on=is_on))
        async with Client.memory(Gateway(servers, policy=policy)) as client:
            listed = len(await client.request("tools/list"))
            print(f"  search {'on' if is_on else 'off'}: the list has {listed // 4:,} tokens")
            if not is_on:
                continue
            sizes = []
            for each in queries:
                for query in each["model_queries"]:
                    result = await client.call_tool("interlock__search_tools", {"query": query})
                    sizes.append(len(result.text.encode()) // 4)
            sizes.sort()
            ninety = sizes[int(0.9 * len(sizes))]
            print(f"  an answer has {statistics.median(sizes):,.0f} tokens, p90 {ninety:,}")


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the search for tools.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    options = parser.parse_args()
    corpus = [json.loads(line) for line in options.corpus.read_text().splitlines()]
    queries = [json.loads(line) for line in options.queries.read_text().splitlines()]
    tools = ours(corpus)
    print(f"{len(tools):,} tools, {len(queries)} requests")
    print("recall, interlock")
    await recall(interlock_search(tools), queries)
    print("recall, FastMCP's BM25SearchTransform")
    await recall(fastmcp_search(tools), queries)
    print("stuffed tools among the first five")
    await poison(tools, queries)
    print("cost")
    cost(tools, queries)
    print("tokens in a gateway")
    await tokens(corpus, queries)


if __name__ == "__main__":
    asyncio.run(main())
