"""The web page of a node, with metrics for Prometheus and a health check.

Start with `server`, which lists the routes. `feed` takes a picture every second, `details` answers what single tabs
need, `guard` decides which requests are served. `static/` is the bundle that `make page` builds from `page/`.
"""
