"""REST: routes, their documents and errors, files and metrics. Called by the ASGI app alone."""
