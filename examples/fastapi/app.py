"""A FastAPI program whose customers are an HTTP API, and tools for models as well."""

import uvicorn
from fastapi import FastAPI, HTTPException

from interlock import Server, ToolError

STOCK = {"tea": 12, "milk": 0}
server = Server("shop", version="1.0.0")


@server.tool(read_only=True)
def stock(item: str) -> int:
    """Return how many of an item are left."""
    if item not in STOCK:
        raise ToolError(f"no item {item!r}; the items are {', '.join(STOCK)}")
    return STOCK[item]


tools = server.asgi()
app = FastAPI(lifespan=tools.lifespan)
app.mount("/tools", tools)


@app.get("/stock/{item}")
def get_stock(item: str) -> int:
    """Answer the same question over HTTP."""
    if item not in STOCK:
        raise HTTPException(404)
    return STOCK[item]


if __name__ == "__main__":
    print("tools at http://127.0.0.1:8000/tools/mcp", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=8000, log_level="warning")
