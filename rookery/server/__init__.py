"""The control plane's doors: REST, WebSocket and MCP, all thin translations of one `Plane`."""
