"""The control plane over HTTP and standard input: `rookery serve` and `rookery mcp`.

One `ControlPlane` over a follower of everything that happens; REST, the stream, MCP and Prometheus
are thin translations of it. `http/` answers requests, `stream/` pushes, `feed/` reads the logs,
`mcp/` serves assistants, `security/` decides who gets in, `page/` holds the built dashboard.
"""
