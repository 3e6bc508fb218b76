"""The node: one process that gets its run, stays in contact with the swarm, answers calls and runs the run's jobs.

Start with node.py, the lifecycle. joining.py founds, resumes or joins a run (contact_report.py says why that failed).
router.py answers calls of peers and hands them to the jobs; control.py answers commands of the user on this machine.
peer_states.py is what is known of peers, health.py checks that work goes on, lan.py shows the run in the local network.
place.py, load.py, process.py and event_loop.py are what starts a node: its directory, its options and what runs with it
in the same process, for the command line and for `p2pnode.join` alike.
"""
