"""What people look at: terminal, page, notebook, figures, recordings. Nothing here changes a node, except by its token.

A node shows itself as a `NodeStatus` (wire.status). `graph` turns it into a `PeerGraph`, the picture that everything
here draws. Start with `graph`, then `view` (a swarm from Python) and `dashboard.server` (the page). `show` chooses how
a node is shown while it runs, `questions` asks the user; `swarm` gives views of running and recorded swarms, `history`
keeps pictures over time, `tensorboard` writes them. `glossary` defines every figure. For drawings, `layout` says where
peers lie, `aggregate` groups large swarms, `similarity` compares, `text` cleans what peers wrote, and `rows`, `queues`
and `laptops` make tables.
"""
